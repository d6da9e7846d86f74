// Pieces that several views share.
import { type Child, fill, h, prose } from "./dom";
import { message } from "./api";

export function head(title: string, lead: Child, actions: Child = null, eyebrow: Child = null): HTMLElement {
  return h("header", { class: "head" }, h("div", null, eyebrow ? h("div", { class: "eyebrow" }, eyebrow) : null, h("h1", null, title), lead ? h("p", { class: "muted" }, typeof lead === "string" ? prose(lead) : lead) : null), actions ? h("div", { class: "actions" }, actions) : null);
}
export const failure = (e: unknown): HTMLElement => h("p", { class: "note error", role: "alert" }, message(e));
export const working = (what: string): HTMLElement => h("p", { class: "working", role: "status" }, what);
export const stateMark = (state: string): HTMLElement => h("span", { class: `state ${state}` }, state);

// Shows that something is under way, then what came of it; an answer that is late for a newer question is dropped.
export function loader(into: Element): <T>(what: string, ask: () => Promise<T>, show: (value: T) => Child) => Promise<void> {
  let turn = 0;
  return async (what, ask, show) => {
    const mine = ++turn;
    fill(into, working(what));
    try {
      const value = await ask();
      if (mine === turn) fill(into, show(value));
    } catch (e) {
      if (mine === turn) fill(into, failure(e));
    }
  };
}

export interface Tab {
  name: string;
  open: (panel: HTMLElement) => (() => void) | void;  // returns what must end when another is opened
}
// Tabs by the usual keys: arrows, Home, End.
export function tabs(label: string, list: Tab[], first = 0): { node: HTMLElement; panel: HTMLElement; buttons: HTMLButtonElement[]; open: (i: number) => void; close: () => void } {
  const id = "t" + Math.random().toString(36).slice(2, 8);
  const panel = h("div", { class: "panel", role: "tabpanel", id: id + "p", tabindex: "0" });
  let leave: (() => void) | void;
  const open = (i: number): void => {
    leave?.();
    buttons.forEach((b, n) => {
      b.setAttribute("aria-selected", String(n === i));
      b.tabIndex = n === i ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", id + i);
    // A place of its own for each opening: an answer that comes after its tab was left is shown nowhere.
    const place = h("div");
    panel.replaceChildren(place);
    leave = list[i]!.open(place);
  };
  const buttons = list.map((t, i) => h("button", { role: "tab", type: "button", id: id + i, "aria-controls": id + "p", onclick: () => open(i) }, t.name));
  const bar = h("div", {
    class: "tabs", role: "tablist", "aria-label": label,
    onkeydown: (e: KeyboardEvent) => {
      const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
      const to = e.key === "ArrowRight" ? (at + 1) % buttons.length : e.key === "ArrowLeft" ? (at + buttons.length - 1) % buttons.length : e.key === "Home" ? 0 : e.key === "End" ? buttons.length - 1 : -1;
      if (at < 0 || to < 0) return;
      e.preventDefault();
      open(to);
      buttons[to]!.focus();
    },
  }, buttons);
  queueMicrotask(() => open(first));
  return { node: h("div", null, bar, panel), panel, buttons, open, close: () => leave?.() };
}

export function figures(list: [string, Child][]): HTMLElement {
  return h("dl", { class: "figures" }, list.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}
export function facts(list: [string, Child][]): HTMLElement {
  return h("dl", { class: "facts" }, list.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

// A place to drop one text file on, or to choose it by a button.
export function dropZone(what: string, button: string, take: (text: string, name: string) => void): HTMLElement {
  const input = h("input", { type: "file", accept: ".json,application/json", class: "hidden", tabindex: "-1", "aria-label": what, onchange: () => { const f = input.files?.[0]; input.value = ""; if (f) void read(f); } });
  const read = async (file: File): Promise<void> => {
    if (file.size > 8 << 20) return void (said.textContent = "That file is larger than 8 MiB: it is something else.");
    said.textContent = file.name;
    take(await file.text(), file.name);
  };
  const said = h("span", { class: "small", role: "status" });
  const zone = h("div", {
    class: "drop",
    ondragover: (e: DragEvent) => { e.preventDefault(); zone.classList.add("over"); },
    ondragleave: () => zone.classList.remove("over"),
    ondrop: (e: DragEvent) => { e.preventDefault(); zone.classList.remove("over"); const f = e.dataTransfer?.files[0]; if (f) void read(f); },
  }, h("span", null, what), h("button", { type: "button", onclick: () => input.click() }, button), input, said);
  return zone;
}

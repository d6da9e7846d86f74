import { get } from "../lib/api";
import { fill, h, type View } from "../lib/dom";
import { between, number, when } from "../lib/format";
import { failure, head, stateMark } from "../lib/parts";
import type { RunSummary } from "../lib/types";

export async function runsView(): Promise<View> {
  const picked = new Set<string>();
  const compare = h("button", { type: "button", disabled: true, onclick: () => { const [a, b] = [...picked]; location.hash = `#/compare/${a}/${b}`; } }, "Compare two");
  const body = h("div");
  const pick = (key: string, on: boolean): void => {
    if (on) picked.add(key);
    else picked.delete(key);
    compare.disabled = picked.size !== 2;
    compare.textContent = picked.size === 1 ? "Pick one more" : "Compare two";
  };
  const draw = (runs: RunSummary[]): void => {
    if (!runs.length) return fill(body, h("p", { class: "empty" }, "Nothing has run on this machine yet. Pick a ", h("a", { href: "#/" }, "recipe"), " and start it, or run ", h("code", null, "mindxtrain run recipe.yaml --out out/first"), " in a terminal: it shows up here as well."));
    fill(body, h("div", { class: "scroll" }, h("table", null,
      h("thead", null, h("tr", null, h("th", null, h("span", { class: "hidden" }, "Pick")), h("th", null, "run"), h("th", null, "state"), h("th", null, "stage"), h("th", { class: "n" }, "loss"), h("th", { class: "n" }, "tok/s"), h("th", { class: "n" }, "took"), h("th", { class: "n" }, "started"))),
      h("tbody", null, runs.map((r) => {
        const m = r.metrics, figure = (key: string): string => (typeof m[key] === "number" ? number(m[key] as number) : "–");
        return h("tr", null,
          h("td", null, h("input", { type: "checkbox", "aria-label": `Compare ${r.name}, ${r.key}`, ...(picked.has(r.key) ? { checked: true } : {}), onchange: (e: Event) => pick(r.key, (e.target as HTMLInputElement).checked) })),
          h("td", null, h("a", { href: `#/runs/${r.key}` }, r.name), " ", h("span", { class: "muted small" }, r.project)),
          h("td", null, stateMark(r.state)), h("td", { class: "muted" }, r.stage || "–"), h("td", { class: "n" }, figure("last_loss")), h("td", { class: "n" }, figure("tok_s")), h("td", { class: "n" }, between(r.started, r.ended)), h("td", { class: "n" }, when(r.started || r.created)));
      })))));
  };
  let shown = "", timer = 0;
  const refresh = async (): Promise<void> => {
    try {
      const runs = await get<RunSummary[]>("runs"), text = JSON.stringify(runs);
      if (text !== shown) draw(runs);
      shown = text;
    } catch (e) {
      fill(body, failure(e));
      shown = "";
    }
    timer = window.setTimeout(() => void refresh(), 3000);
  };
  await refresh();
  return { title: "Runs", node: h("div", null, head("Runs", "Everything this machine has trained, from this page and from the command line.", compare), body), leave: () => clearTimeout(timer) };
}

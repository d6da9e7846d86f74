import { get, post } from "../lib/api";
import { fill, h, type Child, type View } from "../lib/dom";
import { between, number, when } from "../lib/format";
import { failure, head, stateMark } from "../lib/parts";
import type { RunSummary } from "../lib/types";

type Group = "project" | "day" | "none";
interface Shown { text: string; state: string; tag: string; group: Group; archived: boolean; folded: string[] }

const kShown = "coach.runs";
const kStates = ["running", "queued", "finished", "failed", "cancelled", "stopped", "interrupted"];

// What a person chose to see outlives the view, in this tab.
function remembered(): Shown {
  const otherwise: Shown = { text: "", state: "", tag: "", group: "project", archived: false, folded: [] };
  try {
    return { ...otherwise, ...(JSON.parse(sessionStorage.getItem(kShown) ?? "{}") as Partial<Shown>) };
  } catch {
    return otherwise;
  }
}

export function matches(r: RunSummary, s: Pick<Shown, "text" | "state" | "tag" | "archived">): boolean {
  if (r.archived && !s.archived) return false;
  if (s.state && r.state !== s.state) return false;
  if (s.tag && !r.tags.includes(s.tag)) return false;
  const all = [r.name, r.project, r.folder, ...r.tags].join("\n").toLowerCase();
  return s.text.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

// Groups in the order of their newest run, which is the order of the list.
export function grouped(runs: RunSummary[], by: Group): [string, RunSummary[]][] {
  const groups = new Map<string, RunSummary[]>();
  for (const r of runs) {
    const key = by === "project" ? r.project || "without a project" : by === "day" ? new Date(r.created || r.started).toLocaleDateString(undefined, { dateStyle: "medium" }) : "";
    groups.set(key, [...(groups.get(key) ?? []), r]);
  }
  return [...groups];
}

export async function runsView(): Promise<View> {
  const picked = new Set<string>(), shown = remembered();
  let runs: RunSummary[] = [], editing = "";
  const compare = h("button", { type: "button", disabled: true, onclick: () => { const [a, b] = [...picked]; location.hash = `#/compare/${a}/${b}`; } }, "Compare two");
  const body = h("div"), said = h("div", { role: "status" });
  const pick = (key: string, on: boolean): void => {
    if (on) picked.add(key);
    else picked.delete(key);
    compare.disabled = picked.size !== 2;
    compare.textContent = picked.size === 1 ? "Pick one more" : "Compare two";
  };
  const keep = (change: Partial<Shown>): void => {
    Object.assign(shown, change);
    sessionStorage.setItem(kShown, JSON.stringify(shown));
    draw();
  };
  const change = async (path: string, what: unknown, told = ""): Promise<void> => {
    try {
      await post(path, what);
      fill(said, told ? h("p", { class: "note" }, told) : null);
    } catch (e) {
      fill(said, failure(e));
    }
    editing = "";
    await refresh();
  };

  // Name and tags of one run, in its row's place.
  const edit = (r: RunSummary): HTMLElement => {
    const name = h("input", { type: "text", value: r.name, maxlength: "200", "aria-label": "Name" });
    const tags = h("input", { type: "text", value: r.tags.join(", "), placeholder: "tags, separated by commas", "aria-label": "Tags" });
    const save = (): void => void change(`runs/${r.key}/note`, { name: name.value === r.name ? undefined : name.value, tags: tags.value.split(",").map((t) => t.trim()).filter(Boolean) });
    return h("form", { class: "inline", onsubmit: (e: Event) => { e.preventDefault(); save(); } }, name, tags,
      h("button", { type: "submit" }, "Save"),
      h("button", { type: "button", onclick: () => void change(`runs/${r.key}/note`, { archived: !r.archived }) }, r.archived ? "List again" : "Archive"),
      h("button", { type: "button", onclick: () => { if (confirm(`Take ${r.name} out of the list? Its files stay in ${r.folder}.`)) void change(`runs/${r.key}/delete`, {}, `${r.name} is no longer listed; its files stay in ${r.folder}.`); } }, "Delete"),
      h("button", { type: "button", onclick: () => { editing = ""; draw(); } }, "Cancel"));
  };
  const row = (r: RunSummary): HTMLElement => {
    const m = r.metrics, figure = (key: string): string => (typeof m[key] === "number" ? number(m[key] as number) : "–");
    const tags: Child = r.tags.map((t) => [" ", h("button", { type: "button", class: "tag", "aria-label": `Only runs tagged ${t}`, onclick: () => keep({ tag: shown.tag === t ? "" : t }) }, t)]);
    return h("tr", r.archived ? { class: "muted" } : null,
      h("td", null, h("input", { type: "checkbox", "aria-label": `Compare ${r.name}, ${r.key}`, ...(picked.has(r.key) ? { checked: true } : {}), onchange: (e: Event) => pick(r.key, (e.target as HTMLInputElement).checked) })),
      h("td", null, editing === r.key ? edit(r) : [h("a", { href: `#/runs/${r.key}` }, r.name), " ", h("span", { class: "muted small" }, r.project), tags, r.archived ? h("span", { class: "muted small" }, " archived") : null]),
      h("td", null, stateMark(r.state)), h("td", { class: "muted" }, r.stage || "–"), h("td", { class: "n" }, figure("last_loss")), h("td", { class: "n" }, figure("tok_s")), h("td", { class: "n" }, between(r.started, r.ended)), h("td", { class: "n" }, when(r.started || r.created)),
      h("td", null, h("button", { type: "button", class: "quiet", "aria-label": `Name, tag, archive or delete ${r.name}, ${r.key}`, onclick: () => { editing = r.key; draw(); } }, "…")));
  };
  const table = (list: RunSummary[]): HTMLElement => h("div", { class: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, h("th", null, h("span", { class: "hidden" }, "Pick")), h("th", null, "run"), h("th", null, "state"), h("th", null, "stage"), h("th", { class: "n" }, "loss"), h("th", { class: "n" }, "tok/s"), h("th", { class: "n" }, "took"), h("th", { class: "n" }, "started"), h("th", null, h("span", { class: "hidden" }, "Change")))),
    h("tbody", null, list.map(row))));
  const group = ([name, list]: [string, RunSummary[]]): HTMLElement => {
    if (shown.group === "none") return table(list);
    const open = !shown.folded.includes(name);
    return h("details", { ...(open ? { open: true } : {}), ontoggle: (e: Event) => {
      const now = (e.target as HTMLDetailsElement).open;
      if (now === !shown.folded.includes(name)) return;
      Object.assign(shown, { folded: now ? shown.folded.filter((n) => n !== name) : [...shown.folded, name] });
      sessionStorage.setItem(kShown, JSON.stringify(shown));
    } }, h("summary", null, name, " ", h("span", { class: "muted small" }, String(list.length))), table(list));
  };
  const choice = (label: string, value: string, options: [string, string][], chosen: (v: string) => void): HTMLElement =>
    h("label", null, h("span", { class: "hidden" }, label), h("select", { "aria-label": label, onchange: (e: Event) => chosen((e.target as HTMLSelectElement).value) }, options.map(([v, text]) => h("option", { value: v, ...(v === value ? { selected: true } : {}) }, text))));
  const draw = (): void => {
    if (!runs.length) return fill(body, h("p", { class: "empty" }, "Nothing has run on this machine yet. Pick a ", h("a", { href: "#/" }, "recipe"), " and start it, or run ", h("code", null, "mindxtrain run recipe.yaml --out out/first"), " in a terminal: it shows up here as well."));
    const list = runs.filter((r) => matches(r, shown)), hidden = runs.length - list.length;
    const tags = [...new Set(runs.flatMap((r) => r.tags))].sort();
    fill(body, h("div", { class: "filters", role: "search" },
      h("input", { type: "search", value: shown.text, placeholder: "name, project, folder, tag", "aria-label": "Find runs", oninput: (e: Event) => keep({ text: (e.target as HTMLInputElement).value }) }),
      choice("State", shown.state, [["", "any state"], ...kStates.map((s): [string, string] => [s, s])], (v) => keep({ state: v })),
      tags.length ? choice("Tag", shown.tag, [["", "any tag"], ...tags.map((t): [string, string] => [t, t])], (v) => keep({ tag: v })) : null,
      choice("Group by", shown.group, [["project", "by project"], ["day", "by day"], ["none", "one list"]], (v) => keep({ group: v as Group })),
      h("label", { class: "small" }, h("input", { type: "checkbox", ...(shown.archived ? { checked: true } : {}), onchange: (e: Event) => keep({ archived: (e.target as HTMLInputElement).checked }) }), " archived"),
      hidden ? h("span", { class: "muted small" }, `${hidden} not shown`) : null),
      list.length ? grouped(list, shown.group).map(group) : h("p", { class: "empty" }, "No run is as asked for."));
  };
  let text = "", timer = 0;
  const refresh = async (): Promise<void> => {
    clearTimeout(timer);
    try {
      runs = await get<RunSummary[]>("runs");
      const now = JSON.stringify(runs);
      if (now !== text && !editing) draw();
      if (!editing) text = now;
    } catch (e) {
      fill(body, failure(e));
      text = "";
    }
    timer = window.setTimeout(() => void refresh(), 3000);
  };
  await refresh();
  return { title: "Runs", node: h("div", null, head("Runs", "Everything this machine has trained, from this page and from the command line.", compare), said, body), leave: () => clearTimeout(timer) };
}

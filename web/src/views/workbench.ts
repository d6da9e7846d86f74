// A recipe: the editor, and beside it what is wrong, what it will take, what this machine lacks, and its data.
import { get, message, post } from "../lib/api";
import { fill, h, type View } from "../lib/dom";
import { failure, head, loader, tabs } from "../lib/parts";
import type { About, Check, Doctor, Issue, RecipeEntry, Run } from "../lib/types";
import { makeEditor } from "../editor/editor";
import type { Schema } from "../editor/schema";
import { rowsPanel } from "./data";
import { checksOf, factsOf } from "./machine";
import { planPanel } from "./plan";

let schema: Schema | null = null;

export async function workbenchView(from: { recipe?: string; run?: string }, about: About): Promise<View> {
  const stored = from.recipe ? `coach.draft.${from.recipe}` : `coach.draft.run.${from.run}`;
  schema ??= await get<Schema>("schema");
  let title: string, lead: string, original: string;
  if (from.recipe) {
    const r = await get<RecipeEntry & { text: string }>(`recipes/${from.recipe}`);
    [title, lead, original] = [r.name, r.head, r.text];
  } else {
    const run = await get<Run>(`runs/${from.run}`);
    if (run.recipe === null) throw new Error("The recipe of that run is no longer on this machine.");
    [title, lead, original] = [run.name, `The recipe of ${run.key}, for another run.`, run.recipe];
  }
  const draft = localStorage.getItem(stored);
  let check: Check | null = null, timer = 0, turn = 0;

  const problems = h("div"), status = h("span", { class: "small muted", role: "status" });
  const launch = h("button", { class: "primary", type: "button", disabled: true }, "Start run");
  const said = h("div");
  const revert = h("button", { type: "button", class: "quiet", onclick: () => { localStorage.removeItem(stored); location.reload(); } }, "Undo all changes");
  revert.hidden = draft === null || draft === original;

  const editor = makeEditor(draft ?? original, schema, (text) => {
    if (text === original) localStorage.removeItem(stored);
    else localStorage.setItem(stored, text);
    revert.hidden = text === original;
    clearTimeout(timer);
    timer = window.setTimeout(() => void validate(), 220);
  });

  const issue = (i: Issue): HTMLElement => h("li", null, h("button", { type: "button", onclick: () => editor.goTo(i.line, i.column) }, h("span", { class: "at" }, `${i.line}:${i.column}`), h("strong", null, i.key || "the file"), h("p", null, i.what), i.remedy ? h("p", { class: "muted" }, i.remedy) : null));
  const draw = (): void => {
    if (!check) return;
    const n = check.issues.length;
    fill(tab.buttons[0]!, "Check ", n ? h("span", { class: "count", "aria-label": `${n} problems` }, n) : null);
    status.textContent = n ? `${n} problem${n > 1 ? "s" : ""}` : "Valid";
    status.className = `small ${n ? "bad" : "good"}`;
    launch.disabled = n > 0 || !about.jobs;
    launch.title = about.jobs ? "" : "This server launches no runs: start it with --jobs FOLDER";
    if (n) return fill(problems, h("ul", { class: "issues" }, check.issues.map(issue)));
    const o = check.outline!;
    fill(problems, factsOf([["project", o.project], ["run", o.run_name], ["model", o.model], ["method", o.method], ["hardware", `${o.hardware}${o.gpus ? `, ${o.gpus} device${o.gpus > 1 ? "s" : ""}` : ""}`], ["a step", `${o.rows_per_step} rows of at most ${o.seq_len.toLocaleString("en-US")} tokens`], ["recipe hash", h("span", { class: "mono" }, (check.hash ?? "").slice(0, 16))]]),
      check.off?.length || check.hints?.length ? h("section", null, h("h2", null, "Good to know"), h("ul", { class: "checks" }, [...(check.off ?? []), ...(check.hints ?? [])].map((l) => h("li", { class: "note-mark" }, h("span", { class: "mark", "aria-hidden": "true" }, "·"), h("p", null, l))))) : null);
  };
  const validate = async (): Promise<void> => {
    const mine = ++turn;
    try {
      const answer = await post<Check>("check", { recipe: editor.text() });
      if (mine !== turn) return;
      check = answer;
      editor.show(answer.issues);
      draw();
    } catch (e) {
      if (mine === turn) fill(problems, failure(e));
    }
  };
  const whenValid = (panel: HTMLElement, open: () => (() => void) | void): (() => void) | void => {
    if (check && !check.valid) return fill(panel, h("p", { class: "empty" }, "The recipe has problems: see Check. This is worked out from a valid one."));
    return open();
  };

  const tab = tabs("About the recipe", [
    { name: "Check", open: (p) => { p.append(problems); draw(); } },
    { name: "Plan", open: (p) => whenValid(p, () => planPanel(p, () => editor.text(), () => check?.outline?.hardware ?? "cpu")) },
    { name: "Preflight", open: (p) => whenValid(p, () => void loader(p)("Looking at this machine…", () => post<Doctor>("preflight", { recipe: editor.text() }), (d) => checksOf(d.findings))) },
    { name: "Data", open: (p) => whenValid(p, () => rowsPanel(p, (row) => post("preview", { recipe: editor.text(), row }))) },
  ]);

  launch.addEventListener("click", async () => {
    launch.disabled = true;
    fill(said, h("p", { class: "working", role: "status" }, "Starting…"));
    try {
      const job = await post<{ id: string }>("jobs", { recipe: editor.text() });
      location.hash = `#/runs/${job.id}`;
    } catch (e) {
      fill(said, h("p", { class: "note error", role: "alert" }, message(e)));
      launch.disabled = false;
    }
  });

  const node = h("div", null,
    head(title, lead, [status, revert, launch], h("a", { href: "#/" }, "Recipes")), said,
    h("div", { class: "bench" }, editor.node, tab.node));
  void validate();
  return { title, node, leave: () => { clearTimeout(timer); ++turn; tab.close(); editor.close(); } };
}

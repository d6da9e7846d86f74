import { events, get } from "../lib/api";
import { makeChart, smooth } from "../lib/charts";
import { h, type View } from "../lib/dom";
import { number, when } from "../lib/format";
import { head, stateMark } from "../lib/parts";
import type { Comparison, RunSummary, Step } from "../lib/types";

const cell = (v: unknown): string => (v === null || v === undefined ? "–" : typeof v === "number" ? number(v) : typeof v === "string" ? v : JSON.stringify(v));

// Figures that lie deeper as rows of their own.
function deeper(rows: [string, [unknown, unknown]][]): [string, [unknown, unknown]][] {
  const object = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !Array.isArray(v);
  return rows.flatMap(([k, [x, y]]): [string, [unknown, unknown]][] => {
    if (!object(x) && !object(y)) return [[k, [x, y]]];
    const p = object(x) ? x : {}, q = object(y) ? y : {};
    return deeper([...new Set([...Object.keys(p), ...Object.keys(q)])].map((name) => [`${k}.${name}`, [p[name], q[name]]]));
  });
}

export async function compareView(a: string, b: string): Promise<View> {
  const c = await get<Comparison>(`compare?a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`);
  const stop = new AbortController();
  const series: [Step[], Step[]] = [[], []];
  const labels = c.runs.map((r, i) => (c.runs[0].name === c.runs[1].name ? `${r.name} ${i + 1}` : r.name)) as [string, string];
  const make = (title: string, format: (v: number) => string, height: number) => makeChart(title, [{ label: labels[0], colour: "--series-1", width: 2 }, { label: labels[1], colour: "--series-2", width: 2 }], format, height);
  const loss = make("Loss, smoothed", (v) => number(v), 260), speed = make("Tokens a second", (v) => number(v, 2), 168), lr = make("Learning rate", (v) => number(v, 2), 168);
  loss.node.classList.add("wide");
  const draw = (): void => {
    const x = [...new Set(series.flat().map((s) => s.step))].sort((p, q) => p - q);
    const line = (i: 0 | 1, of: (list: Step[]) => number[]): (number | null)[] => {
      const values = new Map(of(series[i]).map((v, n) => [series[i][n]!.step, v]));
      return x.map((s) => values.get(s) ?? null);
    };
    const both = (of: (list: Step[]) => number[]) => [x, line(0, of), line(1, of)];
    loss.set(both((l) => smooth(l.map((s) => s.loss))));
    speed.set(both((l) => l.map((s) => s.tok_s)));
    lr.set(both((l) => l.map((s) => s.lr)));
  };
  let pending = 0;
  const follow = async (i: 0 | 1): Promise<void> => {
    for await (const e of events("GET", `/coach/api/runs/${[a, b][i]}/events`, null, stop.signal)) {
      if (e.name === "message" && e.data !== "[DONE]") series[i].push(JSON.parse(e.data) as Step);
      pending ||= window.setTimeout(() => { pending = 0; draw(); }, 120);
    }
  };
  for (const i of [0, 1] as const) void follow(i).catch(() => undefined);

  const column = (r: RunSummary, i: number): HTMLElement => h("th", { scope: "col" }, h("a", { href: `#/runs/${r.key}` }, labels[i]), h("div", { class: "small muted" }, stateMark(r.state), ` · ${when(r.started)}`));
  const table = (rows: [string, [unknown, unknown]][], same = false): HTMLElement => h("div", { class: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, h("td", null, h("span", { class: "hidden" }, "What")), c.runs.map(column))),
    h("tbody", null, rows.map(([k, [x, y]]) => h("tr", null, h("th", { scope: "row", class: "mono" }, k), h("td", { class: "wrap" }, same ? h("span", { class: "mono" }, cell(x).slice(0, 16)) : cell(x)), h("td", { class: "wrap" }, same && JSON.stringify(x) === JSON.stringify(y) ? h("span", { class: "good" }, "the same") : same ? h("span", { class: "mono" }, cell(y).slice(0, 16)) : cell(y)))))));
  const recipe = c.recipe === null ? h("p", { class: "muted" }, `The recipes cannot be compared: ${c.not_compared}.`) : Object.keys(c.recipe).length ? table(Object.entries(c.recipe)) : h("p", { class: "muted" }, "The recipes are the same.");
  const node = h("div", null, head("Two runs", null, null, h("a", { href: "#/runs" }, "Runs")),
    h("div", { class: "charts" }, loss.node, speed.node, lr.node),
    h("section", null, h("h2", null, "What the recipes do differently"), recipe),
    Object.keys(c.metrics).length ? h("section", null, h("h2", null, "Results"), table(deeper(Object.entries(c.metrics)))) : null,
    Object.keys(c.digests).length ? h("section", null, h("h2", null, "Digests"), table(Object.entries(c.digests), true)) : null);
  return { title: "Two runs", node, leave: () => { stop.abort(); clearTimeout(pending); loss.close(); speed.close(); lr.close(); } };
}

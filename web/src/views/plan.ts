// The plan of a recipe on one device after another: memory by category, time, energy, money.
import { post } from "../lib/api";
import { type Child, fill, h, prose, sized } from "../lib/dom";
import { bytes, duration, energy, money, number } from "../lib/format";
import { failure, figures, working } from "../lib/parts";
import type { Plan } from "../lib/types";

const names: Record<string, string> = { cpu: "This machine", h100: "H100", mi300x: "MI300X" };
const order = ["weights", "gradients", "optimizer", "activations", "workspace", "logits", "data", "process", "packed"];
const series = (i: number): string => `var(--series-${i + 1})`;

function memory(p: Plan): HTMLElement {
  const entries = order.map((name, i) => ({ name, i, value: p.categories[name] ?? 0 })).filter((e) => e.value > 0);
  const total = entries.reduce((a, e) => a + e.value, 0), whole = Math.max(total, p.available_bytes);
  const words = entries.map((e) => `${e.name} ${bytes(e.value)}`).join(", ");
  return h("div", null,
    h("div", { class: "bar", role: "img", "aria-label": `Memory: ${words}; ${bytes(p.available_bytes)} may be used` }, entries.map((e) => sized(h("div", { title: `${e.name}: ${bytes(e.value)}` }), { width: `${(100 * e.value) / whole}%`, background: series(e.i) }))),
    h("ul", { class: "key" }, entries.map((e) => h("li", null, sized(h("span", { class: "dot" }), { background: series(e.i) }), h("span", null, e.name), h("span", null, bytes(e.value))))));
}

const peak = (p: Plan): number => (p.device === "cpu" ? p.peak_bytes.host : p.peak_bytes.device);

function details(p: Plan): Child {
  return [
    h("p", { class: p.fits ? "note" : "note error" }, p.fits ? `Fits: ${bytes(peak(p))} of the ${bytes(p.available_bytes)} that may be used.` : `Does not fit: ${bytes(peak(p))} are needed, ${bytes(p.available_bytes)} may be used.`),
    p.changes_that_fit?.length ? h("ul", null, p.changes_that_fit.map((c) => h("li", null, `It would fit with ${c.change} (${bytes(c.bytes)}).`))) : null,
    h("section", null, h("h2", null, "Memory"), memory(p)),
    h("section", null, h("h2", null, "Time and money"),
      figures([["a run", p.seconds === null ? "–" : duration(p.seconds)], ["tokens a second", number(p.tokens_per_second)], ["energy", p.energy_kwh === null ? "–" : energy(p.energy_kwh)], ["cost", p.cost_usd === null ? "–" : money(p.cost_usd)], ["for 1 B tokens", money(p.cost_per_1b_tokens_usd)]]),
      h("p", { class: "muted small" }, p.seconds === null ? "How many steps an epoch has is known once the data is prepared; give train.schedule.max_steps for figures of the whole run. " : `${number(p.steps ?? 0)} steps of ${duration(p.step_seconds)}. `, "Speed: ", prose(p.speed_from), ". ", p.energy_kwh === null ? "The price table states no power for this device. " : "", `Prices of ${p.prices.date}: ${money(p.prices.usd_per_hour)} an hour (${p.prices.source}), ${money(p.prices.usd_per_kwh)} a kWh.`)),
    h("section", null, h("h2", null, "A step"),
      h("p", { class: "small" }, `${p.rows_per_step} rows of ${number(p.seq_len)} tokens, in passes of ${p.micro_batch}; ${number(p.step_flops / 1e12)} TFLOP. Recompute: ${p.recompute}.`),
      h("div", { class: "scroll" }, h("table", null, h("thead", null, h("tr", null, h("th", null, "recompute"), h("th", { class: "n" }, "activations"), h("th", { class: "n" }, "more work"))), h("tbody", null, p.recompute_options.map((o) => h("tr", null, h("td", null, o.name), h("td", { class: "n" }, bytes(o.activations)), h("td", { class: "n" }, `${(100 * o.more_work).toFixed(0)} %`))))))),
  ];
}

function beside(plans: [string, Plan | Error | null][]): HTMLElement {
  const row = (name: string, of: (p: Plan) => string): HTMLElement => h("tr", null, h("th", { scope: "row" }, name), plans.map(([, p]) => h("td", { class: "n" }, p === null ? "…" : p instanceof Error ? "–" : of(p))));
  return h("div", { class: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, h("td", null, h("span", { class: "hidden" }, "Figure")), plans.map(([d]) => h("th", { class: "n", scope: "col" }, names[d])))),
    h("tbody", null,
      row("memory", (p) => `${bytes(peak(p))}${p.fits ? "" : " – too much"}`), row("of", (p) => bytes(p.available_bytes)), row("tokens a second", (p) => number(p.tokens_per_second)),
      row("a run", (p) => (p.seconds === null ? "–" : duration(p.seconds))), row("energy", (p) => (p.energy_kwh === null ? "–" : energy(p.energy_kwh))), row("cost", (p) => (p.cost_usd === null ? "–" : money(p.cost_usd))), row("1 B tokens", (p) => money(p.cost_per_1b_tokens_usd)))));
}

export function planPanel(panel: HTMLElement, recipe: () => string, own: () => string): () => void {
  const stop = new AbortController();
  const plans: [string, Plan | Error | null][] = ["cpu", "h100", "mi300x"].map((d) => [d, null]);
  let chosen = plans.some(([d]) => d === own()) ? own() : "cpu";
  const table = h("div"), body = h("div"), pick = h("div", { class: "actions", role: "group", "aria-label": "Device" });
  const draw = (): void => {
    fill(table, beside(plans));
    fill(pick, plans.map(([d]) => h("button", { type: "button", "aria-pressed": String(d === chosen), class: d === chosen ? "primary" : "", onclick: () => { chosen = d; draw(); } }, names[d])));
    const p = plans.find(([d]) => d === chosen)![1];
    fill(body, p === null ? working("Counting bytes and operations…") : p instanceof Error ? failure(p) : details(p));
  };
  fill(panel, pick, body, h("section", null, h("h2", null, "Beside other hardware"), h("p", { class: "muted" }, "The same recipe, one device each; what is not here is reckoned from published figures."), table));
  draw();
  const text = recipe();
  void (async () => {
    for (const entry of [...plans].sort(([a], [b]) => Number(b === chosen) - Number(a === chosen))) {
      try {
        entry[1] = await post<Plan>("plan", { recipe: text, device: entry[0] }, stop.signal);
      } catch (e) {
        if (stop.signal.aborted) return;
        entry[1] = e instanceof Error ? e : new Error(String(e));
      }
      draw();
    }
  })();
  return () => stop.abort();
}

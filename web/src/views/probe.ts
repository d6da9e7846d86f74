// What the probe measured: every call, its candidates, their spread, and which one the plan took.
import { type Child, fill, h, sized, type View } from "../lib/dom";
import { duration, number, percent } from "../lib/format";
import { dropZone, facts, failure, head } from "../lib/parts";
import type { KernelPlan } from "../lib/types";

const microseconds = (us: number): string => (us >= 1e6 ? `${number(us / 1e6)} s` : us >= 1e3 ? `${number(us / 1e3)} ms` : `${number(us)} µs`);

function call(key: string, plan: KernelPlan): { gain: number; timed: boolean; node: HTMLElement } {
  const list = plan.candidates[key]!, measured = list.filter((c) => c.median_us > 0);
  const longest = Math.max(...measured.map((c) => c.median_us + c.spread_us / 2), 1e-9);
  const low = (c: { median_us: number; spread_us: number }): number => Math.max(0, c.median_us - c.spread_us / 2);
  const chosen = plan.choices[key] ?? (key === "step" ? "planned" : "");
  const taken = measured.find((c) => c.algorithm === chosen), usual = list[0];
  const gain = taken && usual && usual.median_us > 0 ? usual.median_us / taken.median_us - 1 : 0;
  const node = h("article", { class: "call" },
    h("h3", null, key.startsWith("step ") ? `${key}, a row` : key, h("span", null, taken && gain > 0.0005 ? `${percent(gain)} against the default` : taken ? "the default is best" : "")),
    h("ul", null, list.map((c) => h("li", { class: c.algorithm === chosen ? "chosen" : "" },
      h("span", { class: "name", title: c.algorithm }, c.algorithm, c.algorithm === chosen ? h("span", { class: "hidden" }, " (chosen)") : null),
      h("div", { class: "track", "aria-hidden": "true" }, c.median_us > 0 ? [sized(h("div", { class: "median" }), { width: `${(100 * c.median_us) / longest}%` }), sized(h("div", { class: "spread" }), { left: `${(100 * low(c)) / longest}%`, width: `${(100 * (c.median_us + c.spread_us / 2 - low(c))) / longest}%` })] : null),
      h("span", { class: "value" }, c.median_us > 0 ? microseconds(c.median_us) : "not reached")))));
  return { gain, timed: measured.length > 0, node };
}

export function probeCharts(plan: KernelPlan): Child {
  const keys = Object.keys(plan.candidates);
  const groups: [string, string, (k: string) => boolean][] = [
    ["The step", "How a step is cut, and what that makes of the whole.", (k) => k.startsWith("step")],
    ["Attention", "", (k) => k.startsWith("attention")],
    ["Matrix products", "Largest gain first.", (k) => !k.startsWith("step") && !k.startsWith("attention")],
  ];
  const section = ([name, lead, has]: [string, string, (k: string) => boolean]): Child => {
    const calls = keys.filter(has).map((k) => call(k, plan)).sort((a, b) => b.gain - a.gain), timed = calls.filter((c) => c.timed), rest = calls.filter((c) => !c.timed);
    if (!calls.length) return null;
    const list = (some: typeof calls): Child => h("div", { class: "probe" }, some.map((c) => c.node));
    return h("section", null, h("h2", null, name), lead ? h("p", { class: "muted" }, lead) : null, timed.length ? list(timed) : null,
      rest.length ? h("details", null, h("summary", null, `${rest.length} not timed: the plan keeps the default`), list(rest)) : null);
  };
  return [
    facts([["device", `${plan.device.name}${plan.device.arch ? `, ${plan.device.arch}` : ""}, ${plan.device.threads} thread${plan.device.threads > 1 ? "s" : ""}`], ["libraries", Object.entries(plan.device.libraries).map(([k, v]) => `${k} ${v}`).join(", ") || "–"], ["probe", plan.measured ? `${duration(plan.budget_s)}, bars are medians, the thin line the middle half of the timings` : "not measured: a reference plan of default choices"], ["shapes", Object.entries(plan.shapes).map(([k, v]) => `${k} ${v}`).join(", ")]]),
    keys.length ? groups.map(section) : h("p", { class: "empty" }, "This plan holds no measurements. The probe makes them where autotune.enabled is true."),
  ];
}

function read(text: string): KernelPlan {
  let p: Partial<KernelPlan>;
  try {
    p = JSON.parse(text) as Partial<KernelPlan>;
  } catch {
    throw new Error("That file is no JSON: an AutotunePlan is wanted, as `mindxtrain bench --out plan.json` writes it.");
  }
  if (!p || typeof p !== "object" || typeof p.candidates !== "object" || typeof p.choices !== "object" || typeof p.device !== "object") throw new Error("That JSON is no AutotunePlan: it has no device, choices and candidates.");
  return p as KernelPlan;
}

export function probeView(): View {
  const out = h("div");
  const node = h("div", null,
    head("Probe", "An AutotunePlan holds every candidate that was timed and every choice. The plan of a run is on the run's own page; one from elsewhere can be dropped here. It stays in this browser."),
    dropZone("Drop a plan.json here", "Choose a file", (text) => {
      try {
        fill(out, h("section", null, probeCharts(read(text))));
      } catch (e) {
        fill(out, h("section", null, failure(e)));
      }
    }), out);
  return { title: "Probe", node };
}

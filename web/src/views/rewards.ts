// What a policy that samples is told: rewards, lengths, divergence, clipping, entropy by the step, and what a step drew.
import { type Chart, makeChart } from "../lib/charts";
import { type Child, fill, h } from "../lib/dom";
import { number } from "../lib/format";
import { failure, working } from "../lib/parts";
import type { Samples, Step } from "../lib/types";

interface Part { title: string; lines: [key: string, label: string][] }
// By the names of metrics.jsonl; what a run has none of is not drawn.
const parts: Part[] = [
  { title: "Reward", lines: [["reward", "mean"], ["objective/scores", "mean"], ["objective/rlhf_reward", "less the divergence"], ["reward_std", "deviation"]] },
  { title: "Answer length, tokens", lines: [["completions/mean_length", "mean"], ["completions/min_length", "shortest"], ["completions/max_length", "longest"]] },
  { title: "Divergence, nats a token", lines: [["kl", "from the reference"], ["objective/kl", "from the reference, an answer"], ["policy/approxkl_avg", "of the updates"], ["sampler_trainer_kl", "old policy and trainer"], ["sampler_difference", "sampling and trainer"]] },
  { title: "Clipped share", lines: [["clip_ratio/region_mean", "of tokens"], ["clip_ratio/low_mean", "below"], ["clip_ratio/high_mean", "above"], ["policy/clipfrac_avg", "policy"], ["val/clipfrac_avg", "values"]] },
  { title: "Entropy, nats a token", lines: [["entropy", "mean"], ["policy/entropy_avg", "mean"]] },
  { title: "Share of groups and answers", lines: [["frac_reward_zero_std", "groups of one reward"], ["completions/clipped_ratio", "answers cut off"]] },
  { title: "Tool calls an answer", lines: [["tools/call_frequency", "calls"], ["tools/failure_frequency", "failed"]] },
];

// Each reward by its name stands in rewards/NAME/mean.
function byName(steps: Step[]): Part {
  const names = new Set<string>();
  for (const s of steps) for (const key of Object.keys(s)) if (/^rewards\/.+\/mean$/.test(key)) names.add(key);
  return { title: "Reward by part", lines: [...names].slice(0, 7).map((key) => [key, key.slice("rewards/".length, -"/mean".length)]) };
}

function shown(steps: Step[]): Part[] {
  const [first, ...rest] = parts, has = (key: string): boolean => steps.some((s) => typeof s[key] === "number");
  return [first!, byName(steps), ...rest].map((p) => ({ ...p, lines: p.lines.filter(([key]) => has(key)) })).filter((p) => p.lines.length > 0);
}

const value = (v: number | null): string => (v === null ? "none" : number(v, 3));

function answer(a: Samples["groups"][0]["list"][0]): Child {
  const names = Object.entries(a.rewards);
  const facts = [`reward ${value(a.reward)}`, `advantage ${value(a.advantage)}`, `${number(a.tokens)} tokens`, ...(names.length > 1 ? names.map(([k, v]) => `${k} ${value(v)}`) : [])];
  return h("li", null, h("p", { class: "muted small" }, facts.join(" · ")), a.turns ? a.turns.map((t) => [h("p", { class: "small" }, t.role), h("pre", null, t.text)]) : h("pre", null, a.text || " "));
}

function group(g: Samples["groups"][0], i: number, of: number): Child {
  const more = g.answers - g.list.length;
  return h("article", { class: "document", "aria-label": `Prompt ${i + 1}` }, h("header", null, `prompt ${i + 1} of ${number(of)} · ${number(g.answers)} answers`), h("pre", null, g.prompt), h("ol", { class: "answers" }, g.list.map(answer)), more > 0 ? h("p", { class: "muted small" }, `and ${number(more)} more`) : null);
}

// `ask(0)`: the last step that sampled.
function samplesPanel(ask: (step: number) => Promise<Samples>): HTMLElement {
  let turn = 0, step = 0, first = 1, last = 1;
  const body = h("div"), of = h("span", { class: "muted small" });
  const at = h("input", { type: "number", min: "1", value: "1", "aria-label": "Step", inputmode: "numeric", onchange: () => void show(Math.min(Math.max(Number(at.value) || last, first), last), -1) });
  const back = h("button", { type: "button", onclick: () => void show(step - 1, -1) }, "Previous"), on = h("button", { type: "button", onclick: () => void show(step + 1, 1) }, "Next"), newest = h("button", { type: "button", onclick: () => void show(0, -1) }, "Newest");
  at.style.width = "9ch";
  // Where a batch of answers serves several steps, only the first of them sampled: the next one in that direction is shown.
  const show = async (to: number, direction: number): Promise<void> => {
    const mine = ++turn;
    fill(body, working("Reading samples…"));
    for (let wanted = to; ; wanted += direction) {
      try {
        const s = await ask(wanted);
        if (mine !== turn) return;
        ({ step, first, last } = s);
        at.value = String(step);
        of.textContent = `${number(first)} to ${number(last)}`;
        back.disabled = step <= first;
        on.disabled = step >= last;
        fill(body, s.groups.map((g, i) => group(g, i, s.prompts)), s.prompts > s.groups.length ? h("p", { class: "muted small" }, `The first ${s.groups.length} of ${number(s.prompts)} prompts; rollouts.jsonl has all.`) : null);
        return;
      } catch (e) {
        if (mine !== turn) return;
        if (wanted > first && wanted < last) continue;
        return fill(body, failure(e));
      }
    }
  };
  void show(0, -1);
  return h("section", null, h("h2", null, "Samples of a step"), h("div", { class: "actions" }, back, h("label", null, h("span", { class: "hidden" }, "Step"), at), of, on, newest), body);
}

export function rewardsPanel(panel: HTMLElement, steps: Step[], samples: ((step: number) => Promise<Samples>) | null): { draw: () => void; close: () => void } {
  let drawn = "", charts: { chart: Chart; keys: string[] }[] = [];
  const place = h("div", { class: "charts" });
  const close = (): void => {
    for (const c of charts) c.chart.close();
    charts = [];
  };
  const draw = (): void => {
    const now = shown(steps), mark = JSON.stringify(now);
    if (mark !== drawn) {
      drawn = mark;
      close();
      charts = now.map((p) => ({ keys: p.lines.map(([key]) => key), chart: makeChart(p.title, p.lines.map(([, label], i) => ({ label, colour: `--series-${i + 1}` })), (v) => number(v, 3)) }));
      fill(place, charts.map((c) => c.chart.node));
    }
    const x = steps.map((s) => s.step);
    for (const c of charts) c.chart.set([x, ...c.keys.map((key) => steps.map((s) => s[key] ?? null))]);
    if (!now.length) fill(place, h("p", { class: "empty" }, "No step was done yet."));
  };
  fill(panel, place, samples ? samplesPanel(samples) : null);
  draw();
  return { draw, close };
}

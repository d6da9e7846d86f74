// One run: live while it lasts, then what it left.
import { ApiError, events, get, message, post } from "../lib/api";
import { type Chart, makeChart, smooth } from "../lib/charts";
import { fill, h, sized, type View } from "../lib/dom";
import { between, bytes, duration, number, when } from "../lib/format";
import { facts, failure, figures, head, loader, stateMark, tabs } from "../lib/parts";
import type { KernelPlan, Run, Step, Verification } from "../lib/types";
import { rowsPanel } from "./data";
import { probeCharts } from "./probe";
import { verdict } from "./receipt";
import { rewardsPanel } from "./rewards";

const live = (state: string): boolean => state === "queued" || state === "running" || state === "cancelling";

export async function runView(key: string): Promise<View> {
  let run = await get<Run>(`runs/${key}`);
  const stop = new AbortController();
  const steps: Step[] = [];
  let charts: { loss: Chart; lr: Chart; speed: Chart; memory: Chart; norm: Chart } | null = null, pending = 0, drawRewards: (() => void) | null = null;

  const top = h("div"), tiles = h("div"), bar = h("div", { class: "progress", role: "progressbar", "aria-label": "Steps done", "aria-valuemin": "0" }, h("div")), line = h("p", { class: "small muted" }), said = h("div");
  const act = async (verb: "cancel" | "resume"): Promise<void> => {
    try {
      await post(`jobs/${key}/${verb}`, {});
      fill(said);
      await refresh();
      if (verb === "resume") void follow();
    } catch (e) {
      fill(said, failure(e));
    }
  };
  const drawTop = (): void => {
    fill(top, head(run.name, [stateMark(run.state), run.stage && live(run.state) ? ` · ${run.stage}` : "", run.started ? ` · ${when(run.started)}, ${between(run.started, run.ended)}` : "", run.attempts > 1 ? ` · attempt ${run.attempts}` : ""], [
      run.can.stop ? h("button", { type: "button", onclick: () => void act("cancel") }, "Stop") : null,
      run.can.resume ? h("button", { type: "button", class: "primary", onclick: () => void act("resume") }, "Resume") : null,
      run.can.try ? h("a", { class: "button", href: `#/try/${key}` }, "Try it") : null,
      run.recipe !== null ? h("a", { class: "button", href: `#/runs/${key}/recipe` }, "Edit a copy") : null,
    ], [h("a", { href: "#/runs" }, "Runs"), run.project ? ` · ${run.project}` : ""]),
      run.message ? h("p", { class: "note error" }, run.message) : run.state === "cancelled" ? h("p", { class: "note" }, "Stopped, its state saved: it goes on where it was.") : null);
  };
  const drawFigures = (): void => {
    const s = steps[steps.length - 1] ?? run.last_step;
    const total = run.steps || (s && !live(run.state) ? s.step : 0), done = s?.step ?? 0;
    const left = s && total > done && s.tok_s > 0 && run.state === "running" && done > 0 ? ((total - done) * (s.tokens / done)) / s.tok_s : 0;
    fill(tiles, figures([["loss", s ? number(s.loss) : "–"], ["learning rate", s ? number(s.lr) : "–"], ["tokens a second", s ? number(s.tok_s) : "–"], ["memory", s ? bytes(s.memory_bytes) : "–"], ["gradient norm", s ? number(s.grad_norm) : "–"]]));
    sized(bar.firstElementChild as HTMLElement, { width: `${total ? Math.min(100, (100 * done) / total) : 0}%` });
    bar.setAttribute("aria-valuenow", String(done));
    bar.setAttribute("aria-valuemax", String(total || 1));
    line.textContent = s ? `Step ${number(done)}${total ? ` of ${number(total)}` : ""} · ${number(s.tokens)} tokens${left ? ` · about ${duration(left)} left` : ""}` : run.state === "queued" ? "Waiting for its turn." : live(run.state) ? `Before the first step: ${run.stage || "starting"}.` : "No step was done.";
  };
  const drawCharts = (): void => {
    pending = 0;
    drawFigures();
    drawRewards?.();
    if (!charts) return;
    const x = steps.map((s) => s.step);
    charts.loss.set([x, steps.map((s) => s.loss), smooth(steps.map((s) => s.loss)), steps.map((s) => s.eval_loss ?? null)]);
    charts.lr.set([x, steps.map((s) => s.lr)]);
    charts.speed.set([x, steps.map((s) => s.tok_s)]);
    charts.memory.set([x, steps.map((s) => s.memory_bytes), steps.map((s) => s.peak_memory_bytes)]);
    charts.norm.set([x, steps.map((s) => s.grad_norm)]);
  };
  const refresh = async (): Promise<void> => {
    run = await get<Run>(`runs/${key}`, stop.signal);
    drawTop();
    drawFigures();
  };
  let following = 0;
  const follow = async (): Promise<void> => {
    const mine = ++following;
    while (!stop.signal.aborted && mine === following) {
      try {
        steps.length = 0;
        for await (const e of events("GET", `/coach/api/runs/${key}/events`, null, stop.signal)) {
          if (mine !== following) return;
          if (e.data === "[DONE]") {
            drawCharts();
            return void (await refresh());
          }
          if (e.name !== "message") continue;
          const s = JSON.parse(e.data) as Step;
          // A run that went on from a checkpoint writes its later steps again.
          while (steps.length && steps[steps.length - 1]!.step >= s.step) steps.pop();
          steps.push(s);
          pending ||= window.setTimeout(drawCharts, 120);
        }
      } catch (e) {
        if (stop.signal.aborted || (e instanceof ApiError && e.status === 404)) return;
      }
      line.textContent = "The connection was lost; trying again…";
      await new Promise((r) => setTimeout(r, 1500));
    }
  };

  const overview = (panel: HTMLElement): (() => void) => {
    charts = {
      loss: makeChart("Loss", [{ label: "each step", colour: "--series-1", faint: true, width: 1 }, { label: "smoothed", colour: "--series-1", width: 2.2 }, { label: "held out", colour: "--series-2", points: true }], (v) => number(v, 3), 260),
      lr: makeChart("Learning rate", [{ label: "lr", colour: "--series-3" }], (v) => number(v, 2)),
      speed: makeChart("Tokens a second", [{ label: "tok/s", colour: "--series-2" }], (v) => number(v, 2)),
      memory: makeChart("Memory", [{ label: "now", colour: "--series-4" }, { label: "peak", colour: "--series-7" }], bytes),
      norm: makeChart("Gradient norm", [{ label: "norm", colour: "--series-5" }], (v) => number(v, 2)),
    };
    charts.loss.node.classList.add("wide");
    fill(panel, h("div", { class: "charts" }, Object.values(charts).map((c) => c.node)),
      h("section", null, h("h2", null, "About the run"), facts([["folder", h("span", { class: "mono" }, run.folder)], ["created", when(run.created)], ...Object.entries(run.digests).map(([k, v]): [string, HTMLElement] => [k, h("span", { class: "mono" }, String(v).slice(0, 24) + "…")])])));
    drawCharts();
    return () => {
      for (const c of Object.values(charts ?? {})) c.close();
      charts = null;
    };
  };
  const rewards = (panel: HTMLElement): (() => void) => {
    const shown = rewardsPanel(panel, steps, run.has.rollouts || live(run.state) ? (step) => get(`runs/${key}/samples?step=${step}`) : null);
    drawRewards = shown.draw;
    return () => {
      drawRewards = null;
      shown.close();
    };
  };
  const probe = (panel: HTMLElement): void => void loader(panel)("Reading the plan…", () => get<KernelPlan>(`runs/${key}/plan`), probeCharts);
  const data = (panel: HTMLElement): void => rowsPanel(panel, (row) => get(`runs/${key}/row?row=${row}`));
  const receipt = (panel: HTMLElement): void => {
    if (!run.has.manifest) return fill(panel, h("p", { class: "empty" }, "The receipt is written when the run is finished."));
    const out = h("div");
    const again = async (): Promise<void> => loader(out)("Hashing every file again…", async () => {
      const bytes = await get<{ manifest: string }>(`runs/${key}/manifest`);
      return post<Verification>("verify", { manifest: bytes.manifest });
    }, verdict);
    fill(panel, h("div", { class: "actions" }, h("button", { type: "button", onclick: () => void again() }, "Verify again")), out);
    void again();
  };
  const log = (panel: HTMLElement): (() => void) => {
    const pre = h("pre", { class: "log mono", tabindex: "0", "aria-label": "Log of the run" });
    let timer = 0;
    const read = async (): Promise<void> => {
      try {
        const text = (await get<{ text: string }>(`runs/${key}/log`)).text;
        if (text !== pre.textContent) {
          const end = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8;
          pre.textContent = text || "Nothing yet.";
          if (end) pre.scrollTop = pre.scrollHeight;
        }
      } catch (e) {
        pre.textContent = message(e);
      }
      timer = window.setTimeout(() => void read(), 2000);
    };
    fill(panel, pre);
    void read();
    return () => clearTimeout(timer);
  };

  const tab = tabs("Parts of the run", [{ name: "Training", open: overview }, ...(run.rewarded ? [{ name: "Rewards", open: rewards }] : []), { name: "Probe", open: probe }, { name: "Data", open: data }, { name: "Receipt", open: receipt }, ...(run.has.log ? [{ name: "Log", open: log }] : [])]);
  drawTop();
  drawFigures();
  void follow();
  const poll = window.setInterval(() => live(run.state) && void refresh().catch(() => undefined), 1500);
  return {
    title: run.name,
    node: h("div", null, top, said, tiles, bar, line, h("section", null, tab.node)),
    leave: () => { stop.abort(); clearInterval(poll); clearTimeout(pending); tab.close(); },
  };
}

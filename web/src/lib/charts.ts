// Line charts over steps with uPlot, in the page's colours, told in words to those who do not see them.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { h } from "./dom";

const colour = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export interface Line {
  label: string;
  colour: string;        // a custom property: "--series-1"
  width?: number;
  faint?: boolean;
  points?: boolean;
}

export interface Chart {
  node: HTMLElement;
  set(data: (number | null)[][]): void;
  close(): void;
}

const all = new Set<() => void>();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all.forEach((f) => f()));

export function makeChart(title: string, lines: Line[], format: (v: number) => string, height = 168): Chart {
  const plot = h("div", { class: "plot", "aria-hidden": "true" });
  const words = h("p", { class: "hidden" });
  const node = h("figure", { class: "chart" }, h("figcaption", null, title), plot, words);
  let chart: uPlot | null = null, data: (number | null)[][] = [[], ...lines.map(() => [])];
  const build = (): void => {
    chart?.destroy();
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: `11px ${colour("--sans")}` };
    chart = new uPlot(
      {
        width: Math.max(plot.clientWidth, 120),
        height,
        // One step alone has no span: it stands in the middle.
        scales: { x: { time: false, range: (_u, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) } },
        legend: { show: true, live: true },
        cursor: { points: { size: 6 }, y: false },
        axes: [{ ...axis, grid: { show: false }, size: 24, values: (_u, v) => v.map((x) => (Number.isInteger(x) ? x.toLocaleString("en-US") : "")) }, { ...axis, size: 58, values: (_u, v) => v.map(format) }],
        series: [
          { label: "step", value: (_u, v) => (v === null ? "–" : v.toLocaleString("en-US")) },
          ...lines.map((l): uPlot.Series => ({
            label: l.label,
            stroke: colour(l.colour) + (l.faint ? "55" : ""),
            width: l.points ? 0 : (l.width ?? 1.6),
            points: { show: l.points ? true : (u) => u.data[0].length < 3, size: 6, fill: colour(l.colour) },
            spanGaps: true,
            value: (_u, v) => (v === null || v === undefined ? "–" : format(v)),
          })),
        ],
      },
      data as uPlot.AlignedData,
      plot,
    );
  };
  const watch = new ResizeObserver(() => {
    if (!chart && plot.clientWidth > 0) build();
    else chart?.setSize({ width: Math.max(plot.clientWidth, 120), height });
  });
  watch.observe(plot);
  all.add(build);
  return {
    node,
    set(next) {
      data = next;
      chart?.setData(data as uPlot.AlignedData);
      const x = data[0] ?? [];
      words.textContent = x.length
        ? lines.map((l, i) => {
            const v = (data[i + 1] ?? []).filter((n): n is number => n !== null);
            return v.length ? `${title}, ${l.label}: ${format(v[0]!)} at step ${x[0]}, now ${format(v[v.length - 1]!)} at step ${x[x.length - 1]}; least ${format(Math.min(...v))}, most ${format(Math.max(...v))}.` : "";
          }).join(" ")
        : `${title}: nothing yet.`;
    },
    close() {
      watch.disconnect();
      all.delete(build);
      chart?.destroy();
    },
  };
}

// Exponential mean, started without bias; over about a tenth of the steps, so that it does not lag behind a short run.
export function smooth(values: number[], keep = Math.min(0.95, Math.max(0.3, 1 - 10 / values.length))): number[] {
  let sum = 0, weight = 0;
  return values.map((v) => {
    sum = keep * sum + (1 - keep) * v;
    weight = keep * weight + (1 - keep);
    return sum / weight;
  });
}

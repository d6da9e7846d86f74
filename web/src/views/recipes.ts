import { get } from "../lib/api";
import { h, prose, type View } from "../lib/dom";
import { head } from "../lib/parts";
import type { RecipeEntry } from "../lib/types";

const groups: [string, string, (hardware: string) => boolean][] = [
  ["On this processor", "They train with no accelerator at all.", (x) => x === "cpu"],
  ["On NVIDIA Hopper", "For one H100 or H200 and more.", (x) => x.startsWith("h")],
  ["On AMD Instinct", "For MI300X and its kin.", (x) => x.startsWith("mi")],
];

export async function recipesView(): Promise<View> {
  const recipes = await get<RecipeEntry[]>("recipes");
  const entry = (r: RecipeEntry): HTMLElement =>
    h("li", null, h("a", { href: `#/recipes/${r.name}` },
      h("div", null, h("strong", null, r.name), h("p", null, prose(r.head)), r.trainable ? h("p", { class: "lacking" }, "Not here: ", r.trainable) : null),
      h("span", { class: "side-fact" }, r.method ?? "", r.gpus ? ` · ${r.gpus} GPU${r.gpus > 1 ? "s" : ""}` : ""),
      h("span", { class: "side-fact" }, r.model ?? "")));
  const node = h("div", null,
    head("Recipes", "One file decides a whole run. Pick one, change what you like, see what it will take, and start it."),
    groups.map(([name, lead, has]) => {
      const list = recipes.filter((r) => has(r.hardware ?? ""));
      return list.length ? h("section", null, h("h2", null, name), h("p", { class: "muted" }, lead), h("ul", { class: "rows" }, list.map(entry))) : null;
    }));
  return { title: "Recipes", node };
}

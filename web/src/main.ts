// Coach: the frame around the views, and the way between them (the part of the address after '#').
import "./lib/language";
import "./style.css";
import { get, onTokenWanted } from "./lib/api";
import { fill, h, type View } from "./lib/dom";
import { failure } from "./lib/parts";
import type { About } from "./lib/types";
import { compareView } from "./views/compare";
import { machineView } from "./views/machine";
import { probeView } from "./views/probe";
import { receiptView } from "./views/receipt";
import { recipesView } from "./views/recipes";
import { runView } from "./views/run";
import { runsView } from "./views/runs";
import { tryView } from "./views/try";
import { workbenchView } from "./views/workbench";

type Route = [RegExp, (parts: string[], about: About) => View | Promise<View>, string];
const routes: Route[] = [
  [/^$/, () => recipesView(), "recipes"],
  [/^recipes\/([\w.-]+)$/, ([name], about) => workbenchView({ recipe: name! }, about), "recipes"],
  [/^runs$/, () => runsView(), "runs"],
  [/^runs\/([\w.-]+)$/, ([key]) => runView(key!), "runs"],
  [/^runs\/([\w.-]+)\/recipe$/, ([key], about) => workbenchView({ run: key! }, about), "recipes"],
  [/^compare\/([\w.-]+)\/([\w.-]+)$/, ([a, b]) => compareView(a!, b!), "runs"],
  [/^probe$/, () => probeView(), "probe"],
  [/^try(?:\/([\w.-]+))?$/, ([key], about) => tryView(key ?? null, about), "try"],
  [/^receipt$/, () => receiptView(), "receipt"],
  [/^machine$/, () => machineView(), "machine"],
];
const places: [string, string, string][] = [["recipes", "#/", "Recipes"], ["runs", "#/runs", "Runs"], ["try", "#/try", "Try"], ["probe", "#/probe", "Probe"], ["receipt", "#/receipt", "Receipt"], ["machine", "#/machine", "Machine"]];

const main = h("main", { id: "main", tabindex: "-1" });
const links = places.map(([place, href, name]) => [place, h("a", { href }, name)] as const);
const mark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
mark.setAttribute("viewBox", "0 0 32 32");
mark.setAttribute("aria-hidden", "true");
const curve = document.createElementNS(mark.namespaceURI, "path");
for (const [k, v] of Object.entries({ d: "M3 7c7 0 8 18 15 18s5-9 11-9", fill: "none", stroke: "currentColor", "stroke-width": "3.4", "stroke-linecap": "round" })) curve.setAttribute(k, v);
mark.append(curve);
const foot = h("footer", null);

document.body.append(
  h("a", { class: "skip", href: "#main", onclick: (e: Event) => { e.preventDefault(); main.focus(); } }, "To the content"),
  h("div", { class: "shell" },
    h("div", { class: "side" }, h("a", { class: "brand", href: "#/", "aria-label": "Coach, recipes" }, mark, h("span", null, "Coach")), h("nav", { "aria-label": "Coach" }, h("ul", null, links.map(([, a]) => h("li", null, a)))), foot),
    main),
);

onTokenWanted(() => new Promise((resolve) => {
  const input = h("input", { type: "password", required: true, autocomplete: "off", "aria-label": "Token" });
  const dialog = h("dialog", { "aria-label": "Token" }, h("form", { method: "dialog", onsubmit: () => { resolve(input.value); dialog.remove(); } }, h("h2", null, "This server wants a token"), h("p", { class: "muted small" }, "One of the keys of --api-keys that may run jobs, or MINDXTRAIN_API_KEY. It stays in this tab until it is closed."), h("label", null, "Token", input), h("button", { class: "primary" }, "Continue")));
  dialog.addEventListener("cancel", (e) => e.preventDefault());
  document.body.append(dialog);
  dialog.showModal();
}));

let about: About | null = null;
let current: View | null = null;
let turn = 0;
async function show(): Promise<void> {
  const path = decodeURIComponent(location.hash.replace(/^#\/?/, "")), mine = ++turn;
  const route = routes.find(([pattern]) => pattern.test(path));
  current?.leave?.();
  current = null;
  for (const [place, a] of links) {
    if (route && place === route[2]) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  try {
    if (!about) {
      about = await get<About>("about");
      fill(foot, h("span", null, `mindxtrain ${about.version}`), h("a", { href: "/coach/licences.txt" }, "Licences"));
    }
    if (!route) throw new Error("There is no such page.");
    const view = await route[1](route[0].exec(path)!.slice(1), about);
    if (mine !== turn) return view.leave?.();
    current = view;
    document.title = `${view.title} · Coach`;
    fill(main, view.node);
  } catch (e) {
    if (mine === turn) fill(main, h("h1", null, "That did not work"), failure(e), h("p", null, h("a", { href: "#/" }, "Back to the recipes")));
  }
  window.scrollTo(0, 0);
  main.focus({ preventScroll: true });
}
addEventListener("hashchange", () => void show());
void show();

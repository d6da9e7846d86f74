// Rows of a data set with what is trained on marked.
import { fill, h } from "../lib/dom";
import { number } from "../lib/format";
import { failure, working } from "../lib/parts";
import type { Row } from "../lib/types";

export function rowsPanel(panel: HTMLElement, ask: (row: number) => Promise<Row>): void {
  let row = 0, turn = 0, rows = 1;
  const body = h("div");
  const number_ = h("input", { type: "number", min: "0", value: "0", "aria-label": "Row", inputmode: "numeric", onchange: () => go(Number(number_.value) || 0) });
  const of = h("span", { class: "muted small" });
  const back = h("button", { type: "button", onclick: () => go(row - 1) }, "Previous"), on = h("button", { type: "button", onclick: () => go(row + 1) }, "Next");
  const go = (to: number): void => {
    row = Math.min(Math.max(to, 0), rows - 1);
    number_.value = String(row);
    void show();
  };
  const show = async (): Promise<void> => {
    const mine = ++turn;
    fill(body, working("Reading rows…"));
    try {
      const r = await ask(row);
      if (mine !== turn) return;
      rows = r.rows;
      of.textContent = `0 to ${number(r.rows - 1)}`;
      back.disabled = row === 0;
      on.disabled = row >= r.rows - 1;
      fill(body,
        h("p", { class: "legend" }, h("span", null, h("mark", null, "trained on")), h("span", null, "read only"), h("span", null, `${number(r.targets)} of ${number(r.tokens)} tokens are trained on (${((100 * r.targets) / Math.max(r.tokens, 1)).toFixed(0)} %)${r.sample ? ", in this sample of the first rows" : ""}`)),
        r.documents.map((d, i) => h("article", { class: "document", "aria-label": `Document ${i + 1}` }, h("header", null, `document ${i + 1} of ${r.documents.length} · ${d.tokens} tokens, ${d.trained} trained`), h("pre", null, d.pieces.map((p) => (p.picture ? h("img", { src: p.picture, alt: p.text }) : p.trained ? h("mark", null, p.text) : p.text))))));
    } catch (e) {
      if (mine === turn) fill(body, failure(e));
    }
  };
  const bar = h("div", { class: "actions" }, back, h("label", null, h("span", { class: "hidden" }, "Row"), number_), of, on);
  number_.style.width = "9ch";
  fill(panel, bar, body);
  void show();
}

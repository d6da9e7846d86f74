// A manifest.json is checked where the run's files are: on the server. What is not there is said, never passed over.
import { post } from "../lib/api";
import { type Child, h, type View } from "../lib/dom";
import { bytes, number } from "../lib/format";
import { dropZone, facts, head, loader } from "../lib/parts";
import type { Verification } from "../lib/types";

// What a receipt holds, objects as rows of their own; what is not known is left out.
const words = (name: string): string => name.replaceAll("_", " ");
function lines(name: string, v: unknown): [string, Child][] {
  if (v === null || v === undefined) return [];
  if (Array.isArray(v)) return v.flatMap((x, i) => lines(`${name} ${i + 1}`, x));
  if (typeof v === "object") return Object.entries(v).flatMap(([k, x]) => lines(`${name} · ${words(k)}`, x));
  if (typeof v === "number") return [[name, number(v)]];
  const s = String(v);
  return s ? [[name, /[0-9a-f]{32}/.test(s) ? h("span", { class: "mono" }, s) : s]] : [];
}

export function verdict(v: Verification): Child {
  const [style, title, lead] = v.verified
    ? ["yes", "Verified", `Every file of the run was hashed again: all hold. ${v.folder ?? ""}`]
    : !v.here && v.whole
      ? ["", "Whole, but its files are not here", "The manifest agrees with its own digests. Not one of the files that it names is on this machine, so nothing is said about them."]
      : ["no", "It does not hold", v.here ? `Compared with ${v.folder ?? ""}.` : "The manifest does not agree with its own digests, and none of its files are on this machine."];
  const missing = v.files.filter((f) => !f.here);
  return [
    h("div", { class: `verdict ${style}`, role: "status" }, h("strong", null, title), h("span", null, lead)),
    v.findings.length ? h("section", null, h("h2", null, "What differs"), h("ul", { class: "checks" }, v.findings.map((f) => h("li", { class: "missing" }, h("span", { class: "mark", "aria-hidden": "true" }, "✕"), h("div", null, h("p", { class: "mono" }, f.field), h("p", null, f.what)))))) : null,
    v.here && v.subjects.length ? h("section", null, h("h2", null, "What was hashed"), h("ul", { class: "checks" }, v.subjects.map((s) => h("li", { class: "ok" }, h("span", { class: "mark", "aria-hidden": "true" }, "✓"), h("p", null, s))))) : null,
    missing.length ? h("section", null, h("h2", null, "Not on this machine"), h("div", { class: "scroll" }, h("table", null, h("thead", null, h("tr", null, h("th", null, "file"), h("th", null, "subject"), h("th", { class: "n" }, "size"), h("th", null, "BLAKE3"))), h("tbody", null, missing.map((f) => h("tr", null, h("td", { class: "mono" }, f.path), h("td", null, f.subject), h("td", { class: "n" }, bytes(f.bytes)), h("td", { class: "mono" }, f.blake3.slice(0, 16) + "…"))))))) : null,
    v.receipt ? h("section", null, h("h2", null, "The receipt"), facts(Object.entries(v.receipt).flatMap(([k, x]) => (k === "manifest" ? [] : lines(words(k), x))))) : null,
    h("p", { class: "muted small" }, "Manifest ", h("span", { class: "mono" }, v.manifest_blake3 || "–"), v.signer ? ["; signed by ", h("span", { class: "mono" }, v.signer)] : "; not signed"),
  ];
}

export function receiptView(): View {
  const out = h("section");
  const node = h("div", null,
    head("Receipt", "A run's manifest.json names every file with its digests. Drop one: the server hashes the run's files again and says which field differs."),
    dropZone("Drop a manifest.json here", "Choose a file", (manifest) => void loader(out)("Hashing every file again…", () => post<Verification>("verify", { manifest }), verdict)), out);
  return { title: "Receipt", node };
}

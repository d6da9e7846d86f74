import { post } from "../lib/api";
import { type Child, h, prose, type View } from "../lib/dom";
import { bytes } from "../lib/format";
import { facts, head } from "../lib/parts";
import type { Doctor, Finding } from "../lib/types";

export const factsOf = (list: [string, Child][]): HTMLElement => facts(list);

const marks: Record<Finding["level"], [string, string, string]> = { ok: ["✓", "ok", "There: "], missing: ["✕", "missing", "Missing: "], note: ["·", "note-mark", "Note: "] };
export function checksOf(findings: Finding[]): HTMLElement {
  const rank = { missing: 0, note: 2, ok: 1 };
  return h("ul", { class: "checks" }, [...findings].sort((a, b) => rank[a.level] - rank[b.level]).map((f) => {
    const [sign, style, word] = marks[f.level];
    return h("li", { class: style }, h("span", { class: "mark", "aria-hidden": "true" }, sign), h("div", null, h("p", null, h("span", { class: "hidden" }, word), prose(f.what)), f.remedy ? h("p", null, prose(f.remedy)) : null));
  }));
}

export async function machineView(): Promise<View> {
  const d = await post<Doctor>("preflight", {});
  const node = h("div", null,
    head("This machine", "What the doctor found, what is missing, and how to get it."),
    facts([
      ["processor", `${d.cpu.model}, ${d.cpu.cores} cores`],
      ["vector units", [d.cpu.vector, d.cpu.avx512_bf16 ? "AVX-512 bf16" : "", d.cpu.amx_bf16 ? "AMX" : ""].filter(Boolean).join(", ")],
      ["oneDNN", `${d.cpu.onednn} (${d.cpu.onednn_isa})`],
      ["memory", `${bytes(d.memory_bytes.total)}, ${bytes(d.memory_bytes.available)} free`],
      ["disk", `${bytes(d.disk_free_bytes)} free`],
      ["NVIDIA driver", d.nvidia_driver ? "there" : "not there"],
      ["ROCm", d.rocm ? "there" : "not there"],
    ]),
    h("section", null, h("h2", null, d.missing.length ? "What is missing" : "Nothing is missing"), checksOf(d.missing.map((m) => ({ level: "missing", what: m.what, remedy: m.remedy })))));
  return { title: "This machine", node };
}

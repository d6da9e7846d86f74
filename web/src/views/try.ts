// Base and tuned, asked the same thing at once.
import { events, get, message, post } from "../lib/api";
import { fill, h, type View } from "../lib/dom";
import { number } from "../lib/format";
import { failure, head, working } from "../lib/parts";
import type { About, Run, RunSummary, Trial } from "../lib/types";

interface Turn { role: "user" | "assistant"; content: string }
interface Target { id: string; name: string; path: string; model: string }

class Side {
  turns: Turn[] = [];
  private text = h("div", { "aria-live": "polite" });
  private speed = h("span");
  private select: HTMLSelectElement;
  node: HTMLElement;
  constructor(name: string, private targets: Target[], chosen: number) {
    this.select = h("select", { "aria-label": `Model ${name}`, onchange: () => this.clear() }, targets.map((t, i) => h("option", { value: t.id, ...(i === chosen ? { selected: true } : {}) }, t.name)));
    this.node = h("article", { class: "answer", "aria-label": name }, h("header", null, this.select, this.speed), this.text);
  }
  clear(): void {
    this.turns = [];
    fill(this.text);
    fill(this.speed);
  }
  async ask(question: string, settings: Record<string, unknown>, system: string, signal: AbortSignal): Promise<void> {
    const target = this.targets.find((t) => t.id === this.select.value)!;
    this.turns.push({ role: "user", content: question });
    const answer = h("div", { class: "turn" }, "…");
    this.text.append(h("div", { class: "turn user" }, question), answer);
    let said = "", thought = "", cut = false, first = 0, last = 0, tokens = 0;
    try {
      const messages = [...(system ? [{ role: "system", content: system }] : []), ...this.turns];
      for await (const e of events("POST", target.path, { model: target.model, messages, stream: true, stream_options: { include_usage: true }, ...settings }, signal)) {
        if (e.data === "[DONE]") break;
        const chunk = JSON.parse(e.data) as { error?: { message: string }; choices: { delta: { content?: string; reasoning?: string }; finish_reason?: string | null }[]; usage?: { completion_tokens: number } };
        if (chunk.error) throw new Error(chunk.error.message);
        const delta = chunk.choices[0]?.delta;
        if (delta?.content || delta?.reasoning) {
          first ||= performance.now();
          last = performance.now();
        }
        said += delta?.content ?? "";
        thought += delta?.reasoning ?? "";
        cut ||= chunk.choices[0]?.finish_reason === "length";
        if (chunk.usage) tokens = chunk.usage.completion_tokens;
        fill(answer, thought ? h("details", null, h("summary", { class: "muted small" }, "Thoughts"), h("div", { class: "muted" }, thought)) : null, said || (thought ? "" : "…"));
      }
      if (!said && !thought) fill(answer, h("span", { class: "muted" }, "(it says nothing)"));
      this.turns.push({ role: "assistant", content: said });
      if (cut) answer.append(h("span", { class: "muted" }, " … (cut: the longest answer is reached)"));
      fill(this.speed, tokens ? `${tokens} tokens${last > first ? `, ${number((tokens - 1) / ((last - first) / 1000))} a second` : ""}` : "");
    } catch (e) {
      this.turns.pop();
      if (signal.aborted) answer.append(h("span", { class: "muted" }, " (stopped)"));
      else fill(answer, said, failure(e));
    }
  }
}

export async function tryView(key: string | null, about: About): Promise<View> {
  const body = h("div");
  let timer = 0, left = false, stop: AbortController | null = null;
  const served: Target[] = about.models.map((m) => ({ id: `served:${m}`, name: `${m} (this server)`, path: "/v1/chat/completions", model: m }));

  const room = (trial: Trial | null): void => {
    const targets = [...(trial?.models ?? []).map((m) => ({ id: `trial:${m}`, name: m, path: "/coach/api/trial/chat", model: m })), ...served];
    const sides = targets.length > 1 ? [new Side("left", targets, 0), new Side("right", targets, 1)] : [new Side("answer", targets, 0)];
    const question = h("textarea", { rows: "2", "aria-label": "Message", placeholder: "Ask both the same thing", onkeydown: (e: KeyboardEvent) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); void send(); } } });
    if (sides.length === 1) question.placeholder = "Ask something";
    const system = h("input", { "aria-label": "System prompt", placeholder: "none" }), temperature = h("input", { type: "number", min: "0", max: "2", step: "0.1", value: "0" }), most = h("input", { type: "number", min: "1", max: "4096", value: "128" });
    const button = h("button", { class: "primary", type: "button", onclick: () => (stop ? stop.abort() : void send()) }, "Send");
    const send = async (): Promise<void> => {
      const text = question.value.trim();
      if (!text || stop) return;
      question.value = "";
      stop = new AbortController();
      button.textContent = "Stop";
      const settings = { temperature: Number(temperature.value), max_tokens: Math.max(1, Math.round(Number(most.value)) || 128) };
      await Promise.all(sides.map((s) => s.ask(text, settings, system.value.trim(), stop!.signal)));
      stop = null;
      button.textContent = "Send";
    };
    fill(body, h("div", { class: sides.length > 1 ? "sides" : "" }, sides.map((s) => s.node)), h("div", { class: "ask" }, question, button),
      h("div", { class: "settings" }, h("label", null, "System prompt", system), h("label", null, "Temperature", temperature), h("label", null, "Longest answer, tokens", most), h("label", null, "Conversation", h("button", { type: "button", onclick: () => sides.forEach((s) => s.clear()) }, "Start over"))));
  };
  const wait = (trial: Trial): void => {
    if (left) return;
    if (trial.state === "ready") return room(trial);
    if (trial.state === "failed") return fill(body, h("p", { class: "note error", role: "alert" }, trial.message));
    if (trial.state === "none") return fill(body, h("p", { class: "empty" }, "The models were let go of."));
    fill(body, working("Loading the models…"));
    timer = window.setTimeout(async () => {
      try {
        wait(await get<Trial>("trial"));
      } catch (e) {
        fill(body, failure(e));
      }
    }, 500);
  };

  const runs = (await get<RunSummary[]>("runs")).filter((r) => r.state === "finished");
  const picker = h("select", { "aria-label": "Run to try", onchange: () => (location.hash = picker.value ? `#/try/${picker.value}` : "#/try") }, h("option", { value: "" }, served.length ? "this server's models" : "pick a run"), runs.map((r) => h("option", { value: r.key, ...(r.key === key ? { selected: true } : {}) }, `${r.name} (${r.key})`)));
  picker.style.width = "auto";
  picker.style.maxWidth = "100%";
  if (key) {
    const run = await get<Run>(`runs/${key}`);
    if (!runs.some((r) => r.key === key)) picker.append(h("option", { value: key, selected: true }, `${run.name} (${key})`));
    void (async () => {
      try {
        const now = await get<Trial>("trial");
        wait(now.run === key && (now.state === "ready" || now.state === "starting") ? now : await post<Trial>("trial", { run: key }));
      } catch (e) {
        fill(body, h("p", { class: "note error", role: "alert" }, message(e)));
      }
    })();
  } else if (served.length) room(null);
  else fill(body, h("p", { class: "empty" }, "Pick a finished run: its base and its tuned model are loaded side by side."));
  return { title: "Try", node: h("div", null, head("Try", "The base model and what the run made of it, asked the same thing.", picker), body), leave: () => { left = true; clearTimeout(timer); stop?.abort(); } };
}

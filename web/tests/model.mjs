// A tiny model that tests make for themselves: random weights, a tokenizer of bytes, a chat template, and recipes for it.
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const template = "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant:{% endif %}";

function tokenizer(folder) {
  mkdirSync(folder, { recursive: true });
  const vocab = {};
  let next = 0, stand = 0;
  for (let b = 0; b < 256; ++b) vocab[String.fromCodePoint((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : 256 + stand++)] = next++;
  const special = (content) => ({ id: next++, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true });
  const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };
  const added = [special("<s>"), special("</s>")];
  writeFileSync(join(folder, "tokenizer.json"), JSON.stringify({ version: "1.0", truncation: null, padding: null, normalizer: null, added_tokens: added, pre_tokenizer: bytes, post_processor: null, decoder: bytes, model: { type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ignore_merges: false, vocab, merges: [] } }));
  writeFileSync(join(folder, "tokenizer_config.json"), JSON.stringify({ eos_token: "</s>", tokenizer_class: "PreTrainedTokenizerFast", chat_template: template }));
}

// FOLDER/{tokenizer, rows.jsonl, sums.jsonl, base/checkpoint, quick.yaml}; `base` is trained for a moment so that it is a model like any other.
export function makeTinyModel(binary, folder, env) {
  tokenizer(join(folder, "tokenizer"));
  const names = ["Ada", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal"], things = ["tea", "rice", "ink", "salt", "wool", "milk"];
  const rows = names.flatMap((n) => things.map((t) => ({ messages: [{ role: "user", content: `What does ${n} like?` }, { role: "assistant", content: `${n} likes ${t}.` }] })));
  writeFileSync(join(folder, "rows.jsonl"), rows.map((r) => JSON.stringify(r) + "\n").join(""));
  const common = (name, steps, method, lr) => `# A tiny model learns what everybody likes.
meta:
  project: coach-test
  run_name: ${name}
hardware:
  name: cpu
autotune:
  enabled: ${name === "base" ? "false" : "true"}
  budget_seconds: 10
data:
  source: local
  path: ${join(folder, "rows.jsonl")}
  seq_len: 64
train:
  method: ${method}
  precision: float32
  optimizer:
    lr: ${lr}
  schedule:
    max_steps: ${steps}
  batch:
    per_device: 4
    grad_accum: 1
  save_every: 20
receipt:
  output: ${join(folder, name + ".receipt.json")}
`;
  writeFileSync(join(folder, "base.yaml"), common("base", 2, "{kind: full}", "1.0e-3") + `model:
  name: tiny
  init: random
  tokenizer: ${join(folder, "tokenizer")}
  torch_dtype: float32
  config: {model_type: llama, architectures: [LlamaForCausalLM], vocab_size: 258, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 512, rms_norm_eps: 1.0e-6, rope_theta: 10000.0, tie_word_embeddings: true, hidden_act: silu, eos_token_id: 257}
`);
  execFileSync(binary, ["train", join(folder, "base.yaml"), "--out", join(folder, "base")], { env, stdio: "pipe" });
  const base = join(folder, "base", "checkpoint");
  const quick = common("quick", 60, "{kind: lora, r: 8, alpha: 16}", "5.0e-3") + `model:
  name: ${base}
  torch_dtype: float32
`;
  writeFileSync(join(folder, "quick.yaml"), quick);
  const sums = [1, 2, 3, 4].map((n) => ({ prompt: `${n}+${n}=`, answer: String(2 * n) }));
  writeFileSync(join(folder, "sums.jsonl"), sums.map((r) => JSON.stringify(r) + "\n").join(""));
  // A policy that samples: two rewards, so that each has a line of its own.
  const sampled = common("sampled", 4, "{kind: grpo, num_generations: 4, max_completion_length: 8, lora: {r: 4}, rewards: [{kind: answer}, {kind: length, max_tokens: 4, weight: 0.5, name: short}]}", "1.0e-3").replace("enabled: true", "enabled: false").replace("rows.jsonl", "sums.jsonl") + `model:
  name: ${base}
  torch_dtype: float32
`;
  return { base, quick, sampled };
}

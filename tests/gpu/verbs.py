"""The verbs on a GPU: pretraining, a LoRA run on packed documents over its result, evaluation with generation, each twice for equal
bytes and once on the CPU lane for equal losses; then resuming, and the plan's memory against what was allocated.

usage: verbs.py MINDXTRAIN OUT      (libmindxtrain_cuda.so beside the binary or in ../lib; needs one H100 or H200)
"""
import hashlib
import json
import pathlib
import random
import subprocess
import sys
import time

BINARY, OUT = sys.argv[1], pathlib.Path(sys.argv[2])
OUT.mkdir(parents=True, exist_ok=True)
results, failures = {}, []

MODEL = """model:
  name: tiny-qwen3
  init: random
  tokenizer: char
  torch_dtype: bfloat16
  config:
    model_type: qwen3
    architectures: [Qwen3ForCausalLM]
    hidden_size: 512
    intermediate_size: 1536
    num_hidden_layers: 6
    num_attention_heads: 8
    num_key_value_heads: 4
    head_dim: 64
    max_position_embeddings: 2048
    rms_norm_eps: 1.0e-6
    rope_theta: 10000
    tie_word_embeddings: false
    hidden_act: silu
    attention_bias: false
    initializer_range: 0.02
"""


def recipe(name, model, data, train, gpu=True, extra=""):
    lane = "hardware:\n  name: h100\n" + ("" if gpu else "  gpus: 0\n")
    text = f"meta:\n  project: mindxtrain\n  run_name: {name}\n  seed: 7\n  license: apache-2.0\n{lane}{model}{data}{train}{extra}"
    path = OUT / f"{name}.yaml"
    path.write_text(text)
    return path


def run(name, *args, code=0):
    begin = time.time()
    p = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=400)
    (OUT / f"{name}.log").write_text(p.stdout + p.stderr)
    results[name] = {"seconds": round(time.time() - begin, 2), "exit": p.returncode}
    if p.returncode != code:
        failures.append(name)
        print(f"FAILED {name}: exit {p.returncode}\n{(p.stdout + p.stderr)[-2500:]}", flush=True)
    return p.stdout


def losses(folder):
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def digest(folder):
    h = hashlib.sha256()
    for f in sorted(p for p in folder.rglob("*") if p.is_file()):
        h.update(f.name.encode() + f.read_bytes())
    return h.hexdigest()


def check(name, ok, what):
    results.setdefault("checks", {})[name] = {"ok": bool(ok), "what": what}
    if not ok:
        failures.append(name)
    print(("ok      " if ok else "FAILED  ") + f"{name}: {what}", flush=True)


def distance(a, b):
    n = min(len(a), len(b))
    return max((abs(x["loss"] - y["loss"]) / abs(y["loss"]) for x, y in zip(a[:n], b[:n])), default=float("inf"))


words = "the model learns to read small words from a text that a seed has made for this test alone and nothing else".split()
rng = random.Random(5)
text = OUT / "text.txt"
text.write_text("\n".join(" ".join(rng.choice(words) for _ in range(rng.randint(3, 14))) for _ in range(20000)))
rows = OUT / "rows.jsonl"
with rows.open("w") as f:
    for _ in range(1500):
        a, b = rng.randint(0, 9), rng.randint(2, 60)
        f.write(json.dumps({"prompt": "read " + " ".join(rng.choice(words) for _ in range(b)), "completion": " ".join(words[a : a + 4])}) + "\n")

WINDOWS = f"data:\n  source: local\n  path: {text}\n  sampling: random_windows\n  seq_len: 512\n  eval_fraction: 0.05\n"
PACKED = f"data:\n  source: local\n  path: {rows}\n  columns: {{prompt: prompt, completion: completion}}\n  seq_len: 512\n  packing: true\n  eval_fraction: 0.05\n"


def pretrain(precision, steps, lr="1.0e-3", save=20):
    return f"train:\n  backend: native\n  method:\n    kind: pretrain\n  optimizer:\n    name: adamw_torch\n    lr: {lr}\n  schedule:\n    type: cosine\n    max_steps: {steps}\n    warmup_ratio: 0.1\n  batch:\n    per_device: 8\n    grad_accum: 2\n  precision: {precision}\n  save_every: {save}\n  eval_every: 20\n"


def lora(precision, dropout=0.0):
    return f"train:\n  backend: native\n  method:\n    kind: lora\n    r: 16\n    alpha: 32\n    dropout: {dropout}\n    target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]\n  optimizer:\n    name: adamw_torch_fused\n    lr: 1.0e-3\n  schedule:\n    type: cosine\n    max_steps: 30\n    warmup_ratio: 0.1\n  batch:\n    per_device: 8\n    grad_accum: 1\n  precision: {precision}\n  eval_every: 30\n"


run("doctor", "doctor")
# From scratch: fp32 follows the CPU closely, bf16 roughly on the same schedule; two runs give the same bytes.
for name, precision, steps, lr, gpu in (("pretrain_fp32_gpu", "float32", 12, "2.0e-4", True), ("pretrain_fp32_cpu", "float32", 12, "2.0e-4", False), ("pretrain_bf16_short", "bfloat16", 12, "2.0e-4", True), ("pretrain_bf16_gpu", "bfloat16", 40, "1.0e-3", True)):
    run(name, "train", recipe(name, MODEL, WINDOWS, pretrain(precision, steps, lr), gpu), "--out", OUT / name)
gpu32, cpu32 = losses(OUT / "pretrain_fp32_gpu"), losses(OUT / "pretrain_fp32_cpu")
d = distance(gpu32, cpu32)
check("pretrain fp32, GPU against CPU", d < 1e-4 and len(gpu32) == 12, f"largest relative difference of 12 losses {d:.2e}")
b16 = losses(OUT / "pretrain_bf16_gpu")
check("pretrain bf16 learns", b16 and b16[-1]["loss"] < 0.8 * b16[0]["loss"], f"{b16[0]['loss'] if b16 else 0:.3f} to {b16[-1]['loss'] if b16 else 0:.3f}")
short = losses(OUT / "pretrain_bf16_short")
d = distance(short, gpu32)
check("pretrain bf16 beside fp32", d < 2e-2 and len(short) == 12, f"largest relative difference of 12 losses {d:.2e}")
again = OUT / "pretrain_bf16_gpu.yaml"
PLAN = ("--plan", OUT / "pretrain_bf16_gpu/plan.json")  # the promise is for one plan: a probe of its own may choose otherwise
run("pretrain_again", "train", again, "--out", OUT / "again", *PLAN)
check("two runs, equal bytes", digest(OUT / "again/checkpoint") == digest(OUT / "pretrain_bf16_gpu/checkpoint"), "checkpoint folders")
(OUT / "again/train.json").unlink(missing_ok=True)
run("pretrain_resume", "train", again, "--out", OUT / "again", "--resume-from", "20", *PLAN)
check("resumed at step 20, equal bytes", digest(OUT / "again/checkpoint") == digest(OUT / "pretrain_bf16_gpu/checkpoint"), "checkpoint folders")

# What one device saved half way the other carries on: the same masters, moments and place in the data, so losses differ by rounding.
half = pretrain("float32", 12, "2.0e-4", save=6)
for first, second in (("gpu", "cpu"), ("cpu", "gpu")):
    name = OUT / f"crossing_{first}_{second}"
    run(f"crossing_{first}", "train", recipe(f"crossing_{first}", MODEL, WINDOWS, half, first == "gpu"), "--out", name)
    whole = losses(name)
    # The same recipe but for its hardware; its name is part of it.
    other = OUT / f"crossing_{first}_on_{second}.yaml"
    text_of = (OUT / f"crossing_{first}.yaml").read_text()
    other.write_text(text_of.replace("  gpus: 0\n", "") if first == "cpu" else text_of.replace("  name: h100\n", "  name: h100\n  gpus: 0\n", 1))
    (name / "train.json").unlink(missing_ok=True)
    run(f"crossing_{first}_on_{second}", "train", other, "--out", name, "--resume-from", "6")
    d = distance(losses(name)[6:], whole[6:])
    check(f"stopped on the {first}, resumed on the {second}", d < 1e-4 and len(losses(name)) == 12, f"largest relative difference of the last {len(whole[6:])} losses {d:.2e}")

# LoRA over it on packed documents, adapters joined (no dropout) and apart (dropout); generation and perplexity before and after.
base = OUT / "pretrain_bf16_gpu/checkpoint"
ON_BASE = f"model:\n  name: {base}\n  torch_dtype: bfloat16\n"
EVAL = f"eval:\n  harness:\n    tasks: []\n  perplexity_path: {OUT / 'short.txt'}\n"
(OUT / "short.txt").write_text(text.read_text()[:20000])
for name, precision, dropout, gpu in (("lora_gpu", "bfloat16", 0.0, True), ("lora_again", "bfloat16", 0.0, True), ("lora_dropout", "bfloat16", 0.1, True), ("lora_fp32_gpu", "float32", 0.0, True), ("lora_fp32_cpu", "float32", 0.0, False)):
    r = recipe(name, ON_BASE, PACKED, lora(precision, dropout), gpu, EVAL)
    run(name, "run" if name == "lora_gpu" else "train", r, "--out", OUT / name, *(("--plan", OUT / "lora_gpu/plan.json") if name == "lora_again" else ()))
a, c = losses(OUT / "lora_fp32_gpu"), losses(OUT / "lora_fp32_cpu")
d = distance(a, c)
check("LoRA fp32 on packed documents, GPU against CPU", d < 2e-4 and len(a) == 30, f"largest relative difference of {len(a)} losses {d:.2e}")
b = losses(OUT / "lora_gpu")
d = distance(b, c)
check("LoRA bf16 on packed documents beside fp32", d < 3e-2 and len(b) == 30, f"largest relative difference of {len(b)} losses {d:.2e}")
check("LoRA twice, equal bytes", (OUT / "lora_gpu/checkpoint").exists() and (OUT / "lora_gpu/checkpoint/adapter_model.safetensors").read_bytes() == (OUT / "lora_again/checkpoint/adapter_model.safetensors").read_bytes(), "adapters")
after = OUT / "lora_gpu/eval/after.json"
check("perplexity on the GPU", after.exists() and 1 < json.loads(after.read_text())["perplexity"]["value"] < 50, after.read_text()[-200:] if after.exists() else "missing")
# Generation: greedy in fp32, the same words from both devices.
config = json.loads((base / "tokenizer_config.json").read_text()) if (base / "tokenizer_config.json").exists() else {}
config["chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
(base / "tokenizer_config.json").write_text(json.dumps(config))
said = [run(f"chat_{device}", "chat", "--model", base, "--prompt", "read the model learns ", "--max-tokens", "64", "--temperature", "0", "--dtype", "float32", "--device", device) for device in ("h100", "cpu")]
check("greedy generation, GPU and CPU alike", said[0] == said[1] and len(said[0].strip()) > 20, repr(said[0][:80]))
score = OUT / "score.jsonl"
vocabulary = json.loads((base / "config.json").read_text())["vocab_size"]
score.write_text("".join(json.dumps({"ids": [rng.randrange(vocabulary) for _ in range(n)]}) + "\n" for n in (5, 300, 1, 77)))
for device in ("h100", "cpu"):
    run(f"score_{device}", "score", "--model", base, "--input", score, "--output", OUT / f"score_{device}.jsonl", "--dtype", "float32", "--device", device)
if (OUT / "score_h100.jsonl").exists() and (OUT / "score_cpu.jsonl").exists():
    flat = [[x for line in (OUT / f"score_{d}.jsonl").read_text().splitlines() for x in json.loads(line)["logprobs"] if x is not None] for d in ("h100", "cpu")]
    check("scores, GPU against CPU", len(flat[0]) == len(flat[1]) and max(abs(x - y) for x, y in zip(*flat)) < 1e-3, f"{len(flat[0])} log-probabilities")
# A plan that was measured here drives the run as it stands, and comes out of it as it went in; without one choice of the step it is refused.
measured, emptied = OUT / "measured.json", OUT / "emptied.json"
run("bench", "bench", "--config", OUT / "lora_gpu.yaml", "--out", measured)
if measured.exists():
    run("lora_measured", "train", OUT / "lora_gpu.yaml", "--plan", measured, "--out", OUT / "lora_measured")
    kept = OUT / "lora_measured/plan.json"
    check("a measured plan is what runs", kept.exists() and kept.read_bytes() == measured.read_bytes(), "plan.json of the run beside bench's")
    content = json.loads(measured.read_text())
    name = min(k for k in content["choices"] if not k.startswith("step "))
    del content["choices"][name]
    emptied.write_text(json.dumps(content))
    run("lora_emptied", "train", OUT / "lora_gpu.yaml", "--plan", emptied, "--out", OUT / "lora_emptied", code=1)
    said = (OUT / "lora_emptied.log").read_text()
    check("a plan without a choice is refused", name in said and not (OUT / "lora_emptied/checkpoint").exists(), f"{name}: {said.strip()[-200:]}")
plan = run("plan", "plan", OUT / "lora_gpu.yaml", "--json")
if plan and b:
    planned, held = json.loads(plan)["peak_bytes"]["device"], b[-1]["memory_bytes"] if "memory_bytes" in b[-1] else b[-1].get("memory", 0)
    results["plan"] = {"planned": planned, "held": held}
results["losses"] = {k: [round(x["loss"], 5) for x in v] for k, v in (("pretrain_fp32_gpu", gpu32), ("pretrain_fp32_cpu", cpu32), ("pretrain_bf16_short", short), ("pretrain_bf16_gpu", b16), ("lora_bf16_gpu", b), ("lora_fp32_gpu", a), ("lora_fp32_cpu", c))}
results["failures"] = failures
(OUT / "verbs.json").write_text(json.dumps(results, indent=1))
print(json.dumps({k: v["seconds"] for k, v in results.items() if isinstance(v, dict) and "seconds" in v}))
print("verbs: " + ("all passed" if not failures else f"{len(failures)} failed: {failures}"))
sys.exit(1 if failures else 0)

#!/usr/bin/env python3
"""What `mindxtrain plan` says a run's peak resident memory will be, beside what the process really had (VmHWM, from the run's own
metrics and from the kernel's account of the finished child), over recipes: full and LoRA, recompute off and on, three sizes of model.
Weights are random: only the dimensions matter.

usage: plan_memory.py [--binary build/release/apps/mindxtrain/mindxtrain] [--threads 2] [--steps 2] [--only NAME]
Prints one line a recipe and one JSON object at the end; exit 1 where a ratio is outside 3 %."""
import argparse, json, os, random, subprocess, sys, tempfile

p = argparse.ArgumentParser()
p.add_argument("--binary", default="build/release/apps/mindxtrain/mindxtrain")
p.add_argument("--threads", type=int, default=2)
p.add_argument("--steps", type=int, default=2)
p.add_argument("--only", default="")
p.add_argument("--tolerance", type=float, default=0.03)
a = p.parse_args()

SMALL = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=16384, hidden_size=384, intermediate_size=1024, num_hidden_layers=8,
             num_attention_heads=6, num_key_value_heads=6, max_position_embeddings=2048, rms_norm_eps=1e-5, tie_word_embeddings=True, hidden_act="silu")
SMOL = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
            num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=100000, tie_word_embeddings=True, hidden_act="silu")
QWEN = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
            num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1000000, tie_word_embeddings=True, hidden_act="silu")
LORA = "{kind: lora, r: 16, alpha: 32}"
# name, model, method, precision, seq_len, rows, forced recompute
CASES = [
    ("small full", SMALL, "{kind: full}", "bfloat16", 512, 4, "none"),
    ("small full float32", SMALL, "{kind: full}", "float32", 256, 4, "none"),
    ("small full recompute", SMALL, "{kind: full}", "bfloat16", 512, 8, "layer"),
    ("smollm2 lora", SMOL, LORA, "bfloat16", 512, 4, "none"),
    ("smollm2 lora recompute", SMOL, LORA, "bfloat16", 512, 4, "layer"),
    ("smollm2 full", SMOL, "{kind: full}", "bfloat16", 512, 2, "none"),
    ("qwen3-0.6b lora", QWEN, LORA, "bfloat16", 512, 1, "none"),
    ("qwen3-0.6b lora recompute", QWEN, LORA, "bfloat16", 512, 2, "cheap"),
]


def case(name, model, method, precision, seq, rows, recompute, folder):
    rng = random.Random(1)
    steps = 1 if model is QWEN else a.steps
    with open(f"{folder}/rows.jsonl", "w") as f:
        for _ in range(rows * steps):
            ids = [rng.randrange(10, model["vocab_size"] - 10) for _ in range(seq)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    with open(f"{folder}/r.yaml", "w") as f:
        f.write(f"""meta: {{project: bench, run_name: plan_memory}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: random, init: random, torch_dtype: {precision}, config: {json.dumps(model)}}}
data: {{source: local, path: "{folder}/rows.jsonl", seq_len: {seq}, packing: false, shuffle: false}}
train:
  method: {method}
  precision: {precision}
  batch: {{per_device: {rows}, grad_accum: 1}}
  micro_batch: {rows}
  schedule: {{max_steps: {steps}}}
receipt: {{output: "{folder}/receipt.json"}}
""")
    run = [a.binary, "--quiet"]
    plan_file = f"{folder}/plan.json"
    subprocess.run(run + ["bench", "--dry-run", "--config", f"{folder}/r.yaml", "--out", plan_file, "--threads", str(a.threads)], check=True, stdout=subprocess.DEVNULL)
    plan = json.load(open(plan_file))
    plan["choices"]["step recompute"] = recompute
    json.dump(plan, open(plan_file, "w"))
    said = json.loads(subprocess.run(run + ["plan", f"{folder}/r.yaml", "--plan", plan_file, "--json", "--threads", str(a.threads)], check=True, capture_output=True, text=True).stdout)
    pid = os.spawnv(os.P_NOWAIT, a.binary, run + ["train", f"{folder}/r.yaml", "--plan", plan_file, "--out", f"{folder}/out", "--threads", str(a.threads)])
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"{name}: train ended with status {status}")
    metrics = [json.loads(l) for l in open(f"{folder}/out/metrics.jsonl")]
    return said, metrics[-1]["peak_memory_bytes"], usage.ru_maxrss * 1024


out, bad = [], 0
print(f"{'recipe':<28}{'plan MB':>10}{'VmHWM MB':>10}{'ratio':>8}   of the plan: process, weights, gradients+moments, activations, rest")
for c in CASES:
    if a.only and a.only not in c[0]:
        continue
    with tempfile.TemporaryDirectory() as folder:
        said, in_run, whole = case(*c, folder)
    planned = said["peak_bytes"]["host"]
    k = said["categories"]
    ratio = planned / whole
    bad += abs(ratio - 1) > a.tolerance
    mb = lambda n: f"{n / 1e6:.1f}"
    print(f"{c[0]:<28}{mb(planned):>10}{mb(whole):>10}{ratio:>8.3f}   {mb(k['process'])} {mb(k['weights'])} {mb(k['gradients'] + k['optimizer'])} {mb(k['activations'])} {mb(k['workspace'] + k['logits'] + k['data'])}", flush=True)
    out.append({"recipe": c[0], "planned_bytes": planned, "vm_hwm_bytes": whole, "vm_hwm_at_last_step_bytes": in_run, "ratio": round(ratio, 4)})
print(json.dumps({"what": "plan's peak over VmHWM", "threads": a.threads, "recipes": out}))
sys.exit(bad > 0)

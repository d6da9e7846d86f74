#!/usr/bin/env python3
"""A LoRA training step with Qwen3-0.6B's dimensions (random weights, r16 on all seven linears, bf16) against what oneDNN reaches alone on
the step's products in the same sitting. Model operations are the frozen base's 4N and attention; recompute and adapters' products that
are computed twice are not counted.

usage: qwen3_lora_step.py [--build build/release] [--tokens 1024] [--steps 4] [--threads 2] [--rounds 3]
needs: a build with -DMXT_BENCH=ON
The plan is measured once (`bench`) and replayed by every round. Prints one JSON object; exit 1 below --least (0.5; AMX: 0.35)."""
import argparse, json, os, random, statistics, subprocess, sys, tempfile

from ceiling import lora_step_products, onednn_alone

p = argparse.ArgumentParser()
p.add_argument("--build", default="build/release")
p.add_argument("--tokens", type=int, default=1024)
p.add_argument("--steps", type=int, default=4)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--least", type=float, default=0.5)
a = p.parse_args()
CONFIG = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
              num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1000000, tie_word_embeddings=True, hidden_act="silu")
binary = f"{a.build}/apps/mindxtrain/mindxtrain"
products = lora_step_products(CONFIG, a.tokens, a.tokens)
tok_s, tflops, alone = [], [], []
with tempfile.TemporaryDirectory() as folder:
    rng = random.Random(0)
    with open(f"{folder}/rows.jsonl", "w") as f:
        for _ in range(a.steps):
            ids = [rng.randrange(1000, 100000) for _ in range(a.tokens)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    with open(f"{folder}/r.yaml", "w") as f:
        f.write(f"""meta: {{project: bench, run_name: qwen3_lora_step}}
hardware: {{name: cpu}}
model: {{name: random, init: random, config: {json.dumps(CONFIG)}}}
data: {{source: local, path: "{folder}/rows.jsonl", seq_len: {a.tokens}, packing: false, shuffle: false}}
train:
  method: {{kind: lora, r: 16, alpha: 32}}
  batch: {{per_device: 1, grad_accum: 1}}
  schedule: {{max_steps: {a.steps}}}
receipt: {{output: "{folder}/receipt.json"}}
""")
    subprocess.run([binary, "--quiet", "bench", "--config", f"{folder}/r.yaml", "--out", f"{folder}/plan.json", "--threads", str(a.threads)], check=True, stdout=subprocess.DEVNULL)
    for i in range(a.rounds):
        out = f"{folder}/out{i}"
        subprocess.run([binary, "--quiet", "train", f"{folder}/r.yaml", "--plan", f"{folder}/plan.json", "--out", out, "--threads", str(a.threads)], check=True)
        rows = [json.loads(l) for l in open(f"{out}/metrics.jsonl")][1:]  # after warm-up
        tok_s.append(statistics.median(r["tok_s"] for r in rows))
        tflops.append(statistics.median(r["tflops"] for r in rows))
        alone.append(onednn_alone(f"{a.build}/bench/kernels/gemm_bench", products, a.threads, 3)["tflops"])
share = statistics.median(tflops) / statistics.median(alone)
print(json.dumps({"what": f"Qwen3-0.6B's dimensions, LoRA r16, bf16, 1 x {a.tokens} tokens, every token trained", "threads": a.threads, "tok_s": [round(x) for x in tok_s], "model_tflops": [round(x, 3) for x in tflops], "onednn_alone_tflops": alone, "of_onednn_alone": round(share, 3)}))
sys.exit(share < a.least)

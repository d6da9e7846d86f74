#!/usr/bin/env python3
"""A step over a base in NF4 beside the same step over one in bfloat16: SmolLM2-135M, LoRA r16 on every linear layer, packed rows of 512
tokens, in turn on the same cores. Prints one JSON object; exit 1 where NF4 is more than 15 % slower or its plan takes more memory.

usage: qlora.py BINARY SMOLLM2.gguf [--steps 24] [--rounds 3] [--threads 2]"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

p = argparse.ArgumentParser()
p.add_argument("binary")
p.add_argument("model")
p.add_argument("--steps", type=int, default=24)
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--threads", type=int, default=2)
a = p.parse_args()
binary, model = pathlib.Path(a.binary).resolve(), pathlib.Path(a.model).resolve()
METHODS = {"lora, bf16": "kind: lora", "qlora, nf4": "kind: qlora, quant_type: nf4", "qlora, nf4 with scales in 8 bits": "kind: qlora, quant_type: nf4, double_quant: true"}


def recipe(method):
    return f"""meta: {{project: bench, run_name: qlora, seed: 2048}}
hardware: {{name: cpu}}
autotune: {{budget_seconds: 10}}
model: {{name: {model}, torch_dtype: bfloat16}}
data: {{source: synth, synth: {{task: tool_calls, rows: 200, turns: 5}}, seq_len: 512, packing: true}}
train:
  method: {{{method}, r: 16, alpha: 32, target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]}}
  batch: {{per_device: 1, grad_accum: 1}}
  schedule: {{max_steps: {a.steps}}}
"""


seconds, memory = {m: [] for m in METHODS}, {}
with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    for i, method in enumerate(METHODS.values()):
        (root / f"{i}.yaml").write_text(recipe(method))
    for turn in range(a.rounds):
        for i, name in enumerate(METHODS):
            out = root / f"{i}-{turn}"
            ran = subprocess.run([binary, "run", root / f"{i}.yaml", "--out", out, "--threads", str(a.threads)], capture_output=True, text=True, cwd=root)
            if ran.returncode != 0:
                sys.exit(f"exit {ran.returncode}: {(ran.stdout + ran.stderr)[-1500:]}")
            steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            tokens = [s["tokens"] - (steps[k - 1]["tokens"] if k else 0) for k, s in enumerate(steps)]
            seconds[name] += [n / s["tok_s"] for n, s in list(zip(tokens, steps))[4:]]
            memory[name] = max(s["peak_memory_bytes"] for s in steps)
medians = {m: statistics.median(s) for m, s in seconds.items()}
base = medians["lora, bf16"]
rows = [{"method": m, "ms_a_step": round(1000 * medians[m], 1), "least_ms": round(1000 * min(seconds[m]), 1), "of_bf16": round(medians[m] / base, 3), "peak_MiB": round(memory[m] / 2**20)} for m in METHODS]
print(json.dumps({"what": "QLoRA beside LoRA, SmolLM2-135M, rows of 512", "threads": a.threads, "steps": a.steps, "rounds": a.rounds, "rows": rows}))
sys.exit(any(r["of_bf16"] > 1.15 or r["peak_MiB"] > rows[0]["peak_MiB"] for r in rows))

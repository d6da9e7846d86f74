#!/usr/bin/env python3
"""Pretraining of recipes/nanochat_d4_base_cpu.yaml (depth 4, vocabulary 4,096, 8 x 512 tokens, MuonAdamW) beside nanochat's own model
and optimizer, eager or compiled, in one sitting with the same threads; tokens a second including the optimizer, the median of the steps
after the first tenth (compiling is not counted).

usage: nanochat.py NANOCHAT_CHECKOUT [--build build/release] [--threads 2] [--steps 60] [--rounds 2] [--eager]
needs: torch (an environment of its own) and a C++ compiler that torch.compile finds
Prints one JSON object; exit 1 where ours is below 2 times (bf16) or 1.6 times (fp32) nanochat compiled."""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

p = argparse.ArgumentParser()
p.add_argument("checkout")
p.add_argument("--build", default="build/release")
p.add_argument("--threads", type=int, default=2)
p.add_argument("--steps", type=int, default=60)
p.add_argument("--rounds", type=int, default=2)
p.add_argument("--eager", action="store_true")
p.add_argument("--as-peer", help=argparse.SUPPRESS)
a = p.parse_args()
root = os.path.abspath(f"{os.path.dirname(__file__)}/../..")
BATCH, LENGTH, VOCABULARY = 8, 512, 4096


def as_peer():
    os.environ["NANOCHAT_DTYPE"] = a.as_peer
    sys.path.insert(0, a.checkout)
    import torch
    from nanochat.gpt import GPT, GPTConfig

    torch.set_num_threads(a.threads)
    torch.manual_seed(42)
    model = GPT(GPTConfig(sequence_len=LENGTH, vocab_size=VOCABULARY, n_layer=4, n_head=2, n_kv_head=2, n_embd=256, window_pattern="SSSL"))
    model.init_weights()
    optimizer = model.setup_optimizer()
    step_model = model if a.eager else torch.compile(model, dynamic=False)
    seconds = []
    for _ in range(a.steps):
        ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1))
        start = time.perf_counter()
        loss = step_model(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        model.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - start)
    print(BATCH * LENGTH / statistics.median(seconds[a.steps // 10 + 2:]))


def ours(precision, folder):
    recipe = open(f"{root}/recipes/nanochat_d4_base_cpu.yaml").read()
    recipe = recipe.replace("../shared", os.path.abspath(f"{root}/../shared")).replace("max_steps: 600", f"max_steps: {a.steps}").replace("bits_per_byte: true", "bits_per_byte: false")
    name = f"{folder}/{precision}_{time.time_ns()}"
    open(f"{name}.yaml", "w").write(recipe.replace("bfloat16", precision))
    subprocess.run([os.path.abspath(f"{a.build}/apps/mindxtrain/mindxtrain"), "--quiet", "train", f"{name}.yaml", "--out", name, "--threads", str(a.threads)],
                   check=True, capture_output=True, cwd=root)
    rates = [r["tok_s"] for r in map(json.loads, open(f"{name}/metrics.jsonl")) if "tok_s" in r]
    return statistics.median(rates[a.steps // 10 + 2:])


if a.as_peer:
    sys.exit(as_peer())
runs = []
with tempfile.TemporaryDirectory() as folder:
    for _ in range(a.rounds):
        for precision in ("bfloat16", "float32"):
            runs.append({"who": "ours", "precision": precision, "tok_s": round(ours(precision, folder))})
            command = [sys.executable, os.path.abspath(__file__), os.path.abspath(a.checkout), "--as-peer", precision, "--threads", str(a.threads), "--steps", str(a.steps)] + ["--eager"] * a.eager
            runs.append({"who": "nanochat", "precision": precision, "tok_s": round(float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]))})
result, bad = {"what": "nanochat d4 pretraining", "threads": a.threads, "steps": a.steps, "compiled": not a.eager, "runs": runs}, False
for precision, least in (("bfloat16", 2.0), ("float32", 1.6)):
    best = {w: statistics.median(r["tok_s"] for r in runs if r["who"] == w and r["precision"] == precision) for w in ("ours", "nanochat")}
    result[f"{precision}_times_faster"] = round(best["ours"] / best["nanochat"], 2)
    bad |= result[f"{precision}_times_faster"] < least
print(json.dumps(result))
sys.exit(bad)

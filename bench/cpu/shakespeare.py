#!/usr/bin/env python3
"""recipes/shakespeare_char.yaml in fp32 and bf16 beside the same setting in PyTorch, in one sitting with the same threads: whole processes,
and the validation loss as the mean over all non-overlapping windows of the held-out text.

usage: shakespeare.py [--build build/release] [--threads 2] [--seeds 1337,1,2] [--rounds 1] [--only ours|peer] [--steps 2000]
needs: torch (an environment of its own), ../shared/data/tinyshakespeare/input.txt
Prints one JSON object; exit 1 where a loss is above 1.90 (after all 2,000 steps) or a speed below 2.5 times (fp32) or 4 times (bf16) PyTorch's."""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

p = argparse.ArgumentParser()
p.add_argument("--build", default="build/release")
p.add_argument("--threads", type=int, default=2)
p.add_argument("--seeds", default="1337,1,2")
p.add_argument("--rounds", type=int, default=1)
p.add_argument("--only", choices=["ours", "peer"])
p.add_argument("--steps", type=int, default=2000, help="fewer show the speed alone")
p.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
a = p.parse_args()
root = os.path.abspath(f"{os.path.dirname(__file__)}/../..")
TEXT = f"{root}/../shared/data/tinyshakespeare/input.txt"


def as_peer():
    """nanoGPT's CPU setting in PyTorch; evaluated as often as the recipe says, over the whole held-out text."""
    sys.path.insert(0, f"{root}/bench")
    import torch

    import nanogpt

    torch.set_num_threads(a.threads)
    torch.manual_seed(1337)
    s = nanogpt.Setting(layers=4, heads=4, width=128, block=64, batch=12, steps=a.steps)
    text = nanogpt.Text(TEXT)
    model = nanogpt.Gpt(s, len(text.letters))
    optimizer = nanogpt.optimizer_of(model)
    val = text.parts["val"]
    n = (len(val) - 1) // s.block

    def evaluate():
        with torch.no_grad():
            x, y = val[: n * s.block].view(n, s.block), val[1 : n * s.block + 1].view(n, s.block)
            return sum(model(x[i : i + 256], y[i : i + 256]).item() * len(x[i : i + 256]) for i in range(0, n, 256)) / n

    for step in range(s.steps):
        nanogpt.set_rate(optimizer, step, s)
        loss = model(*text.windows("train", s))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if (step + 1) % (s.steps // 2) == 0:
            last = evaluate()
    print(last)


def timed(command, **more):
    start = time.time()
    out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root, **more).stdout
    return time.time() - start, out


def ours(precision, seed, folder):
    recipe = open(f"{root}/recipes/shakespeare_char.yaml").read().replace("seed: 1337", f"seed: {seed}")
    recipe = recipe.replace("../shared/data/tinyshakespeare/input.txt", TEXT)
    recipe = recipe.replace("max_steps: 2000", f"max_steps: {a.steps}").replace("eval_every: 1000", f"eval_every: {a.steps // 2}")
    if precision == "bf16":
        recipe = recipe.replace("torch_dtype: float32", "torch_dtype: bfloat16").replace("precision: float32", "precision: bfloat16")
    name = f"{folder}/{precision}_{seed}_{time.time_ns()}"
    open(f"{name}.yaml", "w").write(recipe)
    seconds, _ = timed([os.path.abspath(f"{a.build}/apps/mindxtrain/mindxtrain"), "--quiet", "train", f"{name}.yaml", "--out", name, "--threads", str(a.threads)])
    losses = [r["eval_loss"] for r in map(json.loads, open(f"{name}/metrics.jsonl")) if "eval_loss" in r]
    return seconds, losses[-1]


if a.as_peer:
    sys.exit(as_peer())
runs, bad = [], False
with tempfile.TemporaryDirectory() as folder:
    for _ in range(a.rounds):
        if a.only != "peer":
            for precision in ("fp32", "bf16"):
                for seed in a.seeds.split(","):
                    seconds, loss = ours(precision, seed, folder)
                    runs.append({"who": precision, "seed": int(seed), "s": round(seconds, 1), "val_loss": round(loss, 4)})
                    bad |= a.steps == 2000 and loss > 1.90
        if a.only != "ours":
            seconds, loss = timed([sys.executable, os.path.abspath(__file__), "--as-peer", "--threads", str(a.threads), "--steps", str(a.steps)])
            runs.append({"who": "pytorch", "seed": 1337, "s": round(seconds, 1), "val_loss": round(float(loss), 4)})
median = {w: statistics.median(r["s"] for r in runs if r["who"] == w) for w in {r["who"] for r in runs}}
result = {"what": "shakespeare_char: whole process", "steps": a.steps, "threads": a.threads, "runs": runs}
if "pytorch" in median:
    for who, least in (("fp32", 2.5), ("bf16", 4.0)):
        if who in median:
            result[f"{who}_times_faster"] = round(median["pytorch"] / median[who], 2)
            bad |= result[f"{who}_times_faster"] < least
print(json.dumps(result))
sys.exit(bad)

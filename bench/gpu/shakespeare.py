#!/usr/bin/env python3
"""recipes/shakespeare_char_gpu.yaml beside the same setting in PyTorch with torch.compile on the same GPU, whole processes: nanoGPT's GPU
setting for characters (6 layers, 6 heads, 384 wide, block 256, batch 64, 5,000 steps, dropout 0.2, bf16).

usage: shakespeare.py MINDXTRAIN OUT [--peer]
needs: torch with CUDA for --peer, ../shared/data/tinyshakespeare/input.txt
The peer evaluates as nanoGPT does (200 batches of both parts every 250 steps); `train_s` leaves evaluation and compiling out.
Prints one JSON object; exit 1 where the best validation loss is above 1.48, or the run is not twice as fast as the peer's."""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import time

p = argparse.ArgumentParser()
p.add_argument("binary")
p.add_argument("out", type=pathlib.Path)
p.add_argument("--peer", action="store_true")
p.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
a = p.parse_args()
root = pathlib.Path(__file__).resolve().parents[2]
TEXT = root / "../shared/data/tinyshakespeare/input.txt"
BLOCK, BATCH, STEPS = 256, 64, 5000


def as_peer():
    sys.path.insert(0, str(root / "bench"))
    import torch

    import nanogpt

    torch.manual_seed(1337)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    s = nanogpt.Setting(layers=6, heads=6, width=384, block=BLOCK, batch=BATCH, steps=STEPS, dropout=0.2)
    text = nanogpt.Text(TEXT)

    def windows(part):
        return tuple(w.pin_memory().to("cuda", non_blocking=True) for w in text.windows(part, s))

    plain = nanogpt.Gpt(s, len(text.letters)).cuda()
    optimizer = nanogpt.optimizer_of(plain, fused=True)
    model, half = torch.compile(plain), torch.autocast("cuda", torch.bfloat16)
    best, training, begin = math.inf, 0.0, 0.0
    batch = windows("train")
    for step in range(STEPS + 1):
        nanogpt.set_rate(optimizer, step, s)
        if step % 250 == 0:
            torch.cuda.synchronize()
            training += time.time() - begin if step > 250 else 0
            model.eval()
            with torch.no_grad(), half:
                best = min(best, sum(model(*windows("val")).item() for _ in range(200)) / 200)
                sum(model(*windows("train")).item() for _ in range(200))
            model.train()
            torch.cuda.synchronize()
            begin = time.time()
        if step == STEPS:
            break
        with half:
            loss = model(*batch)
        batch = windows("train")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            loss.item()
    print(json.dumps({"best_eval_loss": best, "ms_a_step": 1000 * training / (STEPS - 250), "train_s": training * STEPS / (STEPS - 250), "torch": torch.__version__}))


if a.as_peer:
    sys.exit(as_peer())
begin = time.time()
subprocess.run([a.binary, "--quiet", "train", "recipes/shakespeare_char_gpu.yaml", "--out", a.out], check=True, cwd=root)
seconds = time.time() - begin
steps = [json.loads(line) for line in (a.out / "metrics.jsonl").read_text().splitlines()]
evals = {s["step"]: s["eval_loss"] for s in steps if "eval_loss" in s}
best = min(evals, key=evals.get)
speeds = sorted(s["tok_s"] for s in steps)
result = {"s": round(seconds, 1), "best_eval_loss": evals[best], "at_step": best, "median_tok_s": round(speeds[len(speeds) // 2]), "ms_a_step": round(BATCH * BLOCK / speeds[len(speeds) // 2] * 1000, 2), "eval_losses": {k: round(v, 4) for k, v in evals.items()}}
bad = evals[best] > 1.48
if a.peer:
    begin = time.time()
    done = subprocess.run([sys.executable, os.path.abspath(__file__), a.binary, a.out, "--as-peer"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the peer failed: {done.stderr[-1500:]}")
    result["peer"] = {"s": round(time.time() - begin, 1)} | json.loads(done.stdout.splitlines()[-1])
    result["times_faster"] = round(result["peer"]["s"] / seconds, 2)
    bad |= result["times_faster"] < 2
print(json.dumps(result))
sys.exit(bad)

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
LAYERS, HEADS, WIDTH, BLOCK, BATCH, STEPS, WARMUP, DROPOUT = 6, 6, 384, 256, 64, 5000, 100, 0.2


def as_peer():
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(1337)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    text = TEXT.read_text()
    letters = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = torch.tensor([letters[c] for c in text])
    cut = int(0.9 * len(ids))
    parts = {"train": ids[:cut], "val": ids[cut:]}

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
            self.drop = nn.Dropout(DROPOUT)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(WIDTH, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=DROPOUT if self.training else 0)
            x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, WIDTH)))
            return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.place = nn.Embedding(len(letters), WIDTH), nn.Embedding(BLOCK, WIDTH)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH, bias=False)
            self.drop = nn.Dropout(DROPOUT)
            for name, w in self.named_parameters():
                if w.dim() == 2:
                    nn.init.normal_(w, 0, 0.02 / math.sqrt(2 * LAYERS) if name.endswith(("out.weight", "down.weight")) else 0.02)

        def forward(self, x, y):
            h = self.drop(self.token(x) + self.place(torch.arange(x.shape[1], device=x.device)))
            for block in self.blocks:
                h = block(h)
            return F.cross_entropy(F.linear(self.norm(h), self.token.weight).flatten(0, 1), y.flatten())

    def windows(part):
        at = torch.randint(len(parts[part]) - BLOCK, (BATCH,))
        take = lambda shift: torch.stack([parts[part][i + shift : i + shift + BLOCK] for i in at]).pin_memory().to("cuda", non_blocking=True)
        return take(0), take(1)

    plain = Gpt().cuda()
    decay = [w for w in plain.parameters() if w.dim() >= 2]
    rest = [w for w in plain.parameters() if w.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.99), fused=True)
    model, half = torch.compile(plain), torch.autocast("cuda", torch.bfloat16)
    best, training, begin = math.inf, 0.0, 0.0
    batch = windows("train")
    for step in range(STEPS + 1):
        along = (step - WARMUP) / (STEPS - WARMUP)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (step + 1) / (WARMUP + 1) if step < WARMUP else 1e-4 + 0.5 * (1 + math.cos(math.pi * along)) * 9e-4
        if step % 250 == 0:
            torch.cuda.synchronize()
            training += time.time() - begin if step > 250 else 0
            model.eval()
            with torch.no_grad(), half:
                best = min(best, {part: sum(model(*windows(part)).item() for _ in range(200)) / 200 for part in parts}["val"])
            model.train()
            torch.cuda.synchronize()
            begin = time.time()
        if step == STEPS:
            break
        with half:
            loss = model(*batch)
        batch = windows("train")
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
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

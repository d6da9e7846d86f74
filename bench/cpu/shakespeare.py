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
LAYERS, HEADS, WIDTH, BLOCK, BATCH, STEPS, WARMUP, EVERY = 4, 4, 128, 64, 12, a.steps, 100, a.steps // 2


def as_peer():
    """The GPT of nanoGPT's CPU setting as PyTorch's own modules express it, with its schedule, split and optimizer groups; evaluated as often
    as the recipe says, over the whole held-out text."""
    import math

    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(a.threads)
    torch.manual_seed(1337)
    text = open(TEXT).read()
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

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(WIDTH, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.place = nn.Embedding(len(letters), WIDTH), nn.Embedding(BLOCK, WIDTH)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH, bias=False)
            for name, w in self.named_parameters():
                if w.dim() == 2:
                    nn.init.normal_(w, 0, 0.02 / math.sqrt(2 * LAYERS) if name.endswith(("out.weight", "down.weight")) else 0.02)

        def forward(self, x, y):
            h = self.token(x) + self.place(torch.arange(x.shape[1]))
            for block in self.blocks:
                h = block(h)
            return F.cross_entropy(F.linear(self.norm(h), self.token.weight).flatten(0, 1), y.flatten())

    def windows(part):
        at = torch.randint(len(parts[part]) - BLOCK, (BATCH,))
        take = lambda shift: torch.stack([parts[part][i + shift : i + shift + BLOCK] for i in at])
        return take(0), take(1)

    model = Gpt()
    decay = [w for w in model.parameters() if w.dim() >= 2]
    rest = [w for w in model.parameters() if w.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.99))
    val = parts["val"]
    n = (len(val) - 1) // BLOCK

    def evaluate():
        with torch.no_grad():
            x, y = val[: n * BLOCK].view(n, BLOCK), val[1 : n * BLOCK + 1].view(n, BLOCK)
            return sum(model(x[i : i + 256], y[i : i + 256]).item() * len(x[i : i + 256]) for i in range(0, n, 256)) / n

    for step in range(STEPS):
        along = (step - WARMUP) / (STEPS - WARMUP)
        rate = 1e-3 * (step + 1) / (WARMUP + 1) if step < WARMUP else 1e-4 + 0.5 * (1 + math.cos(math.pi * along)) * 9e-4
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = model(*windows("train"))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if (step + 1) % EVERY == 0:
            last = evaluate()
    print(last)


def timed(command, **more):
    start = time.time()
    out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root, **more).stdout
    return time.time() - start, out


def ours(precision, seed, folder):
    recipe = open(f"{root}/recipes/shakespeare_char.yaml").read().replace("seed: 1337", f"seed: {seed}")
    recipe = recipe.replace("../shared/data/tinyshakespeare/input.txt", TEXT)
    recipe = recipe.replace("max_steps: 2000", f"max_steps: {STEPS}").replace("eval_every: 1000", f"eval_every: {EVERY}")
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
                    bad |= STEPS == 2000 and loss > 1.90
        if a.only != "ours":
            seconds, loss = timed([sys.executable, os.path.abspath(__file__), "--as-peer", "--threads", str(a.threads), "--steps", str(STEPS)])
            runs.append({"who": "pytorch", "seed": 1337, "s": round(seconds, 1), "val_loss": round(float(loss), 4)})
median = {w: statistics.median(r["s"] for r in runs if r["who"] == w) for w in {r["who"] for r in runs}}
result = {"what": "shakespeare_char: whole process", "steps": STEPS, "threads": a.threads, "runs": runs}
if "pytorch" in median:
    for who, least in (("fp32", 2.5), ("bf16", 4.0)):
        if who in median:
            result[f"{who}_times_faster"] = round(median["pytorch"] / median[who], 2)
            bad |= result[f"{who}_times_faster"] < least
print(json.dumps(result))
sys.exit(bad)

#!/usr/bin/env python3
"""A step of GPT-2 with 760 M weights (24 layers, 24 heads, 1,536 wide, 1,024 tokens a row, 480 rows a step) beside nanoGPT's own way of
doing it on the same GPU: its modules in PyTorch, torch.compile, bf16 by autocast, fused AdamW, passes of as many rows as are fastest.

usage: gpt2_760m.py GPU_STEP
needs: torch with CUDA
Prints one JSON object: tokens a second, optimizer included, and the share of the card's dense bf16 products that the model's own
operations are (6 for each weight of a product and token, 12 x layers x width for each token of a row, half of it causal)."""
import argparse
import json
import pathlib
import subprocess
import sys
import time

p = argparse.ArgumentParser()
p.add_argument("gpu_step")
a = p.parse_args()
root = pathlib.Path(__file__).resolve().parents[2]
LAYERS, HEADS, WIDTH, BLOCK, ROWS, VOCABULARY, PEAK = 24, 24, 1536, 1024, 480, 50304, 989e12
PER_TOKEN = 6 * (LAYERS * 12 * WIDTH * WIDTH + VOCABULARY * WIDTH) + 6 * LAYERS * WIDTH * BLOCK


def ours(kind):
    command = [a.gpu_step, str(root / "bench/gpu/models/gpt2-760m.json"), str(ROWS), str(BLOCK), "24", "4", "full", "none", kind]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"gpt2_760m.py: {' '.join(command)}: {out.stderr.strip()}")
    return json.loads(out.stdout.strip().splitlines()[-1])


def peer(batch, steps=3):
    sys.path.insert(0, str(root / "bench"))
    import torch

    import nanogpt

    torch.manual_seed(1337)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    s = nanogpt.Setting(layers=LAYERS, heads=HEADS, width=WIDTH, block=BLOCK, batch=batch, steps=steps)
    plain = nanogpt.Gpt(s, VOCABULARY).cuda()
    optimizer = nanogpt.optimizer_of(plain, fused=True)
    model, half, passes = torch.compile(plain), torch.autocast("cuda", torch.bfloat16), ROWS // batch
    x = torch.randint(50257, (batch, BLOCK), device="cuda")
    times = []
    for step in range(steps + 1):
        torch.cuda.synchronize()
        begin = time.time()
        for _ in range(passes if step else 2):
            with half:
                loss = model(x, x) / passes
            loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.time() - begin)
    result = {"rows a pass": batch, "tok/s": round(ROWS * BLOCK / min(times[1:])), "peak_GiB": round(torch.cuda.max_memory_allocated() / 2**30, 2)}
    del model, plain, optimizer
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch._dynamo.reset()
    return result


import torch

result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "ours": {k: ours(k) for k in ("bf16", "fp8")}}
result["nanoGPT compiled"] = [peer(b) for b in (12, 16, 24)]
for row in result["nanoGPT compiled"]:
    row["utilisation"] = round(row["tok/s"] * PER_TOKEN / PEAK, 3)
print(json.dumps(result, indent=1))

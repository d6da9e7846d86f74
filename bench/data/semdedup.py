#!/usr/bin/env python3
"""Copies in meaning: time after the embeddings, and how many planted ones are found.

    semdedup.py SEMDEDUP_BENCH [--rows 120000] [--threads 2] [--mindxtrain BIN --model DIR]      needs numpy

SEMDEDUP_BENCH is build/release/bench/data/semdedup_bench (cmake -DMXT_BENCH=ON). Made-up embeddings of 384 elements: rows of
2,000 topics, of which one in ten is a copy of the row before at a cosine uniform in 0.9 ... 1; every pair is judged by its exact
cosine. With --mindxtrain and --model (the folder of all-MiniLM-L6-v2): rows of text with planted paraphrases, embedded by it.
"""
import argparse
import json
import random
import subprocess
import tempfile
from pathlib import Path

import numpy as np

WIDTH, THRESHOLD = 384, 0.95
NAMES = "Anna Ben Carla David Emma Felix Grace Henry Irene Jack".split()
THINGS = "apples books candles stamps marbles tickets pencils bottles shirts coins cookies plants maps chairs lamps".split()
PLACES = "market school library harbour station museum bakery garden theatre airport".split()


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def made_up(n, rng):
    topics = unit(rng.standard_normal((2000, WIDTH), dtype=np.float32))
    x = unit(0.8 * topics[rng.integers(0, 2000, n)] + 0.6 * unit(rng.standard_normal((n, WIDTH), dtype=np.float32)))
    copies = np.arange(9, n, 10)
    c = rng.uniform(0.9, 1, len(copies)).astype(np.float32)[:, None]
    v = x[copies - 1]
    other = unit(rng.standard_normal(v.shape, dtype=np.float32))
    other = unit(other - (other * v).sum(1, keepdims=True) * v)
    x[copies] = c * v + np.sqrt(1 - c * c) * other
    return x, copies


def paraphrases(n, rng):
    rows, copies = [], []
    while len(rows) < n:
        who, what, where = rng.choice(NAMES), rng.choice(THINGS), rng.choice(PLACES)
        a, b, more = rng.randint(2, 90), rng.randint(2, 90), " ".join(rng.sample(THINGS + PLACES, 3))
        rows.append(f"{who} bought {a} {what} at the {where} and gave away {b} of them, beside {more}. How many {what} are left?")
        if len(rows) % 10 == 9:
            copies.append(len(rows))
            rows.append(f"{who} bought {a} {what} at the {where} and gave {b} of them away, beside {more}. How many {what} remain?")
    return rows[:n], [c for c in copies if c < n]


def judge(binary, x, copies, threads, where):
    (where / "x.f32").write_bytes(np.ascontiguousarray(x, dtype="<f4").tobytes())
    answers = []
    for t in sorted({1, threads}):
        out = subprocess.run([binary, where / "x.f32", str(x.shape[1]), "--threads", str(t), "--threshold", str(THRESHOLD), "--stays", where / f"{t}.u32"],
                             check=True, capture_output=True, text=True)
        answers.append((where / f"{t}.u32").read_bytes())
        result = json.loads(out.stdout)
        print(f"  {t} thread(s): {result['rows']} rows in {result['seconds']:.2f} s, {result['clusters']} clusters, the largest {result['largest_cluster']}; {result['dropped']} dropped")
    assert all(a == answers[0] for a in answers), "the result depends on threads"
    stays = np.frombuffer(answers[-1], "<u4")
    x = unit(x.astype(np.float64))
    gone = np.flatnonzero(stays != np.arange(len(stays)))
    exact = (x[gone] * x[stays[gone]]).sum(1)
    assert (exact >= THRESHOLD - 1e-4).all() and (stays[stays[gone]] == stays[gone]).all()
    pairs = (x[copies] * x[np.array(copies) - 1]).sum(1)
    alike = np.array(copies)[pairs >= THRESHOLD]
    found = (stays[alike] != alike) | (stays[alike - 1] != alike - 1)
    print(f"  planted pairs of cosine >= {THRESHOLD}: {len(alike)}, of which one went: {found.sum()} ({100 * found.mean():.1f} %); every row that went is alike to the one that stays for it")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("bench")
    p.add_argument("--rows", type=int, default=120_000)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--mindxtrain")
    p.add_argument("--model")
    p.add_argument("--text-rows", type=int, default=5000)
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        where = Path(d)
        print("made-up embeddings")
        judge(o.bench, *made_up(o.rows, np.random.default_rng(1)), o.threads, where)
        if o.mindxtrain and o.model:
            rows, copies = paraphrases(o.text_rows, random.Random(2))
            (where / "rows.jsonl").write_text("".join(json.dumps({"text": r}) + "\n" for r in rows))
            done = subprocess.run([o.mindxtrain, "embed", "--model", o.model, "--input", where / "rows.jsonl", "--output", where / "e.f32", "--threads", str(o.threads)],
                                  check=True, capture_output=True, text=True)
            print("paraphrases;", done.stderr.strip())
            judge(o.bench, np.fromfile(where / "e.f32", "<f4").reshape(len(rows), -1), copies, o.threads, where)


if __name__ == "__main__":
    main()

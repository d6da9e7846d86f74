#!/usr/bin/env python3
"""Near copies beside rensa: speed on rows of the length of GSM8K's questions, precision and recall on planted pairs.

    minhash.py DEDUPE_BENCH [--rows 1000000] [--threads 2] [--pairs 20000]

DEDUPE_BENCH is build/release/bench/data/dedupe_bench (cmake -DMXT_BENCH=ON). rensa (PyPI) is a peer only; without it its
figures are left out. Words follow Zipf's law over 30,000 words, 45 a row; one row in ten is a copy with one word changed.
"""
import argparse
import itertools
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path

WORDS = 30_000
NGRAM = 3


def zipf_rows(n, rng):
    vocabulary = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(WORDS)]
    weights = list(itertools.accumulate(1 / (r + 3) for r in range(WORDS)))
    rows = []
    for i in range(n):
        if i % 10 == 9:
            words = list(rng.choice(rows[-1000:]))
            words[rng.randrange(len(words))] = rng.choice(vocabulary)
        else:
            words = rng.choices(vocabulary, cum_weights=weights, k=rng.randint(40, 50))
        rows.append(words)
    return rows


def shingles(words):
    return {tuple(words[i : i + NGRAM]) for i in range(len(words) - NGRAM + 1)}


def jaccard(a, b):
    a, b = shingles(a), shingles(b)
    return len(a & b) / len(a | b)


def planted(pairs, rng):
    """Pairs of 200-word rows whose exact similarity is near a target uniform in 0.5 … 1."""
    rows, exact = [], []
    for _ in range(pairs):
        words = [f"w{rng.randrange(20_000)}" for _ in range(200)]
        target, copy = rng.uniform(0.5, 1), list(words)
        while jaccard(words, copy) > target:
            copy[rng.randrange(len(copy))] = f"u{rng.getrandbits(40)}"
        rows += [words, copy]
        exact.append(jaccard(words, copy))
    return rows, exact


def write(path, rows):
    with open(path, "w") as f:
        for words in rows:
            f.write(json.dumps({"text": " ".join(words)}) + "\n")


def run(binary, path, threads, *more):
    out = subprocess.run([binary, str(path), "--threads", str(threads), *more], check=True, capture_output=True, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def rensa_signatures(rows, repeat=3):
    import rensa

    best = 1e9
    for _ in range(repeat):
        t = time.perf_counter()
        rensa.RMinHash.digest_matrix_from_token_sets(rows, 128, 42)
        best = min(best, time.perf_counter() - t)
    return len(rows) / best


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binary")
    p.add_argument("--rows", type=int, default=1_000_000)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--pairs", type=int, default=5_000)
    p.add_argument("--file", help="keep the rows here, or use those already there (only the binary is timed then)")
    a = p.parse_args()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(a.file) if a.file else Path(folder) / "rows.jsonl"
        if not path.exists():
            write(path, zipf_rows(a.rows, rng))
        ours = run(a.binary, path, a.threads)
        print(f"rows {ours['rows']}, kept {ours['kept']}, threads {a.threads}")
        print(f"JSONL to kept rows   {ours['rows_per_second']:>12,.0f} rows/s  (target 400,000)")
        print(f"signatures alone     {ours['signatures_per_second']:>12,.0f} rows/s  (from texts; shingles made on the way)")
        try:
            with open(path) as f:
                words = [json.loads(line)["text"].split() for line in f]
            print(f"rensa, matrix call   {rensa_signatures(words):>12,.0f} rows/s  (from lists of words)")
        except ImportError:
            print("rensa is not installed: its figures are left out")
        if a.pairs:
            rows, exact = planted(a.pairs, rng)
            path, stays = Path(folder) / "planted.jsonl", Path(folder) / "stays.u32"
            write(path, rows)
            run(a.binary, path, a.threads, "--stays", str(stays))
            raw = stays.read_bytes()
            left = [0] * a.pairs
            for i in range(0, len(raw), 4):
                left[int.from_bytes(raw[i : i + 4], "little") // 2] += 1
            counted = [i for i in range(a.pairs) if abs(exact[i] - 0.8) >= 0.05]
            copies = {i for i in counted if exact[i] > 0.8}
            called = {i for i in counted if left[i] == 1}
            hit = len(copies & called)
            print(f"planted pairs        {len(counted)} counted: precision {hit / max(1, len(called)):.4f}, recall {hit / max(1, len(copies)):.4f}")


if __name__ == "__main__":
    main()

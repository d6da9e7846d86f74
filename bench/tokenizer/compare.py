#!/usr/bin/env python3
"""Our ids and speed beside Hugging Face's: compare.py BENCH_BINARY TOKENIZER_FOLDER TEXT... [--lines] [--speed] [--gigatoken PYTHON]

Every id must be equal; the first difference is shown with the text around it and the exit status is 1. With --gigatoken the speed of
gigatoken (PyPI, in the environment of the Python that is named) is measured in turn with ours, on as many cores: cold is the first
encode of a fresh tokenizer, warm the best of the later ones; --rounds N gives medians of N fresh processes of each, in turn, ours on two
cores as well, and leaves the ids.
"""
import argparse
import array
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer


def ours(a, text):
    with tempfile.TemporaryDirectory() as d:
        cmd = [a.bench, a.folder, text, "--ids", d + "/ids", "--repeat", "2" if a.speed or a.gigatoken else "0"]
        cmd += ["--lines"] if a.lines else []
        cmd += ["--threads", str(a.threads)] if a.threads > 1 else []
        out = json.loads(subprocess.run(cmd, check=True, capture_output=True, text=True).stdout)
        ids = array.array("i")
        ids.frombytes(open(d + "/ids", "rb").read())
        return ids, out


GIGATOKEN = """
import json, os, sys, time
import gigatoken
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: int(sys.argv[3])]))
data = open(sys.argv[2], "rb").read()
tokenizer, times = gigatoken.Tokenizer(sys.argv[1] + "/tokenizer.json"), []
cut = data.split(b"\\n") if int(sys.argv[3]) > 1 else None
for _ in range(4):
    start, cpu = time.time(), time.process_time()
    n = len(tokenizer.encode(data)) if cut is None else sum(map(len, tokenizer.encode_batch(cut, parallel=True)))
    times.append(len(data) / 1e6 / ((time.process_time() - cpu) if cut is None else (time.time() - start)))
print(json.dumps({"ids": n, "cold": round(times[0], 1), "warm": round(max(times[1:]), 1)}))
"""


def gigatoken(a, text):
    """{ids, cold, warm}: MB/s; with several threads the text goes as a batch of lines, the one way in which gigatoken uses them."""
    out = subprocess.run([a.gigatoken, "-c", GIGATOKEN, os.path.realpath(a.folder), text, str(a.threads)], check=True, capture_output=True, text=True, env={**os.environ, "RAYON_NUM_THREADS": str(a.threads)})
    return json.loads(out.stdout)


def beside(a, text):
    """Ours on one core, gigatoken on one core and ours on two, in turn, `--rounds` fresh processes each; medians of the cold and of the
    warm figures, MB/s (of processor time on one core, of the clock on two)."""
    seen = {"ours": [], "gigatoken": [], "ours on two": []}
    for _ in range(a.rounds):
        for who, threads, of in (("ours", 1, "mb_cpu_s"), ("ours on two", 2, "mb_s")):
            cmd = [a.bench, a.folder, text, "--repeat", "3", "--threads", str(threads)]
            speed = json.loads(subprocess.run(cmd, check=True, capture_output=True, text=True).stdout)
            seen[who].append((speed[f"cold_{of}"], speed[f"warm_{of}"]))
        g = gigatoken(a, text)
        seen["gigatoken"].append((g["cold"], g["warm"]))
    medians = {who: [round(statistics.median(x), 1) for x in zip(*v)] for who, v in seen.items()}
    times = lambda who: [round(x / y, 2) for x, y in zip(medians[who], medians["gigatoken"])]
    print(json.dumps({"text": os.path.basename(text), "rounds": a.rounds, "order": ["cold", "warm"], "medians": medians,
                      "times gigatoken on one core": {"ours": times("ours"), "ours on two": times("ours on two")}, "all": seen}), flush=True)


def theirs(a, tokenizer, text):
    data = open(text, "rb").read().decode("utf-8", "replace")
    parts = data.split("\n") if a.lines else [data]
    start, ids = time.time(), array.array("i")
    if a.lines:
        for i in range(0, len(parts), 4096):
            for e in tokenizer.encode_batch(parts[i:i + 4096], add_special_tokens=False):
                ids.extend(e.ids)
    else:
        ids.extend(tokenizer.encode(data, add_special_tokens=False).ids)
    return ids, len(data.encode()) / 1e6 / (time.time() - start)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bench")
    p.add_argument("folder")
    p.add_argument("texts", nargs="+")
    p.add_argument("--lines", action="store_true")
    p.add_argument("--speed", action="store_true")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--gigatoken", metavar="PYTHON")
    p.add_argument("--rounds", type=int, default=0, help="only the speed beside gigatoken's, medians of so many rounds")
    a = p.parse_args()
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    if a.rounds:
        for text in a.texts:
            beside(a, text)
        return
    tokenizer, bad = Tokenizer.from_file(a.folder + "/tokenizer.json"), False
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for text in a.texts:
        mine, speed = ours(a, text)
        if a.gigatoken:
            g, ratio = gigatoken(a, text), lambda k: round(speed[f"{k}_mb_s"] / g[k], 2)
            print(f"{text}: gigatoken {g['ids']} ids, cold {g['cold']} warm {g['warm']} MB/s; ours {ratio('cold')} and {ratio('warm')} times that", flush=True)
        hf, hf_speed = theirs(a, tokenizer, text)
        same = mine == hf
        bad |= not same
        print(f"{text}: {len(hf)} ids, {'equal' if same else 'DIFFERENT (ours ' + str(len(mine)) + ')'}; HF {hf_speed:.1f} MB/s, "
              f"ours cold {speed['cold_mb_s']} warm {speed['warm_mb_s']} MB/s "
              f"(of processor time {speed['cold_mb_cpu_s']}, {speed['warm_mb_cpu_s']})", flush=True)
        if not same:
            k = next((i for i, (x, y) in enumerate(zip(mine, hf)) if x != y), min(len(mine), len(hf)))
            show = lambda v: [tokenizer.id_to_token(i) for i in v[max(0, k - 4):k + 6]]
            print(f"  first at id {k}\n  ours   {show(mine)}\n  theirs {show(hf)}")
    sys.exit(1 if bad else 0)


main()

#!/usr/bin/env python3
"""`mindxtrain tokenizer train` beside Hugging Face's trainer and rustbpe: train.py BINARY TEXT [--vocab-size N]

The text (make_text.py writes one) is cut into rows of some kilobytes; all three learn from the same rows on as many threads. Merges must be
equal to Hugging Face's, tokens and ids to rustbpe's with --ties rustbpe; seconds are the clock's and the processor's, memory is the largest
resident. Needs tokenizers and, for the third, rustbpe (PyPI), as oracles only.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

PATTERN = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"

HF = """
from tokenizers import Regex, Tokenizer, models, pre_tokenizers as P, trainers
t = Tokenizer(models.BPE())
t.pre_tokenizer = P.Sequence([P.Split(Regex(PATTERN), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)])
t.train_from_iterator(rows(), trainers.BpeTrainer(vocab_size=SIZE, initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
t.save(OUT)
"""

RUST = """
import json, rustbpe
t = rustbpe.Tokenizer()
t.train_from_iterator(rows(), SIZE, pattern=PATTERN)
json.dump([[list(b), i] for b, i in t.get_mergeable_ranks()], open(OUT, "w"))
"""

ROWS = """
import json
def rows():
    for line in open(ROWS_FILE, encoding="utf-8"):
        yield json.loads(line)["text"]
"""


def measured(command):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    p = subprocess.Popen(command, env={**os.environ, "TOKENIZERS_PARALLELISM": "true"})
    _, status, used = os.wait4(p.pid, 0)
    if status:
        sys.exit(f"{command[0]} failed")
    return {"seconds": round(time.time() - start, 2), "cpu_seconds": round(used.ru_utime + used.ru_stime, 2), "mib": used.ru_maxrss // 1024}


def bytes_of():
    """Spelling → byte, as byte-level vocabularies are written."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binary")
    p.add_argument("text")
    p.add_argument("--vocab-size", type=int, default=32768)
    p.add_argument("--row", type=int, default=4000, help="characters")
    p.add_argument("--only", nargs="*", default=["hf", "rustbpe"])
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        rows = d + "/rows.jsonl"
        with open(rows, "w", encoding="utf-8") as f, open(a.text, encoding="utf-8", errors="replace", newline="") as text:
            while row := text.read(a.row):
                f.write(json.dumps({"text": row}, ensure_ascii=False) + "\n")
        ours = [a.binary, "tokenizer", "train", "--input", rows, "--special", "<|e|>"]
        oracle = lambda code, out: [sys.executable, "-W", "ignore", "-c", f"PATTERN, SIZE, ROWS_FILE, OUT = {PATTERN!r}, {a.vocab_size}, {rows!r}, {out!r}\n" + ROWS + code]
        size = ["--vocab-size", str(a.vocab_size + 1)]
        bad = False
        if "hf" in a.only:
            print("ours, hf ties", measured([*ours, *size, "--out", d + "/hf"]), flush=True)
            print("tokenizers", measured(oracle(HF, d + "/hf.json")), flush=True)
            got = json.load(open(d + "/hf/tokenizer.json"))["model"]["merges"]
            want = [m if isinstance(m, list) else m.split(" ") for m in json.load(open(d + "/hf.json"))["model"]["merges"]]
            first = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), min(len(got), len(want)))
            bad |= got != want
            print(f"{len(want)} merges:", "equal" if got == want else f"DIFFERENT from {first}: {got[first:first + 1]} {want[first:first + 1]}")
        if "rustbpe" in a.only:
            print("ours, rustbpe ties", measured([*ours, *size, "--ties", "rustbpe", "--out", d + "/rust"]), flush=True)
            print("rustbpe", measured(oracle(RUST, d + "/rust.json")), flush=True)
            table = bytes_of()
            vocab = json.load(open(d + "/rust/tokenizer.json"))["model"]["vocab"]
            got = {bytes(table[c] for c in t): i for t, i in vocab.items() if t != "<|e|>"}
            want = {bytes(b): i for b, i in json.load(open(d + "/rust.json"))}
            differ = [(t, i, got.get(t)) for t, i in want.items() if got.get(t) != i] or [t for t in got if t not in want]
            bad |= bool(differ)
            print(f"{len(want)} tokens:", "equal" if not differ else f"{len(differ)} DIFFERENT: {differ[:3]}")
        sys.exit(bad)


main()

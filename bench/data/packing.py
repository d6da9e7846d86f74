#!/usr/bin/env python3
"""How full packed rows are: tokens / (rows · seq_len), as `dataset prep` states them.

    packing.py MINDXTRAIN MODEL FILE [--seq-len 1024 2048 4096]

MODEL gives tokenizer and chat template (a folder or a .gguf file), FILE the rows (e.g. GSM8K's train.jsonl).
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binary")
    p.add_argument("model")
    p.add_argument("file")
    p.add_argument("--seq-len", type=int, nargs="+", default=[1024, 2048, 4096])
    a = p.parse_args()
    for n in a.seq_len:
        with tempfile.TemporaryDirectory() as folder:
            recipe, out = Path(folder) / "recipe.yaml", Path(folder) / "data"
            recipe.write_text(json.dumps({"meta": {"project": "bench", "run_name": "packing"}, "hardware": {"name": "cpu"}, "model": {"name": a.model},
                                          "data": {"source": "local", "path": a.file, "seq_len": n}}))
            subprocess.run([a.binary, "dataset", "prep", str(recipe), "--out", str(out)], check=True, capture_output=True)
            train = json.loads((out / "dataset.json").read_text())["train"]
            print(f"seq_len {n}: {train['documents']} documents in {train['rows']} rows, {100 * train['tokens'] / (train['rows'] * n):.2f} % full")


if __name__ == "__main__":
    main()

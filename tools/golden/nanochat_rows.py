#!/usr/bin/env python3
"""Rows as nanochat's own dataloader makes them, for tests/data/pack_test.cc: nanochat_rows.py NANOCHAT_CHECKOUT (needs torch, pyarrow).

Documents are given by their lengths alone; a token carries which document it is of and where it stands in it.
"""
import json
import pathlib
import random
import sys

sys.path.insert(0, sys.argv[1])
import torch  # noqa: E402
from nanochat import dataloader  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/data"


def rows_of(lengths, seq_len, count):
    class Tokens:
        def get_bos_token_id(self):
            return 0

        def encode(self, batch, prepend, num_threads):
            return [[d * 100000 + i for i in range(lengths[d])] for d in batch]

    def batches(split, state, size):
        # A pass over the documents, then the loader would begin again: the test stops before that.
        for i in range(0, len(lengths), size):
            yield list(range(i, min(i + size, len(lengths)))), (0, 0, 1)

    dataloader._document_batches = batches
    out = []
    loader = dataloader.tokenizing_distributed_data_loader_with_state_bos_bestfit(Tokens(), 1, seq_len, "train", device="cpu")
    for _ in range(count):
        x, y, _ = next(loader)
        tokens = x[0].tolist() + y[0].tolist()[-1:]
        row = []
        for t in tokens:
            d, i = divmod(t, 100000)
            if i == 0:
                row.append([d, 0])
            row[-1][1] += 1
        out.append(row)
    return out


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    cases = []
    for seed, seq_len, high, count in [(1, 256, 700, 300), (2, 64, 40, 500), (3, 500, 3000, 250)]:
        rng = random.Random(seed)
        lengths = [1 + int(high * rng.random() ** 2) for _ in range(3000)]
        cases.append({"seq_len": seq_len, "lengths": lengths, "rows": rows_of(lengths, seq_len, count)})
    (OUT / "nanochat_rows.json").write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")


main()

#!/usr/bin/env python3
"""A checkpoint whose names are those of a compiled module, for tests/formats/torch_test.cc: nanochat_compiled.py (needs torch)

nanochat saves the model that it made before torch.compile; people who save the compiled one have `_orig_mod.` before every name, and
nanochat's checkpoint_manager.py takes it off when it loads. One layer of an old model: no value embeddings, no scalars, all windows long.
"""
import json
import pathlib

import torch
from torch import nn

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/nanochat/compiled"
SHAPE = dict(sequence_len=32, vocab_size=61, n_layer=1, n_head=2, n_kv_head=1, n_embd=16)


def linear(rows, columns):
    return nn.Linear(columns, rows, bias=False)


class Block(nn.Module):
    def __init__(self, width, keys):
        super().__init__()
        self.attn = nn.ModuleDict({"c_q": linear(width, width), "c_k": linear(keys, width), "c_v": linear(keys, width), "c_proj": linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": linear(4 * width, width), "c_proj": linear(width, 4 * width)})


class Model(nn.Module):
    def __init__(self, width, keys, rows):
        super().__init__()
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(rows, width), "h": nn.ModuleList([Block(width, keys)])})
        self.lm_head = linear(rows, width)


torch.manual_seed(3)
OUT.mkdir(parents=True, exist_ok=True)
model = torch.compile(Model(SHAPE["n_embd"], SHAPE["n_embd"] // SHAPE["n_head"] * SHAPE["n_kv_head"], 64))
torch.save(model.state_dict(), OUT / "model_000003.pt")
(OUT / "meta_000003.json").write_text(json.dumps({"step": 3, "model_config": SHAPE}) + "\n")

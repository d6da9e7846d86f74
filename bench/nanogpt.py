"""nanoGPT's settings for characters as PyTorch's own modules express them: text and split, model, schedule, optimizer groups. The peer of
cpu/shakespeare.py and gpu/shakespeare.py."""
import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Setting:
    layers: int
    heads: int
    width: int
    block: int
    batch: int
    steps: int
    warmup: int = 100
    dropout: float = 0.0


class Text:
    def __init__(self, path):
        text = open(path).read()
        self.letters = {c: i for i, c in enumerate(sorted(set(text)))}
        ids = torch.tensor([self.letters[c] for c in text])
        cut = int(0.9 * len(ids))
        self.parts = {"train": ids[:cut], "val": ids[cut:]}

    def windows(self, part, s):
        """Random windows and what follows each of their characters."""
        ids = self.parts[part]
        at = torch.randint(len(ids) - s.block, (s.batch,))
        return tuple(torch.stack([ids[i + shift : i + shift + s.block] for i in at]) for shift in (0, 1))


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.norm1, self.norm2 = nn.LayerNorm(s.width, bias=False), nn.LayerNorm(s.width, bias=False)
        self.qkv, self.out = nn.Linear(s.width, 3 * s.width, bias=False), nn.Linear(s.width, s.width, bias=False)
        self.up, self.down = nn.Linear(s.width, 4 * s.width, bias=False), nn.Linear(4 * s.width, s.width, bias=False)
        self.drop = nn.Dropout(s.dropout)

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = (y.view(b, t, self.s.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.s.dropout if self.training else 0)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, width)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class Gpt(nn.Module):
    def __init__(self, s, letters):
        super().__init__()
        self.token, self.place = nn.Embedding(letters, s.width), nn.Embedding(s.block, s.width)
        self.blocks, self.norm = nn.ModuleList(Block(s) for _ in range(s.layers)), nn.LayerNorm(s.width, bias=False)
        self.drop = nn.Dropout(s.dropout)
        for name, w in self.named_parameters():
            if w.dim() == 2:
                nn.init.normal_(w, 0, 0.02 / math.sqrt(2 * s.layers) if name.endswith(("out.weight", "down.weight")) else 0.02)

    def forward(self, x, y):
        h = self.drop(self.token(x) + self.place(torch.arange(x.shape[1], device=x.device)))
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(F.linear(self.norm(h), self.token.weight).flatten(0, 1), y.flatten())


def optimizer_of(model, **more):
    decay = [w for w in model.parameters() if w.dim() >= 2]
    rest = [w for w in model.parameters() if w.dim() < 2]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.99), **more)


def set_rate(optimizer, step, s):
    along = (step - s.warmup) / (s.steps - s.warmup)
    rate = 1e-3 * (step + 1) / (s.warmup + 1) if step < s.warmup else 1e-4 + 0.5 * (1 + math.cos(math.pi * along)) * 9e-4
    for group in optimizer.param_groups:
        group["lr"] = rate

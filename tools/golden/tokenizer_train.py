#!/usr/bin/env python3
"""What trainers of byte-level BPE learn from small texts, for tests/tokenizer/train_test.cc: tokenizers' merges where tokens are spelled in
several ways, rustbpe's ids, and what tiktoken makes of these (PyPI: tokenizers, rustbpe, tiktoken)."""
import json
import pathlib
import random

import rustbpe
import tiktoken
from tokenizers import Regex, Tokenizer, models, pre_tokenizers as P, trainers

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/tokenizer"
PATTERN = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"


def few_letters(seed, letters):
    """Words of few letters: the same token comes up by different merges, and pairs come back."""
    rng = random.Random(seed)
    return [" ".join("".join(rng.choices(letters, k=rng.randint(1, 12))) for _ in range(60)) for _ in range(4)]


def hugging_face(texts, size):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = P.Sequence([P.Split(Regex(PATTERN), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    return [m if isinstance(m, list) else m.split(" ") for m in json.loads(t.to_str())["model"]["merges"]]


def rust(texts, size, special):
    t = rustbpe.Tokenizer()
    t.train_from_iterator(texts, size - len(special), pattern=PATTERN)
    ranks = {bytes(b): i for b, i in t.get_mergeable_ranks()}
    used = tiktoken.Encoding("trained", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={s: len(t.get_mergeable_ranks()) + i for i, s in enumerate(special)})
    asked = texts[:20] + ["a bb aaaa aabaab", "The  quick\n\n brown, 1234567 fox's", "中文 \U0001F600 e\u0301"]
    return {"texts": texts, "size": size, "special": special, "tokens": [[b.hex(), i] for b, i in ranks.items()],
            "cases": [{"text": x, "ids": used.encode_ordinary(x)} for x in asked]}


def main():
    texts = json.loads((OUT / "train.json").read_text())["texts"]
    letters = [few_letters(seed, "ab" if seed % 2 else "abc") for seed in range(4)]
    body = {"few_letters": [{"texts": x, "size": 400, "merges": hugging_face(x, 400)} for x in letters],
            "rustbpe": [rust(texts, 700, ["<|bos|>", "<|end|>"]), rust(letters[1], 420, ["<|bos|>"])]}
    (OUT / "train_ties.json").write_text(json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n")


main()

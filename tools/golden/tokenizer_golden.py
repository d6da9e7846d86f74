#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/*.json: small tokenizers of every supported kind, with texts, ids and decoded texts of
Hugging Face tokenizers; real.json holds ids only, for real tokenizers where a machine has them:
tokenizer_golden.py [NAME=FOLDER ...]  (qwen3, smollm2, gpt2, minilm)."""
import json
import pathlib
import random
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders as D, models as M, normalizers as N, pre_tokenizers as P, trainers as T

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/tokenizer"
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
NANOCHAT = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

TEXTS = [
    "", " ", "  ", "\n", "Hello, world!", "  leading and trailing  ", "a\tb\t\tc\r\nd\r\n\r\ne\n\n\nf",
    "I'm you're he'll she'd they've it's DON'T WE'LL 'S 'tis 'twas x's\u2019 'ſ '\u017fa", "1 12 123 1234 12345 3.14159 1,000,000 ½ ²³ Ⅷ ٣٤٥ 一二三",
    "def f(x):\n    if x > 0:\n\treturn x ** 2  # comment\n\n    return None\n", "foo(bar)[baz]{qux} ->=> !!! ... ((( )))\n\n)))\n",
    "!\n \n\t x", "x \n  y", "x  \n\n  \ny", "end with space \n", "end with spaces   ", "...\n\n...   \n   z", "\u3000全角\u3000 空白\u00a0nbsp\u2028line",
    "Привет, мир! Как дела?", "你好，世界。今天天气很好！", "こんにちは世界、カタカナ", "안녕하세요 세계", "שלום עולם مرحبا بالعالم", "नमस्ते दुनिया สวัสดีชาวโลก",
    "café cafe\u0301 A\u030a Å \u212b ﬁ ﬂ ½ ①②", "\u1100\u1161\u11a8 \uac01 e\u0323\u0301 e\u0301\u0323 \u0344", "🙂🙃 👩\u200d👩\u200d👧 🇩🇪 ❤\ufe0f", "\u0000\u0001\u007f\u0085\u200b\ufeff\ufffd",
    "http://example.com/a/b?c=d&e=%20f#g user@example.org", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "=" * 50 + "\n" + "-" * 33, " " * 40 + "x" + " " * 17,
    "<s>plain</s> <tok>inside</tok>", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>", "a<|im_end|>b <|im_end|> c", "<think>\nhm\n</think>\n\nyes <think", "[MASK] x[MASK]y  [MASK]  z",
    "word WORD wordword words word's", "ÀÉÎÕÜ İstanbul ΑΣΣ ς Ǆ", "\u0898a\u0315\u0898 \u2ebf0 \U0002ebf0", "mixed中文and英文 with数字123和符号!@#", "naïve coöperate—dash–dash…dots“quotes”", "don''t ''s ''' 'a'b",
]


def corpus():
    rng = random.Random(7)
    words = " ".join(TEXTS).split(" ") + "the of and to in is that it was for on are as with his they at be this have from or one had by word but not what all were when your can said there use an each which she do how their if will up other about out many then them these so some her would make like him into time has look two more write go see number no way could people my than first water been call who oil its now find long down day did get come made may part def return self import None class for while True False".split()
    return [" ".join(rng.choice(words) for _ in range(rng.randint(5, 60))) + rng.choice([".", "\n", "!\n\n", ""]) for _ in range(3000)]


def trained(pre, normalizer=None, size=420, special=("<|endoftext|>",), **model):
    t = Tokenizer(M.BPE(**model))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = D.ByteLevel()
    t.train_from_iterator(corpus(), T.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False,
                                                 initial_alphabet=P.ByteLevel.alphabet()))
    return t


def level(use_regex=False, prefix=False):
    return P.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def split(pattern):
    return P.Sequence([P.Split(Regex(pattern), "isolated"), level()])


def tokenizers():
    qwen = trained(split(CL100K % ""), N.NFC())
    qwen.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    qwen.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    yield "qwen", qwen
    yield "gpt2", trained(level(True))
    prefix = trained(level(True, True))
    prefix.add_tokens([AddedToken("[MASK]", lstrip=True, rstrip=True, normalized=True), AddedToken("word", single_word=True)])
    yield "gpt2_prefix", prefix
    yield "smollm", trained(P.Sequence([P.Digits(True), level(True)]))
    yield "llama3", trained(split(CL100K % "{1,3}"), ignore_merges=True)
    yield "nanochat", trained(split(NANOCHAT))
    yield "o200k", trained(split(O200K))
    steps = P.Sequence([P.Split(Regex(r"[\r\n]"), "merged_with_previous"), P.Split(" ", "merged_with_next"),
                        P.Split(Regex(r"\p{P}+|\p{S}"), "contiguous"), P.Digits(False), P.Punctuation(), level()])
    yield "steps", trained(steps, N.Sequence([N.NFKC(), N.Replace(Regex(r"\s{2,}"), "  "), N.Lowercase()]))
    # DeepSeek LLM's steps: runs of white space at the end of a line or of the text, CJK apart.
    anchors = P.Sequence([P.Split(Regex(p), "isolated") for p in
                          (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", r"^ +", r"[一-龥ࠀ-一가-퟿]+")] + [P.Digits(True), level()])
    yield "anchors", trained(anchors, N.Sequence([N.Replace(Regex(r"\A\s*x"), "x"), N.Replace(Regex(r"-+$"), "—")]))
    yield "words", trained(P.Sequence([P.Whitespace(), level()]), N.Sequence([N.NFKD(), N.StripAccents(), N.Strip()]))

    llama = Tokenizer(M.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    llama.pre_tokenizer = P.Metaspace()
    llama.train_from_iterator(corpus(), T.BpeTrainer(vocab_size=400, limit_alphabet=80, show_progress=False,
                                                     special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]))
    j = json.loads(llama.to_str())
    j["added_tokens"] = j["added_tokens"][:3]
    j["pre_tokenizer"], j["normalizer"] = None, {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    j["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                     {"type": "ByteFallback"}, {"type": "Fuse"},
                                                     {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    yield "llama2", Tokenizer.from_str(json.dumps(j))
    unk = Tokenizer(M.BPE(unk_token="<unk>"))
    unk.pre_tokenizer, unk.decoder = P.Metaspace(prepend_scheme="first"), D.Metaspace()
    unk.train_from_iterator(corpus(), T.BpeTrainer(vocab_size=300, limit_alphabet=60, show_progress=False, special_tokens=["<unk>"]))
    yield "metaspace", unk
    bert = Tokenizer(M.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    bert.normalizer, bert.pre_tokenizer, bert.decoder = N.BertNormalizer(), P.BertPreTokenizer(), D.WordPiece()
    bert.train_from_iterator(corpus(), T.WordPieceTrainer(vocab_size=600, show_progress=False,
                                                          special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    yield "bert", bert


def cases(t):
    for text in TEXTS:
        ids = t.encode(text, add_special_tokens=False).ids
        yield {"text": text, "ids": ids, "decoded": t.decode(ids, skip_special_tokens=False)}


# Of tokenizer_config.json beside a tokenizer.json, by transformers' class: what each changes.
FLAGS = [("gpt2", c, f) for c in ("PreTrainedTokenizerFast", "GPT2Tokenizer", "Qwen2TokenizerFast") for f in ({}, {"add_prefix_space": True}, {"split_special_tokens": True})]
FLAGS += [("gpt2_prefix", "GPT2Tokenizer", {"add_prefix_space": False}), ("gpt2_prefix", "PreTrainedTokenizerFast", {"add_prefix_space": False})]
FLAGS += [("metaspace", "PreTrainedTokenizerFast", {"add_prefix_space": p}) for p in (True, False)]
FLAGS += [("bert", c, f) for c in ("BertTokenizer", "PreTrainedTokenizerFast") for f in ({"do_lower_case": True}, {"do_lower_case": False}, {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False})]


STRIPS = [{"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": "\\s+$"}, "content": ""}]
# Of LLaMA's classes, which make the pipeline anew, and of families that are loaded as their file says.
LLAMA = [(of, c, f, None) for of in ("llama2", "metaspace") for c in ("LlamaTokenizer", "LlamaTokenizerFast") for f in ({}, {"legacy": True}, {"legacy": False}, {"add_prefix_space": True, "legacy": True}, {"add_prefix_space": False})]
LLAMA += [("llama2", c, f, None) for c in ("CodeLlamaTokenizer", "GemmaTokenizerFast", "PreTrainedTokenizerFast") for f in ({}, {"add_prefix_space": False})]
LLAMA += [("strips", c, {}, None) for c in ("LlamaTokenizer", "GemmaTokenizer", "PreTrainedTokenizerFast")]
LLAMA += [("llama2", "LlamaTokenizer", {"legacy": v}, m) for v in (True, False) for m in ("llama", "mistral", "phi3", "gemma2")]


def llama_classes():
    """Ids and texts by transformers' own classes (transformers 5.24)."""
    from transformers import AutoTokenizer
    for name, kind, config, model_type in LLAMA:
        with tempfile.TemporaryDirectory() as d:
            folder = pathlib.Path(d)
            tokenizer = json.loads((OUT / f"{name if name != 'strips' else 'llama2'}.json").read_text())["tokenizer"]
            if name == "strips":  # llama2 with steps of its own
                tokenizer["normalizer"]["normalizers"][:0] = STRIPS
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
            config = {"tokenizer_class": kind, "unk_token": "<unk>", **({"bos_token": "<s>", "eos_token": "</s>"} if name != "metaspace" else {}), **config}
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            if model_type:
                (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
            t = AutoTokenizer.from_pretrained(d)
            texts = ["", " ", "Hello, world!", "a\n b", "</s>bar", "foo</s>bar", "foo </s> bar<s>", "<s>", "  two", "Привет 🙂", "end with space "]
            texts = [x for x in texts if name != "metaspace" or "s>" not in x]  # the classes give their own <s> and </s> new ids
            ids = [t.encode(x, add_special_tokens=False) for x in texts]
            yield {"of": name if name != "strips" else "llama2", **({"first": STRIPS} if name == "strips" else {}), "config": config, **({"model_type": model_type} if model_type else {}), "cases": [{"text": x, "ids": i, "decoded": t.decode(i, clean_up_tokenization_spaces=False)} for x, i in zip(texts, ids)]}


def class_flags():
    """Ids by a tokenizer.json changed as transformers' classes change it when they load one (BertTokenizerFast and
    GPT2TokenizerFast of transformers 4, whose like 5 builds anew)."""
    out = []
    for name, kind, config in FLAGS:
        j = json.loads((OUT / f"{name}.json").read_text())["tokenizer"]
        steps = [j["pre_tokenizer"]] + j["pre_tokenizer"].get("pretokenizers", [])
        if kind != "PreTrainedTokenizerFast" and "add_prefix_space" in config:
            for s in steps:
                if s["type"] == "ByteLevel" and not kind.startswith("Llama"):
                    s["add_prefix_space"] = config["add_prefix_space"]
                if s["type"] == "Metaspace" and kind.startswith("Llama") and not config["add_prefix_space"]:
                    s["prepend_scheme"] = "never"
        if kind.startswith("Bert"):
            j["normalizer"].update(lowercase=config["do_lower_case"], strip_accents=config.get("strip_accents"), handle_chinese_chars=config.get("tokenize_chinese_chars", True))
        t = Tokenizer.from_str(json.dumps(j))
        t.encode_special_tokens = config.get("split_special_tokens", False)
        texts = [x for x in TEXTS if len(x) < 40][::2] + ["Hello <|endoftext|> <unk>[SEP]World", "Ärger ÀÉ 你好x"]
        out.append({"of": name, "config": {"tokenizer_class": kind, **config}, "cases": [{"text": x, "ids": t.encode(x, add_special_tokens=False).ids} for x in texts]})
    out += llama_classes()
    (OUT / "class_flags.json").write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name, t in tokenizers():
        body = {"tokenizer": json.loads(t.to_str()), "cases": list(cases(t))}
        (OUT / f"{name}.json").write_text(json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n")
    # Training: the merges that the oracle finds in a text, ties and all.
    texts = corpus()[:150]
    t = Tokenizer(M.BPE())
    t.pre_tokenizer = split(NANOCHAT)
    t.train_from_iterator(texts, T.BpeTrainer(vocab_size=700, special_tokens=["<|bos|>", "<|end|>"], show_progress=False,
                                              initial_alphabet=P.ByteLevel.alphabet()))
    model = json.loads(t.to_str())["model"]
    (OUT / "train.json").write_text(json.dumps({"texts": texts, "vocab": model["vocab"], "merges": model["merges"]},
                                               ensure_ascii=False, separators=(",", ":")) + "\n")
    real = json.loads((OUT / "real.json").read_text()) if (OUT / "real.json").exists() else {}
    for arg in sys.argv[1:]:
        name, folder = arg.split("=", 1)
        t = Tokenizer.from_file(folder + "/tokenizer.json")
        t.no_truncation()
        t.no_padding()
        real[name] = list(cases(t))
    (OUT / "real.json").write_text(json.dumps(real, ensure_ascii=False, separators=(",", ":")) + "\n")
    class_flags()
    print(sum(f.stat().st_size for f in OUT.glob("*.json")), "bytes")


main()

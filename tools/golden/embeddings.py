#!/usr/bin/env python3
"""Golden embeddings from transformers: a tiny random BERT with its WordPiece vocabulary, and decoders' averaged hidden states.

usage: embeddings.py OUTDIR [MODELS]        needs: torch transformers tokenizers safetensors
Writes OUTDIR/bert_tiny/ in sentence-transformers' layout (random weights) with expected.json: texts, their ids, and embeddings
as sentence-transformers computes them (mean over the tokens, length 1). MODELS (tests/golden/models, made by models.py):
OUTDIR/decoders.json gets the averaged last hidden states of their first rows."""
import json, os, sys
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, decoders
from transformers import AutoModel, BertConfig, BertModel

out = sys.argv[1]
MAX_LENGTH = 24
TEXTS = ["", "hello", "Hello, World!", "  the cat\tsat on\nthe mat  ", "Ünïcödé naïve café", "unbelievable bread-making", "你好 world", "a" * 101, "xyzzy 12345", "hello [SEP] there [MASK]",
         "control\x00\x07chars\u200b and \ufffd", "e\u0301 vs é", "the cat sat on the mat and the dog sat on the log and the cat and the dog sat and sat and sat and sat"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list("abcdefghijklmnopqrstuvwxyz0123456789,.!?-'[]") + ["##" + c for c in "abcdefghijklmnopqrstuvwxyz0123456789"] + [
    "the", "cat", "dog", "sat", "on", "mat", "hello", "world", "un", "##believ", "##able", "bread", "making", "and", "naive", "cafe", "你", "##ing"]


def pooled(hidden):
    return torch.nn.functional.normalize(hidden.mean(dim=0), dim=0).tolist()


def write(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)
        f.write("\n")


folder = os.path.join(out, "bert_tiny")
os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
tok = Tokenizer(models.WordPiece({p: i for i, p in enumerate(PIECES)}, unk_token="[UNK]", max_input_chars_per_word=100))
tok.normalizer = normalizers.BertNormalizer()
tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tok.decoder = decoders.WordPiece()
tok.add_special_tokens(PIECES[:5])
tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
tok.save(os.path.join(folder, "tokenizer.json"))
with open(os.path.join(folder, "vocab.txt"), "w") as f:
    f.write("\n".join(PIECES) + "\n")

torch.manual_seed(3)
model = BertModel(BertConfig(vocab_size=len(PIECES), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, max_position_embeddings=32)).float().eval()
with torch.no_grad():  # norms and biases away from 1 and 0, so that their use shows
    for p in model.parameters():
        p.add_(torch.randn_like(p) * 0.1) if p.ndim == 1 else p.mul_(8.0)
model.save_pretrained(folder, safe_serialization=True)
write(os.path.join(folder, "modules.json"), [{"idx": i, "name": str(i), "path": p, "type": "sentence_transformers.models." + t} for i, (p, t) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])])
write(os.path.join(folder, "1_Pooling", "config.json"), {"word_embedding_dimension": 24, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False})
write(os.path.join(folder, "sentence_bert_config.json"), {"max_seq_length": MAX_LENGTH, "do_lower_case": False})
tok.enable_truncation(MAX_LENGTH)
rows = []
with torch.no_grad():
    for text in TEXTS:
        ids = tok.encode(text).ids
        rows.append({"text": text, "ids": ids, "embedding": pooled(model(input_ids=torch.tensor([ids])).last_hidden_state[0])})
write(os.path.join(folder, "expected.json"), rows)

if len(sys.argv) > 2:
    decoders_out = {}
    with torch.no_grad():
        for name in ("gpt2", "llama_scaled", "qwen3_gqa"):
            base = AutoModel.from_pretrained(os.path.join(sys.argv[2], name), dtype=torch.float32).eval()
            with open(os.path.join(sys.argv[2], name, "rows.jsonl")) as f:
                ids = [json.loads(line)["input_ids"] for line in f][:5]
            decoders_out[name] = [{"ids": r, "embedding": pooled(base(input_ids=torch.tensor([r])).last_hidden_state[0])} for r in ids]
    write(os.path.join(out, "decoders.json"), decoders_out)

#!/usr/bin/env python3
"""Generation with Qwen3-8B's dimensions (random weights, bf16) by `mindxtrain serve --device h100`, over HTTP: one request's decoding
beside the time that reading the weights takes, and 64 requests at once beside transformers' generate, in one run.

usage: decode.py MINDXTRAIN OUT TOKENIZER_FOLDER [--model 8b] [--new 256] [--prompt 128] [--batch 64] [--no-peer]
       TOKENIZER_FOLDER: any tokenizer.json; its vocabulary is filled up to the model's
needs: torch, transformers (an environment of its own; the product needs no Python)
Decoding is (answer's tokens − 1) / (time of the last token − time of the first). The ceiling is what one token has to read, the weights
but the embedding and the cache, at the rate that a device-to-device copy reaches on this machine (bytes read and written).
Prints one JSON object."""
import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

p = argparse.ArgumentParser()
p.add_argument("binary")
p.add_argument("out", type=pathlib.Path)
p.add_argument("tokenizer", type=pathlib.Path)
p.add_argument("--model", default="8b")
p.add_argument("--new", type=int, default=256)
p.add_argument("--prompt", type=int, default=128)
p.add_argument("--batch", type=int, default=64)
p.add_argument("--no-peer", action="store_true")
a = p.parse_args()
VOCAB, PORT = 151936, 18473
hidden, ffn, layers, heads, tied = {"0.6b": (1024, 3072, 28, 16, True), "4b": (2560, 9728, 36, 32, True), "8b": (4096, 12288, 36, 32, False)}[a.model]
config = Qwen3Config(vocab_size=VOCAB, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=8, head_dim=128,
                     max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1000000, tie_word_embeddings=tied)
answer = {"what": f"generation, Qwen3-{a.model}'s dimensions, bf16, prompts of {a.prompt} tokens, {a.new} new", "device": torch.cuda.get_device_name(0)}


def note(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def copy_rate():
    x = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    best = 0
    for _ in range(10):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(), y.copy_(x), end.record()
        torch.cuda.synchronize()
        best = max(best, 2 * x.numel() / begin.elapsed_time(end) / 1e6)
    return best


def make_folder(folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder, max_shard_size="5GB")
    for f in a.tokenizer.glob("*.json"):
        if f.name not in ("config.json", "generation_config.json"):
            shutil.copy(f, folder)
    t = json.loads((a.tokenizer / "tokenizer.json").read_text())
    names = t["model"]["vocab"]
    taken = set(names.values()) | {x["id"] for x in t["added_tokens"]}
    for i in range(VOCAB):
        if i not in taken:
            names[f"<extra_{i}>"] = i
    (folder / "tokenizer.json").write_text(json.dumps(t))
    return model


def peer(model):
    model.eval()
    got = {}
    for batch in (1, a.batch):
        ids = torch.randint(0, 40000, (batch, a.prompt), device="cuda")
        seconds = {}
        for new in (a.new // 8, a.new // 2):  # the difference is decoding alone
            with torch.inference_mode():
                model.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0)
                torch.cuda.synchronize()
                begin = time.time()
                model.generate(ids, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0)
                torch.cuda.synchronize()
                seconds[new] = time.time() - begin
        steps = a.new // 2 - a.new // 8
        got[f"batch_{batch}"] = {"decode_tok_s": round(batch * steps / (seconds[a.new // 2] - seconds[a.new // 8]), 1), "whole_tok_s": round(batch * (a.new // 2) / seconds[a.new // 2], 1)}
    return got


def ask(new, stream, seed):
    rng = random.Random(seed)
    body = json.dumps({"model": "m", "prompt": [rng.randrange(100, 40000) for _ in range(a.prompt)], "max_tokens": new, "temperature": 0, "stream": stream, "ignore_eos": True, "min_tokens": new}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", body, {"Content-Type": "application/json"})
    begin, times = time.time(), []
    with urllib.request.urlopen(request, timeout=300) as r:
        if not stream:
            return json.load(r)["usage"]["completion_tokens"], begin, time.time()
        for line in r:
            if line.startswith(b"data: {"):
                times.append(time.time())
    return times, begin


def ours(folder):
    server = subprocess.Popen([a.binary, "serve", "--model", str(folder), "--name", "m", "--device", "h100", "--port", str(PORT), "--batch", str(a.batch), "--cache-gib", "12", "--max-model-len", "4096", "--no-coach", "--until-stdin-ends"],
                              stdin=subprocess.PIPE, stdout=sys.stderr, stderr=sys.stderr)
    begin = time.time()
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=2)
            break
        except OSError:
            if server.poll() is not None or time.time() - begin > 200:
                sys.exit("the server did not start")
            time.sleep(0.5)
    got = {"load_s": round(time.time() - begin, 1)}
    try:
        ask(8, True, 1)
        rates, first = [], []
        for i in range(3):
            times, begin = ask(a.new, True, 2 + i)
            first.append(times[0] - begin)
            rates.append((len(times) - 1) / (times[-1] - times[0]))
        got["batch_1"] = {"decode_tok_s": round(max(rates), 1), "all": [round(r, 1) for r in rates], "first_token_ms": round(1000 * min(first), 1), "chunks": len(times)}
        note(got)
        for batch in (8, a.batch):
            answers = [None] * batch
            def one(i):
                answers[i] = ask(a.new, False, 100 + i)
            begin = time.time()
            threads = [threading.Thread(target=one, args=(i,)) for i in range(batch)]
            [t.start() for t in threads], [t.join() for t in threads]
            seconds = time.time() - begin
            got[f"batch_{batch}"] = {"whole_tok_s": round(sum(x[0] for x in answers) / seconds, 1), "s": round(seconds, 2)}
            note(got)
    finally:
        server.stdin.close()
        server.wait(60)
    return got


folder = a.out / "model"
answer["copy_GB_s"] = round(copy_rate(), 1)
model = make_folder(folder)
parameters = sum(x.numel() for x in model.parameters())
embedding = 0 if tied else VOCAB * hidden  # a token reads one row of it; a tied one is the head
context = a.prompt + a.new // 2
read = 2 * (parameters - embedding) + 2 * 2 * layers * 8 * 128 * context
answer["bytes_a_token"], answer["ceiling_tok_s"] = read, round(answer["copy_GB_s"] * 1e9 / read, 1)
note(answer)
if not a.no_peer:
    answer["transformers"] = peer(model)
    note(answer["transformers"])
del model
torch.cuda.empty_cache()
answer["ours"] = ours(folder)
answer["of_ceiling"] = round(answer["ours"]["batch_1"]["decode_tok_s"] / answer["ceiling_tok_s"], 3)
shutil.rmtree(folder)
(a.out / "decode.json").write_text(json.dumps(answer, indent=1))
print(json.dumps(answer))

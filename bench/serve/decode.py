#!/usr/bin/env python3
"""Prefill and decode speed of `mindxtrain serve` beside llama.cpp (llama-cpp-python), same file, same threads, one run.

    python bench/serve/decode.py --binary build/release/apps/mindxtrain/mindxtrain --model SmolLM2.gguf --types q4_1,q8_0,bf16 --threads 2

The server is measured through its API, so HTTP and sampling are in its figures (decoding: the answer of `new` tokens less the time to the
first one); llama.cpp is measured in process, with no sampler but an
argmax. Types other than the file's own are made from it in a temporary folder. Needs: pip install llama-cpp-python gguf numpy requests.
"""
import argparse, json, os, socket, statistics, subprocess, sys, tempfile, time

import numpy as np


def convert(source, kind, folder):
    """The same model with its matrices in another type."""
    import gguf
    from gguf import GGMLQuantizationType as T
    from gguf.quants import dequantize, quantize
    target = {"q8_0": T.Q8_0, "bf16": T.BF16, "q4_0": T.Q4_0, "q4_1": T.Q4_1}[kind]
    path = os.path.join(folder, f"model-{kind}.gguf")
    reader = gguf.GGUFReader(source)
    arch = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(path, arch)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind_, sub = field.types[0], field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), kind_, sub_type=sub)
    for t in reader.tensors:
        shape = list(reversed([int(x) for x in t.shape]))
        data = dequantize(t.data, t.tensor_type).reshape(shape).astype(np.float32)
        if len(shape) == 2:
            writer.add_tensor(t.name, quantize(data, target), raw_dtype=target)
        else:
            writer.add_tensor(t.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def qwen3_0_6b(source, kind, folder):
    """A GGUF file with the dimensions of Qwen3-0.6B and the tokenizer of `source`, its vocabulary filled up; random weights, the same in every layer."""
    import gguf
    from gguf import GGMLQuantizationType as T
    from gguf.quants import quantize
    target = {"q8_0": T.Q8_0, "bf16": T.BF16, "q4_0": T.Q4_0, "q4_1": T.Q4_1}[kind]
    width, ffn, layers, heads, kv_heads, head_dim, vocab = 1024, 3072, 28, 16, 8, 128, 151936
    path = os.path.join(folder, f"qwen3-0.6b-{kind}.gguf")
    reader = gguf.GGUFReader(source)
    w = gguf.GGUFWriter(path, "qwen3")
    for field in reader.fields.values():
        if not field.name.startswith("tokenizer."):
            continue
        value, sub = field.contents(), field.types[-1] if len(field.types) > 1 else None
        if field.name == "tokenizer.ggml.tokens":
            value = value + [f"<extra_{i}>" for i in range(len(value), vocab)]
        if field.name == "tokenizer.ggml.token_type":
            value = value + [5] * (vocab - len(value))  # unused
        if field.name == "tokenizer.ggml.scores":
            value = value + [0.0] * (vocab - len(value))
        w.add_key_value(field.name, value, field.types[0], sub_type=sub)
    w.add_block_count(layers), w.add_context_length(40960), w.add_embedding_length(width), w.add_feed_forward_length(ffn)
    w.add_head_count(heads), w.add_head_count_kv(kv_heads), w.add_key_length(head_dim), w.add_value_length(head_dim)
    w.add_layer_norm_rms_eps(1e-6), w.add_rope_freq_base(1e6)
    random = np.random.default_rng(1)

    def matrix(rows, cols):
        return quantize(random.standard_normal((rows, cols), dtype=np.float32) * 0.02, target)

    layer = {"attn_q": matrix(heads * head_dim, width), "attn_k": matrix(kv_heads * head_dim, width), "attn_v": matrix(kv_heads * head_dim, width),
             "attn_output": matrix(width, heads * head_dim), "ffn_gate": matrix(ffn, width), "ffn_up": matrix(ffn, width), "ffn_down": matrix(width, ffn)}
    ones = {"attn_norm": width, "ffn_norm": width, "attn_q_norm": head_dim, "attn_k_norm": head_dim}
    w.add_tensor("token_embd.weight", matrix(vocab, width), raw_dtype=target)
    w.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for i in range(layers):
        for name, data in layer.items():
            w.add_tensor(f"blk.{i}.{name}.weight", data, raw_dtype=target)
        for name, n in ones.items():
            w.add_tensor(f"blk.{i}.{name}.weight", np.ones(n, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def llama_cpp(path, threads, prompt, new, repeats):
    from llama_cpp import Llama
    model = Llama(model_path=path, n_ctx=len(prompt) + new + 8, n_threads=threads, n_threads_batch=threads, n_batch=512, logits_all=False, verbose=False)
    out = []
    for _ in range(repeats):
        model.reset()
        start = time.perf_counter()
        model.eval(prompt)
        middle = time.perf_counter()
        for _ in range(new):
            token = int(np.argmax(np.ctypeslib.as_array(model._ctx.get_logits(), shape=(model.n_vocab(),))))
            model.eval([token])
        out.append((len(prompt) / (middle - start), new / (time.perf_counter() - middle)))
    return out


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ours(binary, path, threads, prompt, new, repeats):
    import requests
    port = free_port()
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    server = subprocess.Popen([binary, "serve", "--model", path, "--port", str(port), "--threads", str(threads), "--max-model-len", str(len(prompt) + new + 8), "--batch", "1"], env=env, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        with requests.Session() as client:
            for _ in range(600):
                try:
                    if client.get(url + "/health").status_code == 200:
                        break
                except requests.ConnectionError:
                    time.sleep(0.05)
            out = []

            def seconds(i, tokens):
                ids = [(t + 7 * i) % 40000 + 100 for t in prompt]  # no help from the prefix cache
                start = time.perf_counter()
                r = client.post(url + "/v1/completions", json={"prompt": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True})
                assert r.json()["usage"]["completion_tokens"] == tokens, r.text
                return time.perf_counter() - start

            seconds(0, 8)  # warms up
            for i in range(1, repeats + 1):
                first, whole = seconds(2 * i, 1), seconds(2 * i + 1, new + 1)
                out.append((len(prompt) / first, new / (whole - first)))
            return out
    finally:
        server.terminate()
        server.wait()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default="build/release/apps/mindxtrain/mindxtrain")
    p.add_argument("--model", help="a GGUF file")
    p.add_argument("--files", nargs="+", help="instead of --model: these files and folders as they are (folders without llama.cpp, which reads none)")
    p.add_argument("--types", default="q4_1,q8_0,bf16", help="the first is the file as it is")
    p.add_argument("--shape", choices=["qwen3-0.6b"], help="instead of the file's model one of these dimensions, with random weights and the file's tokenizer")
    p.add_argument("--folder", help="where the files that are made stay")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--new", type=int, default=128)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--prepare", action="store_true", help="makes the files in --folder and ends")
    p.add_argument("--only", choices=["ours", "llama.cpp"])
    p.add_argument("--out")
    a = p.parse_args()
    prompt = [(i * 7919) % 40000 + 100 for i in range(a.prompt)]
    result = {"shape": a.shape or os.path.basename(a.model or ""), "threads": a.threads, "prompt": a.prompt, "new": a.new, "types": {}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = a.folder or scratch
        for i, kind in enumerate(a.files or a.types.split(",")):
            if a.files:
                path, kind = kind, os.path.basename(os.path.dirname(kind) if kind.endswith("/model.gguf") else kind)
            elif a.shape:
                path = os.path.join(folder, f"{a.shape}-{kind}.gguf")
                path = path if os.path.exists(path) else qwen3_0_6b(a.model, kind, folder)
            elif i == 0:
                path = a.model
            else:
                path = os.path.join(folder, f"model-{kind}.gguf")
                path = path if os.path.exists(path) else convert(a.model, kind, folder)
            if a.prepare:
                continue
            row = {}
            for name, run in (("ours", lambda: ours(a.binary, path, a.threads, prompt, a.new, a.repeats)), ("llama.cpp", lambda: llama_cpp(path, a.threads, prompt, a.new, a.repeats))):
                if (a.only and a.only != name) or (name == "llama.cpp" and os.path.isdir(path)):
                    continue
                runs = run()
                row[name] = {"prefill_tok_s": round(statistics.median(r[0] for r in runs), 1), "decode_tok_s": round(statistics.median(r[1] for r in runs), 1)}
                print(kind, name, row[name], flush=True)
            result["types"][kind] = row
    if a.out:
        with open(a.out, "w") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()

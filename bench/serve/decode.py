#!/usr/bin/env python3
"""Prefill and decode speed of `mindxtrain serve` beside llama.cpp (llama-cpp-python), same file, same threads, one run.

    python bench/serve/decode.py --binary build/release/apps/mindxtrain/mindxtrain --model SmolLM2.gguf --types q4_1,q8_0,bf16 --threads 2

The server is measured through its API, so HTTP and sampling are in its figures; llama.cpp is measured in process, with no sampler but an
argmax. Types other than the file's own are made from it in a temporary folder. Needs: pip install llama-cpp-python gguf numpy openai.
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
    import httpx
    port = free_port()
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="active")
    server = subprocess.Popen([binary, "serve", "--model", path, "--port", str(port), "--threads", str(threads), "--max-model-len", str(len(prompt) + new + 8), "--batch", "1"], env=env, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(timeout=300) as client:
            for _ in range(600):
                try:
                    if client.get(url + "/health").status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.05)
            out = []
            for i in range(repeats + 1):
                ids = [(t + 7 * i) % 40000 + 100 for t in prompt]  # no help from the prefix cache
                times = []
                start = time.perf_counter()
                with client.stream("POST", url + "/v1/completions", json={"prompt": ids, "max_tokens": new + 1, "temperature": 0, "ignore_eos": True, "stream": True, "logprobs": 0}) as r:
                    for line in r.iter_lines():
                        if line.startswith("data: {"):
                            choices = json.loads(line[6:])["choices"]
                            if choices and choices[0]["logprobs"]:
                                times += [time.perf_counter()] * len(choices[0]["logprobs"]["tokens"])
                if i > 0:  # the first one warms up
                    out.append((len(ids) / (times[0] - start), new / (times[new] - times[0])))
            return out
    finally:
        server.terminate()
        server.wait()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default="build/release/apps/mindxtrain/mindxtrain")
    p.add_argument("--model", required=True, help="a GGUF file")
    p.add_argument("--types", default="q4_1,q8_0,bf16", help="the first is the file as it is")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--new", type=int, default=128)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--only", choices=["ours", "llama.cpp"])
    p.add_argument("--out")
    a = p.parse_args()
    prompt = [(i * 7919) % 40000 + 100 for i in range(a.prompt)]
    result = {"threads": a.threads, "prompt": a.prompt, "new": a.new, "types": {}}
    with tempfile.TemporaryDirectory() as folder:
        for i, kind in enumerate(a.types.split(",")):
            path = a.model if i == 0 else convert(a.model, kind, folder)
            row = {}
            for name, run in (("ours", lambda: ours(a.binary, path, a.threads, prompt, a.new, a.repeats)), ("llama.cpp", lambda: llama_cpp(path, a.threads, prompt, a.new, a.repeats))):
                if a.only and a.only != name:
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

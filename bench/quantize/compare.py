#!/usr/bin/env python3
"""Quantized copies beside the programs that read them, on a real model.

  python bench/quantize/compare.py --binary build/release/apps/mindxtrain/mindxtrain --model SMOLLM2_FOLDER [--text FILE] [--only fp8_dynamic,gguf_q8_0]

Needs torch, transformers, compressed-tensors, gguf and llama-cpp-python; a part whose package is missing says so and counts as
not shown. For every scheme: size, perplexity and KL as `quantize` reports them. Then
  fp8_*, quark_fp8  the report's perplexity against bf16's (limit 4 %) and against a PyTorch simulation of the layout (limit 0.3)
  fp8_dynamic  the weights as transformers + compressed-tensors decompress them, equal to q · scale bit by bit
  gguf_*       perplexity of the weights as gguf-py decodes them, in PyTorch float32, against the report's (limit 0.3 %);
               llama-cpp-python loads the file, tokenizes as Hugging Face does, and continues ten prompts greedily by 16 tokens
               as `mindxtrain chat` does
  gguf_q8_0    KL below 2e-3

Which text comparison is fair: llama.cpp's kernels round activations to the weights' companion type: F16 for F16 files, BF16 for BF16 ones, 8 bits
in blocks of 32 for all quantized ones; `mindxtrain` multiplies what the file decodes to in --dtype float32 here. F16 rounds least (2^-11), so there
9 of 10 must be equal. For the others a text may part where llama.cpp itself is nearly undecided: where the two tokens stand within
0.3 nats in its own probabilities (rounding of 8 bits moves a logit by about that). Anything else is a failure.
Exit code 1 where a limit does not hold.
"""
import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

PROMPTS = ["What is the capital of France?", "Write one sentence about the sea.", "How many legs does a spider have?", "Name three colours.",
           "Explain gravity to a child.", "What is 12 times 12?", "Give me a recipe for pancakes.", "Who wrote Romeo and Juliet?",
           "Translate 'good morning' to Spanish.", "Why is the sky blue?"]
SCHEMES = ["fp8_dynamic", "fp8_block", "quark_fp8", "mxfp4", "quark_mxfp4", "gguf_f16", "gguf_bf16", "gguf_q8_0", "gguf_q4_0", "gguf_q4_k_m"]
failures = []


def check(ok, what):
    print(f"  {'ok  ' if ok else 'FAIL'} {what}", flush=True)
    if not ok:
        failures.append(what)


def call(binary, *arguments):
    r = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"{' '.join(map(str, arguments))}: exit {r.returncode}\n{r.stderr}")
    return r.stdout


def perplexity(model, ids, window):
    """The windows of `quantize`: they overlap by half, each token is predicted once."""
    import torch

    nll, count, scored, begin = 0.0, 0, 1, 0
    while scored < len(ids):
        end = min(begin + window, len(ids))
        with torch.no_grad():
            logits = model(torch.tensor([ids[begin:end]])).logits[0].float()
        lp = torch.log_softmax(logits[:-1], -1)[range(end - begin - 1), ids[begin + 1:end]]
        nll -= float(lp[scored - begin - 1:].double().sum())
        count += end - scored
        scored, begin = end, begin + window // 2
    return math.exp(nll / count)


def fp8(x, dim):
    """x as E4M3 with one scale along `dim`, decoded."""
    import torch

    scale = x.float().abs().amax(dim, keepdim=True).clamp(min=1e-12) / 448
    return scale, (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float()


def blocks(x, rows, cols):
    """x as E4M3 with one scale for each rows x cols block (the last ones smaller), decoded."""
    import torch
    import torch.nn.functional as F

    r, c = x.shape
    p = F.pad(x.float(), (0, -c % cols, 0, -r % rows)).reshape(-(-r // rows), rows, -(-c // cols), cols)
    scale = p.abs().amax((1, 3), keepdim=True).clamp(min=1e-12) / 448
    q = (p / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale
    return q.reshape(r + -r % rows, c + -c % cols)[:r, :c]


def simulate_fp8(model, scheme):
    """Every Linear of the layers: weights with a scale a row (bf16 in fp8_dynamic's layout), inputs with a scale a token; fp8_block: weights with a
    scale for each 128 x 128 block, inputs for each 128 columns of a token."""
    import torch

    for name, m in model.named_modules():
        if not isinstance(m, torch.nn.Linear) or name == "lm_head":
            continue
        w = m.weight.data.float()
        if scheme == "fp8_block":
            m.forward = lambda x, q=blocks(w, 128, 128): (blocks(x.reshape(-1, x.shape[-1]), 1, 128) @ q.T).to(x.dtype).reshape(*x.shape[:-1], -1)
            continue
        scale = w.abs().amax(1, keepdim=True) / 448
        if scheme == "fp8_dynamic":
            scale = scale.to(torch.bfloat16).float()
        q = (w / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale

        def forward(x, q=q):
            s, x8 = fp8(x, -1)
            return ((x8 * s) @ q.T).to(x.dtype)

        m.forward = forward
    return model


def check_fp8(args, folder, report, scheme):
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    text = Path(args.text).read_text()
    ids = AutoTokenizer.from_pretrained(args.model)(text, add_special_tokens=False)["input_ids"]
    window, got = report["held_out"]["text"]["window"], report["held_out"]["perplexity"]
    plain = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    bf16 = perplexity(plain, ids, window)
    simulated = perplexity(simulate_fp8(plain, scheme), ids, window)
    print(f"  perplexity: PyTorch bf16 {bf16:.4f}, simulation {simulated:.4f}; ours {got['original']:.4f}, quantized {got['quantized']:.4f}")
    check(got["change_pct"] < 4, f"perplexity {got['change_pct']:+.2f} % (limit 4 %)")
    check(abs(got["quantized"] - simulated) < 0.3, f"{abs(got['quantized'] - simulated):.3f} from the simulation (limit 0.3)")
    if scheme != "fp8_dynamic":
        return
    try:
        from transformers import CompressedTensorsConfig
        read = AutoModelForCausalLM.from_pretrained(folder, quantization_config=CompressedTensorsConfig(run_compressed=False), dtype=torch.bfloat16).state_dict()
    except ImportError as e:
        return check(False, f"compressed-tensors: {e}")
    raw, equal, n = load_file(folder / "model.safetensors"), True, 0
    for name, w in raw.items():
        if name + "_scale" in raw:
            n += 1
            equal = equal and torch.equal(read[name].view(torch.int16), (w.float() * raw[name + "_scale"].float()).to(torch.bfloat16).view(torch.int16))
    check(equal and n > 0, f"{n} matrices as transformers + compressed-tensors decompress them")


def check_decoded(args, folder, report):
    """The file's weights as gguf-py decodes them, run by PyTorch."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ids = AutoTokenizer.from_pretrained(args.model)(Path(args.text).read_text(), add_special_tokens=False)["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf", dtype=torch.float32)
    theirs, ours = perplexity(model, ids, report["held_out"]["text"]["window"]), report["held_out"]["perplexity"]["quantized"]
    check(abs(ours / theirs - 1) < 3e-3, f"perplexity {ours:.4f}; of gguf-py's weights in PyTorch {theirs:.4f} (limit 0.3 %)")


def near_tie(llm, ids, common, a, b):
    """How far apart, in nats, llama.cpp has the tokens a and b after ids + common."""
    import llama_cpp

    llm.reset()
    llm.eval(ids + common)
    logits = llama_cpp.llama_get_logits_ith(llm._ctx.ctx, -1)
    return abs(logits[a] - logits[b])


def check_gguf(args, folder, scheme):
    try:
        from llama_cpp import Llama
    except ImportError:
        return check(False, "llama-cpp-python is not installed: pip install llama-cpp-python")
    from transformers import AutoTokenizer

    hf = AutoTokenizer.from_pretrained(args.model)
    llm = Llama(str(folder / "model.gguf"), n_ctx=512, n_threads=args.threads, verbose=False)
    same = tokens = ties = 0
    for p in PROMPTS:
        text = hf.apply_chat_template([{"role": "user", "content": p}], add_generation_prompt=True, tokenize=False)
        ids = hf(text, add_special_tokens=False)["input_ids"]
        tokens += llm.tokenize(text.encode(), add_bos=False, special=True) == ids
        theirs = llm.create_completion(ids, max_tokens=16, temperature=0.0)["choices"][0]["text"]
        ours = call(args.binary, "chat", "--model", folder, "--prompt", p, "--max-tokens", 16, "--temperature", 0, "--dtype", "float32")
        if ours.rstrip("\n") == theirs.rstrip("\n"):
            same += 1
        else:
            end = hf.eos_token_id
            u, v = (hf(t.rstrip("\n"), add_special_tokens=False)["input_ids"] + [end] for t in (ours, theirs))
            n = next(i for i, (x, y) in enumerate(zip(u, v)) if x != y)
            apart = near_tie(llm, ids, u[:n], u[n], v[n])
            ties += apart <= 0.3
            print(f"    {p!r}: part at token {n}, where llama.cpp has the two {apart:.3f} nats apart\n      ours   {ours!r}\n      theirs {theirs!r}")
    check(tokens == len(PROMPTS), f"{tokens} of {len(PROMPTS)} prompts tokenized as Hugging Face does")
    said = f"{same} of {len(PROMPTS)} prompts continued alike by llama.cpp and by us"
    if scheme == "gguf_f16":
        check(same >= 9, said)
    else:
        check(same + ties == len(PROMPTS), f"{said}, {ties} part where llama.cpp is nearly undecided")
    check("chat_template" in "".join(llm.metadata), "llama.cpp finds the chat template")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--binary", required=True)
    a.add_argument("--model", required=True, help="SmolLM2-135M-Instruct as a Hugging Face folder")
    a.add_argument("--text", default=str(Path(__file__).resolve().parents[2] / "data/text/general.txt"))
    a.add_argument("--only", default=",".join(SCHEMES))
    a.add_argument("--dtype", help="of the report (default: the product's: float32 for gguf_*, else bfloat16)")
    a.add_argument("--threads", type=int, default=2)
    args = a.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        for scheme in args.only.split(","):
            folder = Path(tmp) / scheme
            report = json.loads(call(args.binary, "quantize", "--model", args.model, "--scheme", scheme, "--out", folder, "--text", args.text,
                                     *(["--dtype", args.dtype] if args.dtype else []), "--threads", args.threads, "--json"))
            size, held = report["size"], report["held_out"]
            print(f"{scheme}: {size['bytes'] / 1e6:.1f} MB, {size['bits_per_weight']:.2f} bits a weight; perplexity {held['perplexity']['quantized']:.4f} "
                  f"({held['perplexity']['change_pct']:+.2f} %), KL {held['kl']:.3e}, same top token {100 * held['same_top_token']:.1f} %", flush=True)
            if "fp8" in scheme:
                check_fp8(args, folder, report, scheme)
            if scheme.startswith("gguf"):
                check_decoded(args, folder, report)
                check_gguf(args, folder, scheme)
            if scheme == "gguf_q8_0":
                check(held["kl"] < 2e-3, f"KL {held['kl']:.2e} (limit 2e-3)")
    print("all limits hold" if not failures else f"{len(failures)} limits do not hold")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()

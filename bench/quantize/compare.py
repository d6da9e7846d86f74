#!/usr/bin/env python3
"""Quantized copies beside the programs that read them, on a real model.

  python bench/quantize/compare.py --binary build/release/apps/mindxtrain/mindxtrain --model SMOLLM2_FOLDER [--text FILE] [--only fp8_dynamic,gguf_q8_0]

Needs torch, transformers, compressed-tensors, gguf and llama-cpp-python; a part whose package is missing says so and counts as
not shown. For every scheme: size, perplexity and KL as `quantize` reports them. Then
  fp8_*, quark_fp8  the report's perplexity against bf16's (limit 4 %) and against a PyTorch simulation of the layout (limit 0.3)
  fp8_dynamic  the weights as transformers + compressed-tensors decompress them, equal to q · scale bit by bit
  mxfp4        the weights as transformers + compressed-tensors decompress them, and as a PyTorch simulation of the layout rounds the originals;
               perplexity within 0.3 of these weights' in PyTorch bf16
  gguf_*       perplexity of the weights as gguf-py decodes them, in PyTorch float32, against the report's (limit 0.3 %);
               llama-cpp-python loads the file, tokenizes as Hugging Face does, and continues ten prompts greedily by 16 tokens
               as `mindxtrain chat` does
  gguf_q8_0    KL below 2e-3

Which text comparison is fair: llama.cpp's kernels round activations to the weights' companion type: F16 for F16 files, BF16 for BF16 ones, 8 bits
in blocks of 32 for all quantized ones; `mindxtrain` multiplies what the file decodes to in float32. F16 rounds least (2^-11), so there
9 of 10 must be equal. For the others, where fewer than 9 are equal, the script prints how far apart llama.cpp itself has the two tokens at each parting
(8 bits move a logit by a few tenths of a nat), and shows that nothing but this rounding parts the two: llama.cpp runs the same weights, decoded by gguf-py into
an F32 file, and 9 of 10 must be equal there. How much that rounding alone decides is shown by llama.cpp beside itself: a prompt read at once and token by token
(other orders of the same sums) is continued alike for about half of the prompts in Q8_0, so no other program can be alike in 9 of 10.
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


def mxfp4_values():
    import torch

    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    return torch.cat([magnitudes, -magnitudes])


def decode_mxfp4(packed, exponents):
    """[N, K / 2] nibbles, the low one first, and [N, K / 32] biased exponents, to [N, K]."""
    import torch

    values = mxfp4_values()[torch.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1).long()]
    return values * torch.exp2(exponents.float() - 127).repeat_interleave(32, 1)


def simulate_mxfp4(w):
    """w rounded to E2M1 (to the nearest, ties to even) under one power of two for 32 columns: of the two that can hold the largest, the one with the smaller error."""
    import torch

    x = w.float().reshape(-1, 32)
    largest, best = x.abs().amax(1, keepdim=True), None
    floor = torch.floor(torch.log2(largest.clamp(min=2.0 ** -126))) - 2
    bounds = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    for step in (0, 1):
        scale = torch.exp2(floor + step)
        a = (x / scale).abs()
        up, down = torch.bucketize(a, bounds, right=True), torch.bucketize(a, bounds)  # they differ on a tie alone
        code = torch.where(up % 2 == 0, up, down)
        q = mxfp4_values()[code] * scale * torch.sign(x)
        e = (x.double() - q.double()).pow(2).sum(1, keepdim=True)
        best = (e, q) if best is None else (torch.minimum(best[0], e), torch.where(e < best[0], q, best[1]))
    return best[1].reshape(w.shape)


def check_mxfp4(args, folder, report):
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, CompressedTensorsConfig

    raw = load_file(folder / "model.safetensors")
    ours = {n.removesuffix("_packed"): decode_mxfp4(t, raw[n.removesuffix("_packed") + "_scale"]) for n, t in raw.items() if n.endswith("weight_packed")}
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    state, same = model.state_dict(), 0
    for name, w in ours.items():
        same += int((simulate_mxfp4(state[name]) == w).sum())
        state[name].copy_(w)
    total = sum(w.numel() for w in ours.values())
    check(same > 0.999 * total and total > 0, f"{100 * same / max(total, 1):.4f} % of {total} weights in {len(ours)} matrices as PyTorch rounds them")
    try:
        read = AutoModelForCausalLM.from_pretrained(folder, quantization_config=CompressedTensorsConfig(run_compressed=False), dtype=torch.bfloat16).state_dict()
        check(all(torch.equal(read[n].view(torch.int16), w.to(torch.bfloat16).view(torch.int16)) for n, w in ours.items()),
              f"{len(ours)} matrices as transformers + compressed-tensors decompress them")
    except (ImportError, ValueError, KeyError, NotImplementedError) as e:
        check(False, f"compressed-tensors: {type(e).__name__}: {e}")
    ids = AutoTokenizer.from_pretrained(args.model)(Path(args.text).read_text(), add_special_tokens=False)["input_ids"]
    simulated, got = perplexity(model, ids, report["held_out"]["text"]["window"]), report["held_out"]["perplexity"]["quantized"]
    check(abs(got - simulated) < 0.3, f"perplexity {got:.4f}, {abs(got - simulated):.3f} from the weights in PyTorch bf16 (limit 0.3)")


def as_f32(folder, out):
    """The file's weights as gguf-py decodes them, in an F32 file with the same keys: llama.cpp multiplies these without rounding the inputs."""
    import gguf

    r = gguf.GGUFReader(folder / "model.gguf")
    w = gguf.GGUFWriter(out, r.fields["general.architecture"].contents())
    for name, f in r.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type", "general.quantization_version"):
            continue
        w.add_key_value(name, f.contents(), f.types[0], f.types[1] if len(f.types) > 1 else None)
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    for t in r.tensors:
        w.add_tensor(t.name, gguf.dequantize(t.data, t.tensor_type).astype("float32").reshape([int(n) for n in reversed(t.shape)]))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


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


def with_itself(args, folder, hf):
    """How many prompts llama.cpp continues alike whether it reads them at once or token by token: two orders of the same sums, which its
    rounding of inputs tells apart."""
    from llama_cpp import Llama

    llm = Llama(str(folder / "model.gguf"), n_ctx=512, n_threads=args.threads, verbose=False, logits_all=True)

    def greedy(ids, pieces):
        out = []
        llm.reset()
        for piece in pieces(ids):
            llm.eval(piece)
        while len(out) < 16:
            token = int(llm.scores[llm.n_tokens - 1].argmax())
            if token == hf.eos_token_id:
                break
            out.append(token)
            llm.eval([token])
        return out

    same = 0
    for p in PROMPTS:
        ids = hf(hf.apply_chat_template([{"role": "user", "content": p}], add_generation_prompt=True, tokenize=False), add_special_tokens=False)["input_ids"]
        same += greedy(ids, lambda x: [x]) == greedy(ids, lambda x: [[t] for t in x])
    return same


def check_gguf(args, folder, scheme):
    try:
        from llama_cpp import Llama
    except ImportError:
        return check(False, "llama-cpp-python is not installed: pip install llama-cpp-python")
    from transformers import AutoTokenizer

    hf = AutoTokenizer.from_pretrained(args.model)
    llm = Llama(str(folder / "model.gguf"), n_ctx=512, n_threads=args.threads, verbose=False)
    same = tokens = ties = 0
    parted = []
    for p in PROMPTS:
        text = hf.apply_chat_template([{"role": "user", "content": p}], add_generation_prompt=True, tokenize=False)
        ids = hf(text, add_special_tokens=False)["input_ids"]
        tokens += llm.tokenize(text.encode(), add_bos=False, special=True) == ids
        theirs = llm.create_completion(ids, max_tokens=16, temperature=0.0)["choices"][0]["text"]
        ours = call(args.binary, "chat", "--model", folder, "--prompt", p, "--max-tokens", 16, "--temperature", 0)
        if ours.rstrip("\n") == theirs.rstrip("\n"):
            same += 1
        else:
            end = hf.eos_token_id
            u, v = (hf(t.rstrip("\n"), add_special_tokens=False)["input_ids"] + [end] for t in (ours, theirs))
            n = next(i for i, (x, y) in enumerate(zip(u, v)) if x != y)
            apart = near_tie(llm, ids, u[:n], u[n], v[n])
            ties += apart <= 0.3
            parted.append((p, ids, ours))
            print(f"    {p!r}: part at token {n}, where llama.cpp has the two {apart:.3f} nats apart\n      ours   {ours!r}\n      theirs {theirs!r}")
    check(tokens == len(PROMPTS), f"{tokens} of {len(PROMPTS)} prompts tokenized as Hugging Face does")
    said = f"{same} of {len(PROMPTS)} prompts continued alike by llama.cpp and by us"
    if same >= 9 or scheme in ("gguf_f16", "gguf_bf16"):
        check(same >= 9, said)
    else:
        print(f"       {said}; {ties} part where llama.cpp has the two within 0.3 nats")
        # Where the two part: is it the rounding of inputs, or the weights? The same weights in F32 tell.
        as_f32(folder, folder / "f32.gguf")
        exact = Llama(str(folder / "f32.gguf"), n_ctx=512, n_threads=args.threads, verbose=False)
        alike = len(PROMPTS) - len(parted) + sum(exact.create_completion(ids, max_tokens=16, temperature=0.0)["choices"][0]["text"].rstrip("\n") == ours.rstrip("\n") for _, ids, ours in parted)
        (folder / "f32.gguf").unlink()
        print(f"       {with_itself(args, folder, hf)} of {len(PROMPTS)} alike where llama.cpp is compared with itself: the prompt at once, and token by token")
        check(alike >= 9, f"{alike} of {len(PROMPTS)} alike where llama.cpp multiplies the same weights in F32: the rest of the difference is its rounding of inputs")
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
            if scheme == "mxfp4":
                check_mxfp4(args, folder, report)
            if scheme.startswith("gguf"):
                check_decoded(args, folder, report)
                check_gguf(args, folder, scheme)
            if scheme == "gguf_q8_0":
                check(held["kl"] < 2e-3, f"KL {held['kl']:.2e} (limit 2e-3)")
    print("all limits hold" if not failures else f"{len(failures)} limits do not hold")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()

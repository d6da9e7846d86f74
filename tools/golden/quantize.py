#!/usr/bin/env python3
"""What other readers see in the folders and files that `mindxtrain quantize` writes.

Makes the two models of tests/quantize/made_model.h, quantizes them with the binary, reads the result with transformers +
compressed-tensors, transformers' fp8 and gguf-py (Quark's layouts by their definition: its package is not on PyPI for CPUs),
and stores a digest of every weight as they give it. The C++ test quantizes the same models and reads them back itself.

  python tools/golden/quantize.py BINARY          # writes tests/golden/quantize/read_back.json
"""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
EVEN = dict(type="qwen3", hidden=256, ffn=512, heads=4, kv_heads=2, head_dim=64, layers=4, vocab=512, tied=True)
RAGGED = dict(type="llama", hidden=192, ffn=320, heads=3, kv_heads=1, head_dim=64, layers=2, vocab=300, tied=False)


def shapes(m):
    q, kv, d, f = m["heads"] * m["head_dim"], m["kv_heads"] * m["head_dim"], m["hidden"], m["ffn"]
    qwen = m["type"] == "qwen3"
    out = [("model.embed_tokens.weight", (m["vocab"], d))]
    for i in range(m["layers"]):
        p = f"model.layers.{i}."
        out += [(p + "input_layernorm.weight", (d,)), (p + "mlp.down_proj.weight", (d, f)), (p + "mlp.gate_proj.weight", (f, d)),
                (p + "mlp.up_proj.weight", (f, d)), (p + "post_attention_layernorm.weight", (d,))]
        out += [(p + "self_attn.k_norm.weight", (m["head_dim"],))] if qwen else []
        out += [(p + "self_attn.k_proj.weight", (kv, d)), (p + "self_attn.o_proj.weight", (d, q))]
        out += [(p + "self_attn.q_norm.weight", (m["head_dim"],))] if qwen else []
        out += [(p + "self_attn.q_proj.weight", (q, d)), (p + "self_attn.v_proj.weight", (kv, d))]
    out.append(("model.norm.weight", (d,)))
    if not m["tied"]:
        out.append(("lm_head.weight", (m["vocab"], d)))
    return out


def make(m, folder):
    folder.mkdir(parents=True)
    tensors = {}
    for t, (name, shape) in enumerate(shapes(m)):
        i = np.arange(int(np.prod(shape)), dtype=np.uint64)
        h = (i * np.uint64(2654435761) + np.uint64((t + 1) * 40503)) & np.uint64(0xFFFFFFFF)
        v = ((h >> np.uint64(16)).astype(np.float64) - 32768.0) / 32768.0
        amplitude = 0.015625 * (1 + (i * np.uint64(7) + np.uint64(t)) % np.uint64(5)).astype(np.float64)
        x = 1.0 + v * 0.125 if len(shape) == 1 else v * amplitude
        tensors[name] = torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16).reshape(shape)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = dict(architectures=["Qwen3ForCausalLM" if m["type"] == "qwen3" else "LlamaForCausalLM"], model_type=m["type"], hidden_size=m["hidden"],
                  intermediate_size=m["ffn"], num_hidden_layers=m["layers"], num_attention_heads=m["heads"], num_key_value_heads=m["kv_heads"],
                  head_dim=m["head_dim"], vocab_size=m["vocab"], max_position_embeddings=256, rms_norm_eps=1e-6, rope_theta=10000.0,
                  hidden_act="silu", attention_bias=False, tie_word_embeddings=m["tied"], torch_dtype="bfloat16", bos_token_id=0, eos_token_id=0)
    (folder / "config.json").write_text(json.dumps(config))


def tokenizer(folder):
    """A byte-level tokenizer small enough for the models: GGUF files hold one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    t.train_from_iterator(["The quick brown fox jumps over the lazy dog. 0123456789"] * 50, trainer)
    t.save(str(folder / "tokenizer.json"))


def of_transformers(folder):
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig, FineGrainedFP8Config

    method = json.loads((folder / "config.json").read_text())["quantization_config"]["quant_method"]
    how = CompressedTensorsConfig(run_compressed=False) if method == "compressed-tensors" else FineGrainedFP8Config(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=how, torch_dtype=torch.bfloat16)
    return {n: p.detach() for n, p in model.state_dict().items() if n.endswith("weight")}


def of_quark(folder):
    """Quark's README: weight × weight_scale; fp4 two to a byte, low nibble first, scales E8M0 for 32."""
    e2m1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])
    raw, out = load_file(folder / "model.safetensors"), {}
    for name, w in raw.items():
        if name.endswith("_scale"):
            continue
        scale = raw.get(name + "_scale")
        if scale is None:
            out[name] = w
        elif w.dtype == torch.uint8:
            x = torch.stack([e2m1[(w & 15).long()], e2m1[(w >> 4).long()]], dim=-1).reshape(w.shape[0], -1, 32)
            out[name] = (x * torch.exp2(scale.float() - 127)[..., None]).reshape(w.shape[0], -1)
        else:
            out[name] = w.float() * (scale[:, None] if scale.dim() == 1 else scale)
    return {n: t.to(torch.bfloat16) for n, t in out.items()}


def of_gguf(folder):
    from gguf import GGUFReader, dequantize

    out = {}
    for t in GGUFReader(folder / "model.gguf").tensors:
        out[t.name] = (t.tensor_type.name, torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), dtype=np.float32)))
    return out


def digest(t):
    b = t.contiguous().view(torch.int16).numpy() if t.dtype == torch.bfloat16 else t.contiguous().numpy()
    return hashlib.sha256(b.tobytes()).hexdigest()[:16]


def main():
    binary = os.path.abspath(sys.argv[1])
    golden = {}
    with tempfile.TemporaryDirectory() as tmp:
        work = Path(tmp)
        for name, model in (("even", EVEN), ("ragged", RAGGED)):
            make(model, work / name)
            tokenizer(work / name)
            for scheme in ("fp8_dynamic", "fp8_block", "quark_fp8", "quark_fp8_tensor", "quark_mxfp4", "mxfp4",
                           "gguf_f16", "gguf_bf16", "gguf_q8_0", "gguf_q4_0", "gguf_q4_k_m"):
                if scheme == "fp8_block" and name == "ragged":
                    continue  # transformers' dequantize guesses the block from the grid and reads such sizes wrongly
                out = work / f"{name}-{scheme}"
                command = [binary, "quantize", "--model", work / name, "--scheme", scheme.removesuffix("_tensor"), "--out", out, "--no-report"]
                subprocess.run(command + (["--per-tensor"] if scheme.endswith("_tensor") else []), check=True, stdout=subprocess.DEVNULL)
                if scheme.startswith("gguf"):
                    golden[f"{name} {scheme}"] = {n: [kind, digest(t)] for n, (kind, t) in of_gguf(out).items()}
                else:
                    read = of_quark(out) if scheme.startswith("quark") else of_transformers(out)
                    golden[f"{name} {scheme}"] = {n: digest(t) for n, t in sorted(read.items())}
                print(name, scheme, len(golden[f"{name} {scheme}"]), file=sys.stderr)
    path = ROOT / "tests/golden/quantize/read_back.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(golden, indent=0) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Golden values of bases in four bits: what bitsandbytes makes of tensors, a folder that transformers saved, and LoRA over both.

usage: qlora.py OUTDIR MODELS     needs: torch transformers peft bitsandbytes accelerate safetensors numpy
MODELS is tests/golden/models, whose llama_mqa and qwen3_gqa are the bases. Writes OUTDIR/:
  tensors.safetensors   NAME (source), NAME.codes, .absmax, .nested_codes, .nested_absmax, .offset
  folder/               llama_mqa in 4 bits with double quantization, as transformers saves it; folder_fp32/ without; folder_plain/ in bf16
  expected.safetensors  logits of the first documents for both folders
  expected.json         12 LoRA steps by peft in fp32 over the first folder, and over each dequantised model
Dequantisation is by the flat definition: bitsandbytes' own on the CPU is wrong for widths that are a multiple of 16 but not of 64."""
import json, os, shutil, sys
import bitsandbytes.functional as F
import numpy as np
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import models

out, golden = sys.argv[1:3]
os.makedirs(out, exist_ok=True)
TABLE = F.get_4bit_type("nf4", device="cpu").numpy().astype(np.float32)
DYNAMIC = F.create_dynamic_map().numpy().astype(np.float32)
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)


def nearest(x, table):
    return np.searchsorted((table[:-1] + table[1:]) / np.float32(2), x, side="left")


def nf4(w, double):
    """Values of w after NF4, by the definition."""
    flat = w.detach().float().numpy().reshape(-1)
    n = len(flat)
    x = np.concatenate([flat, np.zeros(-n % 64, np.float32)]).reshape(-1, 64)
    absmax = np.abs(x).max(1)
    inverse = np.where(absmax > 0, np.float32(1) / np.where(absmax > 0, absmax, 1), 0).astype(np.float32)
    codes = nearest(x * inverse[:, None], TABLE)
    scale = absmax
    if double:
        mean = np.float32(absmax.astype(np.float64).mean())
        d = absmax - mean
        scale = np.empty_like(absmax)
        for b in range(0, len(d), 256):
            part = d[b:b + 256]
            most = np.abs(part).max()
            q = nearest(part * (np.float32(1) / most if most > 0 else np.float32(0)), DYNAMIC)
            scale[b:b + 256] = DYNAMIC[q] * most + mean
    return torch.from_numpy((TABLE[codes] * scale[:, None]).astype(np.float32).reshape(-1)[:n].reshape(w.shape)).to(w.dtype)


def linears(model):
    return [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"]


# ---- tensors
tensors, g = {}, torch.Generator().manual_seed(3)
for name, shape, dtype in (("odd", (7, 35), torch.float32), ("short", (1, 3), torch.float32), ("wide", (33, 576), torch.float32),
                           ("half", (65, 96), torch.bfloat16), ("large", (129, 1000), torch.bfloat16)):
    w = (torch.randn(shape, generator=g) * torch.rand(shape[0], 1, generator=g)).to(dtype)
    if name == "wide":
        w[3] = 0  # blocks of zeros
    codes, state = F.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=False)
    _, nested = F.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=True)
    tensors |= {name: w, name + ".codes": codes.reshape(-1), name + ".absmax": state.absmax, name + ".nested_codes": nested.absmax,
                name + ".nested_absmax": nested.state2.absmax, name + ".offset": nested.offset.reshape(1)}
save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(out, "tensors.safetensors"))

# ---- folders
expected, bases, docs = {}, {}, models.documents(11, 40)
for folder, double, dtype in (("folder", True, torch.float32), ("folder_fp32", False, torch.float32), ("folder_plain", False, torch.bfloat16)):
    where = os.path.join(out, folder)
    shutil.rmtree(where, ignore_errors=True)
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double, bnb_4bit_compute_dtype=dtype)
    model = AutoModelForCausalLM.from_pretrained(os.path.join(golden, "llama_mqa"), quantization_config=config, dtype=dtype, device_map="cpu")
    model.save_pretrained(where)
    for junk in ("generation_config.json",):
        if os.path.exists(os.path.join(where, junk)):
            os.remove(os.path.join(where, junk))
    plain = AutoModelForCausalLM.from_pretrained(os.path.join(golden, "llama_mqa"), dtype=dtype)
    saved = load_file(os.path.join(where, "model.safetensors"))
    with torch.no_grad():
        for n, m in linears(plain):  # from the file's own codes and scales
            state = json.loads(bytes(saved[n + ".weight.quant_state.bitsandbytes__nf4"].tolist()))
            absmax = saved[n + ".weight.absmax"]
            if double:
                nested = saved[n + ".weight.nested_absmax"].repeat_interleave(256)[: len(absmax)]
                absmax = saved[n + ".weight.nested_quant_map"][absmax.long()] * nested + state["nested_offset"]
            packed = saved[n + ".weight"].reshape(-1)
            codes = torch.stack([packed >> 4, packed & 15], 1).reshape(-1)[: m.weight.numel()].long()
            m.weight.copy_((saved[n + ".weight.quant_map"][codes] * absmax.repeat_interleave(64)[: len(codes)]).reshape(m.weight.shape))
    plain = plain.float().eval()
    theirs = model.eval()(input_ids=torch.tensor([docs[0][0]])).logits[0].float()
    ours = plain(input_ids=torch.tensor([docs[0][0]])).logits[0]
    print(folder, "difference from bitsandbytes' own", (theirs - ours).abs().max().item())
    if double:
        torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-4)
    bases[folder] = plain
    expected[folder] = models.loss_of(plain, docs[:3])[1].detach().contiguous()
save_file(expected, os.path.join(out, "expected.safetensors"))

# ---- LoRA over the dequantised base
models.STEPS = 12
lora = PeftModel.from_pretrained(bases["folder"], os.path.join(golden, "llama_mqa", "adapter"), is_trainable=True)
result = {"folder": models.train(lora, docs, models.LR)}
for name in ("llama_mqa", "qwen3_gqa"):
    for coding in ("nf4", "nf4_double"):
        base = AutoModelForCausalLM.from_pretrained(os.path.join(golden, name), dtype=torch.float32)
        with torch.no_grad():
            for _, m in linears(base):
                m.weight.copy_(nf4(m.weight, coding == "nf4_double"))
        lora = PeftModel.from_pretrained(base, os.path.join(golden, name, "adapter"), is_trainable=True)
        result.setdefault(name, {})[coding] = models.train(lora, docs, models.LR)
        print(name, coding, result[name][coding][0])
json.dump(result, open(os.path.join(out, "expected.json"), "w"), indent=1)

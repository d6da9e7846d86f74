#!/usr/bin/env python3
"""A gpt-oss folder whose experts are held in MXFP4 as on the Hub (random codes), and what transformers makes of it.

usage: gpt_oss_mxfp4.py OUTDIR        needs: torch transformers safetensors
Writes OUTDIR/: config.json, model.safetensors, expected.safetensors (logits of the documents of rows.jsonl, with the experts as
transformers' convert_moe_packed_tensors decodes them), rows.jsonl, plain/ (the same model decoded)."""
import json, os, sys
import torch
from safetensors.torch import save_file
from transformers import GptOssConfig, GptOssForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import models

out = sys.argv[1]
torch.manual_seed(5)
HIDDEN, INNER, EXPERTS = 64, 32, 3
config = GptOssConfig(vocab_size=96, max_position_embeddings=64, pad_token_id=None, bos_token_id=None, eos_token_id=None, hidden_size=HIDDEN, intermediate_size=INNER,
                      num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_local_experts=EXPERTS, num_experts_per_tok=2, sliding_window=6, attn_implementation="eager")
model = GptOssForCausalLM(config).float().eval()
packed = {}
with torch.no_grad():
    for name, p in model.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, columns, rows = p.shape
            blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8)
            scales = torch.randint(119, 124, (experts, rows, columns // 32), dtype=torch.uint8)
            packed[name + "_blocks"], packed[name + "_scales"] = blocks, scales
            p.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
        else:
            p.copy_((p + torch.randn_like(p) * 0.05).to(torch.bfloat16))
            packed[name] = p.detach().to(torch.bfloat16).clone()
os.makedirs(out, exist_ok=True)
model.save_pretrained(os.path.join(out, "plain"))
os.remove(os.path.join(out, "plain", "generation_config.json"))
saved = json.load(open(os.path.join(out, "plain", "config.json")))
saved["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
saved["dtype"] = "bfloat16"
json.dump(saved, open(os.path.join(out, "config.json"), "w"), indent=2)
save_file(packed, os.path.join(out, "model.safetensors"), {"format": "pt"})
docs = models.documents(11, 3)
with open(os.path.join(out, "rows.jsonl"), "w") as f:
    for ids, labels in docs:
        f.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")
with torch.no_grad():
    save_file({"logits": torch.cat([model(torch.tensor([ids]), use_cache=False).logits[0] for ids, _ in docs]).contiguous()}, os.path.join(out, "expected.safetensors"))

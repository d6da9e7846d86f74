#!/usr/bin/env python3
"""Golden values of a small Qwen3-VL, or of a small Qwen3.5 with its tower, from transformers and peft: logits, loss, every gradient, 15 training steps and greedy text, pictures
included.

usage: qwen3_vl.py OUTDIR [qwen3_5_vl]        needs: torch transformers peft safetensors pillow<13 (13 passes over the columns first where it thinks that cheaper)
Writes OUTDIR/qwen3_vl/ (or qwen3_5_vl/) as models.py does, with pictures (N.png, N.jpg) beside rows.jsonl and the processor's file. A third of the rows has no
picture, a third one, a third two."""
import contextlib, json, os, sys
import numpy as np
import torch
from PIL import Image
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

import families
import models
import pictures

IMAGE, START, END = 90, 92, 93
HYBRID = sys.argv[2:] == ["qwen3_5_vl"]
STEPS, LR = 15, 3e-4 if HYBRID else 3e-3
out = os.path.join(sys.argv[1], "qwen3_5_vl" if HYBRID else "qwen3_vl")
os.makedirs(out, exist_ok=True)
torch.use_deterministic_algorithms(True)
torch.manual_seed(7)
processor = Qwen2VLImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 640}, patch_size=4, merge_size=2, temporal_patch_size=2,
                                     image_mean=[0.5, 0.45, 0.4], image_std=[0.5, 0.3, 0.25])
processor.save_pretrained(out)
# head_dim is neither the text's nor the tower's width over its heads; the table of places is smaller and larger than pictures
text = dict(vocab_size=96, hidden_size=36, intermediate_size=48, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, head_dim=16, max_position_embeddings=96,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True})
if HYBRID:  # half of a head turns
    text |= dict(head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12, layer_types=["linear_attention", "full_attention", "linear_attention"])
    text["rope_parameters"] |= {"partial_rotary_factor": 0.5}
Config, Model = (Qwen3_5Config, Qwen3_5ForConditionalGeneration) if HYBRID else (Qwen3VLConfig, Qwen3VLForConditionalGeneration)
config = Config(
    text_config=text,
    vision_config=dict(depth=4, hidden_size=24, intermediate_size=40, num_heads=3, patch_size=4, spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=36, num_position_embeddings=25,
                       **({} if HYBRID else {"deepstack_visual_indexes": [0, 2]})),
    image_token_id=IMAGE, video_token_id=91, vision_start_token_id=START, vision_end_token_id=END, tie_word_embeddings=False)
model = Model(config).float().eval()
with torch.no_grad():
    for n, p in model.named_parameters():
        p.add_(torch.randn_like(p) * 0.1) if p.ndim == 1 else p.mul_(3.0)
model.save_pretrained(out, safe_serialization=True)

names, grids, pixels = [], [], []
for i, (h, w) in enumerate([(13, 20), (40, 9), (24, 24), (11, 57), (33, 18)]):
    name = f"{i}.jpg" if i == 3 else f"{i}.png"
    Image.fromarray(pictures.photo(h, w, 3, 40 + i)).save(os.path.join(out, name))
    seen = processor(images=[Image.open(os.path.join(out, name))], return_tensors="pt")
    names.append(name), grids.append(seen["image_grid_thw"]), pixels.append(seen["pixel_values"].float())

g = torch.Generator().manual_seed(11)
draw = lambda low, high: int(torch.randint(low, high, (1,), generator=g))
docs = []
for i in range(30):
    ids, shown = [], []
    for part in range(i % 3 + 1):
        ids += torch.randint(0, 90, (draw(2, 9),), generator=g).tolist()
        if part < i % 3:
            k = draw(0, len(names))
            shown.append(k)
            ids += [START] + [IMAGE] * int(grids[k].prod() // 4) + [END]
    ids += torch.randint(0, 90, (draw(3, 9),), generator=g).tolist()
    labels = [x if x != IMAGE and t > draw(0, 4) else -100 for t, x in enumerate(ids)]
    docs.append((ids, labels, shown))
with open(os.path.join(out, "rows.jsonl"), "w") as f:
    for ids, labels, shown in docs:
        row = {"input_ids": ids, "labels": labels}
        f.write(json.dumps(row | ({"images": [names[k] for k in shown]} if shown else {})) + "\n")


def inputs(ids, shown):
    x = {"input_ids": torch.tensor([ids]), "mm_token_type_ids": torch.tensor([[int(i == IMAGE) for i in ids]])}
    if shown:
        x |= {"pixel_values": torch.cat([pixels[k] for k in shown]).to(model.dtype), "image_grid_thw": torch.cat([grids[k] for k in shown])}
    return x


def loss_of(model, docs):
    total, count, logits = 0.0, 0, []
    for ids, labels, shown in docs:
        logits.append(model(**inputs(ids, shown), use_cache=False).logits[0].float())
        y = torch.tensor(labels[1:])
        total = total + torch.nn.functional.cross_entropy(logits[-1][:-1], y, ignore_index=-100, reduction="sum")
        count += int((y != -100).sum())
    return total / count, torch.cat(logits), 0.0


models.loss_of, models.STEPS = loss_of, STEPS
with models.doubles() if HYBRID else contextlib.nullcontext():
    loss, logits, _ = loss_of(model.double() if HYBRID else model, docs[:6])
    loss.backward()
expected = {"logits": logits.detach().float().contiguous()} | {"grad." + n: p.grad.float().clone().contiguous() for n, p in model.named_parameters() if p.grad is not None}
result = {"loss": loss.item(), "settings": {"steps": STEPS, "per_device": models.PER_DEVICE, "lr": LR}}
model.zero_grad()
model.float()
ids, _, shown = docs[2]
result["greedy"] = {"row": 2, "ids": model.generate(**inputs(ids, shown), max_new_tokens=24, do_sample=False, eos_token_id=None)[0, len(ids):].tolist()}
state = {k: v.clone() for k, v in model.state_dict().items()}
result["full"] = models.train(model, docs, LR)
model.load_state_dict(state)
for p in model.model.visual.parameters():
    p.requires_grad_(False)
result["frozen"] = models.train(model, docs, LR)
model.load_state_dict(state)
lora = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=families.HYBRID if HYBRID else models.LINEARS, task_type="CAUSAL_LM"))
with torch.no_grad():
    for n, p in lora.named_parameters():
        if "lora_B" in n:
            p.copy_(torch.randn_like(p) * 0.05)
lora.save_pretrained(os.path.join(out, "adapter"))
loss, logits, _ = loss_of(lora, docs[:6])
expected["lora_logits"] = logits.detach().contiguous()
result["lora_loss"] = loss.item()
result["lora"] = models.train(lora, docs, LR)
save_file(expected, os.path.join(out, "expected.safetensors"))
with open(os.path.join(out, "expected.json"), "w") as f:
    json.dump(result, f, indent=1)
for junk in ("adapter/README.md", "generation_config.json"):
    if os.path.exists(os.path.join(out, junk)):
        os.remove(os.path.join(out, junk))
print("loss", result["loss"], "lora", result["lora_loss"], "greedy", result["greedy"])

#!/usr/bin/env python3
"""Golden values of adapters' variants by peft: DoRA, PiSSA, LoRA+, layers and patterns, biases, whole modules, adapters of head and embeddings.

usage: variants.py OUTDIR MODELS        needs: torch transformers peft safetensors numpy
       variants.py load MODELS CASE ADAPTER    prints the log-probabilities of the first document, the adapter loaded by peft
MODELS is tests/golden/models. Writes OUTDIR/<case>/: start/ (PEFT folder to begin from; none of PiSSA, which begins by itself), final/ (after
12 steps in fp32), expected.json (the steps; log-probabilities of the first document after them)."""
import json, os, shutil, sys, tempfile
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import models

models.STEPS = 12
ATTENTION = ["q_proj", "v_proj"]
ALL = models.LINEARS
CASES = {  # base, LoraConfig, LoRA+'s ratio
    "dora": ("llama_mqa", dict(target_modules=ALL, use_dora=True), 1),
    "dora_biases": ("llama_scaled", dict(target_modules=["q_proj", "o_proj", "up_proj"], use_dora=True), 1),
    "dora_turned": ("gpt2", dict(target_modules=["c_attn", "c_proj", "c_fc"], use_dora=True), 1),
    "pissa": ("qwen3_gqa", dict(target_modules=ALL, init_lora_weights="pissa"), 1),
    "plus": ("llama_mqa", dict(target_modules=ALL), 4),
    "patterns": ("qwen3_gqa", dict(target_modules=ALL, layers_to_transform=[1], rank_pattern={"q_proj": 2, "layers.1.mlp.down_proj": 6}, alpha_pattern={"down_proj": 3}), 1),
    "lora_only": ("qwen2", dict(target_modules=ATTENTION, bias="lora_only"), 1),
    "saved": ("llama_mqa", dict(target_modules=ATTENTION, modules_to_save=["embed_tokens", "lm_head"]), 1),
    "saved_tied": ("qwen3_tied", dict(target_modules=ATTENTION, modules_to_save=["embed_tokens", "lm_head"]), 1),
    "saved_half": ("qwen3_tied", dict(target_modules=ATTENTION, modules_to_save=["embed_tokens"]), 1),
    "ends": ("llama_mqa", dict(target_modules=ATTENTION + ["embed_tokens", "lm_head"]), 1),
    "plus_ends": ("llama_mqa", dict(target_modules=ATTENTION + ["embed_tokens", "lm_head"]), 4),
    "ends_tied": ("qwen3_tied", dict(target_modules=ATTENTION + ["embed_tokens", "lm_head"]), 1),
}


def base(golden, name):
    return AutoModelForCausalLM.from_pretrained(os.path.join(golden, name), dtype=torch.float32)


def logprobs(model, ids):
    with torch.no_grad():
        lg = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)
    return [lg[i, t].item() for i, t in enumerate(ids[1:])]


def train(model, docs, ratio):
    if ratio == 1:
        return models.train(model, docs, models.LR)
    opt = create_loraplus_optimizer(model, torch.optim.AdamW, lr=models.LR, loraplus_lr_ratio=ratio, loraplus_weight_decay=models.WD, betas=models.BETAS, eps=1e-8)
    times = [g["lr"] / models.LR for g in opt.param_groups]
    rows = []
    for s in range(models.STEPS):
        for g, t in zip(opt.param_groups, times):
            g["lr"] = models.rate(s, models.LR) * t
        loss, _, _ = models.loss_of(model, [docs[(s * models.PER_DEVICE + i) % len(docs)] for i in range(models.PER_DEVICE)])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], models.CLIP)
        opt.step()
        opt.zero_grad()
        rows.append({"loss": loss.item(), "grad_norm": norm.item(), "lr": models.rate(s, models.LR)})
    return rows


def tidy(folder):
    """Without what the base has itself, and the model card."""
    path = os.path.join(folder, "adapter_model.safetensors")
    save_file({k: v for k, v in load_file(path).items() if not k.endswith("base_layer.weight")}, path)
    os.remove(os.path.join(folder, "README.md"))
    config = json.load(open(os.path.join(folder, "adapter_config.json")))
    config["base_model_name_or_path"] = None
    json.dump(config, open(os.path.join(folder, "adapter_config.json"), "w"), indent=1, sort_keys=True)


if sys.argv[1] == "load":
    golden, case, adapter = sys.argv[2:5]
    name, _, _ = CASES[case]
    model = PeftModel.from_pretrained(base(golden, name), adapter).eval()
    print(json.dumps(logprobs(model, models.documents(11, 40)[0][0])))
    sys.exit()

out, golden = sys.argv[1:3]
docs = models.documents(11, 40)
for case, (name, settings, ratio) in CASES.items():
    torch.manual_seed(5)
    where = os.path.join(out, case)
    shutil.rmtree(where, ignore_errors=True)
    os.makedirs(where)
    model = get_peft_model(base(golden, name), LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **settings))
    pissa = settings.get("init_lora_weights") == "pissa"
    first = tempfile.mkdtemp()
    if pissa:
        model.peft_config["default"].init_lora_weights = True
        model.save_pretrained(first)
    else:
        with torch.no_grad():
            for n, p in model.named_parameters():
                if "lora_" in n:
                    p.mul_(1 + 0.2 * torch.rand_like(p)) if "magnitude" in n else p.copy_(torch.randn_like(p) * 0.1)
        model.save_pretrained(os.path.join(where, "start"))
        tidy(os.path.join(where, "start"))
    steps = train(model, docs, ratio)
    model.save_pretrained(os.path.join(where, "final"), **({"path_initial_model_for_weight_conversion": first} if pissa else {}))
    tidy(os.path.join(where, "final"))
    json.dump({"base": name, "settings": settings, "ratio": ratio, "steps": steps, "ids": docs[0][0], "logprobs": logprobs(model.eval(), docs[0][0])}, open(os.path.join(where, "expected.json"), "w"), indent=1)
    print(case, steps[0], steps[-1])

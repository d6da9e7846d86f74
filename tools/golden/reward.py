#!/usr/bin/env python3
"""Trajectories of TRL's RewardTrainer over the tiny models of tests/golden/models, in fp32.

usage: reward.py MODELS OUTDIR     needs: torch transformers peft trl datasets safetensors (MODELS: tests/golden/models)
Writes OUTDIR/pairs.jsonl ({"prompt_ids", "chosen_ids", "rejected_ids"}, some longer than MAX_LENGTH, which TRL leaves out),
OUTDIR/MODEL.safetensors (the score's first weights), OUTDIR/rows.jsonl with OUTDIR/expected.json: for each case what the trainer logged in
each of its steps, and the scores that transformers gives to the rows in the end, one row at a time."""
import json, os, sys, tempfile
import torch
from datasets import Dataset
from peft import LoraConfig, TaskType, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast
from trl import RewardConfig, RewardTrainer

src, out = sys.argv[1], sys.argv[2]
os.makedirs(out, exist_ok=True)
torch.use_deterministic_algorithms(True)
STEPS, PER_DEVICE, ACCUM, MAX_LENGTH, LR, WD, BETAS, CLIP = 12, 3, 2, 64, 1e-3, 0.1, (0.9, 0.95), 1.0
EOS = 1
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def rows(count, seed):
    g = torch.Generator().manual_seed(seed)
    draw = lambda low, high: int(torch.randint(low, high, (1,), generator=g))
    ids = lambda n: [draw(3, 96) for _ in range(n)]
    return [{"prompt_ids": ids(draw(2, 30)), "chosen_ids": ids(draw(1, 48)) + [EOS], "rejected_ids": ids(draw(1, 48)) + [EOS]} for _ in range(count)]


def write(name, lines):
    with open(os.path.join(out, name), "w") as f:
        for row in lines:
            f.write(json.dumps(row) + "\n")


pairs = rows(100, 7)
write("pairs.jsonl", pairs)
fit = [{"chosen_ids": p["prompt_ids"] + p["chosen_ids"], "rejected_ids": p["prompt_ids"] + p["rejected_ids"]} for p in pairs]
asked = [{"ids": p["chosen_ids"]} for p in fit if len(p["chosen_ids"]) <= MAX_LENGTH][:9] + [{"ids": [5, 6, EOS, EOS]}, {"ids": [EOS]}]
write("rows.jsonl", asked)


def tokenizer(pad):
    tok = Tokenizer(models.WordLevel({f"w{i}": i for i in range(96)}, unk_token="w2"))
    tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token=pad, eos_token="w1", unk_token="w2")


class InOrder(RewardTrainer):
    def _get_train_sampler(self, *a, **k):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def load(model, kind):
    base = AutoModelForSequenceClassification.from_pretrained(os.path.join(src, model), num_labels=1, dtype=torch.float32)
    weights = os.path.join(out, model + ".safetensors")
    if not os.path.exists(weights):
        torch.manual_seed(11)
        save_file({"score.weight": torch.randn_like(base.score.weight) * 0.3}, weights)
    head = load_file(weights)
    base.load_state_dict(head, strict=False)
    if kind == "full":
        return base
    peft = get_peft_model(base, LoraConfig(task_type=TaskType.SEQ_CLS, r=4, lora_alpha=8, target_modules=MODULES, modules_to_save=["score"]))
    adapter = load_file(os.path.join(src, model, "adapter", "adapter_model.safetensors"))
    set_peft_model_state_dict(peft, {**adapter, "base_model.model.score.weight": head["score.weight"]})
    return peft


def run(model, kind, pad, center):
    with tempfile.TemporaryDirectory() as folder:
        args = RewardConfig(output_dir=folder, per_device_train_batch_size=PER_DEVICE, gradient_accumulation_steps=ACCUM, max_steps=STEPS, learning_rate=LR, lr_scheduler_type="linear", warmup_steps=0, weight_decay=WD, adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=1e-8, max_grad_norm=CLIP, logging_steps=1, logging_strategy="steps", report_to=[], save_strategy="no", bf16=False, fp16=False, gradient_checkpointing=False, use_cpu=True, max_length=MAX_LENGTH, center_rewards_coefficient=center, seed=3)
        trainer = InOrder(model=load(model, kind), args=args, train_dataset=Dataset.from_list(fit), processing_class=tokenizer(pad))
        trainer.train()
        keep = ("loss", "grad_norm", "learning_rate", "accuracy", "margin", "min_reward", "mean_reward", "max_reward")
        steps = [{k: v for k, v in entry.items() if k in keep} for entry in trainer.state.log_history if "loss" in entry]
        policy = trainer.model.eval()
        with torch.no_grad():
            scores = [policy(input_ids=torch.tensor([r["ids"]])).logits.item() for r in asked]
        return {"model": model, "kind": kind, "pad": int(pad[1:]), "center": center or 0, "steps": steps, "scores": scores}


CASES = {
    "qwen3_full": ("qwen3_gqa", "full", "w0", None),
    "qwen3_lora": ("qwen3_gqa", "lora", "w0", 0.01),
    "qwen3_lora_end_pads": ("qwen3_gqa", "lora", "w1", None),
    "llama_full": ("llama_mqa", "full", "w0", 0.05),
    "llama_lora": ("llama_mqa", "lora", "w0", None),
}
expected = {"settings": {"steps": STEPS, "per_device": PER_DEVICE, "grad_accum": ACCUM, "seq_len": MAX_LENGTH, "lr": LR, "weight_decay": WD, "betas": BETAS, "grad_clip": CLIP}, "cases": {}}
for name, case in CASES.items():
    expected["cases"][name] = run(*case)
    print(name, expected["cases"][name]["steps"][-1])
with open(os.path.join(out, "expected.json"), "w") as f:
    json.dump(expected, f, indent=0)

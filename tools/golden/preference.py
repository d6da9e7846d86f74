#!/usr/bin/env python3
"""Trajectories of TRL's DPO, ORPO and KTO trainers over the tiny models of tests/golden/models, in fp32.

usage: preference.py MODELS OUTDIR     needs: torch transformers peft trl datasets (MODELS: tests/golden/models)
Writes OUTDIR/pairs.jsonl ({"prompt_ids", "chosen_ids", "rejected_ids"}), OUTDIR/answers.jsonl ({"prompt_ids", "completion_ids",
"label"}) and OUTDIR/expected.json: for each case what the trainer logged in each of its steps. Rows are finished tokens, in the
file's order, some longer than MAX_LENGTH; a step is ACCUM batches of PER_DEVICE rows."""
import json, os, sys, tempfile
import torch
from datasets import Dataset
from peft import PeftModel
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

src, out = sys.argv[1], sys.argv[2]
os.makedirs(out, exist_ok=True)
torch.use_deterministic_algorithms(True)
STEPS, PER_DEVICE, ACCUM, MAX_LENGTH, LR, WD, BETAS, CLIP, BETA = 12, 3, 2, 64, 1e-3, 0.1, (0.9, 0.95), 1.0, 0.3
ROWS = STEPS * PER_DEVICE * ACCUM
PAD, EOS = 0, 1

words = {f"w{i}": i for i in range(96)}
tok = Tokenizer(models.WordLevel(words, unk_token="w2"))
tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="w0", eos_token="w1", unk_token="w2")


def rows(seed):
    g = torch.Generator().manual_seed(seed)
    draw = lambda low, high: int(torch.randint(low, high, (1,), generator=g))
    ids = lambda n: [draw(3, 96) for _ in range(n)]
    return [{"prompt_ids": ids(draw(2, 30)), "chosen_ids": ids(draw(1, 48)) + [EOS], "rejected_ids": ids(draw(1, 48)) + [EOS]} for _ in range(ROWS)]


def labelled(pairs, seed):
    g = torch.Generator().manual_seed(seed)
    good = torch.rand(len(pairs), generator=g) < 0.55
    return [{"prompt_ids": p["prompt_ids"], "completion_ids": p["chosen_ids"], "label": bool(k)} for p, k in zip(pairs, good)]


pairs = rows(5)
answers = labelled(pairs, 6)
for name, data in (("pairs", pairs), ("answers", answers)):
    with open(os.path.join(out, name + ".jsonl"), "w") as f:
        for row in data:
            f.write(json.dumps(row) + "\n")


class InOrder:
    def _get_train_sampler(self, *a, **k):
        return torch.utils.data.SequentialSampler(self.train_dataset)


class Dpo(InOrder, DPOTrainer):
    def _prepare_dataset(self, dataset, *a, **k):
        return dataset


class Kto(InOrder, KTOTrainer):
    def _prepare_dataset(self, dataset, *a, **k):
        return dataset


class Orpo(InOrder, ORPOTrainer):
    def tokenize_row(self, feature, model=None):
        batch = {}
        for kind in ("chosen", "rejected"):
            ids = (feature["prompt_ids"] + feature[kind + "_ids"])[:MAX_LENGTH]
            batch[kind + "_input_ids"] = ids
            batch[kind + "_attention_mask"] = [1] * len(ids)
            batch[kind + "_labels"] = [-100] * len(feature["prompt_ids"]) + ids[len(feature["prompt_ids"]):]
        batch["prompt_input_ids"] = feature["prompt_ids"]
        batch["prompt_attention_mask"] = [1] * len(feature["prompt_ids"])
        return batch


def common(folder):
    return dict(output_dir=folder, per_device_train_batch_size=PER_DEVICE, gradient_accumulation_steps=ACCUM, num_train_epochs=1, learning_rate=LR, lr_scheduler_type="linear", warmup_steps=0, weight_decay=WD, adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=1e-8, max_grad_norm=CLIP, logging_steps=1, logging_strategy="steps", report_to=[], save_strategy="no", bf16=False, fp16=False, gradient_checkpointing=False, use_cpu=True, max_length=MAX_LENGTH, beta=BETA, remove_unused_columns=False, dataloader_num_workers=0, seed=3)


def load(model, kind, reference=False):
    base = AutoModelForCausalLM.from_pretrained(os.path.join(src, model), dtype=torch.float32)
    if kind == "lora":
        return PeftModel.from_pretrained(base, os.path.join(src, model, "adapter"), is_trainable=True)
    return base


def run(method, model, kind):
    with tempfile.TemporaryDirectory() as folder:
        policy = load(model, kind)
        if method == "orpo":
            trainer = Orpo(model=policy, args=ORPOConfig(**common(folder)), train_dataset=Dataset.from_list(pairs), processing_class=tokenizer)
        elif method == "kto":
            data = []
            for b in range(0, ROWS, PER_DEVICE):
                batch = answers[b : b + PER_DEVICE]
                for i, row in enumerate(batch):
                    data.append({**row, "KL_completion_ids": batch[i - 1]["completion_ids"]})
            trainer = Kto(model=policy, ref_model=None, args=KTOConfig(desirable_weight=1.0, undesirable_weight=0.7, **common(folder)), train_dataset=Dataset.from_list(data), processing_class=tokenizer)
        else:
            loss_type = {"dpo": "sigmoid", "dpo_hinge": "hinge", "dpo_ipo": "ipo"}[method]
            trainer = Dpo(model=policy, ref_model=None, args=DPOConfig(loss_type=[loss_type], **common(folder)), train_dataset=Dataset.from_list(pairs), processing_class=tokenizer)
        trainer.train()
        keep = ("loss", "grad_norm", "learning_rate", "rewards/", "logps/", "kl", "nll_loss", "log_odds")
        return [{k: v for k, v in entry.items() if k.startswith(keep)} for entry in trainer.state.log_history if "loss" in entry]


expected = {"settings": {"steps": STEPS, "per_device": PER_DEVICE, "grad_accum": ACCUM, "seq_len": MAX_LENGTH, "lr": LR, "weight_decay": WD, "betas": BETAS, "grad_clip": CLIP, "beta": BETA, "undesirable_weight": 0.7}, "cases": {}}
for method in ("dpo", "dpo_hinge", "dpo_ipo", "orpo", "kto"):
    for model in ("qwen3_gqa", "llama_mqa"):
        for kind in ("full", "lora"):
            if method in ("dpo_hinge", "dpo_ipo") and (model, kind) != ("qwen3_gqa", "lora"):
                continue
            expected["cases"][f"{method} {model} {kind}"] = run(method, model, kind)
            print(method, model, kind, expected["cases"][f"{method} {model} {kind}"][-1])
with open(os.path.join(out, "expected.json"), "w") as f:
    json.dump(expected, f, indent=0)

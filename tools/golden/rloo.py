#!/usr/bin/env python3
"""Trajectories of TRL's RLOO trainer over the rollouts of grpo.py, in fp32.

usage: rloo.py MODELS ROLLOUTS OUTDIR     needs: torch transformers peft trl datasets
MODELS: tests/golden/models, ROLLOUTS: tests/golden/grpo/rollouts.jsonl. Writes OUTDIR/expected.json: for each case its settings and what
the trainer logged in each of its steps. Completions are not shuffled over the batches."""
import json, os, sys, tempfile
import torch
from datasets import Dataset
from peft import PeftModel
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
import trl.trainer.rloo_trainer as module
from trl import RLOOConfig, RLOOTrainer

src, given, out = sys.argv[1:4]
os.makedirs(out, exist_ok=True)
torch.use_deterministic_algorithms(True)
STEPS, PER_DEVICE, ACCUM, G, LR, WD, BETAS, CLIP, LONGEST = 12, 3, 2, 3, 1e-3, 0.1, (0.9, 0.95), 1.0, 13
module.shuffle_sequence_dict = lambda batch: batch
rows = [json.loads(line) for line in open(given)]
words = {f"w{i}": i for i in range(96)}
tok = Tokenizer(models.WordLevel(words, unk_token="w2"))
tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="w0", eos_token="w1", unk_token="w2")
by_prompt = {tuple(r["prompt_ids"]): r["completions"] for r in rows}


class Given(RLOOTrainer):
    def _tokenize_prompts(self, prompts):  # the tokenizer would find "w1" in "w12"
        return [[int(w[1:]) for w in p.split()] for p in prompts], None, {}

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields):
        count, ids, self.batch_rewards = {}, [], []
        for p in map(tuple, prompt_ids):
            done = by_prompt[p][count.get(p, 0)]
            count[p] = count.get(p, 0) + 1
            ids.append(done["ids"]), self.batch_rewards.append(done["reward"])
        return ids


def load(model, kind):
    base = AutoModelForCausalLM.from_pretrained(os.path.join(src, model), dtype=torch.float32)
    return PeftModel.from_pretrained(base, os.path.join(src, model, "adapter"), is_trainable=True) if kind == "lora" else base


def run(model, kind, settings):
    with tempfile.TemporaryDirectory() as folder:
        holder = {}

        def reward(completions, **kwargs):
            return holder["trainer"].batch_rewards

        args = RLOOConfig(output_dir=folder, per_device_train_batch_size=PER_DEVICE, gradient_accumulation_steps=ACCUM, num_generations=G, max_completion_length=LONGEST, max_steps=STEPS, learning_rate=LR, lr_scheduler_type="linear", warmup_steps=0, weight_decay=WD, adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=1e-8, max_grad_norm=CLIP, logging_steps=1, logging_strategy="steps", report_to=[], save_strategy="no", bf16=False, fp16=False, gradient_checkpointing=False, use_cpu=True, shuffle_dataset=False, seed=3, **settings)
        trainer = Given(model=load(model, kind), reward_funcs=reward, args=args, train_dataset=Dataset.from_list([{"prompt": " ".join(f"w{i}" for i in p)} for p in by_prompt]), processing_class=tokenizer)
        holder["trainer"] = trainer
        trainer.train()
        keep = ("loss", "grad_norm", "learning_rate", "reward", "reward_std", "kl", "entropy", "clip_ratio/region_mean", "clip_ratio/low_mean", "clip_ratio/high_mean", "frac_reward_zero_std", "completions/mean_length", "completions/clipped_ratio")
        return [{k: v for k, v in e.items() if k in keep} for e in trainer.state.log_history if "loss" in e]


CASES = {
    "plain": {"beta": 0.0},
    "kl": {"beta": 0.05},
    "normalized": {"beta": 0.0, "normalize_advantages": True},
    "iterations": {"beta": 0.05, "num_iterations": 2, "epsilon": 0.02, "epsilon_high": 0.03},
    "temperature": {"beta": 0.1, "temperature": 0.7},
    "full": {"beta": 0.05},
}
expected = {}
for name, settings in CASES.items():
    kind, model = ("full", "llama_mqa") if name == "full" else ("lora", "qwen3_gqa")
    full = {"temperature": 1.0, **settings}
    expected[name] = {"model": model, "kind": kind, "settings": full, "steps": run(model, kind, full)}
    print(name, expected[name]["steps"][-1], flush=True)
with open(os.path.join(out, "expected.json"), "w") as f:
    json.dump(expected, f, indent=0)

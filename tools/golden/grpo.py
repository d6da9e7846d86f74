#!/usr/bin/env python3
"""Trajectories of TRL's GRPO trainer (its loss types, GSPO, clipping, KL, several updates a batch) over given rollouts, in fp32.

usage: grpo.py MODELS OUTDIR [CASE…]     needs: torch transformers peft trl datasets (MODELS: tests/golden/models)
Writes OUTDIR/rollouts.jsonl (one prompt a line, as train.rollouts.path reads it), OUTDIR/old.jsonl (the same with old_logprobs away
from the policy's) and OUTDIR/expected.json: for each case its settings and what the trainer logged in each of its steps. Completions
are not shuffled over the batches. Named cases alone are run over the rollouts that OUTDIR has, and join its expected.json."""
import json, math, os, sys, tempfile
import torch
from datasets import Dataset
from peft import PeftModel
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
import trl.trainer.grpo_trainer as module
from trl import GRPOConfig, GRPOTrainer

src, out, only = sys.argv[1], sys.argv[2], sys.argv[3:]
os.makedirs(out, exist_ok=True)
torch.use_deterministic_algorithms(True)
STEPS, PER_DEVICE, ACCUM, G, LR, WD, BETAS, CLIP = 12, 3, 2, 3, 1e-3, 0.1, (0.9, 0.95), 1.0
EOS, LONGEST = 1, 12
module.shuffle_sequence_dict = lambda batch: batch

words = {f"w{i}": i for i in range(96)}
tok = Tokenizer(models.WordLevel(words, unk_token="w2"))
tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="w0", eos_token="w1", unk_token="w2")
g = torch.Generator().manual_seed(9)
draw = lambda low, high: int(torch.randint(low, high, (1,), generator=g))


def rollouts():
    rows = []
    for i in range(STEPS * PER_DEVICE * ACCUM // G):
        completions = []
        for k in range(G):
            n = draw(1, LONGEST)
            ids = [draw(3, 96) for _ in range(n)] + ([EOS] if draw(0, 4) else [])
            reward = None if draw(0, 12) == 0 else round(draw(-20, 21) / 10, 1)
            completions.append({"ids": ids, "reward": 0.5 if i == 3 else reward})
        rows.append({"prompt_ids": [3 + i] + [draw(3, 96) for _ in range(draw(1, 8))], "completions": completions})
    return rows


def write(name, rows):
    with open(os.path.join(out, name), "w") as f:
        for r in rows:
            f.write(json.dumps(r) + "\n")


def read(name):
    return [json.loads(line) for line in open(os.path.join(out, name))]


given = read("rollouts.jsonl") if only else rollouts()
write("rollouts.jsonl", given)


class Given(GRPOTrainer):
    old = None

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        if self.old is not None:
            t = torch.zeros_like(output["completion_ids"], dtype=torch.float32)
            for i, lp in enumerate(self.batch_old):
                t[i, : len(lp)] = torch.tensor(lp)
            output["old_per_token_logps"] = t
        return output


def load(model, kind):
    base = AutoModelForCausalLM.from_pretrained(os.path.join(src, model), dtype=torch.float32)
    return PeftModel.from_pretrained(base, os.path.join(src, model, "adapter"), is_trainable=True) if kind == "lora" else base


def run(model, kind, rows, settings):
    by_prompt = {" ".join(f"w{i}" for i in r["prompt_ids"]): r for r in rows}
    seen = {}
    with tempfile.TemporaryDirectory() as folder:
        holder = {}

        def rollout(prompts, trainer):
            p, c, rewards, old = [], [], [], []
            count = {}
            for text in prompts:
                k = count.get(text, 0)
                count[text] = k + 1
                done = by_prompt[text]["completions"][k]
                p.append(by_prompt[text]["prompt_ids"]), c.append(done["ids"]), rewards.append(done["reward"]), old.append(done.get("old_logprobs"))
            trainer.batch_rewards, trainer.batch_old = rewards, old
            return {"prompt_ids": p, "completion_ids": c, "logprobs": None}

        def reward(completions, **kwargs):
            return holder["trainer"].batch_rewards

        args = GRPOConfig(output_dir=folder, per_device_train_batch_size=PER_DEVICE, gradient_accumulation_steps=ACCUM, num_generations=G, max_completion_length=LONGEST + 1, max_steps=STEPS, learning_rate=LR, lr_scheduler_type="linear", warmup_steps=0, weight_decay=WD, adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=1e-8, max_grad_norm=CLIP, logging_steps=1, logging_strategy="steps", report_to=[], save_strategy="no", bf16=False, fp16=False, gradient_checkpointing=False, use_cpu=True, shuffle_dataset=False, seed=3, **settings)
        trainer = Given(model=load(model, kind), reward_funcs=reward, args=args, train_dataset=Dataset.from_list([{"prompt": p} for p in by_prompt]), processing_class=tokenizer, rollout_func=rollout)
        holder["trainer"] = trainer
        trainer.old = rows[0]["completions"][0].get("old_logprobs")
        trainer.train()
        keep = ("loss", "grad_norm", "learning_rate", "reward", "reward_std", "kl", "entropy", "clip_ratio/region_mean", "clip_ratio/low_mean", "clip_ratio/high_mean", "frac_reward_zero_std", "completions/mean_length", "completions/clipped_ratio")
        return [{k: v for k, v in e.items() if k in keep} for e in trainer.state.log_history if "loss" in e]


def token_logps(model, rows):
    policy = load(model, "lora").eval()
    noisy = []
    with torch.no_grad():
        for r in rows:
            done = []
            for c in r["completions"]:
                ids = torch.tensor([r["prompt_ids"] + c["ids"]])
                lp = torch.log_softmax(policy(ids).logits[0].float(), -1)
                n = len(r["prompt_ids"])
                mine = [lp[n - 1 + t, i].item() + (draw(-30, 31) / 100) for t, i in enumerate(c["ids"])]
                done.append({**c, "old_logprobs": mine})
            noisy.append({**r, "completions": done})
    return noisy


old = read("old.jsonl") if only else token_logps("qwen3_gqa", given)
write("old.jsonl", old)
CASES = {
    "dapo": {"loss_type": "dapo"},
    "grpo": {"loss_type": "grpo"},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "batch": {"loss_type": "dapo", "scale_rewards": "batch"},
    "kl": {"loss_type": "dapo", "beta": 0.2},
    "kl_plain": {"loss_type": "grpo", "beta": 0.2, "use_bias_correction_kl": False, "num_iterations": 2},
    "iterations": {"loss_type": "dapo", "num_iterations": 2, "epsilon": 0.05, "epsilon_high": 0.08},
    "truncated": {"loss_type": "grpo", "mask_truncated_completions": True},
    "temperature": {"loss_type": "dapo", "temperature": 0.7},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.0003, "epsilon_high": 0.0004, "num_iterations": 2},
    "gspo_kl": {"loss_type": "dapo", "importance_sampling_level": "sequence", "epsilon": 0.01, "beta": 0.1, "num_iterations": 3},
    "gspo_truncated": {"loss_type": "dapo", "importance_sampling_level": "sequence", "epsilon": 0.001, "num_iterations": 2, "mask_truncated_completions": True},
    "old": {"loss_type": "dapo", "epsilon": 0.1},
    "old_delta": {"loss_type": "dapo", "epsilon": 0.1, "epsilon_high": 0.12, "delta": 1.2, "beta": 0.1},
    "old_delta_gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.02, "delta": 1.05, "num_iterations": 2},
    "full": {"loss_type": "dapo", "beta": 0.04},
    # the bound on the logits comes before the temperature
    "bounded": {"loss_type": "grpo", "beta": 0.04, "temperature": 1.5},
}
expected = json.load(open(os.path.join(out, "expected.json"))) if only else {}
for name, settings in CASES.items():
    if only and name not in only:
        continue
    kind, model = {"full": ("full", "llama_mqa"), "bounded": ("full", "nanochat")}.get(name, ("lora", "qwen3_gqa"))
    full = {"beta": 0.0, "temperature": 1.0, **settings}
    expected[name] = {"model": model, "kind": kind, "rows": "old.jsonl" if name.startswith("old") else "rollouts.jsonl", "settings": full, "steps": run(model, kind, old if name.startswith("old") else given, full)}
    print(name, expected[name]["steps"][-1])
with open(os.path.join(out, "expected.json"), "w") as f:
    json.dump(expected, f, indent=0)

#!/usr/bin/env python3
"""GRPO end to end with Qwen3's dimensions and random weights: prompts of about 256 tokens, answers of 1,024 (a random model hardly ever
ends one), groups of eight, LoRA r16, bf16. Tokens of prompts and answers a second over a whole step: drawing, rewards, update. A prompt
counts once for each of its answers, whether it is computed once for all (the default) or for each (--apart).

usage: grpo.py BINARY OUT [--model 0.6b|8b] [--answers 64] [--steps 4] [--prompt 256] [--answer 1024] [--fp8] [--apart] [--peer]
--peer: TRL's GRPOTrainer with transformers' generation after it, on the same device (torch, transformers, peft, trl).
Prints one JSON object each."""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys

p = argparse.ArgumentParser()
p.add_argument("binary")
p.add_argument("out", type=pathlib.Path)
p.add_argument("--model", default="0.6b")
p.add_argument("--answers", type=int, default=64)
p.add_argument("--steps", type=int, default=4)
p.add_argument("--prompt", type=int, default=256)
p.add_argument("--answer", type=int, default=1024)
p.add_argument("--device", default="h100")
p.add_argument("--fp8", action="store_true")
p.add_argument("--apart", action="store_true")
p.add_argument("--peer", action="store_true")
p.add_argument("--peer-steps", type=int, default=2)
p.add_argument("--peer-rows", type=int, default=8, help="answers of one of the peer's passes: its logits are stored")
a = p.parse_args()
a.out.mkdir(parents=True, exist_ok=True)
SIZES = {"tiny": (64, 128, 2, 4, True), "0.6b": (1024, 3072, 28, 16, True), "8b": (4096, 12288, 36, 32, False)}
hidden, ffn, layers, heads, tied = SIZES[a.model]
CONFIG = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=512 if a.model == "tiny" else 151936, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=4 if a.model == "tiny" else 8, head_dim=16 if a.model == "tiny" else 128, max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1000000, tie_word_embeddings=tied, hidden_act="silu", initializer_range=0.02)

# A tokenizer of bytes, so that a prompt's length is known.
rng = random.Random(0)
text = a.out / "text.txt"
text.write_text("".join(rng.choice("abcdefgh ") for _ in range(4096)))
subprocess.run([a.binary, "tokenizer", "train", "--input", text, "--vocab-size", "257", "--out", a.out / "tokenizer"], check=True, capture_output=True)
with (a.out / "rows.jsonl").open("w") as f:
    for _ in range(a.answers // 8 * a.steps):
        f.write(json.dumps({"prompt": "".join(rng.choice("abcdefgh ") for _ in range(a.prompt)), "answer": "7"}) + "\n")
(a.out / "recipe.yaml").write_text(f"""meta: {{project: bench, run_name: grpo_{a.model}, seed: 2048}}
hardware: {{name: {a.device}}}
autotune: {{enabled: false}}
model: {{name: random, init: random, config: {json.dumps(CONFIG)}, tokenizer: "{a.out}/tokenizer"}}
data: {{source: local, path: "{a.out}/rows.jsonl", seq_len: {a.prompt + a.answer}, packing: false, shuffle: false}}
train:
  method: {{kind: grpo, num_generations: 8, max_new_tokens: {a.answer}, reward: answer, kl_coef: 0, share_prompts: {str(not a.apart).lower()}, lora: {{r: 16, alpha: 32}}}}
  batch: {{per_device: {a.answers}, grad_accum: 1}}
  schedule: {{type: constant, warmup_ratio: 0, max_steps: {a.steps}}}
  precision: bfloat16
{'  base_precision: fp8_e4m3' if a.fp8 else ''}
""")
ran = subprocess.run([a.binary, "train", a.out / "recipe.yaml", "--out", a.out / "run"], capture_output=True, text=True)
if ran.returncode != 0:
    sys.exit(f"exit {ran.returncode}: {(ran.stdout + ran.stderr)[-1500:]}")
steps = [json.loads(line) for line in (a.out / "run/metrics.jsonl").read_text().rstrip("\n").split("\n")]
rollouts = [json.loads(line) for line in (a.out / "run/rollouts.jsonl").read_text().rstrip("\n").split("\n")]
drawn = [sum(len(c["ids"]) for c in row["completions"]) for row in rollouts]
groups = a.answers // 8
whole = [sum(sum(len(row["prompt_ids"]) + len(c["ids"]) for c in row["completions"]) for row in rollouts[i * groups : (i + 1) * groups]) for i in range(len(steps))]
trained = [s["tokens"] - (steps[i - 1]["tokens"] if i else 0) for i, s in enumerate(steps)]
seconds = [n / s["tok_s"] for n, s in zip(trained, steps)]
print(json.dumps({"what": f"GRPO, Qwen3-{a.model}{', FP8 base' if a.fp8 else ''}, {a.answers} answers a step, prompt {a.prompt}, answer {a.answer}", "prompts": "apart" if a.apart else "shared", "answer_tokens": sum(drawn), "trained_tokens": trained[-1], "seconds": [round(s, 2) for s in seconds], "tok_s": [round(n / s) for n, s in zip(whole, seconds)], "last": steps[-1]}))


def peer():
    import random as reward_of
    import time

    import torch
    import transformers
    import trl
    from datasets import Dataset
    from peft import LoraConfig

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(a.out / "tokenizer/tokenizer.json"), eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    config = transformers.Qwen3Config(**{k: v for k, v in CONFIG.items() if k not in ("model_type", "architectures")}, eos_token_id=None, pad_token_id=tokenizer.pad_token_id)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).to(device)
    seconds, last = [], [0.0]

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *_, **__):
            last[0] = time.time()

        def on_step_end(self, *_, **__):
            if device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.time() - last[0])

    rows = [json.loads(line) for line in (a.out / "rows.jsonl").read_text().rstrip("\n").split("\n")][: groups * a.peer_steps]
    settings = trl.GRPOConfig(
        output_dir=str(a.out / "trl"), per_device_train_batch_size=a.peer_rows, gradient_accumulation_steps=a.answers // a.peer_rows, num_generations=8, max_completion_length=a.answer,
        max_steps=a.peer_steps, learning_rate=1e-6, lr_scheduler_type="constant", beta=0.0, temperature=1.0, bf16=device == "cuda", gradient_checkpointing=False,
        report_to=[], logging_strategy="no", save_strategy="no", generation_kwargs={"min_new_tokens": a.answer, "eos_token_id": None}, use_cpu=device == "cpu",
    )
    trainer = trl.GRPOTrainer(model=model, args=settings, train_dataset=Dataset.from_list([{"prompt": r["prompt"]} for r in rows]), processing_class=tokenizer,
                              reward_funcs=[lambda completions, **_: [float(reward_of.random() < 0.5) for _ in completions]],
                              peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"), callbacks=[Clock()])
    trainer.train()
    each = a.answers * (a.prompt + a.answer)
    print(json.dumps({"what": f"TRL {trl.__version__}, transformers {transformers.__version__}, PyTorch {torch.__version__}: the same GRPO", "seconds": [round(s, 2) for s in seconds], "tok_s": [round(each / s) for s in seconds]}))


if a.peer:
    peer()

#!/usr/bin/env python3
"""What it saves that a prompt is computed once for all answers to it: GRPO steps over given rollouts, with `share_prompts` and without.

usage: shared_prompts.py [--build build/release | --program MINDXTRAIN] [--threads 2] [--prompt 1024] [--answer 512] [--group 8] [--steps 2]
       [--layers 30] [--model smollm2|0.6b|8b] [--device cpu|h100|…]

A model of the named dimensions with random weights (work does not depend on them), LoRA on every linear, bfloat16; one group a step, ids drawn
from a seed. Counted are tokens and seconds (of the CPU's cores there, of the clock on another device) of the steps after the first, and the
plan's peak. Prints one JSON object."""
import argparse, json, random, resource, subprocess, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """meta: {{project: bench, run_name: shared_prompts}}
hardware: {{name: {device}}}
autotune: {{enabled: false}}
model: {{name: random, init: random, config: {config}}}
data: {{source: local, path: {folder}/rollouts.jsonl, seq_len: {seq_len}, shuffle: false}}
train:
  method: {{kind: grpo, num_generations: {group}, max_completion_length: {answer}, kl_coef: 0, share_prompts: {share}, lora: {{r: 16, alpha: 32}}}}
  rollouts: {{path: {folder}/rollouts.jsonl}}
  optimizer: {{lr: 1.0e-5}}
  schedule: {{type: constant, warmup_ratio: 0, max_steps: {steps}}}
  batch: {{per_device: {group}, grad_accum: 1}}
"""
SIZES = {"smollm2": ("llama", 49152, 576, 1536, 30, 9, 3, 64, True), "0.6b": ("qwen3", 151936, 1024, 3072, 28, 16, 8, 128, True), "8b": ("qwen3", 151936, 4096, 12288, 36, 32, 8, 128, False)}


def config_of(a):
    kind, vocab, hidden, inner, layers, heads, kv, dim, tied = SIZES[a.model]
    return dict(model_type=kind, vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=a.layers or layers, num_attention_heads=heads, num_key_value_heads=kv, head_dim=dim, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=100000, tie_word_embeddings=tied)


def run(a, folder, share, steps):
    """Metrics and seconds of a run, and the bytes that its plan counts."""
    recipe = f"{folder}/{share}.yaml"
    Path(recipe).write_text(RECIPE.format(folder=folder, seq_len=a.prompt + a.answer, group=a.group, answer=a.answer, steps=steps, config=json.dumps(config_of(a)), device=a.device,
                                          share=str(share).lower()))
    plan = json.loads(subprocess.run([a.program, "plan", recipe, "--json"], capture_output=True, text=True, check=True).stdout)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = f"{folder}/{share}{steps}"
    done = subprocess.run([a.program, "train", recipe, "--out", out, "--threads", str(a.threads)], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    metrics = [json.loads(line) for line in open(f"{out}/metrics.jsonl")]
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if a.device != "cpu":  # of the clock, the first step left out
        seconds = sum((m["tokens"] - metrics[i]["tokens"]) / m["tok_s"] for i, m in enumerate(metrics[1:]))
    return metrics, seconds, plan["peak_bytes"]["host" if a.device == "cpu" else "device"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build/release")
    p.add_argument("--program")
    p.add_argument("--model", default="smollm2", choices=SIZES)
    p.add_argument("--device", default="cpu")
    for name, value in (("threads", 2), ("prompt", 1024), ("answer", 512), ("group", 8), ("steps", 2), ("layers", 0)):
        p.add_argument("--" + name, type=int, default=value)
    a = p.parse_args()
    a.program = a.program or str(ROOT / a.build / "apps/mindxtrain/mindxtrain")
    unit = "cpu_seconds_a_step" if a.device == "cpu" else "seconds_a_step"
    draw = random.Random(7)
    result = {"prompt": a.prompt, "answer": a.answer, "group": a.group, "model": a.model, "device": a.device, "layers": config_of(a)["num_hidden_layers"], "threads": a.threads}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/rollouts.jsonl", "w") as file:
            for _ in range(a.steps + 1):
                ids = lambda n: [draw.randrange(49152) for _ in range(n)]
                answers = [{"ids": ids(a.answer), "reward": draw.random()} for _ in range(a.group)]
                file.write(json.dumps({"prompt_ids": ids(a.prompt), "completions": answers}) + "\n")
        loss = {}
        for share in (False, True):
            start = run(a, folder, share, 1)[1] if a.device == "cpu" else 0
            metrics, seconds, peak = run(a, folder, share, 1 + a.steps)
            loss[share] = [m["grad_norm"] for m in metrics]
            result["shared" if share else "separate"] = {"tokens_a_step": metrics[0]["tokens"], unit: round((seconds - start) / a.steps, 3), "planned_peak_mib": peak >> 20}
        result["largest_difference_of_grad_norm"] = max(abs(x - y) / x for x, y in zip(loss[False], loss[True]))
    result["tokens_saved"] = round(1 - result["shared"]["tokens_a_step"] / result["separate"]["tokens_a_step"], 3)
    result["times_as_fast"] = round(result["separate"][unit] / result["shared"][unit], 2)
    print(json.dumps(result, indent=1))


main()

#!/usr/bin/env python3
"""What it saves that a prompt is computed once for all answers to it: GRPO steps over given rollouts, with `share_prompts` and without.

usage: shared_prompts.py [--build build/release] [--threads 2] [--prompt 1024] [--answer 512] [--group 8] [--steps 2] [--layers 30]

A model of SmolLM2-135M's dimensions with random weights (work does not depend on them), LoRA on every linear, bfloat16; one group a step, ids drawn
from a seed. Counted are tokens and CPU seconds of the steps after the first, and the plan's peak. Prints one JSON object."""
import argparse, json, random, resource, subprocess, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """meta: {{project: bench, run_name: shared_prompts}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model:
  name: smollm2-dimensions
  init: random
  config: {{model_type: llama, vocab_size: 49152, hidden_size: 576, intermediate_size: 1536, num_hidden_layers: {layers}, num_attention_heads: 9,
    num_key_value_heads: 3, max_position_embeddings: 8192, rms_norm_eps: 1.0e-5, rope_theta: 100000, tie_word_embeddings: true}}
data: {{source: local, path: {folder}/rollouts.jsonl, seq_len: {seq_len}, shuffle: false}}
train:
  method: {{kind: grpo, num_generations: {group}, max_completion_length: {answer}, kl_coef: 0, share_prompts: {share}, lora: {{r: 16, alpha: 32}}}}
  rollouts: {{path: {folder}/rollouts.jsonl}}
  optimizer: {{lr: 1.0e-5}}
  schedule: {{type: constant, warmup_ratio: 0, max_steps: {steps}}}
  batch: {{per_device: {group}, grad_accum: 1}}
"""


def run(a, folder, share, steps):
    """Tokens and CPU seconds of a run, and the bytes that its plan counts."""
    recipe = f"{folder}/{share}.yaml"
    Path(recipe).write_text(RECIPE.format(folder=folder, seq_len=a.prompt + a.answer, group=a.group, answer=a.answer, steps=steps, layers=a.layers,
                                          share=str(share).lower()))
    plan = json.loads(subprocess.run([a.program, "plan", recipe, "--json"], capture_output=True, text=True, check=True).stdout)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = f"{folder}/{share}{steps}"
    done = subprocess.run([a.program, "train", recipe, "--out", out, "--threads", str(a.threads)], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    metrics = [json.loads(line) for line in open(f"{out}/metrics.jsonl")]
    return metrics, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, plan["peak_bytes"]["host"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build/release")
    for name, value in (("threads", 2), ("prompt", 1024), ("answer", 512), ("group", 8), ("steps", 2), ("layers", 30)):
        p.add_argument("--" + name, type=int, default=value)
    a = p.parse_args()
    a.program = str(ROOT / a.build / "apps/mindxtrain/mindxtrain")
    draw = random.Random(7)
    result = {"prompt": a.prompt, "answer": a.answer, "group": a.group, "layers": a.layers, "threads": a.threads}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/rollouts.jsonl", "w") as file:
            for _ in range(a.steps + 1):
                ids = lambda n: [draw.randrange(49152) for _ in range(n)]
                answers = [{"ids": ids(a.answer), "reward": draw.random()} for _ in range(a.group)]
                file.write(json.dumps({"prompt_ids": ids(a.prompt), "completions": answers}) + "\n")
        loss = {}
        for share in (False, True):
            _, start, _ = run(a, folder, share, 1)
            metrics, seconds, peak = run(a, folder, share, 1 + a.steps)
            loss[share] = [m["grad_norm"] for m in metrics]
            result["shared" if share else "separate"] = {"tokens_a_step": metrics[0]["tokens"], "cpu_seconds_a_step": round((seconds - start) / a.steps, 2), "planned_peak_mib": peak >> 20}
        result["largest_difference_of_grad_norm"] = max(abs(x - y) / x for x, y in zip(loss[False], loss[True]))
    result["tokens_saved"] = round(1 - result["shared"]["tokens_a_step"] / result["separate"]["tokens_a_step"], 3)
    result["times_as_fast"] = round(result["separate"]["cpu_seconds_a_step"] / result["shared"]["cpu_seconds_a_step"], 2)
    print(json.dumps(result, indent=1))


main()

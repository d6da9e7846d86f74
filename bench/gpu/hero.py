#!/usr/bin/env python3
"""The hero workload through the product's own verbs: Qwen3's dimensions with random weights, LoRA r16 on all seven linears, full rows of
random tokens. `bench` measures the plan, `train --plan` runs it; the same step with the libraries' default choices is timed beside it.

usage: hero.py MINDXTRAIN OUT [--model 8b] [--rows 8] [--seq 4096] [--steps 12] [--fp8] [--full] [--plan FILE] [--default] [--twice] [--offload] [--peer]
  --plan     a plan that was measured before, of this machine or another of its kind, instead of measuring one
  --default  a run with a plan of default choices (bench --dry-run) too
  --twice    the same run again: the checkpoints' digests must be equal
  --offload  the same run with the optimizer's memory on the host: the weights' digest must be the same (a checkpoint names its plan)
  --peer     transformers, peft and torch.compile on this machine, at 2 x 2048 and 4 x 4096 tokens
Prints one JSON object; exit 1 where a digest differs or `plan` is further than 3 % from what the run held."""
import argparse
import hashlib
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

p = argparse.ArgumentParser()
p.add_argument("binary")
p.add_argument("out", type=pathlib.Path)
p.add_argument("--model", default="8b")
p.add_argument("--rows", type=int, default=8)
p.add_argument("--seq", type=int, default=4096)
p.add_argument("--steps", type=int, default=12)
p.add_argument("--plan", type=pathlib.Path)
for flag in ("fp8", "full", "default", "twice", "offload", "peer"):
    p.add_argument("--" + flag, action="store_true")
a = p.parse_args()
a.out.mkdir(parents=True, exist_ok=True)
SIZES = {"0.6b": (1024, 3072, 28, 16, True), "1.7b": (2048, 6144, 28, 16, True), "4b": (2560, 9728, 36, 32, True), "8b": (4096, 12288, 36, 32, False), "14b": (5120, 17408, 40, 40, False)}
hidden, ffn, layers, heads, tied = SIZES[a.model]
CONFIG = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=151936, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1000000, tie_word_embeddings=tied, hidden_act="silu", initializer_range=0.02)


def peer():
    """What a user of transformers and peft has without writing kernels."""
    import gc

    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(**{k: v for k, v in CONFIG.items() if k not in ("model_type", "architectures")})
    config._attn_implementation = "sdpa"
    config.use_cache = False
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], task_type="CAUSAL_LM"))
    model.train()
    answers = []
    for batch, length, checkpointing in ((2, 2048, False), (4, 4096, True)):
        torch.cuda.reset_peak_memory_stats()
        torch._dynamo.reset()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.enable_input_require_grads()
        try:
            for layer in model.base_model.model.model.layers:  # one layer's code serves all: whole, 36 layers compile for minutes
                layer.compile()
            optimizer = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], lr=1e-4, fused=True)
            ids = torch.randint(0, CONFIG["vocab_size"], (batch, length), device="cuda")
            seconds = []
            for _ in range(8):
                torch.cuda.synchronize()
                begin = time.time()
                model(input_ids=ids, labels=ids).loss.backward()
                torch.nn.utils.clip_grad_norm_([w for w in model.parameters() if w.requires_grad], 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                torch.cuda.synchronize()
                seconds.append(time.time() - begin)
            answers.append({"batch": batch, "length": length, "checkpointing": checkpointing, "tok_s": round(batch * length / statistics.median(seconds[3:])), "peak_GiB": round(torch.cuda.max_memory_allocated() / 2**30, 1)})
        except Exception as e:  # out of memory, or what this PyTorch cannot compile
            answers.append({"batch": batch, "length": length, "checkpointing": checkpointing, "error": f"{type(e).__name__}: {e}"[:200]})
        gc.collect()
        torch.cuda.empty_cache()
    return answers


def run(*args):
    begin = time.time()
    done = subprocess.run([a.binary, *map(str, args)], capture_output=True, text=True)
    with (a.out / "log.txt").open("a") as log:
        log.write(f"== {' '.join(map(str, args))}\n{done.stdout}{done.stderr}")
    if done.returncode != 0:
        sys.exit(f"{args[0]}: exit {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return time.time() - begin, done.stdout


def digest(folder, files="*"):
    h = hashlib.sha256()
    for f in sorted(q for q in folder.rglob(files) if q.is_file()):
        h.update(f.name.encode() + f.read_bytes())
    return h.hexdigest()


rng = random.Random(0)
with (a.out / "rows.jsonl").open("w") as f:
    for _ in range(4 * a.rows):  # seen again after four steps
        ids = [rng.randrange(1000, 150000) for _ in range(a.seq)]
        f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
recipe = a.out / "recipe.yaml"
method = "{kind: full}" if a.full else "{kind: lora, r: 16, alpha: 32}"
recipe.write_text(f"""meta: {{project: bench, run_name: hero_{a.model}, seed: 2048}}
hardware: {{name: h100}}
autotune: {{budget_seconds: 60}}
model: {{name: random, init: random, config: {json.dumps(CONFIG)}}}
data: {{source: local, path: "{a.out}/rows.jsonl", seq_len: {a.seq}, packing: false, shuffle: false}}
train:
  method: {method}
  batch: {{per_device: {a.rows}, grad_accum: 1}}
  schedule: {{max_steps: {a.steps}}}
  precision: bfloat16
{'  base_precision: fp8_e4m3' if a.fp8 else ''}
receipt: {{output: "{a.out}/receipt.json"}}
""")


def train(name, plan):
    seconds, _ = run("train", recipe, "--plan", plan, "--out", a.out / name)
    steps = [json.loads(line) for line in (a.out / name / "metrics.jsonl").read_text().splitlines()]
    warm = steps[3:]
    return {"run": name, "seconds": round(seconds, 1), "tok_s": round(statistics.median(s["tok_s"] for s in warm)), "tok_s_all": [round(s["tok_s"]) for s in steps], "tflops": round(statistics.median(s["tflops"] for s in warm), 1), "memory_bytes": max(s["memory_bytes"] for s in steps), "losses": [round(s["loss"], 5) for s in steps], "checkpoint": digest(a.out / name / "checkpoint"), "weights": digest(a.out / name / "checkpoint", "*.safetensors")}


result = {"what": f"Qwen3-{a.model}, {'full' if a.full else 'LoRA r16'}, {'FP8 base, ' if a.fp8 else ''}bf16, {a.rows} x {a.seq} tokens a step", "runs": []}
if a.plan:
    table = ""
    (a.out / "plan.json").write_bytes(a.plan.read_bytes())
else:
    seconds, table = run("bench", "--config", recipe, "--out", a.out / "plan.json")
    result["bench_seconds"] = round(seconds, 1)
result["table"] = table.splitlines()


def keep(**more):
    """What is known so far is on disk: the machine may be gone before the end."""
    result.update(more)
    (a.out / "hero.json").write_text(json.dumps(result, indent=1))


def measure(name, plan):
    result["runs"].append(train(name, plan))
    keep()


measure("planned", a.out / "plan.json")
if a.default:
    run("bench", "--config", recipe, "--out", a.out / "default.json", "--dry-run")
    measure("default", a.out / "default.json")
if a.twice:
    measure("again", a.out / "plan.json")
if a.offload:
    plan = json.loads((a.out / "plan.json").read_text())
    plan["choices"]["step offload"] = "optimizer"
    (a.out / "offload.json").write_text(json.dumps(plan))
    measure("offload", a.out / "offload.json")
_, stated = run("plan", recipe, "--plan", a.out / "plan.json", "--json")
stated = json.loads(stated)
held = result["runs"][0]["memory_bytes"]
result["planned_bytes"], result["planned_over_held"] = stated["peak_bytes"]["device"], round(stated["peak_bytes"]["device"] / held, 4) if held else None
keep(planned_tok_s=round(stated["tokens_per_second"]))
if a.peer:
    keep(peer=peer())
print("\n".join(result["table"]))
print(json.dumps({k: v for k, v in result.items() if k != "table"}))
runs = {r["run"]: r for r in result["runs"]}
same = (not a.twice or runs["again"]["checkpoint"] == runs["planned"]["checkpoint"]) and (not a.offload or runs["offload"]["weights"] == runs["planned"]["weights"])
sys.exit(0 if same and abs((result["planned_over_held"] or 0) - 1) <= 0.03 else 1)

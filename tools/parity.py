#!/usr/bin/env python3
"""The binary against transformers and peft on real weights, live: log-probabilities in fp32, the distance of bf16, greedy text, adapters
in both directions, merged = base + adapter.

usage: parity.py MODEL_HF_FOLDER [--gguf FILE] [--binary build/release/apps/mindxtrain/mindxtrain] [--threads 2]
  MODEL_HF_FOLDER holds the weights in float32; --gguf: the same model as GGUF (its log-probabilities are then compared too)
needs: torch transformers peft (an environment of its own; the product needs no Python)
Prints a line for each check; exit code 1 where one fails."""
import argparse, json, math, os, subprocess, sys, tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("--gguf")
p.add_argument("--binary", default="build/release/apps/mindxtrain/mindxtrain")
p.add_argument("--threads", type=int, default=2)
a = p.parse_args()
torch.set_num_threads(a.threads)
TEXTS = [
    "The sea was calm that morning, and the boats had gone out before the sun rose over the harbour.",
    "def area(radius):\n    return 3.14159 * radius ** 2\n\nprint(area(2.0))",
    "Question: Ann has 3 boxes of 12 pencils. How many pencils has she in all? Answer: 36",
    "Paris is the capital of France; Wien ist die Hauptstadt von Österreich; 東京は日本の首都です。",
]
PROMPTS = ["What is the capital of France?", "Write one sentence about rain.", "Name three colours.", "What is 7 times 8?", "Explain what a kernel is.", "Who wrote Hamlet?"]
failed = False


def check(name, ok, detail):
    global failed
    failed |= not ok
    print(f"{'ok  ' if ok else 'FAIL'} {name}: {detail}", flush=True)


def run(*args):
    r = subprocess.run([a.binary, "--quiet", *args], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(a.threads)})
    if r.returncode:
        sys.exit(f"{' '.join(args)}: exit {r.returncode}: {r.stderr}")
    return r.stdout


def score(folder, rows, model, *extra):
    with open(f"{folder}/in.jsonl", "w") as f:
        for ids in rows:
            f.write(json.dumps({"ids": ids}) + "\n")
    run("score", "--model", model, "--input", f"{folder}/in.jsonl", "--output", f"{folder}/out.jsonl", *extra)
    return torch.tensor([x for l in open(f"{folder}/out.jsonl") for x in json.loads(l)["logprobs"][1:]])


@torch.no_grad()
def theirs(model, rows):
    out = []
    for ids in rows:
        t = torch.tensor([ids])
        lp = model(t).logits.float().log_softmax(-1)
        out.append(lp[0, :-1].gather(1, t[0, 1:, None])[:, 0])
    return torch.cat(out)


def rms(x):
    return math.sqrt(float((x.double() ** 2).mean()))


tok = AutoTokenizer.from_pretrained(a.model)
f32 = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32).eval()
b16 = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16).eval()
rows = [tok(t).input_ids for t in TEXTS]
with tempfile.TemporaryDirectory() as d:
    want = theirs(f32, rows)
    for name in [a.model] + ([a.gguf] if a.gguf else []):
        got = score(d, rows, name, "--dtype", "float32")
        check(f"fp32 log-probabilities, {name}", float((got - want).abs().max()) < 2e-3, f"largest difference {float((got - want).abs().max()):.2e} nats over {len(want)} tokens")
        ours, peer = rms(score(d, rows, name, "--dtype", "bfloat16") - want), rms(theirs(b16, rows) - want)
        check(f"bf16 from fp32, {name}", ours <= 1.25 * peer, f"rms {ours:.4f} nats, transformers {peer:.4f}")

    for prompt in PROMPTS:
        messages = [{"role": "user", "content": prompt}]
        ids = tok.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)["input_ids"]
        n = ids.shape[1]
        out = f32.generate(ids, max_new_tokens=48, do_sample=False, output_scores=True, return_dict_in_generate=True, pad_token_id=tok.eos_token_id)
        want_text = tok.decode(out.sequences[0, n:], skip_special_tokens=True).strip()
        got_text = run("chat", "--model", a.gguf or a.model, "--dtype", "float32", "--temperature", "0", "--max-tokens", "48", "--prompt", prompt).strip()
        same = got_text == want_text
        detail = repr(want_text[:60])
        if not same:  # where the texts part, two candidates must be close
            mine, his = tok(got_text, add_special_tokens=False).input_ids, out.sequences[0, n:].tolist()
            at = next((i for i, (x, y) in enumerate(zip(mine, his)) if x != y), min(len(mine), len(his)) - 1)
            top = out.scores[at][0].float().log_softmax(-1).topk(2).values
            same = float(top[0] - top[1]) <= 0.05
            detail = f"parts at token {at}, where the two best differ by {float(top[0] - top[1]):.3f} nats: {got_text[:60]!r} / {want_text[:60]!r}"
        check(f"greedy: {prompt}", same, detail)

    torch.manual_seed(0)
    lora = get_peft_model(f32, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM")).eval()
    lora.save_pretrained(f"{d}/adapter")
    want = theirs(lora, rows)
    check("the adapter changes the model", float((want - theirs(lora.unload(), rows)).abs().max()) > 0.1, "peft's own")
    got = score(d, rows, a.model, "--dtype", "float32", "--adapter", f"{d}/adapter")
    check("an adapter of peft's", float((got - want).abs().max()) < 2e-3, f"largest difference {float((got - want).abs().max()):.2e} nats")
    run("merge", "--model", a.model, "--adapter", f"{d}/adapter", "--out", f"{d}/merged")
    got = score(d, rows, f"{d}/merged", "--dtype", "float32")
    check("merged = base + adapter, ours", float((got - want).abs().max()) < 2e-3, f"largest difference {float((got - want).abs().max()):.2e} nats")
    merged = AutoModelForCausalLM.from_pretrained(f"{d}/merged", dtype=torch.float32).eval()
    check("the merged folder in transformers", float((theirs(merged, rows) - want).abs().max()) < 2e-3, f"largest difference {float((theirs(merged, rows) - want).abs().max()):.2e} nats")

    with open(f"{d}/rows.jsonl", "w") as f:
        for ids in rows:
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    with open(f"{d}/r.yaml", "w") as f:
        f.write(
            f"""meta: {{project: tools, run_name: parity}}
hardware: {{name: cpu}}
model: {{name: "{a.model}", torch_dtype: float32}}
data: {{source: local, path: "{d}/rows.jsonl", seq_len: 128}}
train:
  method: {{kind: lora, r: 8, alpha: 16}}
  precision: float32
  optimizer: {{lr: 2.0e-3}}
  batch: {{per_device: 4, grad_accum: 1}}
  schedule: {{max_steps: 4}}
"""
        )
    run("train", f"{d}/r.yaml", "--out", f"{d}/run")
    base = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
    loaded = PeftModel.from_pretrained(base, f"{d}/run/checkpoint").eval()
    want = theirs(loaded, rows)
    got = score(d, rows, a.model, "--dtype", "float32", "--adapter", f"{d}/run/checkpoint")
    check("an adapter of ours in peft", float((got - want).abs().max()) < 2e-3, f"largest difference {float((got - want).abs().max()):.2e} nats")
sys.exit(failed)

#!/usr/bin/env python3
"""The quickstart's training step against transformers + peft, in one sitting, with the same threads: SmolLM2-135M, LoRA r16 on all seven
linears, bf16, 4 x 256 tokens, every token trained; and against what oneDNN reaches alone on the step's products, measured between
the rounds.

usage: lora_step.py MODEL_HF_FOLDER|random [--build build/release] [--steps 20] [--threads 2] [--rounds 3] [--peer-type bfloat16|float32]
       random = weights drawn anew with SmolLM2-135M's dimensions (speed does not depend on them)
       PyTorch has no fast bf16 products for a processor without AVX-512 (0.5 GFLOP/s on AVX2: a step takes minutes); its fp32 is the peer there
needs: torch transformers peft (an environment of its own; the product needs no Python), a build with -DMXT_BENCH=ON
Prints one JSON object: tok/s of every round, ours and theirs in turn, model TFLOP/s (recompute not counted), oneDNN's, and the ratios."""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

from ceiling import lora_step_products, onednn_alone

p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("--build", default="build/release")
p.add_argument("--steps", type=int, default=20)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--peer-type", choices=["bfloat16", "float32"], default="bfloat16")
p.add_argument("--only", choices=["ours", "peer"])
a = p.parse_args()
B, T = 4, 256
if a.model == "random":
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    made = tempfile.TemporaryDirectory()
    a.model = made.name
    LlamaForCausalLM(LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=1e5, tie_word_embeddings=True, torch_dtype="bfloat16")).to(torch.bfloat16).save_pretrained(a.model)


def ours(folder):
    import random

    rng = random.Random(0)
    with open(f"{folder}/rows.jsonl", "w") as f:
        for _ in range(B * a.steps):
            ids = [rng.randrange(1000, 40000) for _ in range(T)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    with open(f"{folder}/r.yaml", "w") as f:
        f.write(
            f"""meta: {{project: bench, run_name: lora_step}}
hardware: {{name: cpu}}
model: {{name: "{os.path.abspath(a.model)}"}}
data: {{source: local, path: "{folder}/rows.jsonl", seq_len: {T}, packing: false, shuffle: false}}
train:
  method: {{kind: lora, r: 16, alpha: 32}}
  batch: {{per_device: {B}, grad_accum: 1}}
  schedule: {{max_steps: {a.steps}}}
  micro_batch: {B}
receipt: {{output: "{folder}/receipt.json"}}
"""
        )
    out = f"{folder}/out{time.time_ns()}"
    subprocess.run([f"{a.build}/apps/mindxtrain/mindxtrain", "--quiet", "train", f"{folder}/r.yaml", "--out", out, "--threads", str(a.threads)], check=True)
    rows = [json.loads(l) for l in open(f"{out}/metrics.jsonl")]
    rows = rows[len(rows) // 4 :]  # after warm-up
    return statistics.median(r["tok_s"] for r in rows), statistics.median(r["tflops"] for r in rows)


_peer = {}


def peer():
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    if not _peer:
        torch.set_num_threads(a.threads)
        m = AutoModelForCausalLM.from_pretrained(a.model, dtype=getattr(torch, a.peer_type))
        m.config.use_cache = False
        m = get_peft_model(m, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], task_type="CAUSAL_LM"))
        m.train()
        _peer["m"] = m
        _peer["o"] = torch.optim.AdamW([q for q in m.parameters() if q.requires_grad], lr=1e-4)
    m, o = _peer["m"], _peer["o"]
    times = []
    for _ in range(max(4, a.steps // 3)):
        ids = torch.randint(1000, 40000, (B, T))
        t = time.time()
        m(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_([q for q in m.parameters() if q.requires_grad], 1.0)
        o.step()
        o.zero_grad()
        times.append(time.time() - t)
    return B * T / statistics.median(times[1:])


products = lora_step_products(json.load(open(f"{a.model}/config.json")), B * T, B * T)
mine, tflops, theirs, alone = [], [], [], []
with tempfile.TemporaryDirectory() as folder:
    for _ in range(a.rounds):
        if a.only != "peer":
            s, f = ours(folder)
            mine.append(s)
            tflops.append(f)
            alone.append(onednn_alone(f"{a.build}/bench/kernels/gemm_bench", products, a.threads)["tflops"])
        if a.only != "ours":
            theirs.append(peer())
result = {"what": "SmolLM2-135M LoRA r16, bf16, 4 x 256 tokens", "threads": a.threads, "ours_tok_s": [round(x) for x in mine], "ours_tflops": [round(x, 3) for x in tflops], "onednn_alone_tflops": alone, "peer_type": a.peer_type, "peer_tok_s": [round(x) for x in theirs]}
if alone:
    result["of_onednn_alone"] = round(statistics.median(tflops) / statistics.median(alone), 3)
if mine and theirs:
    result["ratio"] = round(statistics.median(mine) / statistics.median(theirs), 2)
print(json.dumps(result))

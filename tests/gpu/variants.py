"""Variants of adapters (DoRA, PiSSA, head and embedding, whole modules, LoRA+, rsLoRA) and NEFTune: eight steps of a small model on the GPU and on the
CPU, in fp32. The two must agree within 1e-5 in every loss and gradient norm.

usage: variants.py MINDXTRAIN OUT [NAME …]
"""
import json
import pathlib
import random
import subprocess
import sys

binary, out = sys.argv[1], pathlib.Path(sys.argv[2])
VARIANTS = {
    "lora": "",
    "dora": "use_dora: true",
    "pissa": "init_lora_weights: pissa",
    "ends": "target_modules: [q_proj, down_proj, lm_head, embed_tokens]",
    "saved": "modules_to_save: [lm_head, embed_tokens]",
    "biases": "bias: all",
    "plus": "lora_plus: 4",
    "rslora": "use_rslora: true",
    "neftune": "",
}
CONFIG = dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"], vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-6, rope_theta=10000, tie_word_embeddings=False, hidden_act="silu", initializer_range=0.05)
out.mkdir(parents=True, exist_ok=True)
rng = random.Random(1)
with open(out / "rows.jsonl", "w") as f:
    for _ in range(64):
        ids = [rng.randrange(10, 500) for _ in range(rng.randrange(5, 60))]
        f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def steps_of(name, device):
    recipe, folder = out / f"{name}_{device}.yaml", out / f"{name}_{device}"
    more = VARIANTS[name]
    recipe.write_text(f"""meta: {{project: test, run_name: {name}}}
hardware: {{name: {device}}}
autotune: {{enabled: false}}
model: {{name: random, init: random, torch_dtype: float32, config: {json.dumps(CONFIG)}}}
data: {{source: local, path: "{out}/rows.jsonl", seq_len: 64}}
train:
  method: {{kind: lora, r: 8, alpha: 16{", " + more if more else ""}}}
  precision: float32
  optimizer: {{lr: 1.0e-3}}
  batch: {{per_device: 4, grad_accum: 1}}
  schedule: {{type: constant, warmup_ratio: 0, max_steps: 8}}
{"  neftune_noise_alpha: 5" if name == "neftune" else ""}
""")
    ran = subprocess.run([binary, "train", recipe, "--out", folder], capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{name} on {device}: exit {ran.returncode}: {ran.stderr.strip().splitlines()[-1][:200]}")
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


failed = 0
for name in sys.argv[3:] or VARIANTS:
    cpu, gpu = steps_of(name, "cpu"), steps_of(name, "h100")
    apart = {key: max(abs(a[key] - b[key]) / max(abs(b[key]), 1e-3) for a, b in zip(gpu, cpu)) for key in ("loss", "grad_norm")}
    failed += len(cpu) != 8 or len(gpu) != 8 or max(apart.values()) > 1e-5
    print(f"{name:8} loss {apart['loss']:.1e}, gradient norm {apart['grad_norm']:.1e}; loss {gpu[0]['loss']:.4f} to {gpu[-1]['loss']:.4f}", flush=True)
sys.exit(1 if failed else 0)

"""Twenty steps (fifteen with pictures) of each small golden model (tests/golden/models) on the GPU, in fp32, against transformers and peft: loss and gradient
norm within 1e-4, full and LoRA; then that weights which are no numbers are said. A family that the backend has no kernels for must say so (exit code 3).

usage: families.py MINDXTRAIN OUT [MODEL …]
"""
import json
import pathlib
import shutil
import struct
import subprocess
import sys

binary, out = sys.argv[1], pathlib.Path(sys.argv[2])
golden = pathlib.Path(__file__).resolve().parents[1] / "golden/models"
out.mkdir(parents=True, exist_ok=True)
failed = 0
for model in sys.argv[3:] or sorted(p.name for p in golden.iterdir() if (p / "expected.json").exists()):
    want, folder = json.loads((golden / model / "expected.json").read_text()), golden / model
    for kind in ("full", "lora"):
        method = "{kind: full}"
        if kind == "lora":
            targets = json.loads((folder / "adapter/adapter_config.json").read_text())["target_modules"]
            method = f'{{kind: lora, r: 4, alpha: 8, target_modules: {json.dumps(targets)}, init_adapter: "{folder}/adapter"}}'
        recipe = out / f"{model}_{kind}.yaml"
        recipe.write_text(f"""meta: {{project: test, run_name: {model}}}
hardware: {{name: h100}}
autotune: {{enabled: false, budget_seconds: 20}}
model: {{name: "{folder}", torch_dtype: float32{", vision: true" if model == "qwen3_5_vl" else ""}}}
data: {{source: local, path: "{folder}/rows.jsonl", seq_len: 64, packing: false, shuffle: false}}
train:
  method: {method}
  precision: float32
  optimizer: {{lr: {want["settings"]["lr"]}, betas: [0.9, 0.95], weight_decay: 0.1, grad_clip: 1.0}}
  schedule: {{type: cosine, warmup_ratio: 0.1, max_steps: {len(want[kind])}}}
  batch: {{per_device: 2, grad_accum: 1}}
""")
        ran = subprocess.run([binary, "train", recipe, "--out", out / f"{model}_{kind}"], capture_output=True, text=True)
        if ran.returncode != 0:
            print(f"{model:22}{kind:6}exit {ran.returncode}: {ran.stderr.strip().splitlines()[-1][:160]}")
            failed += ran.returncode != 3
            continue
        got = [json.loads(line) for line in (out / f"{model}_{kind}/metrics.jsonl").read_text().splitlines()]
        worst = {k: max(abs(g[k] - w[k]) / abs(w[k]) for g, w in zip(got, want[kind])) for k in ("loss", "grad_norm")}
        good = len(got) == len(want[kind]) and max(worst.values()) < 1e-4
        failed += not good
        print(f"{model:22}{kind:6}loss {worst['loss']:.1e}, gradient norm {worst['grad_norm']:.1e}{'' if good else '  TOO FAR'}", flush=True)

# Keys and sinks pass through comparisons, which pass over what is no number: it must be said all the same.
for model, name in (("llama_mqa", "k_proj.weight"), ("gpt_oss", "sinks")):
    bad = out / f"{model}_nan"
    shutil.copytree(golden / model, bad, dirs_exist_ok=True)
    weights = bytearray((bad / "model.safetensors").read_bytes())
    size = struct.unpack("<Q", weights[:8])[0]
    header = json.loads(weights[8:8 + size])
    at = next(8 + size + t["data_offsets"][0] for key, t in header.items() if key.endswith(name))
    weights[at:at + 4] = struct.pack("<f", float("nan"))
    (bad / "model.safetensors").write_bytes(weights)
    (bad / "in.jsonl").write_text(json.dumps({"ids": list(range(1, 40))}) + "\n")
    for dtype in ("float32", "bfloat16"):
        ran = subprocess.run([binary, "score", "--model", bad, "--input", bad / "in.jsonl", "--output", bad / "out.jsonl", "--dtype", dtype, "--device", "h100"], capture_output=True, text=True)
        good = ran.returncode == 1 and "not numbers" in ran.stderr
        failed += not good
        print(f"{model:22}NaN in {name}, {dtype}: {'said' if good else f'exit {ran.returncode}: {ran.stderr[-200:]}'}", flush=True)
sys.exit(1 if failed else 0)

"""recipes/shapes_vl_cpu.yaml on a GPU: twenty steps in fp32 with the losses and gradient norms of the CPU, the same bytes twice, and, with
--whole, all of the run in bf16 with its answers scored.

usage: pictures.py MINDXTRAIN OUT TOKENIZER [--whole]      (TOKENIZER: a folder with SmolLM2's tokenizer.json)
"""
import hashlib
import json
import pathlib
import re
import subprocess
import sys

binary, out, tokenizer = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
out.mkdir(parents=True, exist_ok=True)
text = (pathlib.Path(__file__).resolve().parents[2] / "recipes/shapes_vl_cpu.yaml").read_text()
text = re.sub(r"tokenizer: \S+", f'tokenizer: "{tokenizer}"', text)
short = re.sub(r"epochs: 2", "max_steps: 20", text[: text.index("\neval:")]).replace("rows: 6000", "rows: 200")


def train(name, recipe, device):
    path = out / f"{name}.yaml"
    path.write_text(recipe.replace("name: cpu", f"name: {device}", 1))
    verb = "run" if "\neval:" in recipe else "train"
    ran = subprocess.run([binary, verb, path, "--out", out / name], capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{name}: exit {ran.returncode}: {(ran.stdout + ran.stderr)[-1500:]}")
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in sorted((out / name).rglob("*.safetensors")))).hexdigest()
    return [json.loads(line) for line in (out / name / "metrics.jsonl").read_text().splitlines()], digest, ran.stdout


host, _, _ = train("cpu", short, "cpu")
card, first, _ = train("card", short, "h100")
_, again, _ = train("card_again", short, "h100")
worst = {k: max(abs(c[k] - h[k]) / abs(h[k]) for c, h in zip(card, host)) for k in ("loss", "grad_norm")}
good = len(card) == len(host) == 20 and max(worst.values()) < 1e-4 and first == again
print(f"{len(card)} steps: loss {worst['loss']:.1e}, gradient norm {worst['grad_norm']:.1e}; twice the same bytes: {first == again}", flush=True)
half, _, _ = train("card_bf16", short.replace("precision: float32", "precision: bfloat16").replace("torch_dtype: float32", "torch_dtype: bfloat16"), "h100")
far = max(abs(c["loss"] - h["loss"]) / abs(h["loss"]) for c, h in zip(half, host))
print(f"bf16: loss within {far:.1e}")
good = good and far < 5e-2
if "--whole" in sys.argv:
    steps, _, said = train("whole", text, "h100")
    print(f"{len(steps)} steps, {sum(s['tokens'] for s in steps[-1:])} tokens\n{said[-600:]}")
sys.exit(0 if good else 1)

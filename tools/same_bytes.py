#!/usr/bin/env python3
"""Trains the same recipes with two binaries and compares what they made, byte for byte.

  tools/same_bytes.py BASE NEW [--through "qemu-x86_64 -cpu Haswell"] [--only tiny] [--gpu] [--markdown]

Prints a table: recipe, digest of the trained weights by BASE and by NEW, whether they are equal. Ends with 1 where one
differs. `--through` puts a command before both binaries, e.g. an emulator of a processor with other vector units.
`--gpu` adds eight layers of the hero's width on the machine's H100 or H200, with the base in bf16 and in E4M3.
The quickstart needs weights/SmolLM2-135M-Instruct.gguf (`./dev setup`); without it that row says so and is no failure.
"""
import argparse
import hashlib
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/models"
MODELS = ["llama_mqa", "llama_scaled", "qwen3_tied", "qwen3_gqa", "gpt2", "gpt2_scales"]


def tiny(model, method="{kind: full}", precision="float32", rows=2, accumulate=1, packing=False, extra=""):
    """The recipe of the trajectory tests (tests/e2e/cli.h)."""
    return f"""meta: {{project: test, run_name: tiny}}
hardware: {{name: cpu}}
autotune: {{enabled: false, budget_seconds: 20}}
model: {{name: "{GOLDEN / model}", torch_dtype: float32}}
data: {{source: local, path: "{GOLDEN / model}/rows.jsonl", seq_len: 64, packing: {str(packing).lower()}, shuffle: false}}
train:
  method: {method}
  precision: {precision}
  optimizer: {{lr: 3.0e-3, betas: [0.9, 0.95], weight_decay: 0.1, grad_clip: 1.0}}
  schedule: {{type: cosine, warmup_ratio: 0.1, max_steps: 20}}
  batch: {{per_device: {rows}, grad_accum: {accumulate}}}
{extra}"""


def lora(model, dropout=0.0, r=4, adapter=True):
    targets = "c_attn, c_proj, c_fc" if model.startswith("gpt2") else \
        "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"
    init = f', init_adapter: "{GOLDEN / model}/adapter"' if adapter else ""
    return f"{{kind: lora, r: {r}, alpha: {2 * r}, dropout: {dropout}, target_modules: [{targets}]{init}}}"


def recipes():
    for m in MODELS:
        yield f"tiny {m} full", tiny(m)
        yield f"tiny {m} lora", tiny(m, lora(m))
        yield f"tiny {m} full bf16", tiny(m, precision="bfloat16")
        yield f"tiny {m} lora bf16", tiny(m, lora(m, r=16, adapter=False), precision="bfloat16")
    m = "qwen3_gqa"
    yield "tiny accumulation", tiny(m, accumulate=3)
    yield "tiny small passes", tiny(m, rows=4, extra="  micro_batch: 1\n")
    yield "tiny packing", tiny(m, packing=True)
    yield "tiny dropout", tiny(m, lora(m, dropout=0.1, adapter=False))
    yield "tiny recomputed", tiny(m, extra="  gradient_checkpointing: true\n")
    yield "tiny rounded base", tiny(m, lora(m, r=16, adapter=False), precision="bfloat16",
                                    extra="  base_precision: fp8_e4m3\n")


def hero(base):
    """Eight layers of Qwen3-8B's shape with LoRA on all linears, random weights, on a GPU."""
    return f"""meta: {{project: test, run_name: hero}}
hardware: {{name: h100, gpus: 1}}
autotune: {{enabled: false}}
model:
  name: random
  init: random
  torch_dtype: bfloat16
  config: {{model_type: qwen3, vocab_size: 4096, hidden_size: 4096, intermediate_size: 12288, num_hidden_layers: 8,
            num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, max_position_embeddings: 4096,
            rms_norm_eps: 1.0e-6, rope_theta: 1000000, tie_word_embeddings: false}}
data: {{source: local, path: "{GOLDEN}/qwen3_gqa/rows.jsonl", seq_len: 256, packing: true, shuffle: false}}
train:
  method: {lora("qwen3", r=16, adapter=False)}
  precision: bfloat16
  base_precision: {base}
  optimizer: {{lr: 3.0e-3}}
  schedule: {{type: cosine, max_steps: 20}}
  batch: {{per_device: 4, grad_accum: 1}}
"""


def digest(folder):
    h = hashlib.sha256()
    for f in sorted(folder.glob("*.safetensors")):
        h.update(f.name.encode())
        h.update(f.read_bytes())
    return h.hexdigest()[:16]


def train(binary, through, recipe, folder, verb="train"):
    command = [*through, binary, verb, str(recipe), "--out", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        return f"exit {done.returncode}: {(done.stderr or done.stdout).strip().splitlines()[-1][:60]}"
    return digest(folder / "checkpoint")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("base", type=pathlib.Path)
    p.add_argument("new", type=pathlib.Path)
    p.add_argument("--through", default="", type=shlex.split)
    p.add_argument("--only", default="", help="rows whose name holds this")
    p.add_argument("--gpu", action="store_true")
    p.add_argument("--markdown", action="store_true")
    a = p.parse_args()
    binaries = [str(a.base.resolve()), str(a.new.resolve())]
    line = "| {:<28} | {:<18} | {:<18} | {} |" if a.markdown else "{:<30} {:<18} {:<18} {}"
    print(line.format("recipe", "base", "new", "equal"))
    differ = 0
    with tempfile.TemporaryDirectory() as temp:
        rows = [(name, text, None) for name, text in recipes()]
        if a.gpu:
            rows += [(f"hero, 8 layers, {base}", hero(base), None) for base in ("bfloat16", "fp8_e4m3")]
        short = (ROOT / "recipes/shakespeare_char.yaml").read_text()
        rows.append(("shakespeare_char 200 steps", None, short))
        rows.append(("quickstart", None, (ROOT / "recipes/quickstart_cpu.yaml").read_text()))
        for i, (name, text, whole) in enumerate(rows):
            if a.only not in name:
                continue
            if name == "quickstart" and not (ROOT / "weights/SmolLM2-135M-Instruct.gguf").exists():
                print(line.format(name, "-", "-", "not run: no weights, see ./dev setup"))
                continue
            recipe = pathlib.Path(temp) / f"{i}.yaml"
            text = text or whole
            if whole:  # choices of a probe are the clock's: the default ones are compared
                text = text.replace("autotune:\n", "autotune:\n  enabled: false\n")
            if "200 steps" in name:
                text = "\n".join("    max_steps: 200" if x.strip().startswith("max_steps:") else x
                                 for x in text.splitlines()) + "\n"
            recipe.write_text(text)
            made = [train(b, a.through, recipe, pathlib.Path(temp) / f"{i}.{k}") for k, b in enumerate(binaries)]
            equal = made[0] == made[1] and not made[0].startswith("exit")
            differ += not equal
            print(line.format(name, *made, "yes" if equal else "NO"), flush=True)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())

"""Twenty steps of Qwen3 at 0.6B's dimensions (random weights) against transformers and peft on the same GPU: LoRA and full, packed
documents of many lengths. bf16 must stay within three times the spread among PyTorch's own attention kernels (at least 0.5 %), fp32
within 1e-4. transformers sees each document alone, which is what packing must not change.

The FP8 base (lora/fp8) is another model: its losses are reported beside those of our bf16 run.

usage: trajectory.py MINDXTRAIN OUT [KIND[/PRECISION] …]      KIND lora or full, PRECISION bfloat16, float32 or fp8; all without a name
"""
import gc
import json
import math
import pathlib
import random
import subprocess
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForCausalLM, Qwen3Config

ALL = ["lora/bfloat16", "lora/float32", "lora/fp8", "full/bfloat16", "full/float32"]
binary, out, layers = sys.argv[1], pathlib.Path(sys.argv[2]), 28
wanted = [w for w in ALL if not sys.argv[3:] or w in sys.argv[3:] or w.split("/")[0] in sys.argv[3:]]
kinds = {w.split("/")[0] for w in wanted}
out.mkdir(parents=True, exist_ok=True)
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
STEPS, ROWS, VOCAB, LONGEST = 20, 4, 151936, 512
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

config = Qwen3Config(vocab_size=VOCAB, hidden_size=1024, intermediate_size=3072, num_hidden_layers=layers, num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=2048, rms_norm_eps=1e-6, rope_theta=1000000, tie_word_embeddings=True, initializer_range=0.02)
torch.manual_seed(3)



def make(dtype, attention):
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, torch_dtype=dtype, attn_implementation="eager" if attention == "eager" else "sdpa")


started = time.time()
model = make(torch.float32, "math")
state = {k: v.clone() for k, v in model.state_dict().items()}  # stays on the GPU: every model of this script starts from it
base = pathlib.Path("/tmp/trajectory_base")
model.save_pretrained(base, safe_serialization=True)
peft = None if "lora" not in kinds else get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules=LINEARS, task_type="CAUSAL_LM"))
if peft is not None:
    with torch.no_grad():
        for n, p in peft.named_parameters():
            if "lora_B" in n:
                p.normal_(std=0.02)
    peft.save_pretrained("/tmp/trajectory_adapter")
del peft, model
gc.collect()
torch.cuda.empty_cache()

rng = random.Random(1)
docs = []
for _ in range(4 * ROWS):
    n = rng.choice((rng.randint(2, 60), rng.randint(80, 300), rng.randint(350, LONGEST)))
    ids = [rng.randrange(VOCAB) for _ in range(n)]
    docs.append((ids, [-100 if k < n // 4 else t for k, t in enumerate(ids)]))
print(f"model and documents after {time.time() - started:.0f} s", flush=True)
rows = out / "rows.jsonl"
rows.write_text("".join(json.dumps({"input_ids": i, "labels": l}) + "\n" for i, l in docs))


def lr_at(step, lr):
    warm = round(0.1 * STEPS)
    if step < warm:
        return lr * (step + 1) / warm
    return lr * (1 + math.cos(math.pi * (step - warm) / (STEPS - warm))) / 2


def theirs(kind, precision, attention):
    torch.manual_seed(0)
    lora = kind == "lora"
    dtype = torch.bfloat16 if precision == "bfloat16" and lora else torch.float32
    model = make(dtype, attention)
    model.load_state_dict(state)
    if lora:
        from peft import PeftModel
        model = PeftModel.from_pretrained(model, "/tmp/trajectory_adapter", is_trainable=True)
    lr = 1e-3 if lora else 1e-4
    train = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    opt = torch.optim.AdamW([{"params": [p for n, p in train if lora or p.ndim >= 2], "weight_decay": 0.1}, {"params": [p for n, p in train if not (lora or p.ndim >= 2)], "weight_decay": 0.0}], lr=lr, betas=(0.9, 0.95), eps=1e-8)
    backends = {"eager": [SDPBackend.MATH], "flash": [SDPBackend.FLASH_ATTENTION], "cudnn": [SDPBackend.CUDNN_ATTENTION], "math": [SDPBackend.MATH]}[attention]
    result = []
    for step in range(STEPS):
        for g in opt.param_groups:
            g["lr"] = lr_at(step, lr)
        batch = [docs[(step * ROWS + i) % len(docs)] for i in range(ROWS)]
        targets = sum(sum(t != -100 for t in labels[1:]) for _, labels in batch)
        total = 0.0
        for ids, labels in batch:
            if all(t == -100 for t in labels[1:]):
                continue
            with sdpa_kernel(backends), torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16" and not lora):
                logits = model(input_ids=torch.tensor([ids], device="cuda")).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(logits.float(), torch.tensor(labels[1:], device="cuda"), ignore_index=-100, reduction="sum") / targets
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in train], 1.0).item()
        opt.step()
        opt.zero_grad()
        result.append({"loss": total, "grad_norm": norm})
    del model, opt, train
    gc.collect()
    torch.cuda.empty_cache()
    return result


def ours(kind, precision):
    lora = kind == "lora"
    name, fp8 = f"{kind}_{precision}", precision == "fp8"
    precision = "bfloat16" if fp8 else precision
    method = f'{{kind: lora, r: 16, alpha: 32, target_modules: [{", ".join(LINEARS)}], init_adapter: /tmp/trajectory_adapter}}' if lora else "{kind: full}"
    (out / f"{name}.yaml").write_text(f"""meta: {{project: test, run_name: {name}}}
hardware: {{name: h100}}
autotune: {{enabled: false}}
model: {{name: "{base}", torch_dtype: float32}}
data: {{source: local, path: "{rows}", seq_len: {LONGEST}, packing: false, shuffle: false}}
train:
  method: {method}
  precision: {precision}
{'  base_precision: fp8_e4m3' if fp8 else ''}
  optimizer: {{lr: {'1.0e-3' if lora else '1.0e-4'}, betas: [0.9, 0.95], weight_decay: 0.1, grad_clip: 1.0}}
  schedule: {{type: cosine, warmup_ratio: 0.1, max_steps: {STEPS}}}
  batch: {{per_device: {ROWS}, grad_accum: 1}}
""")
    p = subprocess.run([binary, "train", str(out / f"{name}.yaml"), "--out", f"/tmp/trajectory_{name}"], capture_output=True, text=True)
    if p.returncode != 0:
        print(f"FAILED {name}: {p.returncode}: {(p.stdout + p.stderr)[-1500:]}", flush=True)
        return []
    return [json.loads(line) for line in pathlib.Path(f"/tmp/trajectory_{name}/metrics.jsonl").read_text().splitlines()]


def distance(a, b, key="loss"):
    return max((abs(x[key] - y[key]) / abs(y[key]) for x, y in zip(a, b)), default=math.inf) if len(a) == len(b) == STEPS else math.inf


def write():
    (out / "trajectory.json").write_text(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "layers": layers, "results": report}, indent=1))


report, ok = {}, True
for kind, precision in (w.split("/") for w in wanted):
    begin = time.time()
    mine = ours(kind, precision)
    print(f"{kind} {precision}: ours after {time.time() - begin:.0f} s", flush=True)
    if precision == "fp8":
        beside = ours(kind, "bfloat16")
        report["lora fp8"] = {"distance_from_bf16": distance(mine, beside), "ours": [x["loss"] for x in mine], "bf16": [x["loss"] for x in beside]}
        ok &= distance(mine, beside) <= 0.02  # rounding of the base and of what it multiplies, not another course
        print(f"lora fp8: {distance(mine, beside):.2e} from bf16 at most; losses {[round(x['loss'], 4) for x in mine]} beside {[round(x['loss'], 4) for x in beside]}", flush=True)
        write()
        continue
    kernels = ("eager", "flash", "cudnn") if precision == "bfloat16" else ("math",)
    other = {}
    for k in kernels:
        try:
            other[k] = theirs(kind, precision, k)
        except Exception as e:  # a kernel that this PyTorch has not
            print(f"{kind} {precision} {k}: {e}", flush=True)
    spread = max((distance(a, b) for a in other.values() for b in other.values()), default=0)
    limit = max(3 * spread, 0.005) if precision == "bfloat16" else 1e-4
    far = min((distance(mine, o) for o in other.values()), default=math.inf)
    worst = max((distance(mine, o) for o in other.values()), default=math.inf)
    report[f"{kind} {precision}"] = {"distance": worst, "nearest": far, "spread": spread, "limit": limit, "ok": worst <= limit, "grad_norm_distance": max((distance(mine, o, "grad_norm") for o in other.values()), default=None), "ours": [x["loss"] for x in mine], "theirs": {k: [x["loss"] for x in v] for k, v in other.items()}}
    ok &= worst <= limit
    write()
    print(f"{kind} {precision}: {worst:.2e} from PyTorch, its own spread {spread:.2e}, limit {limit:.2e}, gradient norms {report[f'{kind} {precision}']['grad_norm_distance']:.2e}: {'ok' if worst <= limit else 'FAILED'} ({time.time() - begin:.0f} s); loss {mine[0]['loss'] if mine else 0:.4f} to {mine[-1]['loss'] if mine else 0:.4f}", flush=True)
sys.exit(0 if ok else 1)

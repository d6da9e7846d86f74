#!/usr/bin/env python3
"""Twenty steps of each optimizer on small models: transformers' Adafactor, bitsandbytes' AdamW8bit and Lion, torch.optim.Muon, and nanochat's
MuonAdamW written down from its definition (not its code), all in fp32.

usage: optimizers.py TESTS/GOLDEN      needs: torch transformers bitsandbytes safetensors
Reads GOLDEN/models/<case> (models.py), writes GOLDEN/optimizers/<case>.json, and GOLDEN/optimizers/llama_wide/ with a model whose tensors
are large enough for 8-bit states (at least 4,096 elements), with a last block that is not full and a stack of tensors of both kinds.
tests/optim and tests/e2e must reproduce the losses."""
import copy, json, math, os, sys
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.optimization import Adafactor

golden = sys.argv[1]
here = os.path.join(golden, "optimizers")
torch.use_deterministic_algorithms(True)
STEPS, PER_DEVICE, WARMUP, WD, CLIP, BETAS, EPS = 20, 2, 0.1, 0.1, 1.0, (0.9, 0.95), 1e-8
LR = {"lion": 3e-4, "adafactor": 3e-3, "adamw_8bit": 3e-3, "adamw": 3e-3}
MUON = {"lr": 0.02, "weight_decay": 0.1, "embedding_lr": 0.03, "head_lr": 0.004, "scalar_lr": 0.01}
POLAR = [(8.156554524902461, -22.48329292557795, 15.878769915207462), (4.042929935166739, -2.808917465908714, 0.5000178451051316),
         (3.8916678022926607, -2.772484153217685, 0.5060648178503393), (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
         (2.3465413258596377, -1.7097828382687081, 0.42323551169305323)]


def factor(step):
    w = round(WARMUP * STEPS)
    return (step + 1) / w if step < w else (1 + math.cos(math.pi * (step - w) / (STEPS - w))) / 2


def loss_of(model, docs):
    total, count = 0.0, 0
    for ids, labels in docs:
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
        y = torch.tensor(labels[1:])
        total = total + torch.nn.functional.cross_entropy(logits[:-1], y, ignore_index=-100, reduction="sum")
        count += int((y != -100).sum())
    return total / count


def groups(model):
    named = list(model.named_parameters())
    return [{"params": [p for _, p in named if p.ndim >= 2], "weight_decay": WD}, {"params": [p for _, p in named if p.ndim < 2], "weight_decay": 0.0}]


class MuonAdamW:
    """nanochat's optimizer as a definition: six groups of AdamW, Muon for the matrices of the blocks."""

    def __init__(self, model, schedule):
        self.schedule, self.state = schedule, {}
        self.named = list(model.named_parameters())

    def group(self, name, p):
        if "lm_head" in name:
            return dict(lr=MUON["head_lr"], betas=(0.8, 0.96), wd=0.01)
        if "embed_tokens" in name or "wte" in name or "wpe" in name:
            return dict(lr=MUON["embedding_lr"], betas=(0.8, 0.995), wd=0.001)
        if p.ndim < 2:
            return dict(lr=MUON["scalar_lr"], betas=(0.8, 0.95), wd=0.0)
        return None

    @torch.no_grad()
    def step(self, s):
        f = factor(s)
        momentum, decay = (0.85 + 0.12 * s / 400, MUON["weight_decay"] * (1 + math.cos(math.pi * s / STEPS)) / 2) if self.schedule else (0.95, MUON["weight_decay"])
        for name, p in self.named:
            g, st, k = p.grad, self.state.setdefault(name, {}), self.group(name, p)
            if k is not None:
                m, v = st.setdefault("m", torch.zeros_like(p)), st.setdefault("v", torch.zeros_like(p))
                b1, b2 = k["betas"]
                p.mul_(1 - f * k["lr"] * k["wd"])
                m.mul_(b1).add_(g, alpha=1 - b1)
                v.mul_(b2).addcmul_(g, g, value=1 - b2)
                p.sub_(f * k["lr"] / (1 - b1 ** (s + 1)) * m / ((v / (1 - b2 ** (s + 1))).sqrt() + 1e-10))
                continue
            conv1d = name.startswith("transformer.h") and p.ndim == 2  # GPT-2 keeps its matrices as [in, out]
            w, g = (p.t(), g.t()) if conv1d else (p, g)
            rows, cols = w.shape
            buf = st.setdefault("buf", torch.zeros_like(w))
            buf.mul_(momentum).add_(g, alpha=1 - momentum)
            u = (1 - momentum) * g + momentum * buf
            u = u * (u.norm() / math.sqrt(rows)) / u.norm(dim=1, keepdim=True).clamp_min(1e-6)
            x = u / (1.01 * u.norm() + 1e-6)
            for a, b, c in POLAR:
                if rows > cols:
                    gram = x.t() @ x
                    x = a * x + x @ (b * gram + c * gram @ gram)
                else:
                    gram = x @ x.t()
                    x = a * x + (b * gram + c * gram @ gram) @ x
            x = x * (math.sqrt(min(rows, cols)) / x.norm().clamp_min(1e-6))
            along = 1 if rows >= cols else 0
            mean = x.square().mean(dim=along, keepdim=True)
            v2 = st.setdefault("v2", torch.zeros_like(mean))
            v2.mul_(0.9).add_(mean, alpha=0.1)
            scale = v2.clamp_min(1e-10).rsqrt()
            after = (mean * x.shape[along] * scale.square()).sum().sqrt()
            x = x * scale * (x.norm() / after.clamp_min(1e-10))
            lr = f * MUON["lr"] * math.sqrt(max(1, rows / cols))
            w.sub_(lr * x + lr * decay * w * (x * w >= 0))


class TorchMuon:
    """torch.optim.Muon in fp32 (it casts to bf16 itself) for the matrices of the blocks, AdamW for the rest."""

    def __init__(self, model):
        self.state = {}
        self.named = [(n, p) for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "lm_head" not in n]
        rest = [(n, p) for n, p in model.named_parameters() if not (p.ndim == 2 and "embed" not in n and "lm_head" not in n)]
        self.rates = [MUON["embedding_lr"] if "embed" in n else MUON["head_lr"] if "lm_head" in n else MUON["scalar_lr"] for n, _ in rest]
        self.adamw = torch.optim.AdamW([{"params": [p], "weight_decay": WD if p.ndim >= 2 else 0.0} for _, p in rest], lr=1, betas=BETAS, eps=EPS)
        self.muon = torch.optim.Muon([p for _, p in self.named], lr=1, weight_decay=MUON["weight_decay"], momentum=0.95)

    def step(self, s):
        import torch.optim._muon as of_torch

        def fp32(grad, coefficients, steps, eps):
            a, b, c = coefficients
            x = grad.T if grad.size(0) > grad.size(1) else grad
            x = x / x.norm().clamp(min=eps)
            for _ in range(steps):
                gram = x @ x.T
                x = a * x + (b * gram + c * gram @ gram) @ x
            return x.T if grad.size(0) > grad.size(1) else x

        of_torch._zeropower_via_newtonschulz = fp32
        for g, rate in zip(self.adamw.param_groups, self.rates):
            g["lr"] = factor(s) * rate
        self.muon.param_groups[0]["lr"] = factor(s) * MUON["lr"]
        self.adamw.step()
        self.muon.step()


class Scheduled:
    def __init__(self, name, model):
        self.lr = LR[name]
        if name == "adafactor":
            self.opt = Adafactor(groups(model), lr=self.lr, relative_step=False, scale_parameter=False)
        elif name == "adamw":
            self.opt = torch.optim.AdamW(groups(model), lr=self.lr, betas=BETAS, eps=EPS)
        else:
            import bitsandbytes as bnb

            kind = bnb.optim.Lion if name == "lion" else bnb.optim.AdamW8bit
            kwargs = {} if name == "lion" else {"eps": EPS}
            if name == "adamw_8bit":  # as transformers' Trainer
                manager = bnb.optim.GlobalOptimManager.get_instance()
                for module in model.modules():
                    if isinstance(module, torch.nn.Embedding):
                        manager.register_module_override(module, "weight", {"optim_bits": 32})
            self.opt = kind(groups(model), lr=self.lr, betas=BETAS, **kwargs)

    def step(self, s):
        for g in self.opt.param_groups:
            g["lr"] = self.lr * factor(s)
        self.opt.step()


def train(model, docs, name):
    clip = not name.startswith("muon")
    opt = MuonAdamW(model, name == "muon_pretrain") if name in ("muon", "muon_pretrain") else TorchMuon(model) if name == "muon_torch" else Scheduled(name, model)
    losses = []
    for s in range(STEPS):
        loss = loss_of(model, [docs[(s * PER_DEVICE + i) % len(docs)] for i in range(PER_DEVICE)])
        model.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        opt.step(s)
        losses.append(loss.item())
    return losses


wide = os.path.join(here, "llama_wide")
if not os.path.exists(wide):
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=72, intermediate_size=100, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=64, tie_word_embeddings=False)).float()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3.0) if p.ndim > 1 else p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(wide, safe_serialization=True)
    os.remove(os.path.join(wide, "generation_config.json"))

for case, names in {"llama_mqa": ["lion", "adafactor", "muon", "muon_pretrain", "muon_torch"], "qwen3_tied": ["lion", "adafactor", "muon"],
                    "gpt2": ["adafactor", "muon"], "llama_wide": ["adamw", "adamw_8bit", "lion", "muon"]}.items():
    folder = wide if case == "llama_wide" else os.path.join(golden, "models", case)
    rows = os.path.join(golden, "models", "llama_mqa" if case == "llama_wide" else case, "rows.jsonl")
    docs = [(r["input_ids"], r["labels"]) for r in map(json.loads, open(rows))]
    start = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    result = {"settings": {"steps": STEPS, "per_device": PER_DEVICE, "warmup_ratio": WARMUP, "weight_decay": WD, "grad_clip": CLIP, "betas": BETAS, "eps": EPS, "lr": LR, "muon": MUON}}
    for name in names:
        result[name] = train(copy.deepcopy(start), docs, name)
        print(case, name, result[name][0], result[name][-1])
    with open(os.path.join(here, case + ".json"), "w") as f:
        json.dump(result, f, indent=1)

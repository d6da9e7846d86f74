#!/usr/bin/env python3
"""Golden values of small models from transformers and peft: logits, loss, every gradient, and 20 training steps.

usage: models.py OUTDIR [CASE…]        needs: torch transformers peft safetensors
Writes OUTDIR/<case>/: config.json, model.safetensors (random weights), adapter/ (PEFT), expected.safetensors, expected.json, and
rows.jsonl with the documents as {"input_ids", "labels"} rows. The engine must reproduce all of it (tests/models, tests/e2e)."""
import contextlib, json, math, os, sys
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from peft import LoraConfig, get_peft_model

import families

out = sys.argv[1] if __name__ == "__main__" else ""
torch.use_deterministic_algorithms(True)
# odd head counts, multi-query, tied and untied, head_dim * heads different from the width
CASES = {
    "llama_mqa": lambda: LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=40, intermediate_size=56, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1, head_dim=8, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False)),
    "llama_scaled": lambda: LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=128, tie_word_embeddings=True, attention_bias=True, rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32})),
    "qwen3_tied": lambda: Qwen3ForCausalLM(Qwen3Config(vocab_size=96, hidden_size=36, intermediate_size=48, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3, head_dim=16, max_position_embeddings=64, tie_word_embeddings=True)),
    "qwen3_gqa": lambda: Qwen3ForCausalLM(Qwen3Config(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=8, max_position_embeddings=64, tie_word_embeddings=False)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=96, n_embd=36, n_layer=2, n_head=3, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
    # experts no power of two, top 3, dense layers between; the other one ties, does not renormalise and has the balance loss
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(vocab_size=96, hidden_size=36, intermediate_size=40, moe_intermediate_size=20, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, head_dim=16, max_position_embeddings=64, num_experts=6, num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[1], tie_word_embeddings=False)),
    "qwen3_moe_balanced": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(vocab_size=96, hidden_size=24, intermediate_size=40, moe_intermediate_size=12, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64, num_experts=5, num_experts_per_tok=2, norm_topk_prob=False, output_router_logits=True, router_aux_loss_coef=0.05, tie_word_embeddings=True)),
    # scores are not divided by the root of head_dim, but by the layer's number
    "gpt2_scales": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=96, n_embd=20, n_layer=3, n_head=5, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.1, scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True, attn_implementation="eager")),
}
GPT2 = ["c_attn", "c_proj", "c_fc"]
TARGETS = {"gpt2": GPT2, "gpt2_scales": GPT2}
CASES |= families.CASES
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
STEPS, PER_DEVICE, LR, WARMUP, WD, CLIP, BETAS = 20, 2, 3e-3, 0.1, 0.1, 1.0, (0.9, 0.95)


def documents(seed, n, vocab=96):
    g = torch.Generator().manual_seed(seed)
    docs = []
    for _ in range(n):
        t = int(torch.randint(5, 24, (1,), generator=g))
        ids = torch.randint(0, vocab, (t,), generator=g)
        labels = ids.clone()
        labels[: int(torch.randint(0, t // 2 + 1, (1,), generator=g))] = -100
        docs.append((ids.tolist(), labels.tolist()))
    return docs


class Expert(torch.nn.Module):
    def __init__(self, gate_up, down):
        super().__init__()
        gate, up = gate_up.chunk(2)
        for name, w in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)):
            linear = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
            linear.weight = torch.nn.Parameter(w.detach().clone())
            setattr(self, name, linear)

    def forward(self, x):
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(torch.nn.ModuleList):
    """The stacked experts of transformers 5 as modules of their own, as checkpoints name them and PEFT can wrap them."""

    def forward(self, x, index, weights):
        y = torch.zeros_like(x)
        for e, expert in enumerate(self):
            token, place = torch.where(index == e)
            if len(token):
                y = y.index_add(0, token, expert(x[token]) * weights[token, place, None])
        return y


def unstack(model):
    for module in list(model.modules()):
        e = getattr(module, "experts", None)
        if e is not None and hasattr(e, "gate_up_proj"):
            one = (lambda i: families.ClampedExpert(e, i)) if hasattr(e, "gate_up_proj_bias") else (lambda i: Expert(e.gate_up_proj[i], e.down_proj[i]))
            module.experts = Experts([one(i) for i in range(e.gate_up_proj.shape[0])])


@contextlib.contextmanager
def doubles():
    """What a model casts to float32 stays float64 in here: the delta rule's own rounding is too large to measure another's by."""
    cast, to = torch.Tensor.float, torch.Tensor.to
    torch.Tensor.float = lambda x: x if x.dtype == torch.float64 else cast(x)
    torch.Tensor.to = lambda x, *a, **k: x if x.dtype == torch.float64 and torch.float32 in (*a, *k.values()) else to(x, *a, **k)
    yield
    torch.Tensor.float, torch.Tensor.to = cast, to


def loss_of(model, docs):
    """Mean over all target tokens of the documents, each document alone (nothing attends across). With it the experts' balance
    loss where the configuration asks for it: the mean over the documents."""
    total, count, logits, aux = 0.0, 0, [], 0.0
    balance = getattr(model.config, "output_router_logits", False)
    for ids, labels in docs:
        x = torch.tensor([ids])
        out = model(input_ids=x, use_cache=False)
        lg = out.logits[0].float()
        if balance:
            aux = aux + model.config.router_aux_loss_coef * out.aux_loss / len(docs)
        logits.append(lg)
        y = torch.tensor(labels[1:])
        total = total + torch.nn.functional.cross_entropy(lg[:-1], y, ignore_index=-100, reduction="sum")
        count += int((y != -100).sum())
    return total / count, torch.cat(logits), aux


def rate(step, lr):
    w = round(WARMUP * STEPS)
    if step < w:
        return lr * (step + 1) / w
    return lr * (1 + math.cos(math.pi * (step - w) / (STEPS - w))) / 2


def train(model, docs, lr):
    decay = [p for n, p in model.named_parameters() if p.requires_grad and ("lora" in n or p.ndim >= 2 or n.endswith(("A_log", "sinks")))]
    plain = [p for n, p in model.named_parameters() if p.requires_grad and not ("lora" in n or p.ndim >= 2 or n.endswith(("A_log", "sinks")))]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": WD}, {"params": plain, "weight_decay": 0.0}], lr=lr, betas=BETAS, eps=1e-8)
    rows = []
    for s in range(STEPS):
        batch = [docs[(s * PER_DEVICE + i) % len(docs)] for i in range(PER_DEVICE)]
        for g in opt.param_groups:
            g["lr"] = rate(s, lr)
        loss, _, aux = loss_of(model, batch)
        (loss + aux).backward()
        for p in model.parameters():  # stacked experts have a gradient whether tokens came or not: zero, which still decays and moves
            if p.requires_grad and p.grad is None:
                p.grad = torch.zeros_like(p)
        norm = torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], CLIP)
        opt.step()
        opt.zero_grad()
        rows.append({"loss": loss.item(), "grad_norm": norm.item(), "lr": rate(s, lr)})
    return rows


for name, make in (CASES.items() if __name__ == "__main__" else ()):
    if sys.argv[2:] and name not in sys.argv[2:]:
        continue
    torch.manual_seed(7)
    d = os.path.join(out, name)
    os.makedirs(d, exist_ok=True)
    model, lr = make().float().eval(), families.RATES.get(name, LR)
    with torch.no_grad():  # norms and biases away from 1 and 0, so that their use shows
        for n, p in model.named_parameters():
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.1)
            else:
                p.mul_(3.0)
    model.save_pretrained(d, safe_serialization=True)
    stacked = loss_of(model, documents(11, 3))[1]
    unstack(model)
    torch.testing.assert_close(loss_of(model, documents(11, 3))[1], stacked, rtol=1e-5, atol=1e-6)
    docs = documents(11, 40)
    with open(os.path.join(d, "rows.jsonl"), "w") as f:
        for ids, labels in docs:
            f.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")
    expected = {}
    hybrid = name in families.RATES
    with doubles() if hybrid else contextlib.nullcontext():
        loss, logits, aux = loss_of(model.double() if hybrid else model, docs[:3])
        (loss + aux).backward()
    expected["logits"] = logits.detach().float().contiguous()
    prompt = docs[0][0][:5]
    with torch.no_grad():
        greedy = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False, use_cache=False)[0].tolist()[5:] if name.startswith("gpt_oss") else None
    for n, p in model.named_parameters():
        if p.grad is not None:
            expected["grad." + n] = p.grad.float().clone().contiguous()
    model.zero_grad()
    model.float()
    result = {"loss": loss.item(), "settings": {"steps": STEPS, "per_device": PER_DEVICE, "lr": lr, "warmup_ratio": WARMUP, "weight_decay": WD, "grad_clip": CLIP, "betas": BETAS}}
    if greedy:
        result["greedy"] = {"prompt": prompt, "answer": greedy}
    if aux:
        result["aux"] = aux.item()
    model.zero_grad()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    result["full"] = train(model, docs, lr)
    model.load_state_dict(state)
    lora = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=(TARGETS | families.TARGETS).get(name, LINEARS), task_type="CAUSAL_LM", fan_in_fan_out=name in TARGETS))
    with torch.no_grad():
        for n, p in lora.named_parameters():
            if "lora_B" in n:
                p.copy_(torch.randn_like(p) * 0.05)
    lora.save_pretrained(os.path.join(d, "adapter"))
    loss, logits, _ = loss_of(lora, docs[:3])
    expected["lora_logits"] = logits.detach().contiguous()
    result["lora_loss"] = loss.item()
    result["lora"] = train(lora, docs, lr)
    save_file(expected, os.path.join(d, "expected.safetensors"))
    with open(os.path.join(d, "expected.json"), "w") as f:
        json.dump(result, f, indent=1)
    for junk in ("adapter/README.md", "generation_config.json"):
        if os.path.exists(os.path.join(d, junk)):
            os.remove(os.path.join(d, junk))
    print(name, "loss", result["loss"], "lora", result["lora_loss"])

#!/usr/bin/env python3
"""Trajectories of PPO over given answers, written out in PyTorch from its definition (no trainer has it any more), in fp32.

usage: ppo.py MODELS ROLLOUTS OUTDIR     needs: torch transformers peft
MODELS: tests/golden/models, ROLLOUTS: tests/golden/grpo/rollouts.jsonl. Writes OUTDIR/expected.json: for each case its settings and what
each of its steps came to. A step has PER_DEVICE x ACCUM answers of the file in its order and is repeated `inner_epochs` times."""
import copy, json, math, os, sys
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

src, given, out = sys.argv[1:4]
os.makedirs(out, exist_ok=True)
torch.use_deterministic_algorithms(True)
STEPS, PER_DEVICE, ACCUM, LR, WD, BETAS, CLIP, LONGEST, EOS = 12, 3, 2, 1e-3, 0.1, (0.9, 0.95), 1.0, 13, 1
plain = [json.loads(line) for line in open(given)]


def spoken(i, n):
    """Which of n tokens the policy said: a result amid them, two of them, one at the end, or none."""
    mask = [1] * n
    if n >= 5 and i % 7 == 0:
        mask[-2:] = [0, 0]
    elif n >= 5 and i % 3 == 1:
        mask[1], mask[3], mask[4 if n > 5 else 3] = 0, 0, 0
    elif n >= 4 and i % 3 == 0:
        mask[n // 3 : n // 3 + 2] = [0, 0]
    return mask


masked, i = copy.deepcopy(plain), 0
for r in masked:
    for c in r["completions"]:
        c["mask"], i = spoken(i, len(c["ids"])), i + 1
with open(os.path.join(out, "masked.jsonl"), "w") as f:
    f.writelines(json.dumps(r) + "\n" for r in masked)


class Answer(list):
    """Its ids; which of them the policy said itself."""

    def __init__(self, ids, mask):
        super().__init__(ids)
        self.own = [t for t, said in enumerate(mask) if said]


def rows_of(file):
    return [(r["prompt_ids"], Answer(c["ids"], c.get("mask", [1] * len(c["ids"]))), c["reward"]) for r in file for c in r["completions"]]


def look(model, prompt, answer, temperature):
    """ln p of each token that the policy said, and the entropies."""
    logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
    logp = torch.log_softmax(logits / temperature, -1)
    return logp.gather(1, torch.tensor(answer)[:, None])[answer.own, 0], -(logp.exp() * logp).sum(-1)[answer.own]


def estimate(model, score, prompt, answer):
    """The score of the state before each token that the policy said, and of that behind the last of all."""
    done = model(torch.tensor([prompt + answer]), output_hidden_states=True)
    return (done.hidden_states[-1][0, len(prompt) - 1 :] @ score)[answer.own + [len(answer)]]


def whiten(pieces):
    all = torch.cat(pieces)
    mean, var = all.mean(), all.var(unbiased=True)
    return [(p - mean) * torch.rsqrt(var + 1e-8) for p in pieces]


def load(model, kind):
    base = AutoModelForCausalLM.from_pretrained(os.path.join(src, model), dtype=torch.float32)
    return PeftModel.from_pretrained(base, os.path.join(src, model, "adapter"), is_trainable=True) if kind == "lora" else base


def optimizer_of(named):
    plain = [p for n, p in named if "norm" in n]
    decayed = [p for n, p in named if "norm" not in n]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": WD}, {"params": plain, "weight_decay": 0.0}], lr=LR, betas=BETAS, eps=1e-8)


def run(model, kind, s, rows):
    policy, critic = load(model, kind), load(model, kind)
    reference = copy.deepcopy(policy).eval()
    score = torch.nn.Parameter(torch.zeros(policy.config.hidden_size))
    policy_weights = [(n, p) for n, p in policy.named_parameters() if p.requires_grad]
    critic_weights = [(n, p) for n, p in critic.named_parameters() if p.requires_grad and "lm_head" not in n] + [("score", score)]
    optimizers = [optimizer_of(policy_weights), optimizer_of(critic_weights)]
    size, log = PER_DEVICE * ACCUM, []
    for step in range(STEPS):
        rate = LR * (STEPS - step) / STEPS
        for g in optimizers[0].param_groups + optimizers[1].param_groups:
            g["lr"] = rate
        if step % s["inner_epochs"] == 0:
            first = step // s["inner_epochs"] * size % len(rows)
            batch = rows[first : first + size]
            with torch.no_grad():
                old = [(look(policy, p, a, s["temperature"])[0], estimate(critic, score, p, a)) for p, a, _ in batch]
                ref = [look(reference, p, a, s["temperature"])[0] for p, a, _ in batch]
            rewards, divergences, scores = [], [], []
            for (p, a, r), (logp, _), before in zip(batch, old, ref):
                ended = a[-1] == EOS and a.own[-1] == len(a) - 1
                states = len(a.own) + (1 if ended and len(a) < LONGEST else 0)
                kl = logp - before
                worth = 0 if r is None else r
                w = torch.zeros(states)
                w[: len(a.own)] -= s["kl_coef"] * kl
                w[-1] += worth
                rewards.append(w), divergences.append(kl.sum().item()), scores.append(worth)
            advantages, returns = [], []
            for w, (_, v) in zip(rewards, old):
                states, later, done = len(w), 0.0, []
                for t in reversed(range(states)):
                    delta = w[t] + s["gamma"] * (v[t + 1] if t + 1 < states else 0.0) - v[t]
                    later = delta + s["gamma"] * s["gae_lambda"] * later
                    done.append(later)
                a = torch.stack(done[::-1])
                advantages.append(a), returns.append(a + v[:states])
            advantages = whiten([a[: len(b[1].own)] for a, b in zip(advantages, batch)])
        for o in optimizers:
            o.zero_grad()
        loss, seen = 0.0, {k: [] for k in ("loss/policy_avg", "loss/value_avg", "policy/approxkl_avg", "policy/clipfrac_avg", "val/clipfrac_avg", "val/ratio", "entropy")}
        for b in range(0, size, PER_DEVICE):
            pg, vf, pc, vc, ratios, entropies, apart = [], [], [], [], [], [], []
            for i in range(b, b + PER_DEVICE):
                p, a, _ = batch[i]
                logp, entropy = look(policy, p, a, s["temperature"])
                v, was, goal = estimate(critic, score, p, a)[: len(returns[i])], old[i][1][: len(returns[i])], returns[i]
                w = torch.exp(logp - old[i][0])
                one, two = -advantages[i] * w, -advantages[i] * torch.clamp(w, 1 - s["clip_range"], 1 + s["clip_range"])
                held = torch.minimum(torch.maximum(v, was - s["clip_range"]), was + s["clip_range"])
                l1, l2 = (v - goal) ** 2, (held - goal) ** 2
                pg.append(torch.maximum(one, two)), vf.append(0.5 * torch.maximum(l1, l2))
                pc.append((two > one).float()), vc.append((l2 > l1).float()), ratios.append(w), entropies.append(entropy)
                apart.append(0.5 * (logp - old[i][0]) ** 2)
            means = [torch.cat(x).mean() for x in (pg, vf, apart, pc, vc, ratios, entropies)]
            for k, m in zip(seen, means):
                seen[k].append(m.item())
            part = (means[0] + s["value_coef"] * means[1]) / ACCUM
            part.backward()
            loss += part.item()
        norms = [torch.nn.utils.clip_grad_norm_([p for _, p in w], CLIP).item() for w in (policy_weights, critic_weights)]
        for o in optimizers:
            o.step()
        mean = lambda x: sum(x) / len(x)
        log.append({"loss": loss, "grad_norm": norms[0], "val/grad_norm": norms[1], "learning_rate": rate, **({"objective/kl": mean(divergences), "objective/non_score_reward": -s["kl_coef"] * mean(divergences)} if s["kl_coef"] else {}), "objective/scores": mean(scores), "objective/rlhf_reward": mean(scores) - s["kl_coef"] * mean(divergences), **{k: mean(v) for k, v in seen.items()}})
    return log


DEFAULTS = {"kl_coef": 0.05, "gamma": 1.0, "gae_lambda": 0.95, "clip_range": 0.2, "value_coef": 0.1, "inner_epochs": 4, "temperature": 1.0}
CASES = {
    "plain": ("qwen3_gqa", "lora", {}),
    "free": ("qwen3_gqa", "lora", {"kl_coef": 0.0, "gamma": 0.97, "gae_lambda": 0.8, "inner_epochs": 1}),
    "tight": ("qwen3_gqa", "lora", {"clip_range": 0.01, "value_coef": 0.5, "inner_epochs": 3}),
    "temperature": ("qwen3_gqa", "lora", {"temperature": 0.7, "inner_epochs": 2}),
    "full": ("llama_mqa", "full", {"inner_epochs": 2}),
    "results": ("qwen3_gqa", "lora", {"inner_epochs": 2}),
}
expected = {}
for name, (model, kind, settings) in CASES.items():
    s = {**DEFAULTS, **settings}
    results = name == "results"
    expected[name] = {"model": model, "kind": kind, "settings": s, **({"rows": "ppo/masked.jsonl"} if results else {}), "steps": run(model, kind, s, rows_of(masked if results else plain))}
    print(name, expected[name]["steps"][-1])
with open(os.path.join(out, "expected.json"), "w") as f:
    json.dump(expected, f, indent=0)

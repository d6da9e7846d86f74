#!/usr/bin/env python3
"""The recipe gsm8k_smollm2_lora beside transformers + peft: one epoch on a part of GSM8K, the same packed rows in the same order, the
same first adapter, optimizer, schedule and clipping. Held-out loss side by side, tokens a second, peak resident memory (VmHWM).

usage: gsm8k_smollm2_lora.py MODEL_HF_FOLDER|random --train train.jsonl --held test.jsonl [--build build/release] [--train-rows 200]
       [--held-rows 40] [--steps N] [--batch 4] [--seq-len 256] [--precision bfloat16] [--eval-every 10] [--threads 2] [--budget 0]
       random = weights drawn anew with SmolLM2-135M's dimensions; --tokenizer FOLDER then says how rows become tokens, or the
       files hold rows {"input_ids": [...], "labels": [...]}
       --budget S = the product probes first, for at most S seconds; 0 = its default kernels
       --peer-rows N = rows of a pass of the peer (default: the whole batch, as transformers' Trainer does)
needs: torch transformers peft (an environment of its own; the product needs no Python)

Rows are packed by the product (`dataset prep`) and read from its shards, which are safetensors files. The peer sees a packed row as
documents that do not attend to each other (a block-diagonal mask, positions that begin anew). Its base is held in --precision, its
adapters in float32, which is peft's default. Both state tokens/s of whole steps without evaluation, median after the first quarter.
Prints one JSON object; exit 1 where a held-out loss differs by more than 1 % or the product needs more memory than the peer."""
import argparse, json, math, os, statistics, subprocess, sys, tempfile, time
from pathlib import Path

SMOLLM2 = dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=1e5, tie_word_embeddings=True)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--train", required=True)
    p.add_argument("--held", required=True)
    p.add_argument("--tokenizer")
    p.add_argument("--build", default="build/release")
    p.add_argument("--train-rows", type=int, default=200)
    p.add_argument("--held-rows", type=int, default=40)
    p.add_argument("--steps", type=int, help="stop after so many steps (default: the whole epoch)")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--seq-len", type=int, default=256)
    p.add_argument("--precision", choices=["bfloat16", "float32"], default="bfloat16")
    p.add_argument("--eval-every", type=int, default=10)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--budget", type=int, default=0)
    p.add_argument("--peer-rows", type=int)
    p.add_argument("--only", choices=["ours", "peer"])
    p.add_argument("--part", help=argparse.SUPPRESS)  # a child's job: what imports torch stands in a process of its own
    return p.parse_args()


def recipe(a, folder):
    """The shipped recipe with the flags in it."""
    import yaml

    r = yaml.safe_load(open(Path(__file__).resolve().parents[2] / "recipes/gsm8k_smollm2_lora.yaml"))
    for part, source, rows in [("train", a.train, a.train_rows), ("held", a.held, a.held_rows)]:
        with open(source) as f, open(f"{folder}/{part}.jsonl", "w") as out:
            out.writelines(line for line, _ in zip(f, range(rows)))
    with open(f"{folder}/train.jsonl") as f:
        tokenized = "input_ids" in json.loads(f.readline())
    r["model"] |= {"name": f"{folder}/model" if a.model == "random" else os.path.abspath(a.model), "torch_dtype": a.precision}
    if a.tokenizer:
        r["model"]["tokenizer"] = os.path.abspath(a.tokenizer)
    r["data"] |= {"path": f"{folder}/train.jsonl", "eval_path": f"{folder}/held.jsonl", "seq_len": a.seq_len, "shuffle": False}
    if tokenized:
        del r["data"]["columns"]
    t = r["train"]
    t["batch"]["per_device"] = a.batch
    t["precision"] = a.precision
    t["method"]["init_adapter"] = f"{folder}/adapter"
    t["eval_every"] = a.eval_every
    if a.steps:
        t["schedule"]["max_steps"] = a.steps
    r["autotune"] = {"enabled": a.budget > 0, "budget_seconds": max(10, a.budget), "plan_path": f"{folder}/plan.json"}
    r["receipt"] = {"output": f"{folder}/receipt.json"}
    json.dump(r, open(f"{folder}/recipe.yaml", "w"), indent=1)  # JSON is YAML
    return r


def prepare(a, folder, r):
    """The random model where one is asked for, and the adapter that both begin with."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    if a.model == "random":
        dtype = getattr(torch, a.precision)
        LlamaForCausalLM(LlamaConfig(**SMOLLM2)).to(dtype).save_pretrained(f"{folder}/model")
    model = adapted(AutoModelForCausalLM.from_pretrained(r["model"]["name"], dtype=torch.float32), r)
    model.save_pretrained(f"{folder}/adapter")


def adapted(model, r):
    from peft import LoraConfig, get_peft_model

    m = r["train"]["method"]
    return get_peft_model(model, LoraConfig(r=m["r"], lora_alpha=m["alpha"], target_modules=m["target_modules"], task_type="CAUSAL_LM"))


def shard_rows(folder, part):
    """[(ids, labels, cu_seqlens)] of the product's shards, in their order."""
    from safetensors.numpy import load_file

    rows = []
    for file in json.load(open(f"{folder}/dataset.json"))[part]["files"]:
        t = load_file(f"{folder}/{file['file']}")
        labels = t.get("labels", t["ids"])
        for i in range(len(t["row_tokens"]) - 1):
            b, e = t["row_tokens"][i:i + 2]
            rows.append((t["ids"][b:e], labels[b:e], t["cu_seqlens"][t["row_cu"][i]:t["row_cu"][i + 1]]))
    return rows


def batch_of(rows):
    """Packed rows as transformers takes them. → input_ids, position_ids, labels, mask (True = attends), tokens, targets"""
    import torch

    T = max(len(ids) for ids, _, _ in rows)
    ids, position, labels = (torch.zeros(len(rows), T, dtype=torch.long) for _ in range(3))
    labels.fill_(-100)
    document = torch.full((len(rows), T), -1)
    for i, (x, y, cu) in enumerate(rows):
        n = len(x)
        ids[i, :n], labels[i, :n] = torch.from_numpy(x).long(), torch.from_numpy(y).long()
        for d, (b, e) in enumerate(zip(cu[:-1], cu[1:])):
            position[i, b:e], document[i, b:e] = torch.arange(e - b), d
            labels[i, b] = -100  # no document predicts the next one's first token
    mask = (document[:, :, None] == document[:, None, :]) & torch.ones(T, T, dtype=torch.bool).tril()
    return ids, position, labels, mask[:, None], sum(len(x) for x, _, _ in rows), int((labels != -100).sum())


def learning_rate(r, step, steps):
    s = r["train"]["schedule"]
    warm = round(s["warmup_ratio"] * steps)
    return r["train"]["optimizer"]["lr"] * ((step + 1) / warm if step < warm else (1 + math.cos(math.pi * (step - warm) / (steps - warm))) / 2)


def peer(a, folder, r):
    import torch
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(a.threads)
    model = AutoModelForCausalLM.from_pretrained(r["model"]["name"], dtype=getattr(torch, a.precision), attn_implementation="sdpa")
    model.config.use_cache = False
    model = adapted(model, r)
    unknown = set_peft_model_state_dict(model, load_file(f"{folder}/adapter/adapter_model.safetensors")).unexpected_keys
    if unknown:
        sys.exit(f"peft does not know {unknown[:3]}")
    model.train()
    o = r["train"]["optimizer"]
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=o["lr"], betas=o.get("betas", (0.9, 0.95)), eps=o.get("eps", 1e-8), weight_decay=o.get("weight_decay", 0.1))
    train, held = shard_rows(f"{folder}/data", "train"), shard_rows(f"{folder}/data", "eval")
    in_pass = a.peer_rows or a.batch
    steps = a.steps or math.ceil(len(train) / a.batch)

    def loss_sum(rows):
        ids, position, labels, mask, _, _ = batch_of(rows)
        return model(input_ids=ids, position_ids=position, attention_mask=mask, labels=labels, num_items_in_batch=1).loss  # a sum over targets

    def held_out():
        with torch.no_grad():
            parts = [held[i:i + in_pass] for i in range(0, len(held), in_pass)]
            return sum(float(loss_sum(p)) for p in parts) / sum(batch_of(p)[5] for p in parts)

    curve, losses, speed = {0: held_out()}, [], []
    for step in range(steps):
        first = step % math.ceil(len(train) / a.batch) * a.batch  # an epoch's last batch may be short
        rows = train[first:first + a.batch]
        begin = time.time()
        _, _, _, _, tokens, targets = batch_of(rows)
        loss = 0.0
        for i in range(0, len(rows), in_pass):
            part = loss_sum(rows[i:i + in_pass]) / targets
            part.backward()
            loss += float(part.detach())
        torch.nn.utils.clip_grad_norm_(trained, o.get("grad_clip", 1.0))
        for g in optimizer.param_groups:
            g["lr"] = learning_rate(r, step, steps)
        optimizer.step()
        optimizer.zero_grad()
        speed.append(tokens / (time.time() - begin))
        losses.append(loss)
        if (step + 1) % a.eval_every == 0 or step + 1 == steps:
            curve[step + 1] = held_out()
        print(f"peer: step {step + 1}/{steps} loss {loss:.4f} {speed[-1]:.0f} tok/s", file=sys.stderr)
    hwm = next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmHWM"))
    json.dump({"held_out": curve, "loss": losses, "tok_s": statistics.median(speed[len(speed) // 4:]), "vm_hwm_bytes": hwm, "rows_in_a_pass": in_pass}, open(f"{folder}/peer.json", "w"))


def ours(a, folder):
    binary = f"{a.build}/apps/mindxtrain/mindxtrain"
    plan = []
    if a.budget == 0:
        subprocess.run([binary, "--quiet", "bench", "--dry-run", "--config", f"{folder}/recipe.yaml", "--out", f"{folder}/plan.json", "--threads", str(a.threads)], check=True, stdout=subprocess.DEVNULL)
        plan = ["--plan", f"{folder}/plan.json"]
    subprocess.run([binary, "train", f"{folder}/recipe.yaml", "--out", f"{folder}/out", "--data", f"{folder}/data", "--threads", str(a.threads)] + plan, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(l) for l in open(f"{folder}/out/metrics.jsonl")]
    choices = json.load(open(f"{folder}/out/plan.json"))["choices"]
    return {"held_out": {str(m["step"]): m["eval_loss"] for m in rows if m.get("eval_loss") is not None}, "loss": [m["loss"] for m in rows], "tok_s": statistics.median(m["tok_s"] for m in rows[len(rows) // 4:]),
            "vm_hwm_bytes": rows[-1]["peak_memory_bytes"], "rows_in_a_pass": int(choices["step micro_batch"]), "recompute": choices["step recompute"]}


def main():
    a = arguments()
    if a.part:
        folder = a.part.split(":", 1)[1]
        r = json.load(open(f"{folder}/recipe.yaml"))
        return prepare(a, folder, r) if a.part.startswith("prepare:") else peer(a, folder, r)
    with tempfile.TemporaryDirectory() as folder:
        recipe(a, folder)
        child = lambda part: subprocess.run([sys.executable, "-W", "ignore", __file__] + sys.argv[1:] + ["--part", f"{part}:{folder}"], check=True)
        child("prepare")
        subprocess.run([f"{a.build}/apps/mindxtrain/mindxtrain", "--quiet", "dataset", "prep", f"{folder}/recipe.yaml", "--out", f"{folder}/data"], check=True, stdout=subprocess.DEVNULL)
        data = json.load(open(f"{folder}/data/dataset.json"))
        out = {"what": f"gsm8k_smollm2_lora: {a.train_rows} rows of GSM8K in {data['train']['rows']} packed rows of {a.seq_len} tokens, {a.batch} a step, {a.precision}", "model": "random weights" if a.model == "random" else Path(a.model).name,
               "threads": a.threads, "tokens": data["train"]["tokens"], "targets": data["train"]["targets"], "held_out_targets": data["eval"]["targets"]}
        if a.only != "peer":
            out["ours"] = ours(a, folder)
        if a.only != "ours":
            child("peer")
            out["peer"] = json.load(open(f"{folder}/peer.json"))
    bad = False
    if "ours" in out and "peer" in out:
        u, p = out["ours"], out["peer"]
        print(f"{'step':>6}{'ours':>10}{'peer':>10}{'differs':>10}   held-out loss")
        worst = 0.0
        for step, loss in p["held_out"].items():
            mine = u["held_out"].get(step)
            worst = max(worst, abs(mine / loss - 1) if mine else 0)
            print(f"{step:>6}{'' if mine is None else format(mine, '10.4f'):>10}{loss:10.4f}" + (f"{100 * (mine / loss - 1):9.2f}%" if mine else ""))
        out |= {"times_faster": round(u["tok_s"] / p["tok_s"], 2), "memory_of_peer": round(u["vm_hwm_bytes"] / p["vm_hwm_bytes"], 3), "held_out_differs_by": round(worst, 5)}
        print(f"{u['tok_s']:.0f} tok/s and {u['vm_hwm_bytes'] / 1e6:.0f} MB; peer {p['tok_s']:.0f} tok/s and {p['vm_hwm_bytes'] / 1e6:.0f} MB: {out['times_faster']} times the speed, {out['memory_of_peer']} of the memory")
        bad = worst > 0.01 or out["memory_of_peer"] >= 1
    print(json.dumps(out))
    sys.exit(bad)


if __name__ == "__main__":
    main()

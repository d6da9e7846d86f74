#!/usr/bin/env python3
"""The recipes orpo, dpo, kto and grpo of SmolLM2 for two cores beside TRL, in one sitting: CPU seconds of training and what the held-out
requests are answered.

usage: methods.py MODEL.gguf [--recipes orpo_smollm2_cpu,dpo_smollm2_cpu,kto_smollm2_cpu,grpo_arithmetic_smollm2_cpu]
       [--build build/release] [--threads 2] [--only ours|trl]
needs for TRL: torch transformers peft trl datasets gguf (an environment of its own; the product needs no Python)

The rows are the product's (`dataset synth`), and so is the adapter that DPO and KTO start from; rank, alpha, rate, schedule, batch and
steps are the recipe's. TRL computes in bfloat16 with an adapter in float32, without gradient checkpointing. Counted are user and system
seconds of each side's training process (the product's with its data and its two evaluations left out, as `train` alone is timed). The
cores must be quiet: threads of either side spin while they wait for each other, PyTorch's the more.
Prints one JSON object."""
import argparse, json, os, re, resource, subprocess, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def timed(command, **kwargs):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, **kwargs)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ours(a, name, folder):
    import yaml

    r = yaml.safe_load((ROOT / f"recipes/{name}.yaml").read_text())
    r["model"]["name"] = os.path.abspath(a.model)
    lora = r["train"]["method"]["lora"]
    start = lora.get("init_adapter", "")
    if start.startswith("recipe:"):
        first = yaml.safe_load((ROOT / f"recipes/{start[7:]}.yaml").read_text())
        first["model"]["name"] = r["model"]["name"]
        json.dump(first, open(f"{folder}/first.yaml", "w"))
        timed([a.program, "train", f"{folder}/first.yaml", "--out", f"{folder}/first", "--threads", str(a.threads)])
        lora["init_adapter"] = f"{folder}/first/checkpoint"
    json.dump(r, open(f"{folder}/r.yaml", "w"))
    _, seconds = timed([a.program, "train", f"{folder}/r.yaml", "--out", f"{folder}/ours", "--threads", str(a.threads)])
    return r, seconds


def answers(a, r, adapter):
    """Held-out requests that the product answers with an adapter: so both sides are asked alike."""
    with tempfile.TemporaryDirectory() as out:
        text, _ = timed([a.program, "eval", "--model", a.model, "--adapter", adapter, "--config", a.recipe, "--out", out])
    return {k: v for k, v in json.loads(text).items() if k in ("exact_match", "sampled")}


def trl(a):
    """In a process of its own: trains and saves the adapter."""
    import torch
    from datasets import load_dataset
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    torch.set_num_threads(a.threads)
    r = json.load(open(f"{a.part}/r.yaml"))
    t, m = r["train"], r["train"]["method"]
    folder, file = os.path.split(os.path.abspath(a.model))
    tok = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    # Widened: products over the file's own blocks would cost it several times as much.
    base = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True))
    base.is_quantized = False  # it still refuses to train what it has widened
    lora, steps = m["lora"], t["schedule"].get("max_steps", -1)
    linears = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    if "init_adapter" in lora:
        model = PeftModel.from_pretrained(base, lora["init_adapter"], is_trainable=True)
    else:
        model = get_peft_model(base, LoraConfig(r=lora["r"], lora_alpha=lora["alpha"], target_modules=linears, task_type="CAUSAL_LM"))
    for n, p in model.named_parameters():
        if p.requires_grad:
            p.data = p.data.float()
    rows = load_dataset("json", data_files=f"{a.part}/rows.jsonl", split="train")
    common = dict(output_dir=f"{a.part}/trl", per_device_train_batch_size=t["batch"]["per_device"], learning_rate=t["optimizer"]["lr"], lr_scheduler_type=t["schedule"]["type"], warmup_steps=t["schedule"]["warmup_ratio"], num_train_epochs=1, max_steps=steps, weight_decay=t["optimizer"]["weight_decay"], adam_beta1=0.9, adam_beta2=0.95, report_to=[], save_strategy="no", bf16=True, gradient_checkpointing=False, use_cpu=True, seed=3)
    kind = m["kind"]
    if kind == "grpo":
        from trl import GRPOConfig, GRPOTrainer

        last = lambda text: (re.findall(r"\d+", text) or [""])[-1]
        rows = rows.map(lambda x: {"prompt": x["messages"][:-1], "answer": x["messages"][-1]["content"]}, remove_columns="messages")
        reward = lambda completions, answer, **_: [float(last(c[0]["content"]) == w) for c, w in zip(completions, answer)]
        trainer = GRPOTrainer(model=model, reward_funcs=reward, args=GRPOConfig(num_generations=m["num_generations"], max_completion_length=m["max_new_tokens"], beta=m["kl_coef"], **common), train_dataset=rows, processing_class=tok)
    else:
        if kind == "orpo":
            from trl.experimental.orpo import ORPOConfig as Config, ORPOTrainer as Trainer
        elif kind == "dpo":
            from trl import DPOConfig as Config, DPOTrainer as Trainer
        else:
            from trl import KTOConfig as Config, KTOTrainer as Trainer
        trainer = Trainer(model=model, args=Config(beta=m["beta"], max_length=r["data"]["seq_len"], **common), train_dataset=rows, processing_class=tok)
    trainer.train()
    model.save_pretrained(f"{a.part}/trl/adapter")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--recipes", default="orpo_smollm2_cpu,dpo_smollm2_cpu,kto_smollm2_cpu,grpo_arithmetic_smollm2_cpu")
    p.add_argument("--build", default="build/release")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only", choices=["ours", "trl"])
    p.add_argument("--part", help=argparse.SUPPRESS)  # a child's job: what imports torch stands in a process of its own
    a = p.parse_args()
    if a.part:
        return trl(a)
    a.program = os.path.abspath(f"{a.build}/apps/mindxtrain/mindxtrain")
    report = {}
    for name in a.recipes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            a.recipe = f"{folder}/r.yaml"
            r, seconds = ours(a, name, folder)
            one = report[name] = {"ours": {"cpu_seconds": round(seconds, 1), **answers(a, r, f"{folder}/ours/checkpoint")}}
            if a.only != "ours":
                s = r["data"]["synth"]
                timed([a.program, "dataset", "synth", s["task"], "--rows", str(s["rows"]), "--seed", str(r["meta"]["seed"]), "--out", f"{folder}/rows.jsonl"])
                _, seconds = timed([sys.executable, __file__, a.model, "--part", folder, "--threads", str(a.threads)])
                one["trl"] = {"cpu_seconds": round(seconds, 1), **answers(a, r, f"{folder}/trl/adapter")}
                one["times_as_fast"] = round(one["trl"]["cpu_seconds"] / one["ours"]["cpu_seconds"], 2)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

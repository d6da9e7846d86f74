#!/usr/bin/env python3
"""Probes each CPU recipe twice and compares: equal choices, seconds within `autotune.budget_seconds`, and the gain over the default
choices, measured by the probe's own check (the planned step beside the default one, in turn). The recipe whose device is a GPU is probed on the
CPU with its own dimensions, and random weights where its model is not given (a probe depends on shapes alone).

usage: two_probes.py [--binary build/release/apps/mindxtrain/mindxtrain] [--gguf weights/SmolLM2-135M-Instruct.gguf] [--data ../shared/data]
                     [--threads N] [--only NAME] [--probes 2] [--keep FOLDER] [--alone "COMMAND"]
--alone: a command that runs the one behind it with nothing else on the machine.
needs: PyYAML
Prints one line a recipe and one JSON object; exit 1 where choices differ, a budget is passed or the plan is slower by more than noise."""
import argparse, json, os, shlex, subprocess, sys, tempfile

import yaml

p = argparse.ArgumentParser()
p.add_argument("--binary", default="build/release/apps/mindxtrain/mindxtrain")
p.add_argument("--gguf", default="weights/SmolLM2-135M-Instruct.gguf")
p.add_argument("--data", default="../shared/data")
p.add_argument("--threads", type=int, default=0, help="0: the probe asks")
p.add_argument("--only", default="")
p.add_argument("--probes", type=int, default=2)
p.add_argument("--keep", default="", help="folder for the plans")
p.add_argument("--alone", default="")
a = p.parse_args()
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QWEN = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
            num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1000000, tie_word_embeddings=True, hidden_act="silu")
RECIPES = ["quickstart_cpu", "shakespeare_char", "gsm8k_smollm2_lora", "gsm8k_qwen3_0_6b_lora"]


def on_this_machine(name):
    """The recipe with its paths here; nothing that a probe asks about is changed."""
    r = yaml.safe_load(open(f"{ROOT}/recipes/{name}.yaml"))
    r["hardware"] = {"name": "cpu"}
    if r["model"]["name"].endswith(".gguf"):
        r["model"]["name"] = os.path.abspath(a.gguf)
    elif r["model"].get("init") != "random":
        r["model"] |= {"init": "random", "config": QWEN}
    if "path" in r["data"]:
        r["data"]["path"] = os.path.join(os.path.abspath(a.data), r["data"]["path"].removeprefix("../shared/data/"))
    return r


def probe(recipe_file, plan_file):
    env = dict(os.environ)
    env.pop("OMP_NUM_THREADS", None)
    command = shlex.split(a.alone) + [os.path.abspath(a.binary), "--quiet", "bench", "--config", recipe_file, "--out", plan_file] + (["--threads", str(a.threads)] if a.threads else [])
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"{recipe_file}: exit {done.returncode}: {done.stderr.strip()}")
    return json.load(open(plan_file))


def gain(plan):
    """Of the whole step, and half of what its samples spread; None where the budget was too short to measure it."""
    step = {c["algorithm"]: c for c in plan["candidates"].get("step", [])}
    if not step:
        return None, None
    return step["default"]["median_us"] / step["planned"]["median_us"] - 1, step["planned"]["spread_us"] / step["planned"]["median_us"] / 2


results, bad = {}, 0
with tempfile.TemporaryDirectory() as folder:
    keep = os.path.abspath(a.keep) if a.keep else folder
    os.makedirs(keep, exist_ok=True)
    for name in RECIPES:
        if a.only not in name:
            continue
        recipe = on_this_machine(name)
        json.dump(recipe, open(f"{folder}/{name}.yaml", "w"))
        plans = [probe(f"{folder}/{name}.yaml", f"{keep}/{name}.{i}.json") for i in range(a.probes)]
        keys = sorted(set().union(*(x["choices"] for x in plans)))
        differ = {k: [x["choices"].get(k) for x in plans] for k in keys if len({x["choices"].get(k) for x in plans}) > 1}
        asked = sum(any(c["median_us"] > 0 for c in plans[0]["candidates"].get(k, [])) for k in keys)
        gains = [gain(x) for x in plans]
        budget = recipe["autotune"]["budget_seconds"]
        wrong = bool(differ) or any(x["budget_s"] > budget for x in plans) or any(g is None or g < -max(0.05, e) for g, e in gains)
        bad += wrong
        results[name] = {"choices": len(keys), "measured": asked, "equal": len(keys) - len(differ), "differ": differ, "probe_seconds": [round(x["budget_s"], 1) for x in plans],
                         "budget_s": budget, "gain_percent": [None if g is None else round(100 * g, 1) for g, _ in gains],
                         "not_default": {k: v for k, v in plans[0]["choices"].items() if k in plans[0]["candidates"] and v != plans[0]["candidates"][k][0]["algorithm"]}}
        x = results[name]
        print(f"{name:<24} {x['equal']} of {x['choices']} choices equal, {x['measured']} measured, {x['probe_seconds']} s of {budget}, gain {x['gain_percent']} %" + (f"  DIFFER {differ}" if differ else ""), flush=True)
print(json.dumps({"what": f"{a.probes} probes of each CPU recipe", "recipes": results}))
sys.exit(bad > 0)

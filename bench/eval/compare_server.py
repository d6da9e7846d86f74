#!/usr/bin/env python3
"""lm-evaluation-harness over HTTP (`--model local-completions`) against `mindxtrain serve`, beside its own `hf` model on the same folder.

  bench/eval/compare_server.py --binary build/release/apps/mindxtrain/mindxtrain --model DIR --gsm8k DIR --text FILE --out DIR

Needs lm_eval[api], torch, transformers, datasets. Rows and task files are compare_lm_eval.py's (its oracle.json in --out is used where it is there).
Exit code 1 where a score differs by more than 1e-3 (of the value for perplexities), or between batch sizes at all.
"""
import argparse, json, os, socket, subprocess, sys, time, urllib.request
from pathlib import Path

from compare_lm_eval import TASKS, Kept, Oracle, copy_tasks, make_data, oracle_settings

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--binary", required=True), p.add_argument("--model", required=True), p.add_argument("--gsm8k", required=True), p.add_argument("--text", required=True), p.add_argument("--out", required=True)
p.add_argument("--tasks", default="arc_easy,lambada_openai,winogrande"), p.add_argument("--batch-sizes", default="1,8"), p.add_argument("--threads", type=int, default=2), p.add_argument("--bootstrap", type=int, default=100)
a = p.parse_args()
a.binary, a.model, a.gsm8k, a.text = (os.path.abspath(x) for x in (a.binary, a.model, a.gsm8k, a.text))
work = Path(a.out).absolute()
work.mkdir(parents=True, exist_ok=True)
a.humaneval, a.chat, a.max_gen_toks = None, False, None
make_data(work / "data", a.gsm8k, a.text, a.humaneval)
copy_tasks(work / "tasks", a.max_gen_toks)
tasks = a.tasks.split(",")
kept = Kept(work, "oracle", oracle_settings(a))
model = Oracle(a, work)
oracle = {t: kept.get(t, lambda: model.run(t)) for t in tasks}

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", DISABLE_MULTIPROC="1", HF_DATASETS_CACHE=str(work / "hf_cache"), OPENAI_API_KEY="unused")
os.chdir(work / "data")
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
server = subprocess.Popen([a.binary, "serve", "--model", a.model, "--port", str(port), "--dtype", "float32", "--threads", str(a.threads)])
try:
    url = f"http://127.0.0.1:{port}"
    for _ in range(240):
        try:
            name = json.load(urllib.request.urlopen(f"{url}/v1/models", timeout=5))["data"][0]["id"]
            break
        except OSError:
            time.sleep(0.5)
    scores = {}
    for batch in (int(b) for b in a.batch_sizes.split(",")):
        manager = TaskManager(include_path=str(work / "tasks"), include_defaults=False)
        for task in tasks:
            limit, shots = TASKS[task]
            r = simple_evaluate(model="local-completions", model_args={"model": name, "base_url": f"{url}/v1/completions", "tokenizer": a.model, "tokenizer_backend": "huggingface", "num_concurrent": 1, "max_length": 2048},
                                batch_size=batch, tasks=[task], num_fewshot=shots, limit=limit, task_manager=manager, bootstrap_iters=a.bootstrap)
            scores[batch, task] = {k: v for k, v in r["results"][task].items() if "," in k and "_stderr" not in k}
finally:
    server.terminate()
    server.wait()

bad, first = 0, int(a.batch_sizes.split(",")[0])
for (batch, task), got in scores.items():
    for key, value in got.items():
        want = oracle[task]["results"][task][key]
        ok = abs(value - want) <= 1e-3 * max(1.0, abs(want)) and value == scores[first, task][key]
        bad += not ok
        print(f"batch {batch:3} {task:16} {key:22} {value:12.6f}  lm-eval hf {want:12.6f} {'' if ok else 'DIFFERS'}")
print("equal" if not bad else f"{bad} differences")
sys.exit(bool(bad))

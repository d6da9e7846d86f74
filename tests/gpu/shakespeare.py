"""What a run of recipes/shakespeare_char_gpu.yaml came to: its best validation loss, which must be 1.48 at most, and its speed.

usage: shakespeare.py RUN_FOLDER
"""
import json
import pathlib
import sys

steps = [json.loads(line) for line in (pathlib.Path(sys.argv[1]) / "metrics.jsonl").read_text().splitlines()]
evals = {s["step"]: s["eval_loss"] for s in steps if "eval_loss" in s}
best = min(evals, key=evals.get)
speeds = sorted(s["tok_s"] for s in steps)
print(json.dumps({"steps": steps[-1]["step"], "best_eval_loss": evals[best], "at_step": best, "last_eval_loss": evals[max(evals)], "median_tok_s": round(speeds[len(speeds) // 2]), "eval_losses": {k: round(v, 4) for k, v in evals.items()}}))
sys.exit(0 if evals[best] <= 1.48 else 1)

#!/usr/bin/env python3
"""A small CORE bundle and what nanochat's own core_eval.py makes of it, for tests/eval/core_test.cc: core.py NANOCHAT_CHECKOUT

Tokens are bytes behind a BOS (256); the model is a formula that the test has too. Needs torch and jinja2.
"""
import json
import pathlib
import random
import sys

sys.path.insert(0, sys.argv[1])
import torch  # noqa: E402
from nanochat import core_eval  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/core"
VOCAB = 257
WORDS = "a cat dog sat on the mat red blue sky is high low sun moon ran far home tree leaf river cold warm".split()


class Bytes:
    def get_bos_token_id(self):
        return 256

    def __call__(self, texts, prepend):
        return [[prepend, *t.encode()] for t in texts]


def model(ids):
    """logits [B, T, V]: whole quarters of a formula in token, candidate and place; only letters and the space are likely."""
    t = torch.arange(ids.shape[1])[None, :, None]
    v = torch.arange(VOCAB)[None, None, :]
    x = ids[:, :, None]
    logits = ((x * 31 + v * 17 + t * 7 + (x * v + t) % 13) % 29).float() * 0.25
    letters = ((v >= 97) & (v <= 122)) | (v == 32)
    return logits + torch.where(letters, 0.0, -8.0)


def words(rng, low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def predicted_item(rng):
    """A context after which the model itself writes a space and some letters."""
    while True:
        text = words(rng, 2, 6)
        ids = [256, *text.encode()]
        for _ in range(4):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
        if ids[-4] == 32 and 32 not in ids[-3:]:
            return {"context": rng.choice(["", " ", "\n"]) + text + rng.choice(["", "  "]), "continuation": bytes(ids[-3:]).decode()}


def items(kind, rng, n):
    for _ in range(n):
        if kind == "multiple_choice":
            stem = words(rng, 2, 5)
            choices = [words(rng, 1, 3) for _ in range(rng.randint(2, 4))]
            if rng.random() < 0.2:
                choices[1] = choices[0] + " too"  # one begins with the other: nothing of the first is scored
            yield {"query": "Question: " + stem, "choices": choices, "gold": rng.randrange(len(choices))}
        elif kind == "schema":
            yield {"context_options": [words(rng, 1, 4) for _ in range(2)], "continuation": "é " + words(rng, 2, 4), "gold": rng.randrange(2)}
        else:
            yield predicted_item(rng) if rng.random() < 0.5 else {"context": words(rng, 2, 5) + " ", "continuation": words(rng, 1, 2)}


TASKS = [
    {"label": "tiny_choice", "dataset_uri": "symbolic/tiny_choice.jsonl", "num_fewshot": [10], "icl_task_type": "multiple_choice", "continuation_delimiter": "\nAnswer: "},
    {"label": "tiny_schema", "dataset_uri": "tiny_schema.jsonl", "num_fewshot": [0], "icl_task_type": "schema"},
    {"label": "tiny_words", "dataset_uri": "tiny_words.jsonl", "num_fewshot": [0], "icl_task_type": "language_modeling"},
    {"label": "tiny_words_shots", "dataset_uri": "tiny_words.jsonl", "num_fewshot": [3], "icl_task_type": "language_modeling"},
]
BASELINES = {"tiny_choice": 33.3, "tiny_schema": 50, "tiny_words": 0, "tiny_words_shots": 0}


def write_bundle():
    rng = random.Random(7)
    for task in {t["dataset_uri"]: t for t in TASKS}.values():
        path = OUT / "bundle/eval_data" / task["dataset_uri"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(x, ensure_ascii=False) + "\n" for x in items(task["icl_task_type"], rng, 40)))
    lines = ["icl_tasks:"]
    for t in TASKS:
        lines += ["-"] + [f"  {k}: {json.dumps(v)}" for k, v in t.items()]
    (OUT / "bundle/core.yaml").write_text("\n".join(lines) + "\n")
    rows = [f'"{k}",language,"said, so",{v}' for k, v in BASELINES.items()]
    (OUT / "bundle/eval_meta_data.csv").write_text("\n".join(["Eval Task,Task Category,Description,Random baseline", *rows, "another,language,,"]) + "\n")


def evaluate(limit):
    tokenizer, out = Bytes(), {"limit": limit, "results": {}, "centered_results": {}, "tasks": {}}
    for t in TASKS:
        meta = {"task_type": t["icl_task_type"], "dataset_uri": t["dataset_uri"], "num_fewshot": t["num_fewshot"][0], "continuation_delimiter": t.get("continuation_delimiter", " ")}
        data = [json.loads(line.strip()) for line in open(OUT / "bundle/eval_data" / t["dataset_uri"], encoding="utf-8")]
        random.Random(1337).shuffle(data)
        data = data[:limit] if limit > 0 else data
        seen = []
        for i in range(len(data)):
            prompts = []
            originals = {k: getattr(core_eval, k) for k in ("render_prompts_mc", "render_prompts_schema", "render_prompts_lm")}
            for k, f in originals.items():
                setattr(core_eval, k, lambda *a, f=f: prompts.extend(f(*a)) or prompts)
            right = core_eval.evaluate_example(i, model, tokenizer, data, "cpu", meta)
            for k, f in originals.items():
                setattr(core_eval, k, f)
            seen.append({"prompts": prompts, "correct": bool(right)})
        accuracy = core_eval.evaluate_task(model, tokenizer, data, "cpu", meta)
        b = 0.01 * BASELINES[t["label"]]
        out["results"][t["label"]], out["centered_results"][t["label"]], out["tasks"][t["label"]] = accuracy, (accuracy - b) / (1 - b), seen
    out["core_metric"] = sum(out["centered_results"].values()) / len(TASKS)
    return out


def main():
    write_bundle()
    # Prompts of the whole bundle are long: of the first run all, of the second the verdicts alone.
    first, second = evaluate(14), evaluate(0)
    for task in second["tasks"].values():
        for item in task:
            del item["prompts"]
    (OUT / "core.json").write_text(json.dumps([first, second], ensure_ascii=False, separators=(",", ":")) + "\n")
    print(first["results"], second["results"], second["core_metric"])


main()

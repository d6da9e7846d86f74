#!/usr/bin/env python3
"""Writes tests/golden/eval: what lm-evaluation-harness makes of small tasks, filters, metrics and draws.

  python tools/golden/eval.py        (needs lm_eval; run from the repository root)
data/quiz: the documents. python.json: draws, literals, windows. requests.json: of each task in tasks/, contexts, continuations and hashes.
filters.json, metrics.json: inputs and results. templates.json: as the harness renders them.
"""
import ast
import json
import os
import random
from pathlib import Path

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", DISABLE_MULTIPROC="1")
import numpy as np
from lm_eval import utils
from lm_eval.api import metrics
from lm_eval.filters import build_filter_ensemble
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

OUT = Path("tests/golden/eval").absolute()


def dump(name, value):
    (OUT / name).write_text(json.dumps(value, indent=1, ensure_ascii=False, default=lambda o: o.item()) + "\n")


def documents():
    rng = random.Random(3)
    for split, n in [("train", 40), ("test", 9)]:
        rows = []
        for i in range(n):
            a, b = rng.randrange(2, 40), rng.randrange(2, 40)
            row = {"question": f"How much is {a} plus {b}, as “Zoë” says?" if i % 4 == 0 else f"{a} + {b} =", "right": str(a + b), "wrong": str(a * b), "other": f"{a}{b} é", "weights": [0.5, 1e-7, 1e22, None], "odd": {"x": True, "y": []}}
            if i % 5 == 1:
                row["extra"] = "seldom"
            rows.append(row)
        rows[-1] = dict(rows[0])  # twice
        path = OUT / f"data/quiz/{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))


def python_values():
    draws = []
    for seed in (0, 1, 1234, 2**31, 987654321987):
        r = random.Random(seed)
        calls = [[n, k, r.sample(range(n), k)] for n, k in [(10, 3), (1000, 5), (1000, 6), (90, 6), (84, 6), (85, 6), (5, 5), (7473, 8), (100000, 25)]]
        draws.append({"seed": seed, "sample": calls, "choices": r.choices(range(97), k=12), "random": [r.random() for _ in range(3)]})
    literals = []
    for text in ["['a', \"b'c\", 'd\\n\\x41\\u00e9']", "[1, -2.5, 3e5, True, None]", "(1,)", "(1, 'x')", "('x')", "{'a': [1, 2], 'b': {}}", "[]", "12", "012", "1_000", "'a' 'b'", "['a' 'b', ]", "x", "[1, 2", "[1 2]", "1, 2", "  [1]", "r'\\n'", "''", "[a]", "-7", "{1, 2}"]:
        try:
            v = ast.literal_eval(text)
            v = sorted(v) if isinstance(v, set) else v
            literals.append([text, v, str(v if not isinstance(v, tuple) else list(v))])
        except (SyntaxError, ValueError, IndentationError):
            literals.append([text])
    windows = []
    for n, size in [(1, 4), (4, 4), (5, 4), (9, 4), (12, 4), (11, 5), (3, 8), (20, 7)]:
        w = map(utils.make_disjoint_window, utils.get_rolling_token_windows(list(range(100, 100 + n)), 7, size, 1))
        windows.append({"tokens": n, "max": size, "windows": list(w)})
    dump("python.json", {"draws": draws, "literals": literals, "windows": windows})


def templates():
    doc = {"question": "What is 2+2?", "choices": {"text": ["a", "b\n"], "label": ["A", "B"]}, "answerKey": "B", "n": 3, "xs": [1, 2.0, None, True], "s": " pad ", "nested": [{"k": "v'\""}]}
    out = []
    for t in ["{{question}}\n", "{{choices.label.index(answerKey)}}", "{{choices.text}}", "{{xs}}", "{{s}}|{{s.strip()}}|{{s|trim}}", "{% for c in choices.text %}\n- {{c}}\n{% endfor %}\n", "  {% if n > 2 %}yes{% else %}no{% endif %}\n\n",
              "{{missing}}", "{{missing is defined}}", "{{missing|default('d')}}", "{% if missing %}x{% endif %}", "{{missing.x}}", "{{question|regex_replace('[0-9]', '#')}}", "{{question|regex_replace('(W)h(at)', '\\\\2-\\\\1', 1)}}", "{{n / 2}} {{n // 2}} {{n % 2}} {{-n}}",
              "{{[question, s]}}", "{{nested[0].k}}", "{{nested}}", "{{'%s-%d' % ('a', 3)}}", "{{choices['text'][0] ~ n}}", "{%- set x = 3 -%} {{x}}", "{{question.split(' ')[:-1]|join(' ')}}", "{{' '+question.split(' ')[-1]}}", "{{nested|length}}", "{{xs|join(',')}}", "{{question == missing}}", "{% for x in missing %}{% endfor %}", "{{question[::-1]}}", "{{question.lower().replace('what','WHAT')}}", "{# note #}\na\n", "{{choices|tojson}}", "{{nested|tojson}}", "{{['日本', '<a&b>', xs]|tojson(2)}}"]:
        try:
            out.append([t, utils.apply_template(t, doc)])
        except Exception:
            out.append([t, None])
    dump("templates.json", {"doc": doc, "cases": out})


def filters():
    docs = [{"choices": ["Paris", "Paris, Texas", "Rome", "x+y"]}]
    cases = []
    texts = ["The answer is #### 1,234.", "no number", "a 3 b 4.5 c $6,000.", "(B) Paris, Texas", "It is: C", "rome!", "  padded \n", "", "ΑΣ", "#### -7 #### 8"]
    chains = [[["regex", {}]], [["regex", {"regex_pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)", "group_select": -1}]], [["regex", {"regex_pattern": "(-?[0-9.,]+)", "fallback": "none"}], ["take_first", {}]],
              [["remove_whitespace", {}], ["take_first", {}]], [["lowercase", {}], ["majority_vote", {}], ["take_first", {}]], [["uppercase", {}]], [["map", {"mapping_dict": {"rome!": "R"}, "default_value": "other"}]], [["take_first_k", {"k": 2}]],
              [["regex", {"regex_pattern": "(a )?(b )?"}]], [["regex", {"regex_pattern": "x*"}]], [["multi_choice_regex", {"regex_pattern": "(\\([A-Z]\\))", "group_select": 0, "ignore_case": True, "ignore_punctuation": True}], ["take_first", {}]],
              [["multi_choice_regex", {"regex_pattern": "ZZZ", "regexes_to_ignore": ["!"]}]]]
    for chain in chains:
        for i in range(0, len(texts), 2):
            resps = [texts[i], texts[(i + 1) % len(texts)], texts[i]]
            inst = Instance(request_type="generate_until", doc=docs[0], arguments=("", {}), idx=0, metadata=("t", 0, 1))
            inst.resps = list(resps)
            build_filter_ensemble("f", chain).apply([inst])
            got = inst.filtered_resps["f"]
            cases.append({"filter": [{"function": f, **kw} for f, kw in chain], "responses": resps, "result": got})
    dump("filters.json", {"doc": docs[0], "cases": cases})


def metric_values():
    rng = random.Random(11)
    exact = []
    for pred, ref, kw in [("A", "a", {"ignore_case": True}), ("A", "a", {}), ("1,000", "1000", {"regexes_to_ignore": [","]}), ("x.", "x", {"ignore_punctuation": True}), ("x1", "x2", {"ignore_numbers": True}), ("$5.", "5", {"regexes_to_ignore": ["\\$", "\\.$"]}), ("a\n#### 5", "5", {"regexes_to_ignore": ["(?s).*#### "]}), ("", "", {}), (" a", "a", {}), ("É", "é", {"ignore_case": True})]:
        exact.append([pred, ref, kw, float(metrics.exact_match_hf_evaluate([pred], [ref], **kw)["exact_match"])])
    single = [rng.choice([0, 1, 0.5, 0.25]) for _ in range(23)]
    lls = [-rng.random() * 9 for _ in range(23)]
    pairs = [[rng.randrange(2), rng.randrange(2)] for _ in range(31)]
    classes = [[rng.randrange(4), rng.randrange(4)] for _ in range(31)]
    weighted = [[-rng.random() * 900, rng.randrange(10, 400)] for _ in range(13)]
    brier = [[rng.randrange(3), (p := [rng.random() for _ in range(3)], [x / sum(p) for x in p])[1]] for _ in range(9)]
    agg = []
    for name, items, fn in [("mean", single, metrics.mean), ("median", lls, metrics.median), ("perplexity", lls, metrics.perplexity), ("f1", pairs, metrics.f1_score), ("matthews_corrcoef", classes, metrics.matthews_corrcoef), ("matthews_corrcoef", pairs, metrics.matthews_corrcoef),
                            ("weighted_perplexity", weighted, metrics.weighted_perplexity), ("bits_per_byte", weighted, metrics.bits_per_byte), ("nanmean", single, metrics.nanmean)]:
        n = 30 if name in ("f1", "matthews_corrcoef") else 2000
        se = metrics.stderr_for_metric(fn, n)
        agg.append({"name": name, "items": items, "value": float(fn(items)), "stderr": None if se is None else float(se(items)), "iterations": n})
    agg.append({"name": "brier_score", "items": brier, "value": float(metrics.brier_score([(g, np.array(p)) for g, p in brier])), "stderr": None, "iterations": 2000})
    errors, sizes = [0.1, 0.2, 0.05], [10, 30, 7]
    dump("metrics.json", {"exact_match": exact, "aggregations": agg, "pooled": [errors, sizes, float(metrics.pooled_sample_stderr(errors, sizes)), float(metrics.unweighted_mean_stderr(errors))]})


def requests():
    os.chdir(OUT / "data")
    tm = TaskManager(include_path=str(OUT / "tasks"), include_defaults=False)
    loaded = tm.load(["quiz_all", "quiz_generate", "quiz_text"])
    out = {}
    for name, task in loaded["tasks"].items():
        if task.config.num_fewshot is None:
            task.set_config("num_fewshot", 0)
        task.set_fewshot_seed(1234)
        task.build_all_requests(limit=5, rank=0, world_size=1)
        rows = []
        for i in task.instances:
            rows.append({"doc_id": i.doc_id, "index": i.idx, "arguments": list(i.args), "doc_hash": utils.hash_string(json.dumps(i.doc, indent=2, default=utils.handle_non_serializable, ensure_ascii=False)), "target": str(task.doc_to_target(i.doc))})
        out[name] = rows
    dump("requests.json", out)


if __name__ == "__main__":
    documents()
    python_values()
    templates()
    filters()
    metric_values()
    requests()

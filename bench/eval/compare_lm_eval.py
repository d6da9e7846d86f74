#!/usr/bin/env python3
"""Scores, standard errors and per-sample answers beside lm-evaluation-harness's `hf` model, on the same folder and the same task files.

Needs lm_eval, torch, transformers and datasets. The harness's own YAML is used unchanged (copied, so that only the tasks at hand are
indexed); where a task wants a dataset of the Hub, rows in its shape are made from GSM8K and a text, and both sides read them.

  bench/eval/compare_lm_eval.py --binary build/release/apps/mindxtrain/mindxtrain --model DIR --gsm8k DIR --text FILE --out DIR
                                [--humaneval HumanEval.jsonl.gz --tasks humaneval,gsm8k] [--chat] [--max-gen-toks 96] [--seconds 90]

--chat asks through the model's chat template on both sides. --max-gen-toks shortens the tasks' answers, in the copy that both read.
The metric of HumanEval lies on the Hub; where that cannot be reached its rule (the program with its tests ends without an exception in 3 s) stands
in for it here: programs run in a process of their own, without a sandbox on lm-eval's side.

Exit code 1 where anything differs by more than is said at the top of `compare`.
"""
import argparse, glob, gzip, json, os, random, re, shutil, subprocess, sys, time
from pathlib import Path

# task → (documents, few-shot or None)
TASKS = {"arc_easy": (16, None), "piqa": (4, 3), "hellaswag": (4, 2), "lambada_openai": (10, None), "wikitext": (2, None),
         "mmlu_stem": (3, 5), "winogrande": (6, None), "gsm8k": (2, None), "humaneval": (3, None)}
# Of our own, in tasks/: Jinja lists as choices, several right answers, inputs as choices, other delimiters and samplers, acc_mutual_info,
# brier, f1, mcc, filters one after the other with repeats, a group within a group.
TASKS |= {f"shape_{t}": (10, None) for t in ("mutual", "brier", "list_choice", "map_target", "multi_target", "multi_input", "regex", "gen_nums", "ll", "roll", "group")}
FOLDERS = ["arc", "piqa", "hellaswag", "lambada", "wikitext", "winogrande", "gsm8k", "mmlu/default", "humaneval"]
SUBJECTS = ["mmlu_abstract_algebra", "mmlu_astronomy"]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))


def card(folder, configs):
    """A dataset card that names each configuration's files, as on the Hub."""
    lines = ["---", "configs:"]
    for name, splits in configs.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        for split, file in splits.items():
            lines += [f"  - split: {split}", f"    path: {file}"]
    (folder / "README.md").write_text("\n".join(lines) + "\n---\n")


def make_data(root, gsm8k, text, humaneval):
    rng = random.Random(7)
    train = [json.loads(l) for l in open(f"{gsm8k}/train.jsonl")][:400]
    test = [json.loads(l) for l in open(f"{gsm8k}/test.jsonl")][:100]
    number = lambda r: r["answer"].split("#### ")[-1]

    d = root / "openai/gsm8k"
    write(d / "main/train.jsonl", train), write(d / "main/test.jsonl", test)
    card(d, {"main": {"train": "main/train.jsonl", "test": "main/test.jsonl"}})

    if humaneval:
        with (gzip.open if humaneval.endswith(".gz") else open)(humaneval, "rt") as f:
            write(root / "openai/openai_humaneval/test.jsonl", [json.loads(l) for l in f])

    def choices(r, n):
        other = [number(rng.choice(train)) for _ in range(n - 1)]
        all_ = other + [number(r)]
        rng.shuffle(all_)
        return all_, all_.index(number(r))

    def arc(r, i):
        c, gold = choices(r, 4 if i % 3 else 5)
        labels = ["A", "B", "C", "D", "E"][: len(c)]
        return {"id": str(i), "question": r["question"], "choices": {"text": c, "label": labels}, "answerKey": labels[gold]}

    d = root / "allenai/ai2_arc"
    for split, rows in [("train", train[:50]), ("validation", train[50:80]), ("test", test)]:
        write(d / f"ARC-Easy/{split}.jsonl", [arc(r, i) for i, r in enumerate(rows)])
    card(d, {"ARC-Easy": {s: f"ARC-Easy/{s}.jsonl" for s in ("train", "validation", "test")}})

    d = root / "baber/piqa"
    for split, rows in [("train", train[:60]), ("validation", test)]:
        out = []
        for r in rows:
            a, b = r["answer"].split("\n")[0], rng.choice(train)["answer"].split("\n")[0]
            label = rng.randrange(2)
            out.append({"goal": r["question"], "sol1": a if label == 0 else b, "sol2": b if label == 0 else a, "label": label})
        write(d / f"{split}.jsonl", out)

    d = root / "Rowan/hellaswag"
    for split, rows in [("train", train[:60]), ("validation", test)]:
        out = []
        for i, r in enumerate(rows):
            s = r["question"].split(". ")
            ends = [rng.choice(train)["question"].split(". ")[-1] + (" [substeps] x" if i % 4 == 0 else "") for _ in range(3)]
            label = rng.randrange(4)
            ends.insert(label, s[-1])
            out.append({"ind": i, "activity_label": "Doing [title] sums", "ctx_a": ". ".join(s[:-2]) + ".", "ctx_b": s[-2] if len(s) > 1 else "then", "endings": ends, "label": str(label)})
        write(d / f"{split}.jsonl", out)

    write(root / "EleutherAI/lambada_openai/test.jsonl", [{"text": r["question"].replace("\n", " ").strip(" ?.")} for r in test])

    page = Path(text).read_text()[:12000]
    wiki = lambda s: " = Heading = \n " + s.replace(",", " ,").replace(".", " .").replace(":", " :") + " @-@ ( x ) 's \n"
    write(root / "EleutherAI/wikitext_document_level/test.jsonl", [{"page": wiki(page[:3500])}, {"page": wiki(page[3500:9000])}, {"page": wiki(page[9000:])}])
    for split in ("train", "validation"):
        write(root / f"EleutherAI/wikitext_document_level/{split}.jsonl", [{"page": "none"}])
    card(root / "EleutherAI/wikitext_document_level", {"wikitext-2-raw-v1": {s: f"{s}.jsonl" for s in ("train", "validation", "test")}})

    d = root / "allenai/winogrande"
    rows = []
    for i, r in enumerate(test):
        names = rng.sample(["Ann", "Bob", "Carla", "Dan"], 2)
        rows.append({"sentence": f"{names[0]} asked {names[1]}: {r['question'].split('.')[0]}, because _ did not know.", "option1": names[0], "option2": names[1], "answer": str(1 + i % 2)})
    for split, part in [("train", rows[50:]), ("validation", rows[:50])]:
        write(d / f"{split}.jsonl", part)
    card(d, {"winogrande_xl": {s: f"{s}.jsonl" for s in ("train", "validation")}})

    rows = []
    for i, r in enumerate(train[:90]):
        c, gold = choices(r, 4)
        while len(set(c)) < 4:
            c, gold = choices(r, 4)
        rows.append({"q": r["question"], "full": r["answer"], "opts": dict(zip("abcd", c)), "choices": c, "gold": gold, "letter": "abcd"[gold], "num": number(r), "yes": i % 3 == 0,
                     "subj": ["math", "Œuvre ☃", "hist"][i % 3], "many": [gold, (gold + 1) % 4], "short": r["question"].split(". ")[0]})
    for split, part in [("train", rows[:40]), ("validation", rows[40:65]), ("test", rows[65:])]:
        write(root / f"shapes/{split}.jsonl", part)

    d, configs = root / "cais/mmlu", {}
    for subject in SUBJECTS:
        name = subject.removeprefix("mmlu_")
        for split, part in [("test", test[:40]), ("validation", train[:10]), ("dev", train[10:15])]:
            out = []
            for r in part:
                c, gold = choices(r, 4)
                out.append({"question": r["question"], "subject": name, "choices": c, "answer": gold})
            write(d / f"{name}/{split}.jsonl", out)
        configs[name] = {s: f"{name}/{s}.jsonl" for s in ("test", "validation", "dev")}
    card(d, configs)


def copy_tasks(to, max_gen_toks):
    import lm_eval
    here = Path(lm_eval.__file__).parent / "tasks"
    for f in FOLDERS:
        if (to / f).exists():
            continue
        shutil.copytree(here / f, to / f, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    shutil.copytree(Path(__file__).resolve().parent / "tasks", to / "shapes", dirs_exist_ok=True)
    for f in to.glob("*/*.yaml") if max_gen_toks else []:
        f.write_text(re.sub(r"max_gen_toks: \d+", f"max_gen_toks: {max_gen_toks}", f.read_text()))
    for f in (to / "mmlu/default").glob("mmlu_*.yaml"):
        if f.stem not in SUBJECTS:
            f.unlink()


class CodeEval:
    """code_eval for one program a sample: passed is that the process ends by itself with 0."""

    def compute(self, references, predictions, k):
        def passed(program):
            try:
                return subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=3).returncode == 0
            except subprocess.TimeoutExpired:
                return False
        return {"pass@1": sum(passed(p[0] + "\n" + r) for r, p in zip(references, predictions)) / len(references)}, None


class Oracle:
    """lm-eval's model and its index of tasks, loaded once, when the first task asks."""

    def __init__(self, a, work):
        self.a, self.work, self.lm = a, work, None

    def run(self, task):
        if self.lm is None:
            self.load()
        return oracle_answers(self.a, task, self.lm, self.manager)

    def load(self):
        os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", DISABLE_MULTIPROC="1", HF_ALLOW_CODE_EVAL="1", HF_DATASETS_CACHE=str(self.work / "hf_cache"))
        os.chdir(self.work / "data")
        import evaluate
        import torch
        from lm_eval.models.huggingface import HFLM
        from lm_eval.tasks import TaskManager
        torch.set_num_threads(self.a.threads)
        if "humaneval" in self.a.tasks:
            evaluate.load = lambda name: CodeEval()
        self.lm = HFLM(pretrained=self.a.model, dtype="float32", device="cpu", batch_size=4)
        self.manager = TaskManager(include_path=str(self.work / "tasks"), include_defaults=False)


def oracle_answers(a, task, lm, manager):
    from lm_eval import simple_evaluate
    limit, shots = TASKS[task]
    began = time.time()
    r = simple_evaluate(model=lm, tasks=[task], num_fewshot=shots, limit=limit, task_manager=manager, bootstrap_iters=a.bootstrap, log_samples=True,
                        confirm_run_unsafe_code=True, apply_chat_template=a.chat, fewshot_as_multiturn=a.chat)
    out = {k: r[k] for k in ("results", "samples") if k in r} | {"groups": r.get("groups", {}), "seconds": time.time() - began}
    return json.loads(json.dumps(out, default=lambda o: o.tolist() if hasattr(o, "tolist") else str(o)))


def oracle_settings(a):
    return json.dumps([a.model, a.bootstrap, a.chat, a.max_gen_toks, TASKS])


class Kept:
    """What is known of each task, in OUT/NAME.json, for as long as the settings are the same."""

    def __init__(self, work, name, settings):
        self.file, self.settings = work / f"{name}.json", settings
        stored = json.load(open(self.file)) if self.file.exists() else {}
        self.tasks = stored["tasks"] if stored.get("settings") == settings else {}

    def get(self, task, make):
        if task not in self.tasks:
            self.tasks[task] = make()
            self.file.write_text(json.dumps({"settings": self.settings, "tasks": self.tasks}))
        return self.tasks[task]


def run_ours(a, task, work, batch):
    limit, shots = TASKS[task]
    to = work / f"ours_{batch}/{task}"
    shutil.rmtree(to, ignore_errors=True)
    cmd = [a.binary, "--quiet", "eval", "--model", a.model, "--tasks", task, "--task-path", work / "tasks", "--data-dir", work / "data", "--limit", limit, "--dtype", "float32",
           "--batch-size", batch, "--bootstrap-iters", a.bootstrap, "--threads", a.threads, "--out", to] + (["--fewshot", shots] if shots is not None else []) + (["--apply-chat-template"] if a.chat else [])
    began = time.time()
    done = subprocess.run([str(c) for c in cmd], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{task}: exit code {done.returncode}\n{done.stderr}")
    r = json.load(open(glob.glob(f"{to}/results_*.json")[0]))
    r["seconds"] = time.time() - began
    r["samples"] = {}
    for f in glob.glob(f"{to}/samples_*.jsonl"):
        name = Path(f).name[len("samples_"):].rsplit("_", 1)[0]
        r["samples"][name] = [json.loads(l) for l in open(f)]
    return r


def compare(ours, oracle):
    """Scores 1e-9 (1e-4 of the value for perplexities), standard errors 1e-4 (bootstrapped 10 %), log-likelihoods 1e-4 of the value or 2e-3,
    texts, prompts, documents and targets (by hash) equal."""
    bad = 0
    print(f"{'task':34} {'metric':30} {'ours':>12} {'lm-eval':>12} {'stderr':>10} {'lm-eval':>10}")
    for task, o in oracle.items():
        u = ours[task]
        for name, metrics in o["results"].items():
            for key, want in metrics.items():
                if "," not in key or "_stderr," in key or not isinstance(want, (int, float)):
                    continue
                got = u["results"][name].get(key)
                metric, f = key.split(",", 1)
                want_e, got_e = metrics.get(f"{metric}_stderr,{f}"), u["results"][name].get(f"{metric}_stderr,{f}")
                wide = any(name in metric for name in ("perplexity", "bits", "brier"))
                ok = got is not None and abs(got - want) <= (2e-4 * abs(want) if wide else 1e-9)
                if isinstance(want_e, float) and want_e == want_e:
                    ok = ok and isinstance(got_e, (int, float)) and abs(got_e - want_e) <= max(1e-4, 0.1 * abs(want_e) if wide else 0)
                bad += not ok
                show = lambda v: f"{v:10.6f}" if isinstance(v, (int, float)) else f"{str(v):>10}"
                print(f"{name:34} {key:30} {got if got is None else format(got, '12.6f')} {want:12.6f} {show(got_e)} {show(want_e)} {'' if ok else 'DIFFERS'}")
        worst, count, text_bad = 0.0, 0, 0
        for name, samples in o["samples"].items():
            mine = {(s["doc_id"], s["filter"]): s for s in u["samples"][name]}
            for s in samples:
                m = mine[(s["doc_id"], s["filter"])]
                for h in ("doc_hash", "prompt_hash", "target_hash"):
                    if s[h] != m[h]:
                        bad += 1
                        print(f"{name} document {s['doc_id']}: {h} differs")
                for want, got in zip(s["resps"], m["resps"], strict=True):
                    want, got = want[0], got[0]
                    count += 1
                    if isinstance(want, str):
                        if want != got:
                            text_bad += 1
                            print(f"{name} document {s['doc_id']}: text differs\n  ours    {got!r}\n  lm-eval {want!r}")
                        continue
                    pair = isinstance(want, (list, tuple))
                    w, g = (float(want[0]), float(got[0])) if pair else (float(want), float(got))
                    worst = max(worst, abs(w - g) / max(1.0, abs(w)))
                    if pair and str(want[1]) != str(got[1]):
                        bad += 1
                        print(f"{name} document {s['doc_id']}: greedy differs")
        bad += text_bad + (worst > 1e-4)
        print(f"{task}: {count} answers, largest difference of a log-likelihood {worst:.2e} (relative beyond 1), {text_bad} texts differ; {u['seconds']:.1f} s, lm-eval {o['seconds']:.1f} s")
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True), p.add_argument("--model", required=True), p.add_argument("--gsm8k", required=True), p.add_argument("--text", required=True), p.add_argument("--out", required=True)
    p.add_argument("--tasks"), p.add_argument("--batch-sizes", default="1,7,64"), p.add_argument("--bootstrap", type=int, default=2000), p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seconds", type=float, default=float("inf"), help="begin no task after this long, and exit 4: the same command goes on with the rest")
    p.add_argument("--humaneval"), p.add_argument("--chat", action="store_true"), p.add_argument("--max-gen-toks", type=int)
    a = p.parse_args()
    a.tasks = a.tasks or ",".join(t for t in TASKS if t != "humaneval" or a.humaneval)
    a.humaneval = a.humaneval and os.path.abspath(a.humaneval)
    a.binary, a.model, a.gsm8k, a.text = (os.path.abspath(x) for x in (a.binary, a.model, a.gsm8k, a.text))
    work = Path(a.out).absolute()
    work.mkdir(parents=True, exist_ok=True)
    tasks = a.tasks.split(",")
    make_data(work / "data", a.gsm8k, a.text, a.humaneval)
    copy_tasks(work / "tasks", a.max_gen_toks)
    sizes = [int(b) for b in a.batch_sizes.split(",")]
    # What is finished stands in done.json, for as long as binary, model and settings are the same.
    stat = os.stat(a.binary)
    answers = Kept(work, "oracle", oracle_settings(a))
    done = Kept(work, "done", f"{oracle_settings(a)} {a.batch_sizes} {a.binary} {stat.st_size} {stat.st_mtime_ns}")
    oracle = Oracle(a, work)
    began = time.time()
    for task in tasks:
        if task in done.tasks:
            continue
        if time.time() - began > a.seconds:
            print(f"{sum(t not in done.tasks for t in tasks)} of {len(tasks)} tasks are left: the same command goes on")
            sys.exit(4)
        runs = [run_ours(a, task, work, b) for b in sizes]
        same = all(r["results"] == runs[0]["results"] and r["samples"] == runs[0]["samples"] for r in runs)
        bad = compare({task: runs[0]}, {task: answers.get(task, lambda: oracle.run(task))}) + (not same)
        print(f"{task}: batch sizes {sizes}: results and samples {'identical' if same else 'DIFFER'}", flush=True)
        done.get(task, lambda: bad)
    bad = sum(done.tasks[t] for t in tasks)
    print(f"{len(tasks)} tasks: equal" if not bad else f"{len(tasks)} tasks: {bad} differences")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

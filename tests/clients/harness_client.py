#!/usr/bin/env python3
"""The real lm-evaluation-harness against `mindxtrain serve`: completions, and chats through local-chat-completions.

    pip install lm-eval[api] torch transformers
    python tests/clients/harness_client.py [--binary FILE] [--model FILE]

With --model a Hugging Face folder the scores are compared with the harness's own `hf` model; with a GGUF file with
`mindxtrain eval`'s, of the same tasks. Each check asserts; 0 when all hold, 77 where a package or the weights are not here.
"""
import glob, json, os, subprocess, tempfile

from server import Server, arguments, need

lm_eval, requests, _ = need("lm_eval", "requests", "tenacity")
from lm_eval.tasks import TaskManager


ROWS = {
    "choices": [{"q": f"{a} plus {b} is", "choices": [f" {a + b}", f" {a + b + 1}", f" {abs(a - b)}", " a banana"], "gold": 0} for a in range(2, 8) for b in range(3, 6)],
    "words": [{"text": "The capital of France is", "last": " Paris"}, {"text": "Water is made of hydrogen and", "last": " oxygen"}, {"text": "Roses are red, violets are", "last": " blue"}, {"text": "The opposite of hot is", "last": " cold"}],
    "pages": [{"text": "The quick brown fox jumps over the lazy dog. " * 6}, {"text": "In the beginning there was a small village by the sea, and nobody knew its name. " * 3}],
    "asked": [{"q": f"What is the capital of {c}?", "a": t} for c, t in (("France", "Paris"), ("Italy", "Rome"), ("Japan", "Tokyo"), ("Egypt", "Cairo"))],
}
SPECS = {
    "choices": "output_type: multiple_choice\ndoc_to_text: '{{q}}'\ndoc_to_choice: choices\ndoc_to_target: gold\ntarget_delimiter: ''\nmetric_list: [{metric: acc}, {metric: acc_norm}]\n",
    "words": "output_type: loglikelihood\ndoc_to_text: '{{text}}'\ndoc_to_target: '{{last}}'\ntarget_delimiter: ''\nmetric_list: [{metric: perplexity, aggregation: perplexity, higher_is_better: false}, {metric: acc}]\n",
    "pages": "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{text}}'\nmetric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]\n",
    "asked": "output_type: generate_until\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{a}}'\ngeneration_kwargs: {until: ['.', ','], max_gen_toks: 16, temperature: 0, do_sample: false}\n"
             "metric_list: [{metric: exact_match, ignore_case: true, regexes_to_ignore: ['.*capital of [A-Za-z]+ is ']}]\n",
}


def write_tasks(folder):
    for name, text in SPECS.items():
        with open(f"{folder}/{name}.jsonl", "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in ROWS[name])
        with open(f"{folder}/{name}.yaml", "w") as f:
            f.write(f"task: local_{name}\ndataset_path: json\ntest_split: test\nmetadata: {{version: 1}}\ndataset_kwargs: {{data_files: {{test: {folder}/{name}.jsonl}}}}\n{text}")


def flat(results):
    return {f"{t}/{m}": v for t, row in results.items() for m, v in row.items() if isinstance(v, (int, float)) and m != "sample_len" and "stderr" not in m}


def oracle(a, folder, tasks, chat):
    """Scores without a server: the harness's `hf` model where the model is a folder, else `mindxtrain eval`."""
    if os.path.isdir(a.model):
        need("torch", "transformers")
        r = lm_eval.simple_evaluate(model="hf", model_args=f"pretrained={a.model},dtype=float32,device=cpu,max_length=2048", tasks=tasks, apply_chat_template=chat,
                                    task_manager=TaskManager(include_path=folder, include_defaults=False), batch_size=1, bootstrap_iters=0, log_samples=False)
        return flat(r["results"])
    out = f"{folder}/own{'-chat' if chat else ''}"
    subprocess.run([a.binary, "eval", "--model", a.model, "--dtype", "float32", "--tasks", ",".join(tasks), "--task-path", folder, "--data-dir", folder, "--out", out] + ["--apply-chat-template"] * chat, check=True, stdout=subprocess.DEVNULL)
    (found,) = glob.glob(out + "/**/results*.json", recursive=True)
    with open(found) as f:
        return flat(json.load(f)["results"])


def main():
    a = arguments()
    with tempfile.TemporaryDirectory() as folder, Server(a.binary, a.model, "--dtype", "float32", template=None) as server:
        write_tasks(folder)
        name = requests.get(server.url + "/v1/models").json()["data"][0]["id"]

        def served(kind, args, tasks, batch, chat=False):
            r = lm_eval.simple_evaluate(model=kind, model_args=args, tasks=tasks, task_manager=TaskManager(include_path=folder, include_defaults=False), batch_size=batch, apply_chat_template=chat, bootstrap_iters=0, log_samples=False)
            return flat(r["results"])

        scored = ["local_choices", "local_words", "local_pages"]
        theirs = oracle(a, folder, scored, False)
        # The server's own tokenizer, as the harness finds it by itself at /tokenizer_info.
        completions = f"model={name},base_url={server.url}/v1/completions,max_length=2048,num_concurrent=1"
        kinds = [completions] + ([completions + f",tokenizer={a.model},tokenizer_backend=huggingface,tokenized_requests=True"] if os.path.isdir(a.model) else [])
        for args in kinds:
            for batch in (1, 8):
                mine = served("local-completions", args, scored, batch)
                assert theirs.keys() == mine.keys(), (theirs, mine)
                for key, value in theirs.items():
                    print(f"{key}: without a server {value:.6f}, served (batch {batch}) {mine[key]:.6f}")
                    assert abs(mine[key] - value) <= 1e-3 * max(1, abs(value)), key
        asked = oracle(a, folder, ["local_asked"], True)
        for concurrent in (1, 4):
            mine = served("local-chat-completions", f"model={name},base_url={server.url}/v1/chat/completions,num_concurrent={concurrent}", ["local_asked"], 1, True)
            print("asked in chats: without a server", asked, "served", mine)
            assert asked == mine
    print("all checks hold")


if __name__ == "__main__":
    main()

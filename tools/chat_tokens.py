#!/usr/bin/env python3
"""Real chat templates through the whole program: the tokens that rows are trained with (`dataset prep`), that `tokenizer
render` writes, that the server counts and makes (/tokenize, chat completions), and those of transformers, over the rows of
tools/golden/chat_shapes.py in their many spellings and chats without calls.

Needs transformers and torch; the templates stay where they are (their licences are their makers').
  python tools/chat_tokens.py FOLDER_OR_TEMPLATE.jinja… [--binary FILE]
  python tools/chat_tokens.py --installed      those of trl and axolotl, where they are installed; 77 where fewer than 20
Another package with many: pip download --no-deps --no-binary :all: llama-cpp-python==0.3.16
(vendor/llama.cpp/models/templates).
Where transformers fails on a row as it came, prints None or encodes JSON in JSON, its text of the same row in another form
(arguments as objects or text; content null, empty or absent) is what ours must be. A row that we refuse must be one that the
template itself refuses in transformers, or leaves something out of.
"""
import argparse
import collections
import copy
import glob
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

try:
    import torch
    from safetensors.numpy import load_file
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils.chat_template_utils import render_jinja_template
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [ROOT + "/tools/golden", ROOT + "/tests/clients"]
import chat_shapes
from server import Server

ENDS = ["<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<turn|>", "<|END_OF_TURN_TOKEN|>", "<|end|>", "<|return|>", "<｜end▁of▁sentence｜>", "<|end_of_text|>", "<|user|>"]


def make_model(folder, template):
    """A tokenizer of bytes whose control tokens are those that the template names, and a model of random weights."""
    special = sorted(set(re.findall(r"<\|?[A-Za-z_｜▁][A-Za-z_｜▁0-9]*\|?>|\[/?[A-Z_]{3,}\]", template)) | {"<s>", "</s>"})
    tok = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in special])
    eos = next((t for t in ENDS if t in special), "</s>")
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<s>", eos_token=eos, chat_template=template)
    fast.save_pretrained(folder)
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=len(fast), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=16384, eos_token_id=fast.eos_token_id)
    LlamaForCausalLM(config).save_pretrained(folder)
    return fast


def chats():
    """Rows without calls, as they come."""
    user, said = {"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Fine."}
    parts = lambda *texts: [{"type": "text", "text": t} for t in texts]
    yield [user, said]
    yield [{"role": "system", "content": "Be brief."}, user, said]
    yield [{"role": "developer", "content": "Be brief."}, user, said]
    yield [user, said, {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Better."}]
    yield [{"role": "system", "content": "Be brief."}, user, said, {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Better."}]
    yield [{**user, "content": parts("Hel", "lo?")}, said]
    yield [{**user, "content": parts("Hello?")}, {**said, "content": parts("Fi", "ne.")}]
    yield [{**user, "name": None}, {**said, "tool_calls": None, "refusal": None}]
    yield [{**user, "content": "Hello?\n\n- é 日本 😀\n"}, {**said, "content": "Fine.\n\n```py\nx = {'a': 1}\n```"}]
    yield [{**user, "content": "  Hello? "}, {**said, "content": "  Fine. \n"}]
    yield [user, {**said, "weight": 0}, {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Better.", "loss": True}]
    yield [user, {**said, "reasoning_content": "Because."}]
    yield [user, {**said, "thinking": "Because."}]
    yield [user, said, {"role": "assistant", "content": "Better."}]
    yield [user, {"role": "user", "content": "And now?"}, said]
    yield [said, user, {"role": "assistant", "content": "Better."}]


def spelled(fast, row):
    """OpenAI's form of the row: envelopes, no nulls, one text, the developer the system's where the template knows none;
    arguments as they came."""
    return chat_shapes.in_form(row, {"object": True, "text": True, "content": chat_shapes.BOTH, "developer": "developer" in fast.chat_template})


def forms(row):
    for arguments, content, bare, parts in itertools.product(("as it came", "object", "text"), ("as it came", "absent", None, ""), (False, True), (False, True)):
        r = copy.deepcopy(row)
        for m in r["messages"]:
            if "tool_calls" in m:
                if not m.get("content") and content != "as it came":
                    m.pop("content", None)
                    if content != "absent":
                        m["content"] = content
                for c in m["tool_calls"]:
                    a = c["function"].get("arguments", {})
                    if arguments == "object" and isinstance(a, str):
                        a = json.loads(a or "{}")
                    if arguments == "text" and not isinstance(a, str):
                        a = json.dumps(a, ensure_ascii=False)
                    c["function"]["arguments"] = a
                    c.setdefault("type", "function")
                if bare:
                    m["tool_calls"] = [{**c["function"], "id": c.get("id")} for c in m["tool_calls"]]
            if parts and isinstance(m.get("content"), str):
                m["content"] = [{"type": "text", "text": m["content"]}]
        if bare and r["tools"]:
            r["tools"] = [t["function"] for t in r["tools"]]
        yield r


def theirs(fast, row, prompt):
    """Tokens by transformers of every form that it renders; the first is of the row as it came."""
    for r in forms(spelled(fast, row)):
        try:
            text = render_jinja_template([r["messages"]], tools=r["tools"], chat_template=fast.chat_template, add_generation_prompt=prompt, bos_token="<s>", eos_token=fast.eos_token)[0][0]
            yield text, fast.encode(text, add_special_tokens=False)
        except Exception:  # the template's own refusal, or its mistake
            yield None, None


def is_bad(row, text):
    """Perhaps a text that nobody means: JSON inside JSON, Python's None or dicts, a call or a tool that is not there."""
    if row["tools"] is None and not any(m.get("tool_calls") or m.get("function_call") for m in row["messages"]):
        return "None" in text
    return any(p in text for p in ('\\"city', '"{', "None", "{'", "'{")) or "get_weather" not in text


def leaves_out(row, text):
    """Whether the text is without something that the row says."""
    says, calls = [["Weather"]] if row["tools"] else [], 0
    for m in row["messages"]:
        content = m.get("content")
        content = "".join(p["text"] for p in content) if isinstance(content, list) else content
        says += [[c] for c in [(content or "").strip()] if c]
        says += [[m[k]] for k in ("reasoning_content", "thinking") if m.get(k)]
        for c in m.get("tool_calls") or ([{"function": m["function_call"]}] if m.get("function_call") else []):
            f = c.get("function", c)
            says += [["Köln", "K\\u00f6ln"] if "K" in json.dumps(f.get("arguments")) else [""]]
            calls += 1
    return text.count("get_weather") < calls + bool(row["tools"]) * bool(calls) or not all(any(t in text for t in texts) for texts in says)


def expected(fast, row, prompt):
    """The texts and tokens that ours may have: of the row as it came, and where that is a text that nobody means (or the
    template's own way to write such a row), of its other forms."""
    found = theirs(fast, row, prompt)
    text, ids = next(found)
    first = {} if text is None else {text: ids}
    if text is not None and not is_bad(row, text) and not leaves_out(row, text):
        return first
    return first | {text: ids for text, ids in found if text is not None and not is_bad(row, text)}


def post(url, body):
    """Status and answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as r:
            return r.status, json.load(r)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def check(binary, path, folder):
    template = re.sub(r"strftime_now\((?:\"[^\"]*\"|'[^']*'|[A-Za-z_]+)\)", "'26 Jul 2024'", open(path, encoding="utf-8").read())
    model = folder + "/model"
    fast = make_model(model, template)
    rows = list(chat_shapes.rows()) + [{"messages": m, "tools": None} for m in chats()]
    stats = collections.Counter()
    write = lambda name, lines: open(f"{folder}/{name}", "w", encoding="utf-8").writelines(json.dumps(l, ensure_ascii=False) + "\n" for l in lines)
    write("rows.jsonl", rows)
    rendered = [json.loads(l) for l in subprocess.run([binary, "tokenizer", "render", "--model", model, "--input", folder + "/rows.jsonl", "--json"], check=True, capture_output=True, text=True).stdout.split("\n") if l]
    taken = [i for i, r in enumerate(rendered) if "text" in r]
    write("taken.jsonl", [rows[i] for i in taken])
    trained = {}
    if taken:
        with open(folder + "/r.yaml", "w") as f:
            f.write(f"meta: {{project: p, run_name: r}}\nhardware: {{name: cpu}}\nmodel: {{name: '{model}'}}\ndata: {{source: local, path: '{folder}/taken.jsonl', seq_len: 8192, packing: false, shuffle: false}}\ntrain: {{method: {{kind: full}}}}\n")
        subprocess.run([binary, "dataset", "prep", folder + "/r.yaml", "--out", folder + "/data"], check=True, capture_output=True)
        shard = load_file(next(os.path.join(folder, "data", f) for f in os.listdir(folder + "/data") if f.endswith(".safetensors")))
        for i, begin, end in zip(taken, shard["row_tokens"], shard["row_tokens"][1:]):
            trained[i] = shard["ids"][int(begin) : int(end)].tolist()
        assert len(trained) == len(taken) and len(shard["row_tokens"]) == len(taken) + 1
    with Server(binary, model, "--dtype", "float32", template=None, positions="16384") as server:
        for i, row in enumerate(rows):
            # What of a row is trained is no matter of a request.
            row = {**row, "messages": [{k: v for k, v in m.items() if k not in ("weight", "loss")} for m in row["messages"]]}
            asked = {**row, "add_generation_prompt": False}
            _, reply = post(server.url + "/tokenize", asked)
            ours, served, error = trained.get(i), reply.get("tokens"), rendered[i].get("error", "")
            if ours is None and served is None:
                texts = [text for text, _ in theirs(fast, row, False)]
                if all(text is None for text in texts):
                    stats["refused by the template"] += 1
                else:
                    assert all(text is None or leaves_out(row, text) for text in texts), ("refused by us alone", i, row, rendered[i], str(reply)[:300])
                    stats["of which something is left out"] += 1
                continue
            want = expected(fast, row, False)
            if ours is None:  # only training needs to know where a turn lies
                assert "train" in error or "cannot tell" in error, ("refused in training", i, row, error)
                stats["not trained"] += 1
            else:
                assert ours == served, ("trained and served", i, row, rendered[i], str(reply)[:300])
            assert any(ids == served for ids in want.values()), (i, row, "ours", rendered[i], served, "theirs", list(want.items())[:2])
            prompt = post(server.url + "/tokenize", {**row, "add_generation_prompt": True})[1]["tokens"]
            assert any(ids == prompt for ids in expected(fast, row, True).values()), (path, i, row, "prompt", fast.decode(prompt))
            if i % 10 == 0:
                chat = post(server.url + "/v1/chat/completions", {**row, "max_tokens": 1})[1]
                assert chat["usage"]["prompt_tokens"] == len(prompt), (path, i, chat)
            stats["equal"] += 1
    return stats


COLUMNS = ["equal", "not trained", "refused by the template", "of which something is left out"]


def templates_of(names):
    """Files, and what lies in folders."""
    for n in names:
        yield from sorted(glob.glob(n + "/**/*.jinja", recursive=True)) if os.path.isdir(n) else [n]


def installed():
    for package, folder in (("trl", "chat_templates"), ("axolotl", "utils/chat_templates/templates")):
        spec = importlib.util.find_spec(package)
        if spec and spec.submodule_search_locations:
            yield os.path.join(list(spec.submodule_search_locations)[0], folder)


def main():
    transformers.logging.disable_progress_bar()
    p = argparse.ArgumentParser()
    p.add_argument("templates", nargs="*")
    p.add_argument("--installed", action="store_true")
    p.add_argument("--binary", default=ROOT + "/build/release/apps/mindxtrain/mindxtrain")
    p.add_argument("--keep-going", action="store_true")
    a = p.parse_args()
    paths = list(templates_of(a.templates + (list(installed()) if a.installed else [])))
    if a.installed and len(paths) < 20:
        print(f"skipped: {len(paths)} templates here, 20 are wanted: pip install trl axolotl")
        return 77
    print("| template | " + " | ".join(COLUMNS) + " |\n|" + "---|" * (len(COLUMNS) + 1))
    bad, equal = 0, 0
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            try:
                stats = check(a.binary, path, folder)
                equal += stats["equal"] > 0
                print(f"| {os.path.basename(path)} | " + " | ".join(str(stats[c]) for c in COLUMNS) + " |", flush=True)
            except AssertionError as e:
                bad += 1
                print(os.path.basename(path) + ": DIFFERENT", str(e)[:30000], flush=True)
                if not a.keep_going:
                    return 1
    if bad:
        print(f"{bad} templates differ")
        return 1
    print(f"{equal} of {len(paths)} templates take rows, and all have transformers' tokens")
    return int(a.installed and equal < 20)


if __name__ == "__main__":
    sys.exit(main())

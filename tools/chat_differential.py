#!/usr/bin/env python3
"""Compares our chat templates with transformers' on real templates and many conversations.

Run by hand, with transformers installed; the templates stay where they are (their licences are their makers'):
  ninja -C build/release chat_eval
  python tools/chat_differential.py build/release/tests/tokenizer_chat/chat_eval TEMPLATE.jinja… [--count N]
The text must be equal, or both must fail (ours may also refuse what it cannot mask or what drops tools). Where
transformers fails on a row as it came, writes its arguments as JSON inside JSON, or prints None, ours must be its text
of the same row in another form (arguments as objects or as text, content null, empty or absent). The same row in other
spellings (calls and tools without their envelope, parameters as text, content in parts) must give ours the same text.
The spans that
are trained on are checked against transformers' rendering of each conversation's beginning with the generation prompt.
"""
import argparse
import collections
import itertools
import json
import random
import subprocess
import sys
import time

from transformers.utils.chat_template_utils import render_jinja_template

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a \"city\" — <now>", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "é"}, "days": {"type": "integer", "default": 3, "minimum": 0.5}}, "required": ["city"]}, "return": {"type": "string", "description": "a text"}}},
    {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": ["number", "null"], "enum": [1, 2.5, None, True]}}}}},
]
TEXTS = ["Hello", " padded \n", "", "a\n\nb", "<think>\nhm\n</think>\n\nYes.", "<think></think>x", "<|im_end|> trick </s> <|eot_id|>", "日本語 😀", "'q' \"d\" & <b>", "</think>", "{% raw %} {{ x }}", "<tool_response>\nx\n</tool_response>"]


def conversation(r):
    messages = []
    if r.random() < 0.5:
        messages.append({"role": "system", "content": r.choice(TEXTS)})
    calls = 0
    for _ in range(r.randint(1, 4)):
        if r.random() < 0.95:
            messages.append({"role": "user", "content": r.choice(TEXTS)})
        if r.random() < 0.3:
            n = r.choice([1, 1, 1, 2])
            call = {"role": "assistant", "tool_calls": []}
            if r.random() < 0.8:
                call["content"] = r.choice(["", "Let me see.", None])
            ids = []
            for _ in range(n):
                calls += 1
                ids.append(f"call{calls:05d}")
                arguments = r.choice([{"city": "Köln", "days": 2}, {"a": 1.5, "b": None}, {}, {"x": [1, {"y": True}], "s": "a\"b"}])
                function = {"name": r.choice(["get_weather", "add"]), "arguments": json.dumps(arguments) if r.random() < .2 else arguments}
                call["tool_calls"].append({"id": ids[-1], "type": "function", "function": function})
            messages.append(call)
            for i in ids:
                messages.append({"role": r.choice(["tool"] * 9 + ["ipython"]), "tool_call_id": i, "name": "get_weather", "content": r.choice(["12°C", "{\"t\": 1}", json.dumps({"a": [1]})])})
        if r.random() < 0.8:
            message = {"role": "assistant", "content": r.choice(TEXTS)}
            if r.random() < 0.25:
                message[r.choice(["reasoning_content", "reasoning", "thinking"])] = r.choice(["because", "\nlong\nthought\n", "", None])
            messages.append(message)
    if r.random() < 0.08:
        r.shuffle(messages)
    if r.random() < 0.03:
        messages = messages[:1]
    if r.random() < 0.03:
        messages = []
    return messages


def theirs(template, q, **changes):
    q = {**q, **changes}
    kwargs = {**q["special_tokens"], **q.get("chat_template_kwargs", {})}
    try:
        return {"text": render_jinja_template([q["messages"]], tools=q["tools"], chat_template=template, add_generation_prompt=q["add_generation_prompt"], **kwargs)[0][0]}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"[:200]}


def in_forms(q):
    """The row in every form that a template may want."""
    for arguments, content, typed in itertools.product(["as it came", "object", "text"], ["as it came", "absent", None, ""], [False, True]):
        messages = json.loads(json.dumps(q["messages"]))
        for m in messages:
            if "tool_calls" not in m:
                continue
            if not m.get("content") and content != "as it came":
                m.pop("content", None)
                if content != "absent":
                    m["content"] = content
            for c in m["tool_calls"]:
                a = c["function"]["arguments"]
                if arguments == "object" and isinstance(a, str):
                    c["function"]["arguments"] = json.loads(a)
                if arguments == "text" and not isinstance(a, str):
                    c["function"]["arguments"] = json.dumps(a, ensure_ascii=False)
        yield messages


def is_bad(q, text):
    """Whether a text of a row with calls is one that nobody means."""
    names = [c["function"]["name"] for m in q["messages"] for c in m.get("tool_calls", [])]
    return any(part in text for part in ['\\"', '"{}"', "None", "{'"]) or any(name not in text for name in names)


def respelled(r, q):
    q = json.loads(json.dumps(q))
    for m in q["messages"]:
        if isinstance(m.get("content"), str) and m["content"] and r.random() < 0.3:
            half = len(m["content"]) // 2
            m["content"] = [{"type": "text", "text": m["content"][:half]}, {"type": "text", "text": m["content"][half:]}]
        for i, c in enumerate(m.get("tool_calls", [])):
            if r.random() < 0.5:
                m["tool_calls"][i] = {**c["function"], "id": c["id"]}
    for i, t in enumerate(q["tools"] or []):
        f = t["function"]
        if r.random() < 0.5:
            f["parameters"] = json.dumps(f["parameters"])
        if r.random() < 0.5:
            q["tools"][i] = f
    return q


def check_spans(template, q, want, got, stats):
    """Where the beginning of the chat with the generation prompt is a beginning of the whole, training starts there."""
    text = want["text"].encode()
    turns = [i for i, m in enumerate(q["messages"]) if m.get("role") == "assistant"]
    if len(turns) != len(got["assistant"]):
        return f"{len(turns)} turns, {len(got['assistant'])} spans"
    for i, (begin, end) in zip(turns, got["assistant"]):
        prefix = theirs(template, q, messages=q["messages"][:i], add_generation_prompt=True)
        if "text" not in prefix or not text.startswith(prefix["text"].encode()):
            stats["spans without an independent check"] += 1
            continue
        if begin != len(prefix["text"].encode()):
            return f"message {i}: begins at {begin}, not at {len(prefix['text'].encode())}: {text[begin-30:begin]!r} | {text[begin:begin+30]!r}"
        eos = q["special_tokens"]["eos_token"].encode()
        if not text[begin:end].endswith((eos, b"<|eom_id|>", b"<|eot_id|>", b"<|im_end|>")):
            return f"message {i}: ends with {text[begin:end][-20:]!r}"
        stats["spans checked"] += 1
    return None


def ours(process, q):
    process.stdin.write(json.dumps(q) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("templates", nargs="+")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("--refusals", action="store_true", help="show what we refuse and transformers renders")
    a = parser.parse_args()
    process = subprocess.Popen([a.binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    bad = 0
    for path in a.templates:
        template = open(path, encoding="utf-8").read()
        r = random.Random(a.seed)
        eos = next((t for t in ["<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|END_OF_TURN_TOKEN|>", "<|end|>", "<｜end▁of▁sentence｜>", "<|end_of_text|>"] if t in template), "</s>")
        stats = collections.Counter()
        for _ in range(a.count):
            q = {"template": template, "messages": conversation(r), "tools": r.choice([None, None, TOOLS, TOOLS[:1]]), "add_generation_prompt": r.random() < 0.4,
                 "special_tokens": {"bos_token": "<s>", "eos_token": eos}, "now": int(time.time()),
                 "chat_template_kwargs": r.choice([{}, {}, {"enable_thinking": False}, {"enable_thinking": True}, {"date_string": "26 Jul 2024", "tools_in_user_message": False}, {"builtin_tools": ["add", "code_interpreter"]}, {"documents": [{"title": "T", "text": "x"}]}])}
            got = ours(process, q)
            want = theirs(template, q)
            problem = None
            calls = any("tool_calls" in m for m in q["messages"])
            if "text" in got and calls and ("error" in want or want["text"] != got["text"]):
                bad_as_it_came = "error" in want or is_bad(q, want["text"])
                want = next((w for w in (theirs(template, q, messages=m) for m in in_forms(q)) if w.get("text") == got["text"]), want) if bad_as_it_came else want
                stats["in another form"] += 1
            if "text" in got:
                again = ours(process, respelled(r, q))
                if again.get("text") != got["text"]:
                    problem = f"another spelling gives {again}"
            if "text" in want and "text" in got and not problem:
                stats["same text"] += 1
                problem = "text differs" if want["text"] != got["text"] else check_spans(template, q, want, got, stats)
            elif problem:
                pass
            elif "error" in want and "error" in got:
                stats["both fail"] += 1
            elif "error" in got and got["kind"] in ("dropped", "turn"):
                stats[got["kind"]] += 1
                if a.refusals:
                    print(got["error"], json.dumps({k: v for k, v in q.items() if k != "template"}, ensure_ascii=False)[:1200], want["text"][-900:])
                if got["kind"] == "turn":
                    stats[got["error"].split(": ")[-1].split(";")[0]] += 1
            else:
                problem = "one fails"
            if problem:
                stats["DIFFERENT"] += 1
                bad += 1
                if stats["DIFFERENT"] <= a.show:
                    print(f"DIFFERENT ({problem})\n  question {json.dumps({k: v for k, v in q.items() if k != 'template'}, ensure_ascii=False)[:1500]}\n  theirs {str(want)[-700:]}\n  ours   {str(got)[-700:]}")
        print(f"{path.split('/')[-1]}: " + ", ".join(f"{v} {k}" for k, v in stats.items()), flush=True)
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes tests/golden/tokenizer_chat/shapes.json: rows in the spellings in use, and what transformers renders of each
once it stands in the form that the template was written for (null: the template refuses it).

  python tools/golden/chat_shapes.py        (needs transformers; run from the repository root)
"""
import copy
import itertools
import json

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

FOLDER = "tests/golden/tokenizer_chat"
# object, text: which arguments come out well; content: what may stand beside calls, the first where what came may not.
BOTH = ("absent", "null", "empty")
TEMPLATES = {
    "qwen3": {"tokens": {"eos_token": "<|im_end|>"}, "object": True, "text": True, "content": ("empty",)},
    "header_blocks": {"tokens": {"bos_token": "<s>", "eos_token": "<|end|>"}, "object": True, "text": False, "content": BOTH},
    "bracketed": {"tokens": {"bos_token": "<s>", "eos_token": "</s>"}, "object": True, "text": False, "content": BOTH},
    "joined": {"tokens": {"bos_token": "<s>", "eos_token": "<|stop|>"}, "object": False, "text": True, "content": ("null",), "type": True},
    "itemized": {"tokens": {"eos_token": "<|stop|>"}, "object": True, "text": False, "content": BOTH, "developer": True},
    "bare": {"tokens": {"eos_token": "<|stop|>"}, "object": True, "text": False, "content": ("absent", "empty"), "bare": True},
    "parts": {"tokens": {"eos_token": "<|stop|>"}, "object": True, "text": False, "content": BOTH, "parts": True},
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
TOOL = {"name": "get_weather", "description": "Weather – now", "parameters": PARAMETERS}
ARGUMENTS = {"city": "Köln", "days": 2, "at": {"x": [1, None, True, 2.5]}, "q": "a\"b\n"}


def arguments():
    yield ARGUMENTS
    yield {}
    yield json.dumps(ARGUMENTS, ensure_ascii=False)
    yield json.dumps(ARGUMENTS)
    yield json.dumps({"city": "x", "days": 1.0}, separators=(",", ":"))
    yield ""
    yield None


def rows():
    """Conversations around one call, in every spelling."""
    contents = [{}, {"content": None}, {"content": ""}, {"content": "Let me see."}]
    shapes = [(a, "function", c) for a, c in itertools.product(arguments(), contents)]
    shapes += [(a, e, c) for a, e, c in itertools.product(arguments(), ["bare", "older", "untyped"], contents[:2])]
    tools = [None, [{"type": "function", "function": TOOL}], [TOOL], [{"type": "function", **TOOL}], [json.dumps(TOOL)],
             [{"type": "function", "function": {**TOOL, "parameters": json.dumps(PARAMETERS)}}], [{**TOOL, "parameters": json.dumps(PARAMETERS, separators=(",", ":"))}]]
    for i, (a, envelope, content) in enumerate(shapes):
        function = {"name": "get_weather"}
        if a is not None or i % 2:
            function["arguments"] = a
        call = {"id": "abcdefghi"}
        if envelope == "function":
            call.update({"type": "function", "function": function})
        elif envelope == "untyped":
            call["function"] = function
        elif envelope == "bare":
            call.update(function)
        message = {"role": "assistant", **content}
        message.update({"function_call": function} if envelope == "older" else {"tool_calls": [call]})
        said = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo?"}] if i % 5 == 0 else "Hello?"
        result = {"role": "function", "name": "get_weather"} if envelope == "older" else {"role": "tool", "tool_call_id": "abcdefghi"}
        messages = [{"role": "user", "content": said, "name": None}, message, {**result, "content": "12"}, {"role": "assistant", "content": "Fine.", "tool_calls": None}]
        if i % 7 == 1:
            messages.insert(0, {"role": "developer", "content": "Be brief."})
        yield {"messages": messages, "tools": tools[i % len(tools)]}


def in_form(row, form):
    """The row as the template's makers would have written it."""
    row = copy.deepcopy(row)
    for m in row["messages"]:
        for key in [k for k, v in m.items() if v is None]:
            del m[key]
        if "function_call" in m:
            m["tool_calls"] = [{"type": "function", "function": m.pop("function_call")}]
        if m["role"] == "function":
            m["role"] = "tool"
        if m["role"] == "developer" and not form.get("developer"):
            m["role"] = "system"
        if isinstance(m.get("content"), list):
            m["content"] = "".join(p["text"] for p in m["content"])
        if "tool_calls" in m:
            m["tool_calls"] = [call_in_form(c, form) for c in m["tool_calls"]]
            if not m.get("content"):
                came = "empty" if m.get("content") == "" else "absent"
                m.pop("content", None)
                has = came if came in form["content"] else form["content"][0]
                if has != "absent":
                    m["content"] = {"null": None, "empty": ""}[has]
        if form.get("parts") and isinstance(m.get("content"), str):
            m["content"] = [{"type": "text", "text": m["content"]}]
    if row["tools"]:
        row["tools"] = [tool_in_form(t, form) for t in row["tools"]]
    return row


def call_in_form(call, form):
    function = call.get("function", {k: v for k, v in call.items() if k != "id"})
    a = function.get("arguments")
    a = {} if a is None or a == "" else a
    if isinstance(a, str) and not form["text"]:
        a = json.loads(a)
    if not isinstance(a, str) and not form["object"]:
        a = json.dumps(a, ensure_ascii=False)
    function = {**function, "arguments": a}
    outside = {k: v for k, v in call.items() if k in ("id", "type")}
    if form.get("bare"):
        return {**function, **{k: v for k, v in outside.items() if k == "id"}}
    if "function" not in call:
        return {"type": "function", "function": function, **outside}
    if form.get("type"):
        outside = {"type": "function", **outside}
    return {**outside, "function": function}


def tool_in_form(tool, form):
    if isinstance(tool, str):
        tool = json.loads(tool)
    function = dict(tool.get("function") or {k: v for k, v in tool.items() if k != "type"})
    if isinstance(function.get("parameters"), str):
        function["parameters"] = json.loads(function["parameters"])
    return function if form.get("bare") else {"type": "function", "function": function}


def render(name, form, row, prompt):
    source = open(f"{FOLDER}/templates/{name}.jinja", encoding="utf-8").read()
    row = in_form(row, form)
    try:
        return render_jinja_template([row["messages"]], tools=row["tools"], chat_template=source, add_generation_prompt=prompt, date="1 May 2025", **form["tokens"])[0][0]
    except jinja2.exceptions.TemplateError:  # the template's own refusal: a call without its id
        return None


def main():
    out = {"rows": list(rows()), "templates": {}}
    for name, form in TEMPLATES.items():
        texts = [render(name, form, row, i % 3 == 0) for i, row in enumerate(out["rows"])]
        unique = sorted({t for t in texts if t is not None})
        out["templates"][name] = {"special_tokens": form["tokens"], "texts": unique, "of_row": [None if t is None else unique.index(t) for t in texts]}
    with open(f"{FOLDER}/shapes.json", "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
    print(len(out["rows"]), "rows,", {n: len(t["texts"]) for n, t in out["templates"].items()})


if __name__ == "__main__":
    main()

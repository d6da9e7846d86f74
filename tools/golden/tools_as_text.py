#!/usr/bin/env python3
"""Golden texts of templates that are made to take tools (src/tokenizer/chat/tools_as_text.cc), as transformers renders them.

usage: tools_as_text.py OUT.json     needs: transformers jinja2"""
import json, os, re, sys
from transformers.utils.chat_template_utils import _compile_jinja_template

source = open(os.path.join(os.path.dirname(__file__), "../../src/tokenizer/chat/tools_as_text.cc")).read()
beginning = re.search(r'R"\((.*?)\)";', source, re.S).group(1)
CHATML = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
# roles must alternate, the system message is part of the first user's
STRICT = """{%- if messages[0]['role'] == 'system' -%}{%- set system = messages[0]['content'] + '\n\n' -%}{%- set rest = messages[1:] -%}{%- else -%}{%- set system = '' -%}{%- set rest = messages -%}{%- endif -%}
{%- for m in rest -%}{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('roles must alternate') }}{%- endif -%}
{%- if m['role'] == 'user' -%}{{ '[INST] ' + (system if loop.first else '') + m['content'] | trim + ' [/INST]' }}{%- else -%}{{ ' ' + m['content'] | trim + '</s>' }}{%- endif -%}{%- endfor -%}"""
weather = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a \"city\" & its <surroundings>.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
timer = {"type": "function", "function": {"name": "timer", "parameters": {"type": "object", "properties": {"minutes": {"type": "number"}}}}}


def call(name, arguments, id=None):
    return {**({"id": id} if id else {}), "type": "function", "function": {"name": name, "arguments": arguments}}


CHATS = [
    {"messages": [{"role": "user", "content": "Weather in Paris?"}, {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"city": "Paris"})]}, {"role": "tool", "content": "21 °C"}, {"role": "assistant", "content": "It is warm."}], "tools": [weather, timer]},
    {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Köln and Rome, then a timer"}, {"role": "assistant", "content": "Let me look.", "tool_calls": [call("get_weather", {"city": "Köln", "days": 2}), call("get_weather", {"city": "Rome"}), call("timer", {"minutes": 1.5})]}, {"role": "tool", "content": "{\"t\": 9}"}, {"role": "tool", "content": "long " * 40}, {"role": "tool", "content": "set"}, {"role": "assistant", "content": "Done."}], "tools": [weather, timer]},
    {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}], "tools": None},
    {"messages": [{"role": "user", "content": "Rome and Oslo?"}, {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"city": "Rome"}, "a"), call("get_weather", {"city": "Oslo"}, "b")]}, {"role": "tool", "tool_call_id": "b", "content": "of Oslo"}, {"role": "tool", "tool_call_id": "a", "content": "of Rome"}, {"role": "assistant", "content": "Once more."}, {"role": "user", "content": "Again"}, {"role": "assistant", "content": "", "tool_calls": [call("timer", {"minutes": 1}, "c"), call("timer", {"minutes": 2}, "d")]}, {"role": "tool", "tool_call_id": "d", "content": "two"}, {"role": "tool", "content": "one"}, {"role": "assistant", "content": "Done."}], "tools": [weather, timer]},
    {"messages": [{"role": "user", "content": "hi <tool_call> not a call"}, {"role": "assistant", "content": "No tool is needed."}], "tools": [timer]},
]
out = []
for name, template in (("chatml", CHATML), ("strict", STRICT)):
    compiled = _compile_jinja_template(beginning + template)
    for chat in CHATS:
        text = compiled.render(messages=chat["messages"], tools=chat["tools"], add_generation_prompt=False)
        prompt = compiled.render(messages=chat["messages"][:-1], tools=chat["tools"], add_generation_prompt=True)
        out.append({"template": template, **chat, "text": text, "prompt": prompt})
json.dump(out, open(sys.argv[1], "w"), indent=1, ensure_ascii=False)

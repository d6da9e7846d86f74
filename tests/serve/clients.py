#!/usr/bin/env python3
"""The official `openai` client and the real lm-evaluation-harness against `mindxtrain serve`.

    python tests/serve/clients.py --binary build/release/apps/mindxtrain/mindxtrain --model smollm2-hf [--harness]

Starts the server itself. Each check asserts; the script ends with 0 when all hold. Needs: pip install openai (and lm-eval, torch,
transformers for --harness, which compares scores with the harness's own `hf` model on tasks with local data).
"""
import argparse, asyncio, json, os, signal, socket, subprocess, sys, tempfile, time

import httpx
import openai

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}}, "required": ["city", "unit"], "additionalProperties": False}}}]
TEMPLATE = ("{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
            "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


class Server:
    def __init__(self, binary, model, *args):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen([binary, "serve", "--model", model, "--port", str(self.port), "--max-model-len", "2048", *args])
        for _ in range(1200):
            try:
                if httpx.get(self.url + "/health").status_code == 200:
                    return
            except httpx.TransportError:
                assert self.process.poll() is None, "the server ended"
                time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, "a drain ends with 0"


def check_openai(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model
    ask = dict(model=model, messages=[{"role": "user", "content": "What is the capital of France?"}], temperature=0, max_tokens=24)

    whole = client.chat.completions.create(**ask)
    assert whole.choices[0].message.role == "assistant" and whole.choices[0].message.content, whole
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    print("chat:", whole.choices[0].message.content)

    text, last = "", None
    for chunk in client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        last = chunk
        if chunk.choices and chunk.choices[0].delta.content:
            text += chunk.choices[0].delta.content
    assert text == whole.choices[0].message.content
    assert last.usage.completion_tokens == whole.usage.completion_tokens

    with_logprobs = client.chat.completions.create(**ask, logprobs=True, top_logprobs=5)
    tokens = with_logprobs.choices[0].logprobs.content
    assert "".join(bytes(t.bytes).decode("utf8", "replace") for t in tokens).startswith(text) and all(len(t.top_logprobs) == 5 for t in tokens)
    assert all(t.logprob == t.top_logprobs[0].logprob for t in tokens), "greedy"

    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "population": {"type": "integer", "minimum": 0, "maximum": 99999999}, "sights": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 3}},
              "required": ["city", "population", "sights"], "additionalProperties": False}
    j = client.chat.completions.create(**{**ask, "max_tokens": 300}, response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}})
    value = json.loads(j.choices[0].message.content)
    assert set(value) == {"city", "population", "sights"} and isinstance(value["population"], int) and len(value["sights"]) <= 3
    print("structured:", value)
    j = client.chat.completions.create(**{**ask, "max_tokens": 400}, response_format={"type": "json_object"})
    if j.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(j.choices[0].message.content), dict)

    required = dict(**{**ask, "max_tokens": 200}, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    call = client.chat.completions.create(**required).choices[0]
    assert call.finish_reason == "tool_calls" and call.message.tool_calls[0].function.name == "get_weather"
    arguments = json.loads(call.message.tool_calls[0].function.arguments)
    assert set(arguments) == {"city", "unit"}
    print("tool call:", arguments)
    name, streamed = "", ""
    for chunk in client.chat.completions.create(**required, stream=True):
        for t in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            name += t.function.name or ""
            streamed += t.function.arguments or ""
    assert name == "get_weather" and json.loads(streamed) == arguments
    again = client.chat.completions.create(**{**ask, "messages": ask["messages"] + [call.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.message.tool_calls[0].id, "content": "sunny"}]}, tools=TOOLS)
    assert again.choices[0].message is not None

    several = client.completions.create(model=model, prompt=["One, two,", "Red, green,"], max_tokens=5, temperature=0, logprobs=2, echo=True)
    assert len(several.choices) == 2 and several.choices[0].text.startswith("One, two,") and several.choices[0].logprobs.token_logprobs[0] is None
    sampled = client.completions.create(model=model, prompt="The", n=3, max_tokens=5, temperature=1.0, seed=3)
    assert [c.text for c in sampled.choices] == [c.text for c in client.completions.create(model=model, prompt="The", n=3, max_tokens=5, temperature=1.0, seed=3).choices]
    ended = client.completions.create(model=model, prompt="1 2 3 4 5 6 7", max_tokens=30, temperature=0, stop=["9"])
    assert "9" not in ended.choices[0].text

    vectors = client.embeddings.create(model=model, input=["a cat", "a dog", "tax law"])
    assert len(vectors.data) == 3 and len(vectors.data[0].embedding) > 0

    for bad, kind in ((dict(**{**ask, "model": "nobody"}), openai.NotFoundError), (dict(**{**ask, "n": 10**9}), openai.BadRequestError), (dict(**{**ask, "messages": []}), openai.BadRequestError)):
        try:
            client.chat.completions.create(**bad)
            raise AssertionError("was taken: " + str(bad))
        except kind as e:
            assert e.body["message"] and e.type == "invalid_request_error"

    stream = client.chat.completions.create(**{**ask, "max_tokens": 1500}, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()  # the client leaves
    for _ in range(100):
        running = [l for l in httpx.get(server.url + "/metrics").text.splitlines() if l.startswith("mindxtrain_requests_running ")][0]
        if running.endswith(" 0"):
            break
        time.sleep(0.05)
    assert running.endswith(" 0"), "a client that has left is still served"


async def many(server, count):
    client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=600)
    model = (await client.models.list()).data[0].id
    ask = lambda i: client.chat.completions.create(model=model, messages=[{"role": "user", "content": f"Say something about the number {i % 8}."}], temperature=0, max_tokens=16)
    alone = [(await ask(i)).choices[0].message.content for i in range(8)]
    together = await asyncio.gather(*[ask(i) for i in range(count)])
    for i, r in enumerate(together):
        assert r.choices[0].message.content == alone[i % 8], (i, r.choices[0].message.content, alone[i % 8])
    print(count, "at once: as alone")


def check_harness(server, model, limit):
    """Three tasks with local data: choices, a continuation, rolling perplexity."""
    import lm_eval
    from lm_eval.tasks import TaskManager
    folder = tempfile.mkdtemp()
    rows = [{"q": f"{a} plus {b} is", "choices": [f" {a + b}", f" {a + b + 1}", f" {abs(a - b)}", " a banana"], "gold": 0} for a in range(2, 8) for b in range(3, 6)]
    words = [{"text": "The capital of France is", "last": " Paris"}, {"text": "Water is made of hydrogen and", "last": " oxygen"}, {"text": "Roses are red, violets are", "last": " blue"}, {"text": "The opposite of hot is", "last": " cold"}]
    pages = [{"text": "The quick brown fox jumps over the lazy dog. " * 6}, {"text": "In the beginning there was a small village by the sea, and nobody knew its name. " * 3}]
    for name, data in (("choices", rows), ("words", words), ("pages", pages)):
        with open(f"{folder}/{name}.jsonl", "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in data)
    common = "dataset_path: json\ntest_split: test\nmetadata: {version: 1}\n"
    specs = {"choices": "output_type: multiple_choice\ndoc_to_text: '{{q}}'\ndoc_to_choice: choices\ndoc_to_target: gold\ntarget_delimiter: ''\nmetric_list: [{metric: acc}, {metric: acc_norm}]\n",
             "words": "output_type: loglikelihood\ndoc_to_text: '{{text}}'\ndoc_to_target: '{{last}}'\ntarget_delimiter: ''\nmetric_list: [{metric: perplexity, aggregation: perplexity, higher_is_better: false}, {metric: acc}]\n",
             "pages": "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{text}}'\nmetric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]\n"}
    for name, text in specs.items():
        with open(f"{folder}/{name}.yaml", "w") as f:
            f.write(f"task: local_{name}\n{common}dataset_kwargs: {{data_files: {{test: {folder}/{name}.jsonl}}}}\n{text}")
    tasks = [f"local_{n}" for n in specs]

    def scores(kind, args, batch):
        r = lm_eval.simple_evaluate(model=kind, model_args=args, tasks=tasks, task_manager=TaskManager(include_path=folder, include_defaults=False), batch_size=batch, limit=limit, bootstrap_iters=0, log_samples=False)
        return {f"{t}/{m}": v for t, row in r["results"].items() for m, v in row.items() if isinstance(v, float) and "stderr" not in m}

    served = f"model=served,base_url={server.url}/v1/completions,tokenizer={model},tokenizer_backend=huggingface,num_concurrent=1,max_length=2048,tokenized_requests=True"
    name = httpx.get(server.url + "/v1/models").json()["data"][0]["id"]
    served = served.replace("model=served", f"model={name}")
    theirs = scores("hf", f"pretrained={model},dtype=float32,device=cpu,max_length=2048", 1)
    for batch in (1, 8):
        mine = scores("local-completions", served, batch)
        for key, value in theirs.items():
            print(f"{key}: hf {value:.6f}, served (batch {batch}) {mine[key]:.6f}")
            assert abs(mine[key] - value) <= 1e-3 * max(1, abs(value)), key
    # The server's own tokenizer, as the harness finds it by itself.
    assert abs(scores("local-completions", f"model={name},base_url={server.url}/v1/completions,max_length=2048", 4)["local_choices/acc,none"] - theirs["local_choices/acc,none"]) < 1e-9


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default="build/release/apps/mindxtrain/mindxtrain")
    p.add_argument("--model", required=True, help="SmolLM2 as a folder (for --harness) or a GGUF file")
    p.add_argument("--many", type=int, default=32)
    p.add_argument("--harness", action="store_true")
    p.add_argument("--limit", type=int, default=18)
    a = p.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        template.write(TEMPLATE)
        template.flush()
        server = Server(a.binary, a.model, "--chat-template", template.name)
        try:
            check_openai(server)
            asyncio.run(many(server, a.many))
        finally:
            server.stop()
    if a.harness:
        server = Server(a.binary, a.model, "--dtype", "float32")
        try:
            check_harness(server, a.model, a.limit)
        finally:
            server.stop()
    print("all checks hold")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The official `openai` client against `mindxtrain serve`: chats, streams, tools, schemas by parse(), what it refuses.

    pip install openai requests
    python tests/clients/openai_client.py [--binary FILE] [--model FILE]

Each check asserts; 0 when all hold, 77 where a package or the weights are not here.
"""
import asyncio, enum, json, time
from typing import Annotated, Literal, Optional, Union

from server import TOOLS, Server, arguments, need

openai, pydantic, requests = need("openai", "pydantic", "requests")


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
        running = [l for l in requests.get(server.url + "/metrics").text.splitlines() if l.startswith("mindxtrain_requests_running ")][0]
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


class Color(str, enum.Enum):
    RED = "red"
    BLUE = "blue"


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, pydantic.Field(ge=0, le=9)]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    name: Annotated[str, pydantic.Field(max_length=8)]


class Owner(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(json_schema_extra={"x-internal": True, "examples": [{}]})
    name: Annotated[str, pydantic.Field(max_length=8, description="who it is", examples=["Ada"])]
    age: Optional[Annotated[int, pydantic.Field(ge=0, le=150)]]
    nick: Optional[Annotated[str, pydantic.Field(max_length=6)]] = None
    color: Color
    pet: Annotated[Union[Cat, Dog], pydantic.Field(discriminator="kind")]
    score: Annotated[float, pydantic.Field(ge=0, le=1)]
    tags: Annotated[list[Annotated[str, pydantic.Field(max_length=5)]], pydantic.Field(max_length=2)]


class Tree(pydantic.BaseModel):
    value: Annotated[int, pydantic.Field(ge=0, le=9)]
    children: Annotated[list["Tree"], pydantic.Field(max_length=1)]


class Answer(pydantic.BaseModel):
    answer: Union[Owner, Tree, Annotated[int, pydantic.Field(ge=0, le=99)]]


class GetWeather(pydantic.BaseModel):
    """Weather of a city"""
    city: Annotated[str, pydantic.Field(max_length=12)]
    unit: Optional[Literal["C", "F"]]


def check_parse(server):
    """Pydantic's models by the client's own parse(), sampled with several seeds: what comes is always of the model."""
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    ask = dict(model=model, messages=[{"role": "user", "content": "Tell me about Ada."}], max_tokens=500)
    for kind in (Owner, Answer, Cat):
        for seed in range(3):
            r = client.chat.completions.parse(**ask, seed=seed, response_format=kind)
            assert isinstance(r.choices[0].message.parsed, kind), r
    # A tree may go on for ever: it ends, or the client says that the answer was too long.
    for seed in range(3):
        try:
            assert isinstance(client.chat.completions.parse(**ask, seed=seed, response_format=Tree).choices[0].message.parsed, Tree)
        except openai.LengthFinishReasonError:
            pass
    r = client.chat.completions.parse(**ask, seed=1, tools=[openai.pydantic_function_tool(GetWeather)], tool_choice="required", parallel_tool_calls=False)
    assert isinstance(r.choices[0].message.tool_calls[0].function.parsed_arguments, GetWeather), r
    with client.chat.completions.stream(**ask, seed=2, response_format=Owner) as stream:
        kinds = {e.type for e in stream}
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Owner) and "content.delta" in kinds
    print("parse:", r.choices[0].message.tool_calls[0].function.parsed_arguments, stream.get_final_completion().choices[0].message.parsed)


def main():
    a = arguments(many=16)
    with Server(a.binary, a.model) as server:
        check_openai(server)
        check_parse(server)
        asyncio.run(many(server, a.many))
    print("all checks hold")


if __name__ == "__main__":
    main()

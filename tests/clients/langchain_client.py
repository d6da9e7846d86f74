#!/usr/bin/env python3
"""LangChain's OpenAI adapter (langchain-openai) against `mindxtrain serve`: tools with their results, schemas, streams.

    pip install langchain-openai
    python tests/clients/langchain_client.py [--binary FILE] [--model FILE]

Each check asserts; 0 when all hold, 77 where a package or the weights are not here.
"""
import asyncio, json
from typing import Annotated, Literal, Optional

from server import Server, arguments, need

langchain_openai, openai, pydantic = need("langchain_openai", "openai", "pydantic")
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool


@tool
def get_weather(city: Annotated[str, pydantic.Field(max_length=12)], unit: Literal["C", "F"] = "C") -> str:
    """Weather of a city."""
    return f"12 {unit} in {city}"


class City(pydantic.BaseModel):
    """A city."""
    name: Annotated[str, pydantic.Field(max_length=12)]
    population: Optional[Annotated[int, pydantic.Field(ge=0, le=99999999)]]
    size: Literal["small", "large"]


def check(server, model):
    chat = langchain_openai.ChatOpenAI(base_url=server.url + "/v1", api_key="none", model=model, temperature=0, max_tokens=200, max_retries=0, stream_usage=True)
    said = chat.invoke([SystemMessage("Be brief."), HumanMessage("What is the capital of France?")])
    assert isinstance(said, AIMessage) and said.content and said.usage_metadata["total_tokens"] > 0, said
    print("chat:", said.content)

    # A tool-calling conversation: the call, its result, the answer, and one more turn on top of it; whole and streamed.
    for streamed in (False, True):
        # "any" is LangChain's word for required.
        asking = chat.bind_tools([get_weather], tool_choice="any", parallel_tool_calls=False)
        history = [HumanMessage("What is the weather in Oslo?")]
        if streamed:
            call = None
            for chunk in asking.stream(history):
                call = chunk if call is None else call + chunk
        else:
            call = asking.invoke(history)
        assert len(call.tool_calls) == 1 and call.tool_calls[0]["name"] == "get_weather" and not call.invalid_tool_calls, call
        result = get_weather.invoke(call.tool_calls[0])
        assert isinstance(result, ToolMessage) and result.tool_call_id == call.tool_calls[0]["id"]
        history += [call, result]
        answer = chat.bind_tools([get_weather], tool_choice="none").invoke(history)
        assert isinstance(answer, AIMessage) and answer.content, answer
        history += [answer, HumanMessage("And in Rome?")]
        assert asking.invoke(history).tool_calls[0]["args"].keys() >= {"city"}
    named = chat.bind_tools([get_weather], tool_choice="get_weather").invoke("Weather in Bern?")
    assert named.tool_calls[0]["name"] == "get_weather"
    print("tool call:", call.tool_calls[0]["args"])

    for method in ("json_schema", "function_calling"):
        city = chat.with_structured_output(City, method=method).invoke("Tell me about Paris.")
        assert isinstance(city, City), city
    raw = chat.with_structured_output(City, method="json_schema", include_raw=True).invoke("Tell me about Paris.")
    assert raw["parsing_error"] is None and isinstance(raw["parsed"], City)
    try:  # an object without a schema may be of any length
        assert isinstance(chat.with_structured_output(None, method="json_mode").invoke("Answer in JSON: the capital of France."), dict)
    except openai.LengthFinishReasonError:
        pass
    print("structured:", city)

    pieces = list(chat.stream("Count from 1 to 5."))
    assert len(pieces) > 3 and "".join(p.content for p in pieces) == chat.invoke("Count from 1 to 5.").content
    assert sum((p.usage_metadata or {}).get("output_tokens", 0) for p in pieces) > 0

    async def several():
        return await chat.abatch([f"Say something about the number {i}." for i in range(4)])
    assert [r.content for r in asyncio.run(several())] == [chat.invoke(f"Say something about the number {i}.").content for i in range(4)]
    scored = chat.bind(logprobs=True, top_logprobs=2).invoke("Hi")
    assert all(len(t["top_logprobs"]) == 2 for t in scored.response_metadata["logprobs"]["content"])

    text = langchain_openai.OpenAI(base_url=server.url + "/v1", api_key="none", model=model, temperature=0, max_tokens=5)
    assert "".join(text.stream("One, two,")) == text.invoke("One, two,")
    # LangChain counts and cuts texts by OpenAI's own vocabularies unless told that the server does.
    vectors = langchain_openai.OpenAIEmbeddings(base_url=server.url + "/v1", api_key="none", model=model, check_embedding_ctx_length=False)
    assert len(vectors.embed_documents(["a cat", "a dog"])) == 2 and vectors.embed_query("a cat") == vectors.embed_documents(["a cat"])[0]


def main():
    a = arguments()
    with Server(a.binary, a.model, "--name", "smol") as server:
        check(server, "smol")
    print("all checks hold")


if __name__ == "__main__":
    main()

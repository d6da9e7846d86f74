#!/usr/bin/env python3
"""Many streams at once while hostile requests come: every stream has the text that it has alone, and none is left waiting.

    python tests/clients/streams_client.py [--streams 256] [--seconds 600] [--binary FILE] [--model FILE]

Each check asserts; 0 when all hold, 77 where the weights are not here. Needs Python alone.
"""
import asyncio, collections, itertools, json, random, time

from server import Server, arguments

TEXTS = ["Hello", "Count to ten.", "Write a short poem about rain.", "What is the capital of France?", "List three colours.", "Why is the sky blue?", "Sag etwas auf Deutsch.", "2+2="]
TOKENS, WAITS = 24, 60  # of each stream; seconds that any answer may take to go on


async def connected(port):
    return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), WAITS)


def post(path, body):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body)


def chat(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True, **more}


async def streamed(port, text):
    """What a stream says, and the longest wait within it."""
    reader, writer = await connected(port)
    try:
        writer.write(post("/v1/chat/completions", chat(text)))
        said, reason, done, longest, last = "", None, False, 0.0, time.monotonic()
        while line := await asyncio.wait_for(reader.readline(), WAITS):
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
            if line.startswith(b"data: [DONE]"):
                done = True
            elif line.startswith(b"data: "):
                event = json.loads(line[6:])
                assert "error" not in event, event
                for choice in event["choices"]:
                    said += choice["delta"].get("content") or ""
                    reason = choice["finish_reason"] or reason
            else:
                assert not line.startswith(b"HTTP/1.1") or b" 200 " in line, line
        assert done and reason == "length", (done, reason, said)
        return said, longest
    finally:
        writer.close()


def hostile():
    """Bytes of requests that are wrong, greedy or cut off, without end."""
    nested = b'{"messages":' + b"[" * 200000
    schema = lambda s, **more: chat("x", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": s}}, **more)
    deep = {"type": "object"}
    for _ in range(80):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    return itertools.cycle([
        post("/v1/chat/completions", nested),
        post("/v1/chat/completions", b'{"messages":[{"role":"user","content":"\xff\xfe"}]}'),
        post("/v1/chat/completions", b'{"messages":[{"role":"user","content":"a"}],"temperature":1e400}'),
        post("/v1/chat/completions", schema(deep)),
        post("/v1/chat/completions", schema({"type": "string", "pattern": "^(a+)+(b|c){1,2000}$"})),
        post("/v1/chat/completions", schema({"const": 1}, min_tokens=TOKENS)),
        post("/v1/chat/completions", schema({"enum": ["a"]}, stop_token_ids=[0, 1, 2], logit_bias={"2": 100})),
        post("/v1/chat/completions", chat("x", n=64, max_tokens=100000)),
        post("/v1/chat/completions", chat("x " * 100000)),
        post("/v1/completions", {"prompt": [[10**9]], "max_tokens": 4}),
        post("/v1/completions", {"prompt": ["a"] * 5000, "max_tokens": 1}),
        post("/v1/embeddings", {"input": "a"}),
        post("/../../etc/passwd", b"{}"),
        head + b"Content-Length: 1000000000000\r\n\r\n{",
        head + b"Content-Length: -1\r\n\r\n{}",
        head + b"Content-Length: 2\r\nContent-Length: 9\r\n\r\n{}",
        head + b"Content-Length: 500\r\n\r\n{\"messages\":",  # the rest never comes
        head + b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n{}\r\n",
        head + b"X: " + b"y" * 100000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"\0" * 4096,
        post("/v1/chat/completions", chat("tell me all", max_tokens=1000)),  # given up after a moment
    ])


async def attack(port, requests, seeds, until, counts):
    while time.monotonic() < until:
        reader, writer = await connected(port)
        try:
            writer.write(next(requests))
            answer = await asyncio.wait_for(reader.read(200), seeds.choice([0.05, 0.5, 3]))
            counts[answer[9:12].decode("latin1") if answer.startswith(b"HTTP/1.1 ") else "closed"] += 1
        except asyncio.TimeoutError:
            counts["given up"] += 1
        except ConnectionError:
            counts["closed"] += 1
        finally:
            writer.transport.abort()


async def client(port, alone, number, until, waits):
    for i in itertools.count(number):
        text = TEXTS[i % len(TEXTS)]
        said, longest = await streamed(port, text)
        assert said == alone[text], ("another text than alone", text, said, alone[text])
        waits.append(longest)
        if time.monotonic() >= until:
            return


async def check(port, streams, seconds):
    alone = {text: (await streamed(port, text))[0] for text in TEXTS}
    until, waits, counts, requests, seeds = time.monotonic() + seconds, [], collections.Counter(), hostile(), random.Random(1)
    await asyncio.gather(*(client(port, alone, i, until, waits) for i in range(streams)), *(attack(port, requests, seeds, until, counts) for _ in range(8)))
    print(f"{len(waits)} streams, {streams} at a time, each as alone; the longest wait in one {max(waits):.1f} s; hostile requests by answer: {dict(counts)}")


def main():
    a = arguments(streams=64, seconds=20)
    with Server(a.binary, a.model, "--batch", str(a.streams), "--queue", "4096", positions="512") as server:
        asyncio.run(check(server.port, a.streams, a.seconds))


main()

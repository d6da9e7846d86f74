#!/usr/bin/env python3
"""Many concurrent streams against `mindxtrain serve`, with clients that misbehave among them.

    python bench/serve/streams.py --binary build/release/apps/mindxtrain/mindxtrain --model SmolLM2.gguf --streams 256 --minutes 10

Keeps `streams` streamed completions open at once, each starting anew when it ends. Beside them, all the time: clients that are killed
(their socket is reset in the middle of an answer), slow readers (a few bytes a second out of a small receive buffer), and half-open
sockets (half of a request, then silence), and whole requests that are hostile (HOSTILE below: grammars that leave nothing, schemas without
end, numbers out of every range, bytes that are no JSON). At the end: requests, errors, p50 and p99 of the time to the first token and between tokens,
and the server's resident memory after warming up and at the end. Exit code 1 where a well-behaved stream failed. Linux; needs nothing
beyond Python.
"""
import argparse, asyncio, json, os, random, signal, socket, struct, subprocess, sys, tempfile, time


DEEP = {"type": "object"}
for _ in range(400):
    DEEP = {"type": "object", "properties": {"a": DEEP}, "required": ["a"]}
TEXT = [{"role": "user", "content": "hi"}]
# Bodies of chat completions; a text is sent as it is. Any answer is right that leaves the others alone.
HOSTILE = [
    {"messages": TEXT, "min_tokens": 20, "max_tokens": 30, "response_format": {"type": "json_object"}},
    {"messages": TEXT, "min_tokens": 30, "max_tokens": 30, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 1}}}},
    {"messages": TEXT, "max_tokens": 30, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": DEEP}}},
    {"messages": TEXT, "max_tokens": 30, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}}},
    {"messages": TEXT, "max_tokens": 30, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "(a|a)*(b|b)*(c{0,900}){0,900}"}}}},
    {"messages": TEXT, "max_tokens": 30, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"allOf": [{"enum": list(range(2000))}] * 50}}}},
    {"messages": TEXT, "max_tokens": 8, "logit_bias": {str(i): -100 for i in range(300)}},
    {"messages": TEXT, "max_tokens": 8, "temperature": 1e308, "top_p": 1e-300, "seed": 2**63},
    {"messages": TEXT, "max_tokens": 8, "stop": ["a"] * 100000},
    {"messages": TEXT, "max_tokens": 8, "n": 100000, "best_of": -1},
    {"messages": TEXT, "max_tokens": 10**30},
    {"messages": [{"role": "user", "content": "x" * 3_000_000}], "max_tokens": 8},
    {"messages": [{"role": "tool", "tool_call_id": 5, "content": None}] * 1000},
    {"messages": TEXT, "tools": [{"type": "function", "function": {"name": "f" * 70000, "parameters": DEEP}}], "tool_choice": "required"},
    {"prompt": [0] * 100000}, {"messages": []}, [], 5, None,
    "[" * 1_000_000, '{"a":' * 200_000, '{"messages":[{"role":"user","content":"\\ud800"}]}', "\x00\xff not JSON", "",
]


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(l.split()[1]) * 1024 for l in f if l.startswith("VmRSS"))


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(p / 100 * len(values)))] if values else float("nan")


class Load:
    def __init__(self, a, port):
        self.a, self.port = a, port
        self.first, self.gaps, self.errors = [], [], []
        self.done = self.tokens = self.killed = self.slow = self.half_open = self.hostile = 0
        self.end = 0.0

    def request(self, seed, tokens):
        r = random.Random(seed)
        prompt = [r.randrange(self.a.vocab // 400, self.a.vocab) for _ in range(r.randrange(16, 2 * self.a.prompt - 16))]
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}).encode()
        return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def good(self, n):
        while time.monotonic() < self.end:
            n += self.a.streams
            try:
                await asyncio.wait_for(self.one(n), self.a.patience)
                self.done += 1
            except (OSError, ValueError, asyncio.IncompleteReadError) as e:
                self.errors.append(f"{type(e).__name__}: {e}")
                await asyncio.sleep(0.1)

    async def one(self, seed):
        tokens = self.a.tokens
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        try:
            start = last = time.monotonic()
            writer.write(self.request(seed, tokens))
            status = await reader.readline()
            if b" 200 " not in status:
                raise ValueError(status.decode().strip() or "closed without an answer")
            usage, first = None, True
            while line := await reader.readline():
                if line.startswith(b"data: [DONE]"):
                    break
                if not line.startswith(b"data: "):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise ValueError(str(event["error"]))
                usage = event.get("usage") or usage
                if not event["choices"]:
                    continue
                now = time.monotonic()
                (self.first if first else self.gaps).append(now - last)
                first, last = False, now
            if not usage or usage["completion_tokens"] != tokens:
                raise ValueError(f"ended early: {usage}")
            self.tokens += tokens
        finally:
            writer.close()

    async def misbehave(self, kind, n):
        while time.monotonic() < self.end:
            n += 1
            s = socket.socket()
            s.setblocking(False)
            if kind == "slow":
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            loop = asyncio.get_running_loop()
            try:
                await loop.sock_connect(s, ("127.0.0.1", self.port))
                request = self.request(n, self.a.tokens)
                if kind == "half_open":
                    await loop.sock_sendall(s, request[: len(request) // 2])
                    await asyncio.sleep(random.uniform(1, 20))
                elif kind == "killed":
                    await loop.sock_sendall(s, request)
                    await asyncio.sleep(random.uniform(0, 3))
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the close is a reset
                else:
                    await loop.sock_sendall(s, request)
                    until = time.monotonic() + 20
                    while time.monotonic() < min(until, self.end) and await asyncio.wait_for(loop.sock_recv(s, 16), 20):
                        await asyncio.sleep(0.2)
                setattr(self, kind, getattr(self, kind) + 1)
            except OSError:
                await asyncio.sleep(0.1)  # the server may end such a connection, or have said all
            finally:
                s.close()

    async def attack(self, n):
        while time.monotonic() < self.end:
            body = HOSTILE[n % len(HOSTILE)]
            n += 1
            raw = body.encode("latin-1") if isinstance(body, str) else json.dumps(body).encode()
            path = b"/v1/completions" if isinstance(body, dict) and "prompt" in body else b"/v1/chat/completions"
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
            except OSError as e:
                self.errors.append(f"no connection after a hostile request: {e}")
                await asyncio.sleep(0.5)
                continue
            try:
                writer.write(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (path, len(raw)) + raw)
                await writer.drain()
                await asyncio.wait_for(reader.read(), self.a.patience)
            except (OSError, asyncio.TimeoutError):
                pass  # refused in the middle
            finally:
                writer.close()
            self.hostile += 1
            await asyncio.sleep(0.05)

    async def run(self, seconds):
        self.end = time.monotonic() + seconds
        bad = [self.misbehave(kind, 10**9 + i * 10**6) for i in range(self.a.bad) for kind in ("killed", "slow", "half_open")]
        bad += [self.attack(i * 7) for i in range(self.a.bad)]
        await asyncio.gather(*(self.good(i) for i in range(self.a.streams)), *bad)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default="build/release/apps/mindxtrain/mindxtrain")
    p.add_argument("--model", required=True)
    p.add_argument("--streams", type=int, default=256)
    p.add_argument("--minutes", type=float, default=10)
    p.add_argument("--batch", type=int, default=256, help="of the server")
    p.add_argument("--prompt", type=int, default=64, help="mean tokens of a prompt")
    p.add_argument("--tokens", type=int, default=32, help="of an answer")
    p.add_argument("--vocab", type=int, default=40000, help="ids of prompts are below")
    p.add_argument("--bad", type=int, default=4, help="misbehaving clients of each kind at any time")
    p.add_argument("--patience", type=float, default=120, help="seconds after which a stream counts as failed")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--out")
    a = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    log = tempfile.TemporaryFile()
    server = subprocess.Popen([a.binary, "serve", "--model", a.model, "--port", str(port), "--threads", str(a.threads), "--batch", str(a.batch), "--queue", str(2 * a.streams), "--max-model-len", "512", "--no-coach"], stderr=log)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        warm = Load(a, port)
        asyncio.run(warm.run(min(20.0, 15 * a.minutes)))
        begin = resident(server.pid)
        load = Load(a, port)
        start = time.monotonic()
        asyncio.run(load.run(60 * a.minutes))
        seconds = time.monotonic() - start
        time.sleep(1)
        end = resident(server.pid)
        alive = server.poll() is None
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
    finally:
        server.kill()
    errors = warm.errors + load.errors
    result = {
        "streams": a.streams, "minutes": a.minutes, "threads": a.threads, "batch": a.batch, "prompt": a.prompt, "tokens": a.tokens,
        "answers": load.done, "errors": len(errors), "tok_s": round(load.tokens / seconds, 1),
        "first_token_s": {"p50": round(percentile(load.first, 50), 3), "p99": round(percentile(load.first, 99), 3), "max": round(max(load.first, default=0), 3)},
        "between_tokens_s": {"p50": round(percentile(load.gaps, 50), 4), "p99": round(percentile(load.gaps, 99), 4)},
        "killed": load.killed, "slow_readers": load.slow, "half_open": load.half_open, "hostile": load.hostile,
        "resident_mib": {"begin": begin >> 20, "end": end >> 20}, "alive": alive, "exit_code": code,
    }
    print(json.dumps(result, indent=1))
    for e in sorted(set(errors))[:10]:
        print(e, file=sys.stderr)
    if a.out:
        with open(a.out, "w") as f:
            json.dump(result, f, indent=1)
    sys.exit(1 if errors or not alive or load.done == 0 else 0)


if __name__ == "__main__":
    main()

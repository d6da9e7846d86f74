#!/usr/bin/env python3
"""Streams a large data set through `dataset prep`: peak memory, speed, and ten kills at random.

usage: bench/data/stream.py MINDXTRAIN MODEL [--gb 2] [--dir DIR] [--kills 10]

MODEL is a folder or .gguf whose tokenizer is used. Makes rows of GSM8K-like length as JSONL.zst (zstd must be installed) and, where `duckdb` or
`pyarrow` can be imported, the same rows as Parquet. Sizes are of the text. Exits 1 where peak memory passes 1.5 GB or a manifest differs.
"""
import argparse, hashlib, json, os, random, re, signal, subprocess, sys, time

p = argparse.ArgumentParser()
p.add_argument("binary"), p.add_argument("model")
p.add_argument("--gb", type=float, default=2.0)
p.add_argument("--dir", default="out/stream")
p.add_argument("--kills", type=int, default=10)
p.add_argument("--seed", type=int, default=1)
a = p.parse_args()
os.makedirs(a.dir, exist_ok=True)
rng = random.Random(a.seed)
words = "the of and to in a is that for it as was with be by on not he his but at are this have from which one had she or we there been their has would what will how many each apples cost more than days total number half left after twice week".split()


def rows():
    size = 0
    i = 0
    while size < a.gb * 1e9:
        text = f"{i} " + " ".join(rng.choices(words, k=rng.randint(60, 260)))
        size += len(text)
        i += 1
        yield text


def make_jsonl(path):
    with open(path, "wb") as f:
        z = subprocess.Popen(["zstd", "-q", "-1", "-c"], stdin=subprocess.PIPE, stdout=f)
        for t in rows():
            z.stdin.write(b'{"text":"' + t.encode() + b'"}\n')
        z.stdin.close()
        assert z.wait() == 0


def make_parquet(path):
    try:
        import pyarrow as pa, pyarrow.parquet as pq
    except ImportError:
        return False
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd") as w:
        batch = []
        for t in rows():
            batch.append(t)
            if len(batch) == 50000:
                w.write_table(pa.table({"text": batch}, schema=schema))
                batch = []
        if batch:
            w.write_table(pa.table({"text": batch}, schema=schema))
    return True


def recipe(path):
    text = f"""meta: {{project: bench, run_name: stream}}
hardware: {{name: cpu}}
model: {{name: {a.model}}}
data: {{source: local, path: {path}, seq_len: 2048, shard: {{num_shards: 8}}, eval_fraction: 0.001}}
"""
    name = path + ".yaml"
    open(name, "w").write(text)
    return name


def digest(folder):
    return hashlib.sha256(open(f"{folder}/dataset.json", "rb").read()).hexdigest()


def start(name, out):
    return subprocess.Popen([a.binary, "dataset", "prep", name, "--out", out], stdout=subprocess.DEVNULL, stderr=open(out + ".log", "a"))


def peak(pid):  # VmHWM in bytes; 0 once the process is gone
    try:
        return int(re.search(r"VmHWM:\s+(\d+) kB", open(f"/proc/{pid}/status").read()).group(1)) * 1024
    except (OSError, AttributeError):
        return 0


bad = False
for kind in ("jsonl.zst", "parquet"):
    path = f"{a.dir}/rows.{kind}"
    if not os.path.exists(path) and (make_jsonl(path) if kind == "jsonl.zst" else make_parquet(path)) is False:
        print(f"{kind}: skipped, no pyarrow here")
        continue
    name, out = recipe(path), f"{a.dir}/{kind}"
    subprocess.run(["rm", "-rf", out, out + "-killed", out + ".log", out + "-killed.log"])
    t = time.time()
    run, most = start(name, out), 0
    while run.poll() is None:
        most = max(most, peak(run.pid))
        time.sleep(0.05)
    seconds = time.time() - t
    assert run.returncode == 0, open(out + ".log").read()[-2000:]
    tokens = json.load(open(out + "/dataset.json"))["train"]["tokens"]
    print(f"{kind}: {a.gb:g} GB of text ({os.path.getsize(path) / 1e9:.2f} GB file) in {seconds:.0f} s, {a.gb * 1e3 / seconds:.1f} MB/s, "
          f"{tokens / seconds / 1e6:.2f} M tokens/s, peak {most / 1e9:.2f} GB", flush=True)
    bad |= most > 1.5e9
    killed = 0
    while a.kills:
        run = start(name, out + "-killed")
        if killed < a.kills:
            try:
                run.wait(timeout=rng.uniform(0.05, seconds / (a.kills / 2 + 1)))
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
                run.wait()
                killed += 1
                continue
        assert run.wait() == 0, open(out + "-killed.log").read()[-2000:]
        if killed >= a.kills:
            break
        subprocess.run(["rm", "-rf", out + "-killed"])  # done too early: from the start
    if a.kills:
        same = digest(out) == digest(out + "-killed")
        print(f"{kind}: killed {killed} times, manifest {'the same' if same else 'DIFFERS'}", flush=True)
        bad |= not same
sys.exit(bad)

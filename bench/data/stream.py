#!/usr/bin/env python3
"""Streams large data sets through the whole of `dataset prep` (near copies, filters, tokens, packing): peak memory, speed, progress, and
ten kills at random.

usage: bench/data/stream.py MINDXTRAIN MODEL [--gb 0.3 2] [--dir DIR] [--kills 10] [--formats jsonl.zst parquet] [--jobs N]

MODEL is a folder or .gguf whose tokenizer is used. Makes rows of GSM8K-like length, one in twenty of them a near copy of one before, as JSONL.zst
(zstd must be installed) and, where `pyarrow` can be imported, as Parquet. Sizes are of the text; each is run, the last is also killed and
resumed, and with --jobs prepared by so many jobs one after another and merged. Exits 1 where peak memory passes 1.5 GB, no time left was
shown, or a folder differs.
"""
import argparse, hashlib, json, os, random, re, signal, subprocess, sys, time

p = argparse.ArgumentParser()
p.add_argument("binary"), p.add_argument("model")
p.add_argument("--gb", type=float, nargs="+", default=[2.0])
p.add_argument("--formats", nargs="+", default=["jsonl.zst", "parquet"])
p.add_argument("--jobs", type=int, default=0)
p.add_argument("--dir", default="out/stream")
p.add_argument("--kills", type=int, default=10)
p.add_argument("--seed", type=int, default=1)
a = p.parse_args()
os.makedirs(a.dir, exist_ok=True)
rng = random.Random(a.seed)
words = "the of and to in a is that for it as was with be by on not he his but at are this have from which one had she or we there been their has would what will how many each apples cost more than days total number half left after twice week".split()


def rows(gb):
    size, i, before = 0, 0, []
    while size < gb * 1e9:
        text = f"{i} " + " ".join(rng.choices(words, k=rng.randint(60, 260)))
        if before and rng.random() < 0.05:
            text = rng.choice(before) + f" {i}"
        elif len(before) < 10000:
            before.append(text)
        size += len(text)
        i += 1
        yield text


def make_jsonl(path, gb):
    with open(path, "wb") as f:
        z = subprocess.Popen(["zstd", "-q", "-1", "-c"], stdin=subprocess.PIPE, stdout=f)
        for t in rows(gb):
            z.stdin.write(b'{"text":"' + t.encode() + b'"}\n')
        z.stdin.close()
        assert z.wait() == 0


def make_parquet(path, gb):
    try:
        import pyarrow as pa, pyarrow.parquet as pq
    except ImportError:
        return False
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd") as w:
        batch = []
        for t in rows(gb):
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
data:
  source: local
  path: {path}
  seq_len: 2048
  shard: {{num_shards: 8}}
  eval_fraction: 0.001
  dedupe: {{minhash: {{threshold: 0.8}}}}
  filter: {{min_words: 5, max_repeated_ngrams: 0.5, max_symbols: 0.5, redact: [email]}}
"""
    name = path + ".yaml"
    open(name, "w").write(text)
    return name


def digest(folder):  # of all files
    h = hashlib.sha256()
    for f in sorted(os.listdir(folder)):
        if not f.startswith("."):
            h.update(f.encode() + open(f"{folder}/{f}", "rb").read())
    return h.hexdigest()


def start(name, out, *more):
    return subprocess.Popen([a.binary, "dataset", "prep", name, "--out", out, *more], stdout=subprocess.DEVNULL, stderr=open(out + ".log", "a"))


def peak(pid):  # VmHWM in bytes; 0 once the process is gone
    try:
        return int(re.search(r"VmHWM:\s+(\d+) kB", open(f"/proc/{pid}/status").read()).group(1)) * 1024
    except (OSError, AttributeError):
        return 0


def run(name, out, *more):
    """Seconds and peak bytes."""
    t, most = time.time(), 0
    p = start(name, out, *more)
    while p.poll() is None:
        most = max(most, peak(p.pid))
        time.sleep(0.05)
    assert p.returncode == 0, open(out + ".log").read()[-2000:]
    return time.time() - t, most


def kill_and_resume(name, out, seconds):
    killed = 0
    while True:
        p = start(name, out)
        if killed < a.kills:
            try:
                p.wait(timeout=rng.uniform(0.05, seconds / (a.kills / 2 + 1)))
            except subprocess.TimeoutExpired:
                p.send_signal(signal.SIGKILL)
                p.wait()
                killed += 1
                continue
        assert p.wait() == 0, open(out + ".log").read()[-2000:]
        if killed >= a.kills:
            return killed
        subprocess.run(["rm", "-rf", out])  # done too early: from the start


bad = False
for kind, gb in [(k, g) for k in a.formats for g in a.gb]:
    path = f"{a.dir}/rows-{gb:g}.{kind}"
    if not os.path.exists(path) and (make_jsonl(path, gb) if kind == "jsonl.zst" else make_parquet(path, gb)) is False:
        print(f"{kind}: skipped, no pyarrow here")
        continue
    name, out = recipe(path), f"{a.dir}/{gb:g}-{kind}"
    for end in ("", "-killed", "-jobs"):
        subprocess.run(["rm", "-rf", out + end, out + end + ".log"])
    seconds, most = run(name, out)
    manifest = json.load(open(out + "/dataset.json"))
    progress = [l for l in open(out + ".log") if "left" in l]
    print(f"{kind}: {gb:g} GB of text ({os.path.getsize(path) / 1e9:.2f} GB file, {manifest['rows_in']} rows, {manifest['dropped']['near_copy']} near copies) "
          f"in {seconds:.0f} s, {gb * 1e3 / seconds:.1f} MB/s, {manifest['train']['tokens'] / seconds / 1e6:.2f} M tokens/s, peak {most / 1e9:.2f} GB", flush=True)
    if progress:
        print("   progress as shown:", progress[len(progress) // 2].strip(), flush=True)
    bad |= most > 1.5e9 or (seconds > 25 and not progress)
    if gb != a.gb[-1]:
        continue
    if a.kills:
        killed = kill_and_resume(name, out + "-killed", seconds)
        same = digest(out) == digest(out + "-killed")
        print(f"{kind}: killed {killed} times, all files {'the same' if same else 'DIFFER'}", flush=True)
        bad |= not same
    if a.jobs:
        each = [run(name, out + "-jobs", "--job", f"{j}/{a.jobs}", "--no-merge") for j in range(1, a.jobs + 1)]
        t = time.time()
        assert subprocess.run([a.binary, "dataset", "merge", name, "--out", out + "-jobs"], capture_output=True).returncode == 0
        same = digest(out) == digest(out + "-jobs")
        print(f"{kind}: {a.jobs} jobs of {min(s for s, _ in each):.0f} to {max(s for s, _ in each):.0f} s, merged in {time.time() - t:.0f} s, "
              f"all files {'the same' if same else 'DIFFER'}", flush=True)
        bad |= not same
sys.exit(bad)

"""The trackers' own readers show what metrics.jsonl and TensorBoard's files say. Wants wandb, trackio, mlflow, tensorboard in its Python.

usage: readers.py MINDXTRAIN RUN      RUN: a finished run's id, name or folder (MINDXTRAIN_HOME as it was trained with)
"""
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib

program, run = sys.argv[1:3]
work = tempfile.mkdtemp()
folder = pathlib.Path(json.loads(subprocess.run([program, "runs", "show", run, "--json"], capture_output=True, text=True, check=True).stdout)["folder"])
truth = {s["step"]: s["loss"] for s in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())}


def report(to, *more):
    return subprocess.run([program, "runs", "report", run, "--to", to, *more], capture_output=True, text=True, check=True).stdout.strip()


def same(name, got):
    assert {s: round(v, 9) for s, v in got.items()} == {s: round(v, 9) for s, v in truth.items()}, f"{name}: {sorted(got.items())[:3]} against {sorted(truth.items())[:3]}"
    print(f"{name}: {len(got)} steps, the same losses")


from wandb.proto import wandb_internal_pb2


def records(path):
    data, at, out = path.read_bytes(), 7, b""
    while at < len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        crc, size, kind = struct.unpack("<IHB", data[at : at + 7])
        piece = data[at + 7 : at + 7 + size]
        assert crc == zlib.crc32(bytes([kind]) + piece)
        out = piece if kind in (1, 2) else out + piece
        if kind in (1, 4):
            yield out
        at += 7 + size


got, offline = {}, pathlib.Path(report("wandb", "--out", work))
for data in records(offline):
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    if record.WhichOneof("record_type") == "history":
        values = {i.key: json.loads(i.value_json) for i in record.history.item}
        got[values["_step"]] = values["train/loss"]
assert "Would sync 1 run" in subprocess.run([pathlib.Path(sys.executable).parent / "wandb", "sync", "--dry-run", str(offline.parent)], capture_output=True, text=True).stderr
same("wandb", got)

os.environ["TRACKIO_DIR"] = work
report("trackio")
from trackio.sqlite_storage import SQLiteStorage

project = pathlib.Path(next(pathlib.Path(work).glob("*.db"))).stem
name = SQLiteStorage.get_runs(project)[0]
same("trackio", {r["step"]: r["train/loss"] for r in SQLiteStorage.get_logs(project, name)})

try:
    import mlflow
except ImportError:
    sys.exit("mlflow is not installed: its server was not asked")
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
url = f"http://127.0.0.1:{port}"
server = subprocess.Popen([sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", "--backend-store-uri", f"sqlite:///{work}/mlflow.db", "--default-artifact-root", work],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    for _ in range(240):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.5)
    key = report("mlflow", "--url", url).rsplit("/", 1)[1]
    same("mlflow", {m.step: m.value for m in mlflow.MlflowClient(url).get_metric_history(key, "train/loss")})
finally:
    server.terminate()

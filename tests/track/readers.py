"""The trackers' own readers show what metrics.jsonl says. Wants wandb, trackio, tensorboard, and mlflow where its server is to be asked, in its Python.

usage: readers.py MINDXTRAIN RUN            RUN: a finished run's id, name or folder (MINDXTRAIN_HOME as it was trained with): by `runs report`
       readers.py MINDXTRAIN RECIPE.yaml    a recipe with report_to: [wandb, trackio, mlflow]: run here, and followed while it trains
Seen with wandb 0.31, trackio 0.43, tensorboard 2.21, mlflow 3.17.
"""
import importlib.util
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

program, what = sys.argv[1:3]
live = what.endswith(".yaml")
for package in ("wandb", "trackio", "tensorboard"):
    if importlib.util.find_spec(package) is None:
        sys.exit(f"absent: {package}")
has_mlflow = importlib.util.find_spec("mlflow") is not None
work = tempfile.mkdtemp()
os.environ.update(TRACKIO_DIR=work, WANDB_MODE="offline", MLFLOW_DISABLE_TELEMETRY="true")


def mlflow_server():
    """A server of its own, and its process."""
    os.makedirs(f"{work}/server")  # its database is no project of trackio's
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", "--backend-store-uri", f"sqlite:///{work}/server/mlflow.db", "--default-artifact-root", f"{work}/server"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return f"http://127.0.0.1:{port}", server
        time.sleep(0.5)
    server.terminate()
    sys.exit("mlflow's server did not come up")


def report(to, *more):
    return subprocess.run([program, "runs", "report", what, "--to", to, *more], capture_output=True, text=True, check=True).stdout.strip()


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


def of_wandb(offline):
    from wandb.proto import wandb_internal_pb2

    got = {}
    for data in records(offline):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            values = {i.key: json.loads(i.value_json) for i in record.history.item}
            got[values["_step"]] = values["train/loss"]
    said = subprocess.run([pathlib.Path(sys.executable).parent / "wandb", "sync", "--dry-run", str(offline.parent)], capture_output=True, text=True).stderr
    assert "Would sync 1 run" in said, said
    return got


def of_trackio():
    from trackio.sqlite_storage import SQLiteStorage

    project = pathlib.Path(next(pathlib.Path(work).glob("*.db"))).stem
    name = SQLiteStorage.get_runs(project)[0]
    return {r["step"]: r["train/loss"] for r in SQLiteStorage.get_logs(project, name)}


def of_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {e.step: e.value for e in events.Scalars("train/loss")}


def of_mlflow(url, run=None):
    import mlflow

    client = mlflow.MlflowClient(url)
    if run is None:
        runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
        assert len(runs) == 1 and runs[0].info.status == "FINISHED", runs
        run = runs[0].info.run_id
    return {m.step: m.value for m in client.get_metric_history(run, "train/loss")}


url = server = None
try:
    if has_mlflow:
        url, server = mlflow_server()
        os.environ["MLFLOW_TRACKING_URI"] = url
    if live:
        folder = pathlib.Path(work) / "run"
        recipe = pathlib.Path(what).read_text()
        pathlib.Path(work, "r.yaml").write_text(recipe if has_mlflow else recipe.replace(", mlflow", ""))
        subprocess.run([program, "run", f"{work}/r.yaml", "--out", str(folder)], check=True, capture_output=True, text=True)
    else:
        folder = pathlib.Path(json.loads(subprocess.run([program, "runs", "show", what, "--json"], capture_output=True, text=True, check=True).stdout)["folder"])
    truth = {s["step"]: s["loss"] for s in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())}

    def same(name, got, digits=9):
        a, b = ({s: round(v, digits) for s, v in x.items()} for x in (got, truth))
        assert a == b, f"{name}: {sorted(a.items())[:3]} against {sorted(b.items())[:3]}"
        print(f"{name}: {len(got)} steps, the same losses")

    same("tensorboard", of_tensorboard(folder), 5)  # its scalars are 32 bits
    same("wandb", of_wandb(next(folder.glob("wandb/offline-run-*/*.wandb")) if live else pathlib.Path(report("wandb", "--out", work))))
    if not live:
        report("trackio")
    same("trackio", of_trackio())
    if has_mlflow:
        same("mlflow", of_mlflow(url, None if live else report("mlflow", "--url", url).rsplit("/", 1)[1]))
    else:
        print("mlflow is not installed: its server was not asked")
finally:
    if server:
        server.terminate()

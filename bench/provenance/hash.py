#!/usr/bin/env python3
"""BLAKE3 and both digests of a folder beside Debian's b3sum and openssl, in turns: wall and processor seconds, the best of the rounds.

    cmake -DMXT_BENCH=ON build/release && ninja -C build/release hash_bench && apt-get install b3sum
    python bench/provenance/hash.py [--gib 4] [--rounds 3] [--program build/release/bench/provenance/hash_bench]

The files (512 MiB each, random) lie in the page cache: what is measured is digests, not a disk.
"""
import argparse
import json
import os
import resource
import subprocess
import tempfile
import time


def timed(command):
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--gib", type=int, default=4)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--program", default="build/release/bench/provenance/hash_bench")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{i}" for i in range(2 * a.gib)]
        for f in files:
            with open(f, "wb") as out:
                for _ in range(512):
                    out.write(os.urandom(1 << 20))
        commands = {"b3sum": ["b3sum", *files], "blake3": [a.program, "blake3", folder], "openssl_sha256": ["openssl", "dgst", "-sha256", *files], "both": [a.program, "both", folder]}
        runs = {name: [] for name in commands}
        for _ in range(a.rounds):
            for name, command in commands.items():
                runs[name].append(timed(command))
        best = {name: {"wall_s": round(min(r[0] for r in rs), 2), "cpu_s": round(min(r[1] for r in rs), 2)} for name, rs in runs.items()}
    cpu = {name: b["cpu_s"] for name, b in best.items()}
    print(json.dumps({"gib": a.gib, "rounds": a.rounds, "best": best, "blake3_of_b3sum_cpu": round(cpu["b3sum"] / cpu["blake3"], 3),
                      "blake3_of_b3sum_wall": round(best["b3sum"]["wall_s"] / best["blake3"]["wall_s"], 3),
                      "both_of_slower_cpu": round(max(cpu["b3sum"], cpu["openssl_sha256"]) / cpu["both"], 3), "both_of_sum_cpu": round((cpu["b3sum"] + cpu["openssl_sha256"]) / cpu["both"], 3)}))


if __name__ == "__main__":
    main()

"""A wheel of the installed tree: the program as a script, its libraries and texts beside it under the environment's prefix, so that
nothing of Python runs when it does; and, where it was built, the Python module, which wants what the extra `python` names and is served
by any Python since 3.10. The tag is the oldest glibc that every file in it asks for.

usage: wheel.py TREE PYTHON OUT VERSION MACHINE      SOURCE_DATE_EPOCH dates everything
"""
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import time
import zipfile

tree, module, out = (pathlib.Path(a) for a in sys.argv[1:4])
version, machine = sys.argv[4:6]
date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]

oldest = (2, 17)
for f in [tree / "bin/mindxtrain", *sorted((tree / "lib/mindxtrain").iterdir()), *sorted(module.rglob("*.so"))]:
    symbols = subprocess.run(["objdump", "-T", str(f)], capture_output=True, text=True, check=True).stdout
    oldest = max([oldest, *(tuple(map(int, v.split("."))) for v in re.findall(r"\(?GLIBC_([0-9.]+)\)?", symbols))])
tag = f"py3-none-manylinux_{oldest[0]}_{oldest[1]}_{machine}"

data, info = f"mindxtrain-{version}.data", f"mindxtrain-{version}.dist-info"
files = {f"{data}/scripts/mindxtrain": (tree / "bin/mindxtrain").read_bytes()}
for f in sorted(tree.rglob("*")):
    name = f.relative_to(tree).as_posix()
    if f.is_file() and not name.startswith("bin/"):
        files[f"{data}/data/{name}"] = f.read_bytes()
for f in sorted(module.rglob("*")):
    if f.is_file():
        files[f.relative_to(module).as_posix()] = f.read_bytes()
readme = (tree / "share/doc/mindxtrain/README.md").read_text()
files[f"{info}/METADATA"] = f"""Metadata-Version: 2.1
Name: mindxtrain
Version: {version}
Summary: Fine-tunes language models on one machine: one native program, no Python in it
License: Apache-2.0
Requires-Python: >=3.8
Provides-Extra: python
Requires-Dist: nanobind-backend>=1.0.0,<2; extra == "python"
Requires-Dist: numpy>=1.24; extra == "python"
Description-Content-Type: text/markdown

{readme}""".encode()
files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: mindxtrain\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()

record = f"{info}/RECORD"
lines = [f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b'=').decode()},{len(b)}" for n, b in files.items()]
files[record] = ("\n".join(lines) + f"\n{record},,\n").encode()
path = out / f"mindxtrain-{version}-{tag}.whl"
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
    for name, content in files.items():
        entry = zipfile.ZipInfo(name, date)
        entry.external_attr = (0o100755 if name.startswith(f"{data}/scripts/") or ".so" in name else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        z.writestr(entry, content)
print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, glibc {oldest[0]}.{oldest[1]}")

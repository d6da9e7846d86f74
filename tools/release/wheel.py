"""Wheels of the installed tree. `mindxtrain`: the program as a script, its libraries and texts beside it under the environment's prefix, so
that nothing of Python runs when it does. `mindxtrain_python`, where the module was built: the package `mindxtrain`, for any CPython since
3.10, which finds the libraries that the other has brought. `mindxtrain_cuda`, where CUDA was built: the object that the program opens for a
GPU, in a package's folder, from which it finds NVIDIA's own packages. A tag is the oldest glibc that every file of the wheel asks for.

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


def oldest_glibc(binaries):
    oldest = (2, 17)
    for f in binaries:
        symbols = subprocess.run(["objdump", "-T", str(f)], capture_output=True, text=True, check=True).stdout
        oldest = max([oldest, *(tuple(map(int, v.split("."))) for v in re.findall(r"\(?GLIBC_([0-9.]+)\)?", symbols))])
    return f"{oldest[0]}_{oldest[1]}"


def write(name, tag, files, metadata):
    info = f"{name}-{version}.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: mindxtrain\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = f"{info}/RECORD"
    lines = [f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b'=').decode()},{len(b)}" for n, b in files.items()]
    files[record] = ("\n".join(lines) + f"\n{record},,\n").encode()
    path = out / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for n, content in files.items():
            entry = zipfile.ZipInfo(n, date)
            entry.external_attr = (0o100755 if ".data/scripts/" in n or ".so" in n else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, content)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def contents(folder):
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


data = f"mindxtrain-{version}.data"
program = tree / "bin/mindxtrain"
files = {f"{data}/scripts/mindxtrain": program.read_bytes()}
cuda = tree / "lib/mindxtrain/libmindxtrain_cuda.so"
files |= {f"{data}/data/{n}": b for n, b in contents(tree).items() if not n.startswith("bin/") and not n.endswith(cuda.name)}
glibc = oldest_glibc([program, *(f for f in sorted((tree / "lib/mindxtrain").iterdir()) if f != cuda)])
readme = (tree / "share/doc/mindxtrain/README.md").read_text()
write("mindxtrain", f"py3-none-manylinux_{glibc}_{machine}", files, f"""Metadata-Version: 2.1
Name: mindxtrain
Version: {version}
Summary: Fine-tunes language models on one machine: one native program, no Python in it
License: Apache-2.0
Requires-Python: >=3.8
Provides-Extra: python
Requires-Dist: mindxtrain-python=={version}; extra == "python"
Provides-Extra: cuda
Requires-Dist: mindxtrain-cuda=={version}; extra == "cuda"
Description-Content-Type: text/markdown

{readme}""")

if module.is_dir():
    page = (tree / "share/mindxtrain/docs/python.md").read_text()
    glibc = oldest_glibc(sorted(module.rglob("*.so")))
    texts = contents(tree / "share/doc/mindxtrain").items()
    licences = {f"mindxtrain_python-{version}.dist-info/licenses/{n}": b for n, b in texts if n.lower().startswith("licen")}
    write("mindxtrain_python", f"cp310-abi3-manylinux_{glibc}_{machine}", contents(module) | licences, f"""Metadata-Version: 2.1
Name: mindxtrain-python
Version: {version}
Summary: The library of mindxtrain, from Python
License: Apache-2.0
Requires-Python: >=3.10
Requires-Dist: mindxtrain=={version}
Requires-Dist: nanobind-backend>=1.0.0,<2
Requires-Dist: numpy>=1.24
Description-Content-Type: text/markdown

{page}""")

if cuda.is_file():
    page = (tree / "share/mindxtrain/docs/gpu.md").read_text()
    package = {f"mindxtrain_cuda/{cuda.name}": cuda.read_bytes()}
    wanted = "".join(f"Requires-Dist: {w}\n" for w in os.environ["CUDA_WHEELS"].split())
    write("mindxtrain_cuda", f"py3-none-manylinux_{oldest_glibc([cuda])}_{machine}", package, f"""Metadata-Version: 2.1
Name: mindxtrain-cuda
Version: {version}
Summary: What mindxtrain opens to train on an NVIDIA card since Ampere
License: Apache-2.0
Requires-Python: >=3.8
Requires-Dist: mindxtrain=={version}
{wanted}Description-Content-Type: text/markdown

{page}""")

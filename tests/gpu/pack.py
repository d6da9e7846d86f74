"""Packs what was built here for a machine that has a GPU and NVIDIA's libraries (as PyTorch's wheels) but none of Debian's packages:
the programs, stripped, the shared libraries that they need, and where they think they lie. there.sh unpacks and runs it, in a checkout
of the same commit.

usage: pack.py BUILD_FOLDER OUT_FOLDER [TARGET…]      (a finished build: cmake --preset release -DMXT_BENCH=ON)
TARGET: names of programs; without one all that there.sh can run. `tests`: every test program too.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

build, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
root = re.search(r"CMAKE_HOME_DIRECTORY:INTERNAL=(.*)", (build / "CMakeCache.txt").read_text()).group(1)
ALL = ["mindxtrain", "gpu_ops_test", "gpu_suite_test", "gpu_step", "gpu_decode_step", "gpu_kernels", "gemm_bench"]
# The machine has these, as new or newer; with an older one there.sh takes the loader and all that is carried.
SYSTEM = re.compile(r"/(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libgomp)\.so")

wanted = sys.argv[3:] or ALL
tests = "tests" in wanted
wanted = [w for w in wanted if w != "tests"]
programs = {}
for p in [*build.glob("apps/*/*"), *build.glob("tests/**/*_test"), *build.glob("bench/*/*")]:
    if p.is_file() and p.stat().st_mode & 0o100 and (p.name in wanted or (tests and p.name.endswith("_test"))):
        programs[p.name] = p
if missing := set(wanted) - set(programs):
    sys.exit(f"not built in {build}: {', '.join(sorted(missing))}")

stage = pathlib.Path(tempfile.mkdtemp())
for folder in ("bin", "own", "system", "lib"):
    (stage / folder).mkdir()
names = []
for name, p in sorted(programs.items()):
    subprocess.run(["strip", "-o", str(stage / "bin" / name), str(p)], check=True)
    names.append(f"{name} {p.relative_to(build)}")
libraries = set()
for p in programs.values():
    libraries |= set(re.findall(r"=> (/\S+)", subprocess.run(["ldd", str(p)], capture_output=True, text=True, check=True).stdout))
for lib in libraries:
    shutil.copy(lib, stage / ("system" if SYSTEM.search(lib) else "own") / pathlib.Path(lib).name)
shutil.copy("/lib64/ld-linux-x86-64.so.2", stage / "system" / "loader")
if (cuda := build / "lib/libmindxtrain_cuda.so").exists():
    shutil.copy(cuda, stage / "lib")
(stage / "programs.txt").write_text("\n".join(names) + "\n")
(stage / "root.txt").write_text(f"{root}\n{build}\n")
out.mkdir(parents=True, exist_ok=True)
shutil.copy(pathlib.Path(root, "tests/gpu/there.sh"), out)
subprocess.run(f"tar -C {stage} -c . | xz -T0 -3 > {out}/pack.tar.xz", shell=True, check=True)
shutil.rmtree(stage)
print(f"{out}/pack.tar.xz: {len(names)} programs, {(out / 'pack.tar.xz').stat().st_size / 2**20:.1f} MiB")

"""Packs this tree and its build commands for a GPU machine that has g++, nvcc, Python and NVIDIA's libraries (as PyTorch's wheels) but
none of Debian's packages: sources, headers, shared libraries, and the commands that ninja would run. there.sh builds and runs it.

usage: pack.py BUILD_FOLDER OUT_FOLDER [TARGET…]      (a configured build: cmake --preset release -DMXT_BENCH=ON)
TARGET: what is built there, all that there.sh can run without one.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

build, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
cache = (build / "CMakeCache.txt").read_text()
root = re.search(r"CMAKE_HOME_DIRECTORY:INTERNAL=(.*)", cache).group(1)
THERE = "/tmp/mxt"
ALL = ["mindxtrain", "mindxtrain_cuda", "gpu_ops_test", "gpu_step", "gpu_decode_step", "gpu_kernels", "gemm_bench"]
tree, stage = pathlib.Path(tempfile.mkdtemp()), pathlib.Path(tempfile.mkdtemp())  # what changes often, and what does not
(tree / "src").mkdir()
(stage / "lib").mkdir()
(stage / "include").mkdir()

files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")
for f in filter(None, files):
    if f.startswith(("bench/results", "tests/golden", "docs/")):
        continue
    source = pathlib.Path(root, f)
    if source.is_file():
        (tree / "src" / f).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tree / "src" / f)
text = pathlib.Path(root, "../shared/data/tinyshakespeare/input.txt")  # where its recipe looks for it
if text.exists():
    (tree / "shared/data/tinyshakespeare").mkdir(parents=True)
    shutil.copy(text, tree / "shared/data/tinyshakespeare")
there_build = tree / "src/build/release"
for f in build.rglob("*"):
    if f.is_file() and f.suffix in (".cc", ".h", ".inc") and not f.is_symlink() and "rooms" not in f.parts:
        (there_build / f.relative_to(build)).parent.mkdir(parents=True, exist_ok=True)
        (there_build / f.relative_to(build)).write_bytes(f.read_bytes().replace(root.encode(), f"{THERE}/src".encode()))
for f in pathlib.Path(root, "web/dist").rglob("*.gz"):  # the page that the binary carries
    (tree / "src" / f.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(f, tree / "src" / f.relative_to(root))
for f in (build / "rooms").rglob("*"):  # links into the sources
    if f.is_symlink():
        to = there_build / f.relative_to(build)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.symlink_to(str(f.readlink()).replace(root, f"{THERE}/src"))
shutil.copy(build / "libblake3.a", there_build / "libblake3.a")

commands = subprocess.run(["ninja", "-t", "commands", *(sys.argv[3:] or ALL)], cwd=build, capture_output=True, text=True, check=True).stdout
compile_lines, link_lines, libraries = [], [], set()
for line in commands.splitlines():
    if "libblake3.a &&" in line and " qc " in line or "blake3.dir" in line or "git_commit.cmake" in line or "/usr/bin/cmake -E copy" in line:
        continue
    line = re.sub(r"&& /usr/bin/cmake -E cmake_transform_depfile .*", "", line)
    line = line.replace("/usr/bin/ccache ", "").replace("/usr/bin/cmake -E rm -f", "rm -f").replace("/usr/local/cuda/bin/nvcc", "nvcc").replace(root, f"{THERE}/src")
    line = re.sub(r"/usr/share/cargo/registry/blake3-[^/]*/c", f"{THERE}/include", line)
    for lib in re.findall(r"/usr/lib/x86_64-linux-gnu/lib[A-Za-z0-9_+.-]*\.(?:so|a)[0-9.]*", line):
        libraries.add(lib)
    line = re.sub(r"/usr/lib/x86_64-linux-gnu/libpthread\.a|/usr/lib/gcc/x86_64-linux-gnu/\d+/libgomp\.so", lambda m: "-lgomp" if "gomp" in m.group(0) else "-lpthread", line)
    line = re.sub(r"/usr/lib/x86_64-linux-gnu/(lib[A-Za-z0-9_+.-]*)", THERE + r"/lib/\1", line)
    if re.search(r"/usr/bin/(cmake|python)", line):
        sys.exit(f"a command that cannot run there: {line[:200]}")
    if " -c " in line:
        compile_lines.append(line)
    else:
        link_lines.append(line.replace("-pthread", "-pthread -Wl,--allow-shlib-undefined", 1))
# The slow ones first, so that no core waits for them at the end.
compile_lines.sort(key=lambda s: 0 if "attention_cudnn" in s else 1 if "nvcc" in s or "/apps/" in s else 2)
(tree / "compile.txt").write_text("\n".join(compile_lines) + "\n")
(tree / "link.sh").write_text("\n".join(link_lines) + "\n")

out.mkdir(parents=True, exist_ok=True)
shutil.copy(pathlib.Path(root, "tests/gpu/there.sh"), out)
subprocess.run(["tar", "-C", str(tree), "-czf", str(out / "tree.tgz"), "."], check=True)
shutil.rmtree(tree)
print(f"{out}/tree.tgz: {len(compile_lines)} files to compile")
if (out / "libs.tar.xz").exists():  # made before: remove it when a library is new
    sys.exit(0)
for lib in libraries:
    if pathlib.Path(lib).exists() and "libpthread" not in lib:
        shutil.copy(lib, stage / "lib" / pathlib.Path(lib).name)
shared = [str(p) for p in (stage / "lib").glob("*.so*")]
needed = {m for p in shared for m in re.findall(r"=> (/\S+)", subprocess.run(["ldd", p], capture_output=True, text=True).stdout)}
for p in needed:
    shutil.copy(p, stage / "lib" / pathlib.Path(p).name)
for p in shared:  # under the name that the loader asks for
    m = re.search(r"SONAME\s+(\S+)", subprocess.run(["objdump", "-p", p], capture_output=True, text=True).stdout)
    if m and pathlib.Path(p).name != m.group(1):
        pathlib.Path(p).unlink()
        shutil.copy(next(lib for lib in libraries if pathlib.Path(lib).name == pathlib.Path(p).name), stage / "lib" / m.group(1))
        pathlib.Path(p).symlink_to(m.group(1))
shutil.copy("/lib64/ld-linux-x86-64.so.2", stage / "loader")
for name in ("fmt", "spdlog", "nlohmann", "hwy", "oneapi", "sodium", "gtest", "CLI"):
    shutil.copytree(f"/usr/include/{name}", stage / "include" / name, symlinks=False)
shutil.copytree("/usr/include/x86_64-linux-gnu/curl", stage / "include/curl")
# Of Boost what the build has read: the whole of it is too large to travel.
read = subprocess.run(["ninja", "-t", "deps"], cwd=build, capture_output=True, text=True, check=True).stdout
for f in set(re.findall(r"/usr/include/(boost/\S+)", read)):
    (stage / "include" / f).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(pathlib.Path("/usr/include") / f, stage / "include" / f)
for f in [*pathlib.Path("/usr/include").glob("dnnl*.h*"), *map(pathlib.Path, ("/usr/include/sodium.h", "/usr/include/utf8proc.h", "/usr/include/pcre2.h", "/usr/include/zstd.h", "/usr/include/zlib.h", "/usr/include/zconf.h", "/usr/include/sqlite3.h", "/usr/include/yaml.h"))]:
    if f.exists():
        shutil.copy(f, stage / "include")
for f in pathlib.Path("/usr/include/x86_64-linux-gnu").glob("zconf.h"):
    shutil.copy(f, stage / "include")
shutil.copy(next(pathlib.Path("/usr/share/cargo/registry").glob("blake3-*/c/blake3.h")), stage / "include")
frontend = pathlib.Path(root, ".cache/cuda/include")
shutil.copytree(frontend, stage / "frontend")

subprocess.run(f"tar -C {stage} -c . | xz -T0 -2 > {out}/libs.tar.xz", shell=True, check=True)
shutil.rmtree(stage)
print(f"{out}/libs.tar.xz: {(out / 'libs.tar.xz').stat().st_size / 2**20:.1f} MiB")

#!/usr/bin/env bash
# What pack.sh made, as somebody gets it: each installs into an empty place, starts there without anything of this tree, asks for no newer
# glibc than it says, and holds no path of this folder. With QUICKSTART=1 each also runs the quickstart to its verified receipt.
# usage: check.sh RELEASE_FILES VERSION
set -euo pipefail
files=$(realpath "$1") version=$2 root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "release: $*" >&2; exit 2; }

# The newest symbol versions that a file may ask for: glibc 2.34 and GCC 11's libraries, which RHEL 9 and Ubuntu 22.04 have (as the tag
# manylinux_2_34 means it).
declare -A newest=([GLIBC]=2.34 [GLIBCXX]=3.4.29 [CXXABI]=1.3.13 [GCC]=12.0.0)
asks_no_newer() {  # FOLDER
  local f family version
  while read -r f; do
    while IFS=_ read -r family version; do
      [ "$(printf '%s\n' "$version" "${newest[$family]}" | sort -V | tail -1)" = "${newest[$family]}" ] ||
        fail "$f: asks for ${family}_$version, newer than ${newest[$family]}"
    done < <(objdump -T "$f" | grep -F '*UND*' | grep -oE '(GLIBC|GLIBCXX|CXXABI|GCC)_[0-9.]+' | sort -u)
  done < <(find "$1" -type f \( -path '*/bin/mindxtrain' -o -name '*.so*' \))
}

starts() {  # NAME PROGRAM
  local name=$1 program=$2 said begin
  said=$(cd "$work" && env -i HOME="$work" PATH=/usr/bin:/bin "$program" --version) || fail "$name: does not start: $said"
  [[ $said == "mindxtrain $version"* ]] || fail "$name: says $said"
  (cd "$work" && env -i HOME="$work" PATH=/usr/bin:/bin "$program" validate quickstart_cpu >/dev/null) || fail "$name: does not know its own recipes"
  ldd "$program" | grep -q 'not found' && fail "$name: $(ldd "$program" | grep 'not found')"
  ! grep -aq "$root" "$program" || fail "$name: holds a path of the folder that it was built in"
  if [ "${QUICKSTART:-0}" = 1 ]; then
    begin=$(date +%s)
    (cd "$work" && env -i HOME="$work" PATH=/usr/bin:/bin ${PIP_INDEX_URL:+"PIP_INDEX_URL=$PIP_INDEX_URL"} "$program" run quickstart_cpu --out "out/$name" >"$name.log" 2>&1) || fail "$name: quickstart: $(tail -3 "$work/$name.log")"
    (cd "$work" && "$program" receipt "out/$name/manifest.json" >/dev/null) || fail "$name: the receipt does not verify"
    echo "$name: quickstart to its receipt in $(($(date +%s) - begin)) s"
  fi
  echo "$name: ok"
}

# The quickstart's weights: this tree's where it has them (./dev weights), else of the index that PIP_INDEX_URL names.
[ ! -d "$root/weights" ] || ln -s "$root/weights" "$work/weights"
tar -C "$work" -xzf "$files/mindxtrain-$version-linux-$(uname -m).tar.gz"
asks_no_newer "$work/mindxtrain-$version"
for f in "$work/mindxtrain-$version"/share/man/man1/*.gz; do
  ! zcat "$f" | grep -q "$root" || fail "$f: holds a path of the folder that it was built in"
done
completes() {  # NAME SHARE ZSH_FOLDER
  local f
  for f in bash-completion/completions/mindxtrain fish/vendor_completions.d/mindxtrain.fish "zsh/$3/_mindxtrain"; do
    grep -q quickstart_cpu "$2/$f" 2>/dev/null || fail "$1: $2/$f: completes no recipe"
  done
  [ "$(head -1 "$2/zsh/$3/_mindxtrain")" = "#compdef mindxtrain" ] || fail "$1: zsh does not know what its file is for"
}
notices() {  # NAME FOLDER
  local f
  for f in libdnnl2 libgomp1 libzstd-dev nlohmann-json3-dev; do [ -s "$2/$f" ] || fail "$1: without the notices of $f"; done
}
completes tarball "$work/mindxtrain-$version/share" site-functions
notices tarball "$work/mindxtrain-$version/share/doc/mindxtrain/licences"
starts unpacked "$work/mindxtrain-$version/bin/mindxtrain"
mkdir "$work/old" && printf '#!/bin/sh\necho glibc 2.31\n' >"$work/old/getconf" && chmod +x "$work/old/getconf"
rc=0
said=$(PATH=$work/old:$PATH sh "$work/mindxtrain-$version/install.sh" "$work/none" 2>&1) || rc=$?
[ $rc = 3 ] && [[ $said == *"2.31"*"2.34 or newer"* ]] && [ ! -e "$work/none" ] || fail "install.sh with an old glibc: $rc: $said"
rc=0
said=$(env -u HOME sh "$work/mindxtrain-$version/install.sh" 2>&1) || rc=$?
[ $rc = 1 ] && [[ $said == *"HOME is not set: name a folder"* ]] || fail "install.sh without a home: $rc: $said"
rc=0
said=$(HOME=$work sh "$work/mindxtrain-$version/install.sh" --prefix=x 2>&1) || rc=$?
[ $rc = 1 ] && [[ $said == *"there are no options"* ]] || fail "install.sh with an option: $rc: $said"
said=$(cd "$work" && HOME=$work sh "mindxtrain-$version/install.sh" "a folder" 2>&1)
[[ $said == *"export PATH=\"$work/a folder/bin:"* ]] || fail "install.sh into a relative folder: $said"
HOME=$work sh "$work/mindxtrain-$version/install.sh" "$work/prefix" >/dev/null
# A disk that is full when it is installed anew: the last file of the library's folder does not fit.
printf '#!/bin/sh\n/bin/cp "$@"\nexit 1\n' >"$work/old/cp" && chmod +x "$work/old/cp" && rm "$work/old/getconf"
rc=0
said=$(PATH=$work/old:$PATH sh "$work/mindxtrain-$version/install.sh" "$work/prefix" 2>&1) || rc=$?
[ $rc = 1 ] && [[ $said == *"works as before"* ]] && [ -z "$(find "$work/prefix" -name '*.part')" ] || fail "install.sh on a full disk: $rc: $said"
starts tarball "$work/prefix/bin/mindxtrain"
dpkg-deb -x "$files"/mindxtrain_"$version"_*.deb "$work/deb"
depends=$(dpkg-deb -f "$files"/mindxtrain_"$version"_*.deb Depends)
! grep -qE 'fmt|dnnl|hwy|gomp|opencl' <<<"$depends" || fail "deb: depends on what it brings: $depends"
completes deb "$work/deb/usr/share" vendor-completions
notices deb "$work/deb/usr/share/doc/mindxtrain/licences"
starts deb "$work/deb/usr/bin/mindxtrain"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-index --no-deps "$files"/mindxtrain-"$version"-*.whl
completes wheel "$work/venv/share" site-functions
notices wheel "$work/venv/share/doc/mindxtrain/licences"
starts wheel "$work/venv/bin/mindxtrain"
# The object for CUDA: found where pip puts it, and stopped by nothing but the driver that this machine has not, or used.
if compgen -G "$files/mindxtrain_cuda-$version-*.whl" >/dev/null; then
  "$work/venv/bin/pip" install -q "$files"/mindxtrain_cuda-"$version"-*.whl || fail "wheel: what CUDA's object wants cannot be had"
  asks_no_newer "$work/venv/lib/python3"*/site-packages/mindxtrain_cuda
  [ "$(stat -c %s "$work/venv/lib/python3"*/site-packages/mindxtrain_cuda/*.so)" -le 60000000 ] || fail "wheel: CUDA's object is larger than 60 MB"
  said=$(cd "$work" && env -i HOME="$work" PATH=/usr/bin:/bin "$work/venv/bin/mindxtrain" version)
  [[ $said != *"CUDA is not available"* ]] || fail "wheel: CUDA's object does not load: $said"
  echo "cuda: ok ($(sed -n 's/^cuda *//p' <<<"$said"))"
fi
# The Python module, which wants numpy and nanobind-backend: its own test, on what was installed.
if compgen -G "$files/mindxtrain_python-$version-*.whl" >/dev/null; then
  "$work/venv/bin/pip" install -q "$files"/mindxtrain_python-"$version"-*.whl || fail "wheel: what the module wants cannot be had"
  asks_no_newer "$work/venv"
  notices module "$work/venv/lib/python3"*/site-packages/mindxtrain_python-"$version".dist-info/licenses/licences
  (cd "$work" && env -i HOME="$work" HF_HUB_OFFLINE=1 "$work/venv/bin/python" "$root/tests/python/module_test.py" "$work/venv/bin/mindxtrain" "$root") \
    >"$work/module.log" 2>&1 || fail "wheel: the module does not work: $(tail -3 "$work/module.log")"
  echo "module: ok"
fi

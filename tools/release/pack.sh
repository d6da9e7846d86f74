#!/usr/bin/env bash
# Tarball, .deb and wheels out of an installed tree; the object for CUDA, where it was built, in a tarball and a wheel of its own. The same
# tree and date give the same bytes.
# usage: pack.sh STAGE OUT VERSION      STAGE: cmake --install --prefix STAGE; SOURCE_DATE_EPOCH dates everything; CUDA_WHEELS: NVIDIA's;
#        LINKED: Debian's packages of the libraries that are linked
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) stage=$(realpath "$1") out=$2 version=$3
: "${SOURCE_DATE_EPOCH:?the date of the release, seconds}" "${LINKED:?packages of the libraries that are linked}"
arch=$(dpkg --print-architecture) machine=$(uname -m)
mkdir -p "$out" && out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

pages() {  # FOLDER: a man page for the program and one a verb, from what --help says
  local PATH=$stage/bin:$PATH program=mindxtrain verb text name  # by its name: help says how it was called
  mkdir -p "$1"
  for verb in "" $("$program" help | sed -n '/^Subcommands:/,$s/^  \([a-z]\+\) .*/\1/p'); do
    name=mindxtrain${verb:+-$verb}
    # shellcheck disable=SC2086
    text=$("$program" help $verb | sed -e 's/\\/\\e/g' -e "s/^[.']/\\\\\&&/" -e 's/-/\\-/g')
    printf '.TH %s 1 "%s" "mindxtrain %s"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n%s\n.fi\n' "${name^^}" \
      "$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)" "$version" "$name" "$(head -1 <<<"$text")" "$text" | gzip -9n >"$1/$name.1.gz"
  done
}
complete_shells() {  # SHARE
  local program=$stage/bin/mindxtrain
  mkdir -p "$1/bash-completion/completions" "$1/fish/vendor_completions.d" "$1/zsh/site-functions"
  "$program" completion bash >"$1/bash-completion/completions/mindxtrain"
  "$program" completion fish >"$1/fish/vendor_completions.d/mindxtrain.fish"
  "$program" completion zsh >"$1/zsh/site-functions/_mindxtrain"
}
owners() { dpkg -S "*/$(basename "$1")" 2>/dev/null | cut -d: -f1 | sort -u; }  # FILE: Debian's packages that have it
notices() {  # FOLDER: what others' licences want told with their work, as Debian has it; libgomp1's is libstdc++'s too
  local f package packages
  read -ra packages <<<"${LINKED//$'\n'/ }"
  for f in "$tree"/lib/mindxtrain/*.so*; do
    for package in $(owners "$f"); do packages+=("$package"); done
  done
  mkdir -p "$1"
  for package in "${packages[@]}"; do cp -L "/usr/share/doc/$package/copyright" "$1/$package"; done
  for f in "$here"/../../.cache/python-venv/lib/python3*/site-packages/nanobind-*.dist-info/licenses/LICENSE; do
    [ ! -f "$f" ] || cp "$f" "$1/nanobind"
  done
}
age() { find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }

tree=$work/mindxtrain-$version
mkdir -p "$tree"
cp -a "$stage/." "$tree"
[ ! -d "$tree/python" ] || mv "$tree/python" "$work/python"  # the wheel's alone
pages "$tree/share/man/man1"
complete_shells "$tree/share"
notices "$tree/share/doc/mindxtrain/licences"
find "$work" -type f \( -name 'mindxtrain' -o -name '*.so*' \) -path '*/bin/*' -o -type f -name '*.so*' | while read -r f; do strip --strip-unneeded "$f"; done

# CUDA's object stays out of the files for everybody: they would be three times as large.
cuda=lib/mindxtrain/libmindxtrain_cuda.so
if [ -f "$tree/$cuda" ]; then
  mkdir -p "$work/cuda/mindxtrain-$version/lib/mindxtrain"
  mv "$tree/$cuda" "$work/cuda/mindxtrain-$version/$cuda"
  age "$work/cuda"
  tar -C "$work/cuda" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "mindxtrain-$version" |
    gzip -9n >"$out/mindxtrain-cuda-$version-linux-$machine.tar.gz"
fi

# The tarball unpacks anywhere and runs there; install.sh copies it to a prefix.
cp "$here/install.sh" "$tree/install.sh"
age "$tree"
tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "mindxtrain-$version" |
  gzip -9n >"$out/mindxtrain-$version-linux-$machine.tar.gz"
rm "$tree/install.sh"

deb=$work/deb
mkdir -p "$deb/DEBIAN" "$deb/usr"
cp -a "$tree/." "$deb/usr"
mv "$deb/usr/share/doc/mindxtrain/LICENSE" "$deb/usr/share/doc/mindxtrain/copyright"
mkdir -p "$deb/usr/share/zsh/vendor-completions"  # where Debian's zsh looks
mv "$deb/usr/share/zsh/site-functions/_mindxtrain" "$deb/usr/share/zsh/vendor-completions/"
rmdir "$deb/usr/share/zsh/site-functions"
# What lies in lib/mindxtrain comes along: Debian's packages of the same (libfmt9) are not in every Debian.
bundled=()
for f in "$deb"/usr/lib/mindxtrain/*.so*; do
  for package in $(owners "$f"); do bundled+=("-x$package"); done
done
mkdir -p "$work/debian" && printf 'Source: mindxtrain\nPackage: mindxtrain\nArchitecture: any\n' >"$work/debian/control"
# shellcheck disable=SC2046  # an option a library
depends=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "${bundled[@]}" -l"$deb/usr/lib/mindxtrain" -e"$deb/usr/bin/mindxtrain" \
  $(find "$deb/usr/lib/mindxtrain" -name '*.so*' -printf '-e%p ') 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
cat >"$deb/DEBIAN/control" <<TEXT
Package: mindxtrain
Version: $version
Architecture: $arch
Maintainer: The mindXtrain project <mindxtrain@users.noreply.github.com>
Depends: $depends
Recommends: ca-certificates
Section: science
Priority: optional
Installed-Size: $(du -sk "$deb/usr" | cut -f1)
Description: fine-tunes language models on one machine, one native program
 A base model and your data go in; a trained, evaluated, quantized model and a
 receipt that anyone can verify come out.
TEXT
age "$deb"
dpkg-deb --root-owner-group -Zxz -b "$deb" "$out/mindxtrain_${version}_$arch.deb" >/dev/null

[ ! -d "$work/cuda" ] || cp -p "$work/cuda/mindxtrain-$version/$cuda" "$tree/$cuda"  # the wheels tell it apart themselves
python3 "$here/wheel.py" "$tree" "$work/python" "$out" "$version" "$machine"
ls -l "$out"

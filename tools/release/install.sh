#!/bin/sh
# Copies the program to PREFIX (first argument, else ~/.local): bin, lib/mindxtrain, share. Run again, it replaces what it copied.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:-$HOME/.local}
# The loader's own words name no remedy.
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')
if [ "$(printf '%s\n2.34\n' "${glibc:-0}" | sort -V | head -n 1)" != 2.34 ]; then
  echo "this system has ${glibc:+glibc }${glibc:-no glibc}, and mindxtrain wants 2.34 or newer (Debian 12, Ubuntu 22.04, Fedora 35, RHEL 9): take a newer system or a container of one (ops/Containerfile)" >&2
  exit 3
fi
mkdir -p "$prefix/bin" "$prefix/lib" "$prefix/share" || { echo "$prefix: cannot be written: name a folder, as in ./install.sh /opt/mindxtrain" >&2; exit 1; }
rm -rf "$prefix/lib/mindxtrain"
cp -R "$here/lib/mindxtrain" "$prefix/lib/"
cp -R "$here/share/." "$prefix/share/"
cp "$here/bin/mindxtrain" "$prefix/bin/.mindxtrain.part" && mv -f "$prefix/bin/.mindxtrain.part" "$prefix/bin/mindxtrain"
"$prefix/bin/mindxtrain" --version
case ":$PATH:" in *":$prefix/bin:"*) ;; *) echo "now: export PATH=$prefix/bin:\$PATH" ;; esac

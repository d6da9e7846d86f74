#!/bin/sh
# Copies the program to PREFIX (first argument, else ~/.local): bin, lib/mindxtrain, share. Run again, it replaces what it copied.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1-${HOME:+$HOME/.local}}
# The loader's own words name no remedy.
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')
if [ "$(printf '%s\n2.34\n' "${glibc:-0}" | sort -V | head -n 1)" != 2.34 ]; then
  echo "this system has ${glibc:+glibc }${glibc:-no glibc}, and mindxtrain wants 2.34 or newer (Debian 12, Ubuntu 22.04, Fedora 35, RHEL 9): take a newer system or a container of one (ops/Containerfile)" >&2
  exit 3
fi
refused() { echo "$1: name a folder, as in ./install.sh /opt/mindxtrain" >&2; exit 1; }
[ $# = 0 ] || [ -n "$1" ] || refused "the folder's name is empty"
[ -n "$prefix" ] || refused "HOME is not set"
[ $# -le 1 ] || refused "$*: one folder is wanted"
case $prefix in -*) refused "$prefix: there are no options" ;; /*) ;; *) prefix=$PWD/$prefix ;; esac
mkdir -p "$prefix/bin" "$prefix/lib" "$prefix/share" 2>/dev/null || refused "$prefix: cannot be written"
for folder in bin lib share; do [ -w "$prefix/$folder" ] || refused "$prefix/$folder: cannot be written"; done
# What is there stays whole until all of the new is beside it.
lib=$prefix/lib/.mindxtrain.part bin=$prefix/bin/.mindxtrain.part
trap 'rm -rf "$lib" "$bin"' EXIT
rm -rf "$lib"
if ! cp -R "$here/lib/mindxtrain" "$lib" || ! cp "$here/bin/mindxtrain" "$bin" || ! cp -R "$here/share/." "$prefix/share/"; then
  echo "$prefix: not installed, and what was there works as before" >&2
  exit 1
fi
rm -rf "$prefix/lib/mindxtrain"
mv "$lib" "$prefix/lib/mindxtrain"
mv -f "$bin" "$prefix/bin/mindxtrain"
"$prefix/bin/mindxtrain" --version
case ":$PATH:" in *":$prefix/bin:"*) ;; *) echo "now: export PATH=\"$prefix/bin:\$PATH\"" ;; esac

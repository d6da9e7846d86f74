#!/bin/sh
# Copies the program to PREFIX (first argument, else ~/.local): bin, lib/mindxtrain, share. Run again, it replaces what it copied.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:-$HOME/.local}
mkdir -p "$prefix/bin" "$prefix/lib" "$prefix/share" || { echo "$prefix: cannot be written: name a folder, as in ./install.sh /opt/mindxtrain" >&2; exit 1; }
rm -rf "$prefix/lib/mindxtrain"
cp -R "$here/lib/mindxtrain" "$prefix/lib/"
cp -R "$here/share/." "$prefix/share/"
cp "$here/bin/mindxtrain" "$prefix/bin/.mindxtrain.part" && mv -f "$prefix/bin/.mindxtrain.part" "$prefix/bin/mindxtrain"
"$prefix/bin/mindxtrain" --version
case ":$PATH:" in *":$prefix/bin:"*) ;; *) echo "now: export PATH=$prefix/bin:\$PATH" ;; esac

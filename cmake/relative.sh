#!/usr/bin/env bash
# A compiler's command with sources and headers named from the build folder, as ccache names them: what __FILE__ says is then the same in
# every folder, with a cache and without one.
# usage: relative.sh BUILD SOURCE COMPILER ARGUMENT…
set -euo pipefail
build=$1 source=$2
shift 2
arguments=()
for a; do
  case $a in
    -f* | -D*) ;;  # what is to be replaced, and texts
    *) a=${a//"$build/"/} a=${a//"$source/"/../../} ;;
  esac
  arguments+=("$a")
done
exec "${arguments[@]}"

#!/bin/bash
# On a GPU machine: builds, then measures the kernels and the training step. usage: run.sh DEPS OUT
set -e
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/../../tests/gpu/build_there.sh" "$here/../.." "$1" "$2"
cd "$2"
./gpu_kernels 8192 4096 > kernels.json
./gpu_step 8b 8 4096 2 33 | tee step_8b.json | tail -1

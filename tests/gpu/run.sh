#!/bin/bash
# On a GPU machine: builds, runs every operation and a whole small model against the reference, then compute-sanitizer's memcheck and
# racecheck. usage: run.sh DEPS OUT (build_there.sh says what DEPS holds)
set -e
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/build_there.sh" "$here/../.." "$1" "$2"
cd "$2"
./gpu_ops_test
compute-sanitizer --tool memcheck ./gpu_ops_test --gtest_filter='-*Products*:*Cudnn*:*Plain*' | tail -3
compute-sanitizer --tool racecheck ./gpu_ops_test --gtest_filter='*Norm*:*Rotary*:*Embedding*:*Cached*:*AdamW*:*Bias*' | tail -3

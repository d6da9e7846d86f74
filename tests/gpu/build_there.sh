#!/bin/bash
# Builds libmindxtrain_cuda.so, the GPU tests and benchmarks without CMake and Debian's packages, with every core: for a GPU machine
# that has nvcc, g++, NVIDIA's wheels and little else. usage: build_there.sh SOURCE_ROOT DEPS OUT
# DEPS holds include/ (fmt, spdlog, nlohmann, gtest, sodium, cudnn_frontend), lib/ (libgtest.a, libgtest_main.a, libsodium.a) and blake3/ (its C folder).
set -e
S=$(realpath "$1") D=$(realpath "$2") O=$3
mkdir -p "$O/obj"; O=$(realpath "$O")
SP=$(python3 -c "import nvidia;print(list(nvidia.__path__)[0])")
NVRTC=$(dirname "$(find "$SP" /usr/local/cuda/ -name nvrtc.h 2>/dev/null | head -1)")
INC="-I$S/src -isystem $D/include -isystem $D/blake3 -isystem $SP/cu13/include -isystem $SP/cudnn/include -isystem $NVRTC -isystem /usr/local/cuda/include"
CXX="g++ -std=c++20 -O2 -fPIC -ffp-contract=off -fvisibility=hidden -DFMT_HEADER_ONLY -DSPDLOG_FMT_EXTERNAL -DNV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING $INC"
NV="nvcc -std=c++20 -gencode=arch=compute_90a,code=sm_90a -O3 -lineinfo -Xcompiler -fPIC,-fvisibility=hidden -I$S/src"
cd "$S"
{
  for f in src/kernels/cuda/attention_cudnn.cc $(ls src/base/*.cc src/device/*.cc src/device/cuda/*.cc src/kernels/*.cc src/kernels/reference/*.cc src/kernels/cuda/*.cc src/graph/*.cc src/graph/*/*.cc src/models/*.cc src/runtime/*.cc $(find src/formats -name '*.cc' | grep -v peft) | grep -v attention_cudnn) tests/gpu/*.cc bench/gpu/*.cc; do
    [ "$f" = src/base/threads.cc ] && extra=-fopenmp || extra=
    x=$CXX; case $f in *attention_cudnn.cc) x="${CXX/-O2/-O1}";; esac
    echo "$x $extra -Itests/gpu -c $f -o $O/obj/$(echo "$f" | tr / _).o"
  done
  for f in src/kernels/gpu/*.cu; do echo "$NV -c $f -o $O/obj/$(echo "$f" | tr / _).o"; done
  for f in blake3 blake3_dispatch blake3_portable; do echo "gcc -O2 -fPIC -c $D/blake3/$f.c -o $O/obj/b3_$f.o"; done
  for f in "$D"/blake3/*_unix.S; do echo "gcc -c $f -o $O/obj/b3_$(basename "$f").o"; done
} | xargs -P "$(nproc)" -I{} sh -c '{} || { echo "FAILED: {}" >&2; exit 255; }'
cd "$O/obj"
BASE="$(ls src_base_*.o) $(ls b3_*.o) $D/lib/libsodium.a"
g++ -shared -o ../libmindxtrain_cuda.so src_device_cuda_*.o src_kernels_cuda_*.o src_kernels_gpu_*.o src_kernels_checks.cc.o $BASE -Wl,--exclude-libs,ALL \
  -Wl,-rpath,'$ORIGIN':"$SP/cu13/lib":"$SP/cudnn/lib":/usr/local/cuda/lib64 -L"$SP/cu13/lib" -L/usr/local/cuda/lib64 -l:libcudart.so.13 -l:libcublasLt.so.13 -ldl -lgomp
KERNELS="$(ls src_kernels_reference_*.o) src_kernels_checks.cc.o src_kernels_plan.cc.o src_kernels_backend.cc.o $(ls src_device_*.o | grep -v cuda) $BASE"
ENGINE="$(ls src_models_*.o src_runtime_*.o src_graph_*.o src_formats_*.o)"
g++ -o ../gpu_ops_test tests_gpu_*.o $ENGINE $KERNELS "$D/lib/libgtest.a" "$D/lib/libgtest_main.a" -ldl -lgomp -lpthread
g++ -o ../gpu_kernels bench_gpu_kernels.cc.o $KERNELS -ldl -lgomp
g++ -o ../gpu_step bench_gpu_step.cc.o $ENGINE $KERNELS -ldl -lgomp

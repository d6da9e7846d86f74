// What the kernels of this folder need of a GPU language, so that one source compiles as CUDA (compute capability 8.0
// and later) and as HIP (gfx942, wavefront 64), each into a namespace of its own.
#pragma once

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define MXT_GPU_NS hip
#define __grid_constant__  // CUDA's: arguments of a kernel are in constant memory here in any case
// HIP 5's __syncthreads() calls this, which newer compilers do not bring. These kernels have no wider fence.
extern "C" __device__ inline void __atomic_work_item_fence(__cl_mem_fence_flags, __memory_order, __memory_scope) {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
}
#else
#include <cuda_runtime.h>

#include "device/cuda/card.h"
#define MXT_GPU_NS cuda
#endif

#include <cstdint>

#include "kernels/api.h"

namespace mxt::kernels::MXT_GPU_NS {

#if defined(__HIP__)
using Stream = hipStream_t;
inline constexpr int kWarp = 64;
#else
using Stream = cudaStream_t;
inline constexpr int kWarp = 32;
#endif

// Throws where the last launch was refused. `what` names the kernel.
void check_launch(const char* what);
// A limit of these kernels that a call broke: kMissing.
void require(bool ok, const char* what);

#if defined(__CUDACC__) || defined(__HIP__)

// A kernel launched by launch_dependent() may start while the one before it on the stream still runs: the time between
// two short kernels goes. Before anything that another kernel writes is read, and before anything is written, it calls
// wait_for_previous_grid(), in every block: then all before it have ended, since each of them has waited likewise.
// allow_next_grid() lets the one after it in as soon as all blocks of this one have begun. Cards that cannot do so run
// them one after the other.
__device__ __forceinline__ void wait_for_previous_grid() {
#if !defined(__HIP__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void allow_next_grid() {
#if !defined(__HIP__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Into the second-level cache, where a line that another kernel writes stays right: allowed before
// wait_for_previous_grid().
__device__ __forceinline__ void prefetch(const void* p) {
#if !defined(__HIP__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}
// From the cache that all multiprocessors share: what another block of this kernel has written.
__device__ __forceinline__ float read_shared_level(const float* p) {
#if defined(__HIP__)
  return *static_cast<const volatile float*>(p);
#else
  return __ldcg(p);
#endif
}
template <typename... P, typename... A>
void launch_dependent(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, Stream stream, A... a) {
#if defined(__HIP__)
  kernel<<<grid, block, shared, stream>>>(static_cast<P>(a)...);
#else
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t c{};
  c.gridDim = grid, c.blockDim = block, c.dynamicSmemBytes = shared, c.stream = stream, c.attrs = &early,
  c.numAttrs = device::card().early ? 1 : 0;
  cudaLaunchKernelEx(&c, kernel, static_cast<P>(a)...);  // check_launch() sees a refusal
#endif
}

struct bf16 {
  uint16_t bits;
};

template <typename T>
__device__ __forceinline__ T shuffle_xor(T v, int mask) {
#if defined(__HIP__)
  return __shfl_xor(v, mask, kWarp);
#else
  return __shfl_xor_sync(0xffffffffu, v, mask);
#endif
}

__device__ __forceinline__ void sync_warp() {
#if defined(__HIP__)
  __builtin_amdgcn_wave_barrier();
#else
  __syncwarp();
#endif
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }

// Two floats to two bf16, rounded to nearest even; the first lies in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
#if defined(__HIP__)
  auto round = [](float f) {
    const uint32_t u = __float_as_uint(f);
    return (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  };
  return (round(lo) & 0xffffu) | (round(hi) << 16);
#else
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
#endif
}

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  return {static_cast<uint16_t>(pack_bf16(x, 0.0f))};
}

// V elements as they lie in memory: 16 bytes at a time, or single elements where shapes or addresses are odd.
template <typename T, int V>
struct Raw;
template <typename T>
struct Raw<T, 1> {
  T x;
  __device__ __forceinline__ void unpack(float (&f)[1]) const { f[0] = to_float(x); }
  __device__ __forceinline__ static Raw pack(const float (&f)[1]) { return {from_float<T>(f[0])}; }
};
template <>
struct Raw<float, 4> {
  float4 x;
  __device__ __forceinline__ void unpack(float (&f)[4]) const { f[0] = x.x, f[1] = x.y, f[2] = x.z, f[3] = x.w; }
  __device__ __forceinline__ static Raw pack(const float (&f)[4]) { return {make_float4(f[0], f[1], f[2], f[3])}; }
};
template <>
struct Raw<bf16, 8> {
  uint4 x;
  __device__ __forceinline__ void unpack(float (&f)[8]) const {
    const uint32_t w[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      f[2 * i] = __uint_as_float(w[i] << 16), f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
  }
  __device__ __forceinline__ static Raw pack(const float (&f)[8]) {
    return {make_uint4(pack_bf16(f[0], f[1]), pack_bf16(f[2], f[3]), pack_bf16(f[4], f[5]), pack_bf16(f[6], f[7]))};
  }
};

template <typename T, int V>
__device__ __forceinline__ Raw<T, V> load(const void* base, int64_t element) {
  return *reinterpret_cast<const Raw<T, V>*>(static_cast<const T*>(base) + element);
}
template <typename T, int V>
__device__ __forceinline__ void store(void* base, int64_t element, Raw<T, V> r) {
  *reinterpret_cast<Raw<T, V>*>(static_cast<T*>(base) + element) = r;
}

// The same where nobody reads it soon: the line leaves the cache first. What a kernel rewrites in place is written back
// up to a fifth faster so (cross-entropy, SwiGLU's backward).
template <typename T, int V>
__device__ __forceinline__ void store_streaming(void* base, int64_t element, Raw<T, V> r) {
#if !defined(__HIP__)
  if constexpr (sizeof(r) == 16) {
    __stcs(reinterpret_cast<uint4*>(static_cast<T*>(base) + element), *reinterpret_cast<const uint4*>(&r));
    return;
  }
#endif
  store<T, V>(base, element, r);
}

// The same for what nobody reads again soon: lines that somebody will read stay instead.
template <typename T, int V>
__device__ __forceinline__ Raw<T, V> load_streaming(const void* base, int64_t element) {
#if !defined(__HIP__)
  if constexpr (sizeof(Raw<T, V>) == 16) {
    const uint4 x = __ldcs(reinterpret_cast<const uint4*>(static_cast<const T*>(base) + element));
    return *reinterpret_cast<const Raw<T, V>*>(&x);
  }
#endif
  return load<T, V>(base, element);
}

// The row of this block. Products leave their rows, and take them, from the first to the last. Kernels between two
// products go from the last to the first: they begin with what still lies in the second-level cache and end with what
// the next product begins with. Attention's gradient ends with the first rows, so the rotation's goes with blockIdx.x.
__device__ __forceinline__ int64_t row_of_block() { return gridDim.x - 1 - blockIdx.x; }

// Parameters come in either type whatever the activations are.
struct Weights {
  const void* p;
  bool is_bf16;
  template <int V>
  __device__ __forceinline__ void get(int64_t i, float (&f)[V], float missing) const {
    if (p == nullptr) {
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] = missing;
    } else if (is_bf16) {
      if constexpr (V == 8) {
        load<bf16, 8>(p, i).unpack(f);
      } else {
#pragma unroll
        for (int k = 0; k < V; ++k) f[k] = to_float(static_cast<const bf16*>(p)[i + k]);
      }
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] = static_cast<const float*>(p)[i + k];
    }
  }
  __device__ __forceinline__ void prefetch_at(int64_t i) const {
    if (p != nullptr) prefetch(static_cast<const char*>(p) + i * (is_bf16 ? 2 : 4));
  }
};

// Sums over the lanes of a warp, then over the warps of the block in their order: the same bits every time.
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int m = kWarp / 2; m > 0; m /= 2) v += shuffle_xor(v, m);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int m = kWarp / 2; m > 0; m /= 2) v = fmaxf(v, shuffle_xor(v, m));
  return v;
}
// Beyond so many warps it costs more that every thread goes over all of them than to wait for one that does.
inline constexpr int kFewWarps = 8;
// `space` holds one float per warp; the call begins and ends with a barrier, so it may be reused at once.
__device__ __forceinline__ float block_sum(float v, float* space) {
  v = warp_sum(v);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) space[threadIdx.x / kWarp] = v;
  __syncthreads();
  const int warps = (static_cast<int>(blockDim.x) + kWarp - 1) / kWarp;
  float total = 0;
  if (warps <= kFewWarps || threadIdx.x == 0)
#pragma unroll 8
    for (int w = 0; w < warps; ++w) total += space[w];
  if (warps <= kFewWarps) return total;
  if (threadIdx.x == 0) space[0] = total;
  __syncthreads();
  return space[0];
}
__device__ __forceinline__ float block_max(float v, float* space) {
  v = warp_max(v);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) space[threadIdx.x / kWarp] = v;
  __syncthreads();
  const int warps = (static_cast<int>(blockDim.x) + kWarp - 1) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  if (warps > kFewWarps) return warp_max(lane < warps ? space[lane] : -INFINITY);
  float top = space[0];
  for (int w = 1; w < warps; ++w) top = fmaxf(top, space[w]);
  return top;
}

#endif  // device compiler

inline constexpr int64_t elements_of_16_bytes(DType t) { return t == DType::kBF16 ? 8 : 4; }
inline bool wide(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
// Every row begins at a multiple of 16 bytes.
inline bool even_rows(const ConstMat& m) { return m.ld * static_cast<int64_t>(size_of(m.type)) % 16 == 0 && wide(m.p); }
// A matrix that may be read 16 bytes at a time; an absent one is no obstacle.
inline bool wide(const ConstMat& m) {
  const int64_t v = elements_of_16_bytes(m.type);
  return m.p == nullptr || (wide(m.p) && m.cols % v == 0 && (m.ld % v == 0 || m.rows <= 1));
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace mxt::kernels::MXT_GPU_NS

// Instantiates the statement for the activation type (T) and the access width (V).
#define MXT_GPU_DISPATCH(type, is_wide, ...)   \
  do {                                         \
    if ((type) == DType::kBF16 && (is_wide)) { \
      using T = bf16;                          \
      constexpr int V = 8;                     \
      __VA_ARGS__;                             \
    } else if ((type) == DType::kBF16) {       \
      using T = bf16;                          \
      constexpr int V = 1;                     \
      __VA_ARGS__;                             \
    } else if (is_wide) {                      \
      using T = float;                         \
      constexpr int V = 4;                     \
      __VA_ARGS__;                             \
    } else {                                   \
      using T = float;                         \
      constexpr int V = 1;                     \
      __VA_ARGS__;                             \
    }                                          \
  } while (0)

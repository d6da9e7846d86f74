// E4M3 on the device: the conversion, a row's scale (base/types.h: f8e4m3_row_scale), and the stores. Rows that are
// quantised lie in one block, so that the largest magnitude is known before the first store.
#pragma once

#include "kernels/gpu/gpu.h"

#if !defined(__HIP__)
#include <cuda_fp8.h>
#endif

namespace mxt::kernels::MXT_GPU_NS {

inline constexpr int kRowThreads = 1024, kRowPacks = 4;
// Threads of a block that keeps a row in registers, at most kRowPacks packs a thread where the row allows it.
inline int row_threads(int64_t packs) {
  const int64_t t = ceil_div(ceil_div(packs, kRowPacks), kWarp) * kWarp;
  return static_cast<int>(t < kRowThreads ? t : kRowThreads);
}

// The two lowest bytes: lo, then hi; nearest even, cut at ±448.
__device__ __forceinline__ uint32_t pack_e4m3(float lo, float hi) {
#if defined(__HIP__)
  auto one = [](float f) -> uint32_t {
    const uint32_t u = __float_as_uint(f), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return sign | 0x7fu;
    const float v = __uint_as_float(a);
    if (v >= 448.0f) return sign | 0x7eu;
    if (v < 0.015625f) return sign | static_cast<uint32_t>(rintf(v * 512.0f));
    return sign | (((a + 0x7ffffu + (a >> 20 & 1u)) >> 20) - (120u << 3));
  };
  return one(lo) | one(hi) << 8;
#else
  return __nv_cvt_float2_to_fp8x2(make_float2(lo, hi), __NV_SATFINITE, __NV_E4M3);
#endif
}
__device__ __forceinline__ uint32_t to_e4m3(float f) { return pack_e4m3(f, 0.0f) & 0xffu; }
__device__ __forceinline__ float from_e4m3(uint32_t b) {
  const float sign = b & 0x80u ? -1.0f : 1.0f;
  const uint32_t exponent = b >> 3 & 15u, mantissa = b & 7u;
  if (exponent == 15u && mantissa == 7u) return __uint_as_float(0x7fc00000u);
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0.001953125f;
  return __uint_as_float((b & 0x80u) << 24 | (exponent + 120u) << 23 | mantissa << 20);
}

__device__ __forceinline__ float row_scale(float largest) {
  if (!(largest > 0)) return 1.0f;
  const int exponent = static_cast<int>((__float_as_uint(largest) + 0x1fffffu) >> 23) - 8;
  return __uint_as_float(static_cast<uint32_t>(exponent < 1 ? 1 : exponent) << 23);
}

__device__ __forceinline__ float low_half(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_half(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
// Pairs of bf16. Times powers of two they stay exact.
__device__ __forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b) {
#if defined(__HIP__)
  return pack_bf16(low_half(a) * low_half(b), high_half(a) * high_half(b));
#else
  uint32_t y;
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
#else  // Ampere has no product alone; adding -0 changes no bit
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(0x80008000u));
#endif
  return y;
#endif
}
__device__ __forceinline__ uint32_t larger_pairs(uint32_t a, uint32_t b) {
#if defined(__HIP__)
  return pack_bf16(fmaxf(low_half(a), low_half(b)), fmaxf(high_half(a), high_half(b)));
#else
  uint32_t y;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
#endif
}
__device__ __forceinline__ Raw<bf16, 8> multiply(const Raw<bf16, 8>& a, const Raw<bf16, 8>& b) {
  return {make_uint4(multiply_pairs(a.x.x, b.x.x), multiply_pairs(a.x.y, b.x.y), multiply_pairs(a.x.z, b.x.z),
                     multiply_pairs(a.x.w, b.x.w))};
}
__device__ __forceinline__ Raw<bf16, 8> multiply(const Raw<bf16, 8>& a, uint32_t pair) {
  return multiply(a, Raw<bf16, 8>{make_uint4(pair, pair, pair, pair)});
}
// The inverse of a power of two, twice.
__device__ __forceinline__ uint32_t inverse_pair(float power) {
  const float inverse = __uint_as_float(0x7f000000u - __float_as_uint(power));
  return pack_bf16(inverse, inverse);
}

__device__ __forceinline__ uint2 eight_e4m3(const float (&f)[8], float inverse) {
  return make_uint2(pack_e4m3(f[0] * inverse, f[1] * inverse) | pack_e4m3(f[2] * inverse, f[3] * inverse) << 16,
                    pack_e4m3(f[4] * inverse, f[5] * inverse) | pack_e4m3(f[6] * inverse, f[7] * inverse) << 16);
}
__device__ __forceinline__ uint2 eight_e4m3(const Raw<bf16, 8>& v) {
  float f[8];
  v.unpack(f);
  return eight_e4m3(f, 1.0f);
}

template <int V>
__device__ __forceinline__ void store_e4m3(uint8_t* to, const float (&f)[V], float inverse) {
  if constexpr (V == 8) {
    *reinterpret_cast<uint2*>(to) = eight_e4m3(f, inverse);
  } else if constexpr (V == 4) {
    *reinterpret_cast<uint32_t*>(to) =
        pack_e4m3(f[0] * inverse, f[1] * inverse) | pack_e4m3(f[2] * inverse, f[3] * inverse) << 16;
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) to[k] = static_cast<uint8_t>(to_e4m3(f[k] * inverse));
  }
}

// Factors of the columns, or none.
struct Channels {
  const float* p;
  template <int V>
  __device__ __forceinline__ void apply(int64_t i, float (&f)[V]) const {
    if (p == nullptr) return;
    if constexpr (V % 4 == 0) {
#pragma unroll
      for (int k = 0; k < V; k += 4) {
        const float4 c = *reinterpret_cast<const float4*>(p + i + k);
        f[k] *= c.x, f[k + 1] *= c.y, f[k + 2] *= c.z, f[k + 3] *= c.w;
      }
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] *= p[i + k];
    }
  }
};

// A row that a block has made, as E4M3, a pack of it at a time: all packs are weighed and looked at, then the block
// settles the row's scale, then all are emitted. Factors of the columns and the row's inverse scale are powers of two,
// so that bf16 stays bf16, in pairs: half of the instructions of floats.
template <typename T, int V>
struct RowHolder {
  Channels channels;
  uint8_t* q;
  float largest = 0, scale = 1;
  uint32_t pair = 0;

  __device__ __forceinline__ Raw<T, V> weigh(const Raw<T, V>& p, int64_t i) const {
    if (channels.p == nullptr) return p;
    float f[V];
    if constexpr (V == 8) {
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] = 1.0f;
      channels.apply<V>(i * V, f);
      return multiply(p, Raw<T, V>::pack(f));
    } else {
      p.unpack(f);
      channels.apply<V>(i * V, f);
      return Raw<T, V>::pack(f);
    }
  }
  __device__ __forceinline__ void look(const Raw<T, V>& p) {
    if constexpr (V == 8) {
      for (const uint32_t of_p : {p.x.x, p.x.y, p.x.z, p.x.w}) pair = larger_pairs(pair, of_p & 0x7fff7fffu);
    } else {
      float f[V];
      p.unpack(f);
#pragma unroll
      for (int k = 0; k < V; ++k) largest = fmaxf(largest, fabsf(f[k]));
    }
  }
  // By all threads of the block; `space`: a float a warp.
  __device__ __forceinline__ void settle(float* row, float* space) {
    if constexpr (V == 8) largest = fmaxf(low_half(pair), high_half(pair));
    scale = row_scale(block_max(largest, space));
    if (threadIdx.x == 0) *row = scale;
  }
  __device__ __forceinline__ void emit(const Raw<T, V>& p, int64_t i) const {
    if constexpr (V == 8) {
      *reinterpret_cast<uint2*>(q + i * V) = eight_e4m3(multiply(p, inverse_pair(scale)));
    } else {
      float f[V];
      p.unpack(f);
      store_e4m3<V>(q + i * V, f, 1.0f / scale);
    }
  }
};

// Packs i, i + blockDim.x, … of the row are a thread's: the first of them `kept` (which the columns' factors go into),
// the rest read back from `y`, where the same thread wrote them.
template <typename T, int V, int Kept>
__device__ __forceinline__ void hold_row(Raw<T, V> (&kept)[Kept], const void* y, int64_t at, int64_t packs,
                                         Channels channels, uint8_t* q, float* scale, float* space) {
  const int64_t step = blockDim.x, tid = threadIdx.x;
  RowHolder<T, V> row{channels, q};
#pragma unroll
  for (int j = 0; j < Kept; ++j)
    if (const int64_t i = tid + j * step; i < packs) kept[j] = row.weigh(kept[j], i), row.look(kept[j]);
  for (int64_t i = tid + Kept * step; i < packs; i += step) row.look(row.weigh(load<T, V>(y, at + i * V), i));
  row.settle(scale, space);
#pragma unroll
  for (int j = 0; j < Kept; ++j)
    if (const int64_t i = tid + j * step; i < packs) row.emit(kept[j], i);
  for (int64_t i = tid + Kept * step; i < packs; i += step) row.emit(row.weigh(load<T, V>(y, at + i * V), i), i);
}

// Where the operands of a kernel with a held copy allow 16 bytes at a time, the copy allows its own width.
inline bool wide(const RowwiseFp8Copy& h) {
  return h.q.p == nullptr || (wide(h.q.p) && h.q.ld % 16 == 0 && wide(h.channel));
}

}  // namespace mxt::kernels::MXT_GPU_NS

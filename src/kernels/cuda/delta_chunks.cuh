// What the kernels of the chunked delta rule share: a warp's products of operands in shared memory in TF32, and how a
// chunk is found and read.
#pragma once

#include "kernels/gpu/async_copy.cuh"
#include "kernels/gpu/element.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/mma.cuh"
#include "kernels/gpu/shared.cuh"

namespace mxt::kernels::cuda::delta {

constexpr int kChunk = 64, kDim = 128;  // tokens; columns of a head's keys and of its values
// Rows of shared matrices, with what keeps their banks apart: bf16 of a head, of half a head; fp32 whose neighbours in
// a row are neighbours of a product's inner index, and fp32 whose rows are that index.
constexpr int kWide = 136, kNarrow = 72, kAlong = 72, kAcross = 68;

struct Coefficients {
  float q_scale, k_scale;  // q̂ = q_scale·q, k̂ = k_scale·k
  float beta, log;         // G
};

struct Args {
  const bf16 *qkv, *ba, *dout;
  const float *a_log, *dt_bias;
  bf16 *out, *dqkv, *dba;
  Coefficients* coefficients;  // [tokens, heads]
  float *inverse, *scores;     // T and P: [tokens, heads, 64], the columns of a token's own chunk
  float *states, *dstates;     // at chunk starts but a document's first; what the chunk before is given for its end
  float *r, *dx;               // [tokens, heads, 128]; afterwards the gradients by k̂ and q̂
  float* dlog;                 // [tokens, heads, 2]
  const int32_t* cu;
  int64_t ldqkv, ldba, ldout, lddout, lddqkv, lddba, documents;
  int key_heads, heads;

  __device__ __forceinline__ int64_t q_at(int64_t token, int head) const {
    return token * ldqkv + static_cast<int64_t>(head * key_heads / heads) * kDim;
  }
  __device__ __forceinline__ int64_t k_at(int64_t token, int head) const {
    return q_at(token, head) + key_heads * kDim;
  }
  __device__ __forceinline__ int64_t v_column(int head) const {
    return (2 * key_heads + head) * static_cast<int64_t>(kDim);
  }
};

// The state at the start of a document's chunk (> 0).
__device__ __forceinline__ int64_t state_at(const Args& a, int64_t begin, int64_t chunk, int head) {
  return ((begin / kChunk + chunk - 1) * a.heads + head) * kDim * kDim;
}

struct Chunk {
  int64_t begin, first;  // the document's first token, the chunk's
  int64_t index;
  int count;  // 0: none
  bool last;  // of its document
};
// Slot cu[d]/64 + d + c is chunk c of document d: no two meet.
__device__ __forceinline__ Chunk chunk_of(const Args& a, int64_t slot) {
  int64_t low = 0, high = a.documents;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (a.cu[middle] / kChunk + middle <= slot)
      low = middle;
    else
      high = middle;
  }
  const int64_t begin = a.cu[low], n = a.cu[low + 1] - begin, index = slot - begin / kChunk - low, at = index * kChunk;
  const int64_t left = n - at;
  return {begin, begin + at, index, static_cast<int>(left < 0 ? 0 : left < kChunk ? left : kChunk), left <= kChunk};
}

__device__ __forceinline__ uint32_t tf32(float x) {
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float rounded(float x) { return __uint_as_float(tf32(x)); }
__device__ __forceinline__ uint32_t bits(float x) { return __float_as_uint(x); }  // of what is rounded already
__device__ __forceinline__ uint32_t bits(bf16 x) { return static_cast<uint32_t>(x.bits) << 16; }

// Two operands in TF32, neighbours along a product's inner index.
using Two = uint2;
__device__ __forceinline__ Two two(const bf16* p) {
  const uint32_t x = *reinterpret_cast<const uint32_t*>(p);
  return {x << 16, x & 0xffff0000u};
}
__device__ __forceinline__ Two two(const float* p) { return *reinterpret_cast<const uint2*>(p); }
__device__ __forceinline__ Two round_two(const float* p) {
  const float2 x = *reinterpret_cast<const float2*>(p);
  return {tf32(x.x), tf32(x.y)};
}
// The same where the inner index goes down the rows, `ld` apart.
template <typename T>
__device__ __forceinline__ Two two_down(const T* p, int ld) {
  return {bits(p[0]), bits(p[ld])};
}

__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// The order of a sum's terms is free: the instruction's inner indices t and t + 4 are 2t and 2t + 1 here, which lie
// beside each other.
// a(m, k): elements (m, k) and (m, k + 1) of 16·M rows.
template <int M, typename A>
__device__ __forceinline__ void load_left(uint32_t (&f)[M][4], int k, A a) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const Two x = a(16 * i + g + 8 * e, k + 2 * t);
      f[i][e] = x.x, f[i][2 + e] = x.y;
    }
}
// b(k, n): elements (k, n) and (k + 1, n) of 8·N columns.
template <int N, typename B>
__device__ __forceinline__ void load_right(uint32_t (&f)[N][2], int k, B b) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const Two x = b(k + 2 * t, 8 * j + g);
    f[j][0] = x.x, f[j][1] = x.y;
  }
}
template <int M, int N>
__device__ __forceinline__ void multiply_all(float (&c)[M][N][4], const uint32_t (&a)[M][4],
                                             const uint32_t (&b)[N][2]) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) multiply_add(c[i][j], a[i], b[j]);
}
// A warp's 16·M × 8·N of c += a·b.
template <int kDepth, int M, int N, typename A, typename B>
__device__ __forceinline__ void product(float (&c)[M][N][4], A a, B b) {
#pragma unroll 4
  for (int k = 0; k < kDepth; k += 8) {
    uint32_t left[M][4], right[N][2];
    load_left(left, k, a);
    load_right(right, k, b);
    multiply_all(c, left, right);
  }
}
// Two products with one right side.
template <int kDepth, int M, int N, typename A, typename A2, typename B>
__device__ __forceinline__ void product_twice(float (&c)[M][N][4], float (&c2)[M][N][4], A a, A2 a2, B b) {
#pragma unroll 4
  for (int k = 0; k < kDepth; k += 8) {
    uint32_t left[M][4], right[N][2];
    load_right(right, k, b);
    load_left(left, k, a);
    multiply_all(c, left, right);
    load_left(left, k, a2);
    multiply_all(c2, left, right);
  }
}
// c += aᵀ·b where a is bf16 in rows of the inner index, kWide apart. A lane's two rows of each 16 of c are neighbours
// here (2g and 2g + 1, not g and g + 8), so that they are read together: paired_row().
template <int kDepth, int M, int N, typename B>
__device__ __forceinline__ void product_of_columns(float (&c)[M][N][4], const bf16* a, B b) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll 4
  for (int k = 0; k < kDepth; k += 8) {
    uint32_t left[M][4], right[N][2];
    load_right(right, k, b);
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const Two x = two(a + (k + 2 * t + e) * kWide + 16 * i + 2 * g);
        left[i][2 * e] = x.x, left[i][2 * e + 1] = x.y;
      }
    multiply_all(c, left, right);
  }
}
__device__ __forceinline__ int paired_row(int i, int e) { return 16 * i + threadIdx.x % 32 / 4 * 2 + e / 2; }

template <int M, int N>
__device__ __forceinline__ void clear(float (&c)[M][N][4]) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[i][j][e] = 0.0f;
}
template <int M, int N>
__device__ __forceinline__ void scale(float (&c)[M][N][4], float by) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[i][j][e] *= by;
}
// do_this(row, column, element) for what a lane holds of a warp's product; elements 0 and 1, 2 and 3 are neighbours.
template <int M, int N, typename F>
__device__ __forceinline__ void each(float (&c)[M][N][4], F do_this) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) do_this(16 * i + g + 8 * (e / 2), 8 * j + 2 * t + e % 2, c[i][j][e]);
}

// `columns` columns of a chunk's rows to shared memory, zeros below them; on their way until copies_wait_all().
template <int kColumns, int kTo, int kThreads, typename T>
__device__ __forceinline__ void fetch_rows(T* to, const T* from, int64_t ld, int count) {
  constexpr int kPack = 16 / sizeof(T), kPacks = kColumns / kPack;
#pragma unroll
  for (int i = threadIdx.x; i < kChunk * kPacks; i += kThreads) {
    const int row = i / kPacks, column = i % kPacks * kPack;
    const bool there = row < count;
    copy_16(to + row * kTo + column, from + (there ? row : 0) * ld + column, there);
  }
}
// A [128, kColumns] part of a state, zeros for null; likewise.
template <int kColumns, int kTo, int kThreads>
__device__ __forceinline__ void fetch_state(float* to, const float* from) {
  constexpr int kPacks = kColumns / 4;
#pragma unroll 4
  for (int i = threadIdx.x; i < kDim * kPacks; i += kThreads) {
    const int row = i / kPacks, column = i % kPacks * 4;
    if (from == nullptr)
      *reinterpret_cast<float4*>(to + row * kTo + column) = make_float4(0, 0, 0, 0);
    else
      copy_16(to + row * kTo + column, from + row * kDim + column, true);
  }
}
// do_this(row, column, two neighbours) for what a lane holds of a product_of_columns().
template <int M, int N, typename F>
__device__ __forceinline__ void each_pair_of_columns(const float (&c)[M][N][4], F do_this) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += 2) do_this(paired_row(i, e), 8 * j + 2 * t, make_float2(c[i][j][e], c[i][j][e + 1]));
}
// A warp's part of a state, [32, 32]: rounded to shared memory for the products of the next chunk, and whole to memory.
using State = float[2][4][4];
__device__ __forceinline__ void share_state(float* to, const State& state) {
  each_pair_of_columns(state, [&](int m, int n, float2 x) {
    *reinterpret_cast<float2*>(to + m * kAcross + n) = make_float2(rounded(x.x), rounded(x.y));
  });
}
__device__ __forceinline__ void store_state(float* to, const State& state) {
  each_pair_of_columns(state, [&](int m, int n, float2 x) { *reinterpret_cast<float2*>(to + m * kDim + n) = x; });
}
// A warp's [16, 32] of a chunk's rows, rounded: what scaled(element, row) gives.
using Part = float[1][4][4];
template <typename F>
__device__ __forceinline__ void share_rows(float* to, const Part& x, F scaled) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const int m = g + 4 * e;
      *reinterpret_cast<float2*>(to + m * kAcross + 8 * j + 2 * t) =
          make_float2(rounded(scaled(x[0][j][e], m)), rounded(scaled(x[0][j][e + 1], m)));
    }
}

// Of a token: γ·q_scale, γ·k_scale, what its key has kept of it at the chunk's end (k_scale·exp(G_64 − G)), β. All zero
// for tokens that are not there, whose rows of everything vanish so.
struct Scales {
  float q, k, end, beta;
};
__device__ __forceinline__ float whole_log(const Args& a, const Chunk& c, int head) {
  return a.coefficients[(c.first + c.count - 1) * a.heads + head].log;
}
__device__ __forceinline__ void load_scales(const Args& a, const Chunk& c, int head, Scales* to) {
  if (threadIdx.x >= kChunk) return;
  Scales x{0, 0, 0, 0};
  if (static_cast<int>(threadIdx.x) < c.count) {
    const Coefficients f = a.coefficients[(c.first + threadIdx.x) * a.heads + head];
    const float kept = expf(f.log);
    x = {kept * f.q_scale, kept * f.k_scale, f.k_scale * expf(whole_log(a, c, head) - f.log), f.beta};
  }
  to[threadIdx.x] = x;
}

__device__ __forceinline__ float softplus(float x) { return x > 30.0f ? x : log1pf(expf(x)); }

// Of a call (GatedDelta, GatedDeltaGrad): what both have.
template <typename G>
Args args_of(const G& g) {
  Args a{};
  a.qkv = static_cast<const bf16*>(g.qkv.p), a.ba = static_cast<const bf16*>(g.ba.p);
  a.ldqkv = g.qkv.ld, a.ldba = g.ba.ld;
  a.a_log = static_cast<const float*>(g.a_log.p), a.dt_bias = static_cast<const float*>(g.dt_bias.p);
  a.cu = g.cu_seqlens, a.documents = g.documents;
  a.key_heads = static_cast<int>(g.of.key_heads), a.heads = static_cast<int>(g.of.value_heads);
  return a;
}
template <typename G>
bool covers(const G& g) {
  const auto packs = [](const auto& m) {
    return m.type == DType::kBF16 && m.ld % 8 == 0 && reinterpret_cast<uintptr_t>(m.p) % 16 == 0;
  };
  return g.of.key_dim == kDim && g.of.value_dim == kDim && packs(g.qkv);
}
inline dim3 all_chunks(const Args& a, int64_t tokens) {
  return {static_cast<unsigned>(tokens / kChunk + a.documents), static_cast<unsigned>(a.heads)};
}
// Where T, P and the coefficients lie in the scratch; returns their end.
inline float* take_prepared(Args& a, float* scratch, int64_t tokens) {
  a.coefficients = reinterpret_cast<Coefficients*>(scratch);
  a.inverse = scratch + tokens * a.heads * 4;
  a.scores = a.inverse + tokens * a.heads * kChunk;
  return a.scores + tokens * a.heads * kChunk;
}
inline int64_t prepared_floats(int64_t tokens, int64_t heads) { return tokens * heads * (4 + 2 * kChunk); }

// T, P and the coefficients; then R and the states for a gradient (keep), or O.
void prepare(cudaStream_t, const Args&, int64_t tokens);
void walk(cudaStream_t, const Args&, bool keep);

}  // namespace mxt::kernels::cuda::delta

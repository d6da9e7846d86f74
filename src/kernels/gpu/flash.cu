// Flash attention (Dao 2023) on the matrix units of both vendors: scores of a tile of queries against tiles of keys,
// never stored. A tile of queries is 64 rows of the batch, whatever documents lie in it: each row knows the keys that
// it sees, so packed documents need no tables. Backward: one kernel for dq over tiles of keys, one for dk and dv over
// tiles of queries; scores are made twice, every sum has one owner and one order.
#include "kernels/gpu/flash.cuh"

#if !defined(__HIP__)
#include "kernels/gpu/async_copy.cuh"
#endif
#include "kernels/gpu/documents.cuh"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/random.cuh"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kOwn = 64, kWarps = kOwn / 16, kFlashThreads = kWarps * kWarp;  // rows that a block owns, 16 a warp
constexpr int kKeys = 64, kOther = 32;  // rows of a tile that passes by, forward and backward
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

struct FlashArgs {
  const bf16 *q, *k, *v, *out, *dout;
  bf16 *o, *dq, *dk, *dv;
  int64_t ldq, ldk, ldv, ldo, lddo, lddq, lddk, lddv;
  float *lse, *delta;  // [heads, tokens]
  const Seen* seen;    // [tokens] (backward)
  const int32_t *cu, *prefix;
  int64_t documents, tokens, window;
  int heads, kv_heads;
  float scale;
  AttentionDrop drop;
};

__device__ __forceinline__ Seen keys_of(const FlashArgs& a, int64_t t) {
  return seen_by(a.cu, a.prefix, a.documents, a.window, t);
}

// The tiles of keys that `kOwn` rows see: those from `low` on, without what lies between `prefix_end` and `own`.
struct Reach {
  int64_t low, prefix_end, own;
  int64_t all_own, all_prefix, all_prefix_end;  // from where on, up to themselves, and in which range all rows see
  // Every row from `row` on sees each of `Width` keys.
  template <int Width>
  __device__ __forceinline__ bool whole(int64_t key, int64_t row) const {
    return (key >= all_own && key + Width - 1 <= row) || (key >= all_prefix && key + Width <= all_prefix_end);
  }
  // The tile of `Width` keys after the one at `key`.
  template <int Width>
  __device__ __forceinline__ int64_t after(int64_t key) const {
    const int64_t next = key + Width, first = own / Width * Width;
    return next >= prefix_end && next < first ? first : next;
  }
};
// Neither `first` nor the begin of a prefix falls from a row to the next.
__device__ __forceinline__ Reach reach_of(const FlashArgs& a, const Seen* seen, int64_t rows) {
  Reach r{seen[0].first, 0, seen[0].first, seen[rows - 1].first, 0, 0};
  if (a.prefix == nullptr) return r;
  r.all_prefix_end = a.tokens;
  for (int64_t i = 0; i < rows; ++i) {
    const Seen x = seen[i];
    if (x.lowest() < r.low) r.low = x.lowest();
    if (x.prefix < x.prefix_end && x.prefix_end > r.prefix_end) r.prefix_end = x.prefix_end;
    if (x.prefix > r.all_prefix) r.all_prefix = x.prefix;
    if (x.prefix_end < r.all_prefix_end) r.all_prefix_end = x.prefix_end;
  }
  return r;
}

// `Rows` rows of D columns from row `row` on into shared memory; zeros past the end.
template <int Rows, int D>
__device__ __forceinline__ void load_tile(uint16_t* to, const bf16* from, int64_t ld, int64_t row, int64_t tokens) {
  constexpr int kChunks = D / 8;
  static_assert(Rows * kChunks % kFlashThreads == 0);
#pragma unroll
  for (int turn = 0; turn < Rows * kChunks / kFlashThreads; ++turn) {
    const int i = turn * kFlashThreads + static_cast<int>(threadIdx.x), r = i / kChunks, c = i % kChunks;
    const uint4 x =
        row + r < tokens ? *reinterpret_cast<const uint4*>(from + (row + r) * ld + c * 8) : make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4*>(to + r * leading(D) + c * 8) = x;
  }
}

// The same without waiting, where the device can: a tile is on its way while another is read.
#if defined(__HIP__)
constexpr int kStages = 1;
template <int Rows, int D>
__device__ __forceinline__ void ask_for_tile(uint16_t* to, const bf16* from, int64_t ld, int64_t row, int64_t tokens) {
  load_tile<Rows, D>(to, from, ld, row, tokens);
}
__device__ __forceinline__ void copies_end() {}
template <int kLeft>
__device__ __forceinline__ void copies_wait() {}
#else
constexpr int kStages = 2;
template <int Rows, int D>
__device__ __forceinline__ void ask_for_tile(uint16_t* to, const bf16* from, int64_t ld, int64_t row, int64_t tokens) {
  constexpr int kChunks = D / 8;
#pragma unroll
  for (int turn = 0; turn < Rows * kChunks / kFlashThreads; ++turn) {
    const int i = turn * kFlashThreads + static_cast<int>(threadIdx.x), r = i / kChunks, c = i % kChunks;
    const bool there = row + r < tokens;
    copy_16(to + r * leading(D) + c * 8, from + (there ? row + r : 0) * ld + c * 8, there);
  }
}
#endif

// Accumulators of a warp's 16 rows × D to memory, in bf16.
template <int D>
__device__ __forceinline__ void store_rows(bf16* to, int64_t ld, int64_t row, int64_t tokens,
                                           const float (&acc)[D / 16][kElements], const float (&factor)[kRows]) {
#pragma unroll
  for (int n = 0; n < D / 16; ++n)
#pragma unroll
    for (int e = 0; e < kElements; e += kBeside) {
      const int64_t t = row + row_of(slot_of(e));
      if (t >= tokens) continue;
      bf16* at = to + t * ld + n * 16 + column_of(e);
      const float f = factor[slot_of(e)];
      if constexpr (kBeside == 2)
        *reinterpret_cast<uint32_t*>(at) = pack_bf16(acc[n][e] * f, acc[n][e + 1] * f);
      else
        *at = from_float<bf16>(acc[n][e] * f);
    }
}

template <int D>
__global__ void __launch_bounds__(kFlashThreads) flash_forward(const FlashArgs a) {
  extern __shared__ __align__(16) unsigned char space[];
  auto* q = reinterpret_cast<uint16_t*>(space);
  uint16_t* tiles = q + kOwn * leading(D);
  constexpr int kTile = kKeys * leading(D);  // a stage: keys, then values
  __shared__ Seen seen[kOwn];
  __shared__ __align__(16) uint16_t turn[kWarps][kTurn];
  const int warp = threadIdx.x / kWarp, h = blockIdx.y, kvh = h / (a.heads / a.kv_heads);
  const int64_t row = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kOwn;  // the longest first
  for (int i = threadIdx.x; i < kOwn; i += kFlashThreads)
    seen[i] = keys_of(a, row + i < a.tokens ? row + i : a.tokens - 1);
  load_tile<kOwn, D>(q, a.q + h * D, a.ldq, row, a.tokens);
  __syncthreads();
  Fragment qs[D / 16];
#pragma unroll
  for (int i = 0; i < D / 16; ++i) qs[i] = load_left(q + warp * 16 * leading(D) + i * 16, leading(D));
  const int64_t mine = row + warp * 16, last = row + kOwn < a.tokens ? row + kOwn : a.tokens;
  float out[D / 16][kElements] = {}, top[kRows], sum[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) top[r] = -INFINITY, sum[r] = 0;

  const Reach reach = reach_of(a, seen, kOwn);
  Seen mine_sees[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) mine_sees[r] = seen[warp * 16 + row_of(r)];
  const auto ask = [&](int stage, int64_t key) {
    ask_for_tile<kKeys, D>(tiles + stage * 2 * kTile, a.k + kvh * D, a.ldk, key, a.tokens);
    ask_for_tile<kKeys, D>(tiles + stage * 2 * kTile + kTile, a.v + kvh * D, a.ldv, key, a.tokens);
    copies_end();
  };
  int stage = 0;
  int64_t key = reach.low / kKeys * kKeys;
  ask(stage, key);
  while (key < last) {
    const int64_t next = reach.after<kKeys>(key);
    if (kStages > 1 && next < last) {
      ask(stage ^ 1, next);
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    __syncthreads();
    const uint16_t *k = tiles + stage * 2 * kTile, *v = k + kTile;
    const bool whole = reach.whole<kKeys>(key, row);
    float s[kKeys / 16][kElements] = {};
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n)
        multiply(s[n], qs[i], load_right(k + n * 16 * leading(D) + i * 16, leading(D)));
    float now[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) now[r] = top[r];
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n)
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const auto at = static_cast<int32_t>(key) + n * 16 + column_of(e);
        const int r = slot_of(e);
        const bool sees = whole || (at <= static_cast<int32_t>(mine) + row_of(r) && mine_sees[r].at(at));
        s[n][e] = sees ? s[n][e] * (a.scale * kLog2E) : -INFINITY;
        now[r] = fmaxf(now[r], s[n][e]);
      }
    float shift[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      now[r] = row_absmax(now[r]);
      shift[r] = now[r] == -INFINITY ? 0.0f : now[r];
      const float keep = exp2f(top[r] - shift[r]);
      top[r] = now[r];
      sum[r] *= keep;
#pragma unroll
      for (int n = 0; n < D / 16; ++n)
#pragma unroll
        for (int e = 0; e < kElements; ++e)
          if (slot_of(e) == r) out[n][e] *= keep;
    }
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n)
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        s[n][e] = exp2f(s[n][e] - shift[slot_of(e)]);
        sum[slot_of(e)] += s[n][e];
      }
    if (a.drop.threshold > 0)
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        bool kept[kElements];
        keep_rows(a.drop, h, mine, key + n * 16, kept);
#pragma unroll
        for (int e = 0; e < kElements; ++e)
          if (!kept[e]) s[n][e] = 0;
      }
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      const Fragment p = as_left(s[i], turn[warp]);
#pragma unroll
      for (int n = 0; n < D / 16; ++n)
        multiply(out[n], p, load_right_turned(v + i * 16 * leading(D) + n * 16, leading(D)));
    }
    __syncthreads();
    if (kStages > 1)
      stage ^= 1;
    else if (next < last)
      ask(stage, next);
    key = next;
  }
  float factor[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    sum[r] = row_sum(sum[r]);
    factor[r] = a.drop.scale / sum[r];
    const int64_t t = mine + row_of(r);
    if (a.lse != nullptr && t < a.tokens && first_column()) a.lse[h * a.tokens + t] = (top[r] + log2f(sum[r])) * kLn2;
  }
  store_rows<D>(a.o + h * D, a.ldo, mine, a.tokens, out, factor);
}

// delta = Σ dout·out of every head and token, one warp each, and what a token sees.
template <int D>
__global__ void __launch_bounds__(256) flash_delta(const FlashArgs a, Seen* seen) {
  const int64_t job = static_cast<int64_t>(blockIdx.x) * (256 / kWarp) + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (job >= a.tokens * a.heads) return;
  const int64_t t = job / a.heads, h = job % a.heads;
  float sum = 0;
  for (int i = lane; i < D; i += kWarp)
    sum += to_float(a.dout[t * a.lddo + h * D + i]) * to_float(a.out[t * a.ldo + h * D + i]);
  sum = warp_sum(sum);
  if (lane != 0) return;
  a.delta[h * a.tokens + t] = sum;
  if (h == 0) seen[t] = keys_of(a, t);
}

template <int D>
__global__ void __launch_bounds__(kFlashThreads) flash_dq(const FlashArgs a) {
  extern __shared__ __align__(16) unsigned char space[];
  auto* own = reinterpret_cast<uint16_t*>(space);
  uint16_t *k = own + kOwn * leading(D), *v = k + kOther * leading(D);
  __shared__ __align__(16) uint16_t turn[kWarps][kTurn];
  const int warp = threadIdx.x / kWarp, h = blockIdx.y, kvh = h / (a.heads / a.kv_heads);
  const int64_t row = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kOwn, mine = row + warp * 16;
  Fragment qs[D / 16], ds[D / 16];
  for (int which = 0; which < 2; ++which) {
    __syncthreads();
    load_tile<kOwn, D>(own, which == 0 ? a.q + h * D : a.dout + h * D, which == 0 ? a.ldq : a.lddo, row, a.tokens);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
      const Fragment f = load_left(own + warp * 16 * leading(D) + i * 16, leading(D));
      if (which == 0)
        qs[i] = f;
      else
        ds[i] = f;
    }
  }
  float lse[kRows], delta[kRows], one[kRows];
  Seen seen[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t t = mine + row_of(r) < a.tokens ? mine + row_of(r) : a.tokens - 1;
    lse[r] = a.lse[h * a.tokens + t] * kLog2E, delta[r] = a.delta[h * a.tokens + t], seen[r] = a.seen[t],
    one[r] = a.scale;
  }
  const int64_t last = row + kOwn < a.tokens ? row + kOwn : a.tokens;
  float dq[D / 16][kElements] = {};
  const Reach reach = reach_of(a, a.seen + row, last - row);
  for (int64_t key = reach.low / kOther * kOther; key < last; key = reach.after<kOther>(key)) {
    __syncthreads();
    load_tile<kOther, D>(k, a.k + kvh * D, a.ldk, key, a.tokens);
    load_tile<kOther, D>(v, a.v + kvh * D, a.ldv, key, a.tokens);
    __syncthreads();
    float s[kOther / 16][kElements] = {}, dp[kOther / 16][kElements] = {};
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
#pragma unroll
      for (int n = 0; n < kOther / 16; ++n) {
        multiply(s[n], qs[i], load_right(k + n * 16 * leading(D) + i * 16, leading(D)));
        multiply(dp[n], ds[i], load_right(v + n * 16 * leading(D) + i * 16, leading(D)));
      }
#pragma unroll
    for (int n = 0; n < kOther / 16; ++n) {
      bool kept[kElements];
      if (a.drop.threshold > 0) keep_rows(a.drop, h, mine, key + n * 16, kept);
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const int64_t at = key + n * 16 + column_of(e);
        const int r = slot_of(e);
        const float d = a.drop.threshold > 0 ? (kept[e] ? dp[n][e] * a.drop.scale : 0.0f) : dp[n][e];
        s[n][e] = at <= mine + row_of(r) && seen[r].at(at)
                      ? exp2f(s[n][e] * (a.scale * kLog2E) - lse[r]) * (d - delta[r])
                      : 0.0f;
      }
      const Fragment f = as_left(s[n], turn[warp]);
#pragma unroll
      for (int c = 0; c < D / 16; ++c)
        multiply(dq[c], f, load_right_turned(k + n * 16 * leading(D) + c * 16, leading(D)));
    }
  }
  store_rows<D>(a.dq + h * D, a.lddq, mine, a.tokens, dq, one);
}

// Keys down, queries across: the transposed weights are left operands of dv and dk as they come.
template <int D>
__global__ void __launch_bounds__(kFlashThreads) flash_dkv(const FlashArgs a) {
  extern __shared__ __align__(16) unsigned char space[];
  auto* k = reinterpret_cast<uint16_t*>(space);
  uint16_t *v = k + kOwn * leading(D), *q = v + kOwn * leading(D), *d = q + kOther * leading(D);
  __shared__ float lse[kOther], delta[kOther];
  __shared__ Seen seen[kOther];
  __shared__ __align__(16) uint16_t turn[kWarps][kTurn];
  const int warp = threadIdx.x / kWarp, kvh = blockIdx.y, group = a.heads / a.kv_heads;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kOwn, mine = row + warp * 16;
  load_tile<kOwn, D>(k, a.k + kvh * D, a.ldk, row, a.tokens);
  load_tile<kOwn, D>(v, a.v + kvh * D, a.ldv, row, a.tokens);
  const int64_t last_key = (row + kOwn < a.tokens ? row + kOwn : a.tokens) - 1;
  // Queries that see any of these keys: of their document, and of those that go on from one of this tile.
  const int64_t document = document_of(a.cu, a.documents, last_key);
  int64_t end = a.cu[document + 1], followers = row;
  if (a.window > 0 && last_key + a.window < end) end = last_key + a.window;
  if (a.prefix != nullptr) {
    for (int64_t i = document_of(a.cu, a.documents, row); i <= document; ++i)
      if (i + 1 < a.documents && a.prefix[i + 1] == i) followers = end_with_followers(a.cu, a.prefix, a.documents, i);
    if (followers > end) end = followers;
  }
  float dk[D / 16][kElements] = {}, dv[D / 16][kElements] = {};
  for (int h = kvh * group; h < (kvh + 1) * group; ++h)
    for (int64_t query = row; query < end; query += kOther) {
      __syncthreads();
      load_tile<kOther, D>(q, a.q + h * D, a.ldq, query, a.tokens);
      load_tile<kOther, D>(d, a.dout + h * D, a.lddo, query, a.tokens);
      for (int i = threadIdx.x; i < kOther; i += kFlashThreads) {
        const int64_t t = query + i;
        const bool inside = t < a.tokens;
        lse[i] = inside ? a.lse[h * a.tokens + t] * kLog2E : 0.0f;
        delta[i] = inside ? a.delta[h * a.tokens + t] : 0.0f;
        seen[i] = inside ? a.seen[t] : Seen{INT32_MAX, 0, 0};  // sees nothing
      }
      __syncthreads();
      float s[kOther / 16][kElements] = {}, dp[kOther / 16][kElements] = {};
#pragma unroll
      for (int i = 0; i < D / 16; ++i) {
        const Fragment ks = load_left(k + warp * 16 * leading(D) + i * 16, leading(D)),
                       vs = load_left(v + warp * 16 * leading(D) + i * 16, leading(D));
#pragma unroll
        for (int n = 0; n < kOther / 16; ++n) {
          multiply(s[n], ks, load_right(q + n * 16 * leading(D) + i * 16, leading(D)));
          multiply(dp[n], vs, load_right(d + n * 16 * leading(D) + i * 16, leading(D)));
        }
      }
#pragma unroll
      for (int n = 0; n < kOther / 16; ++n) {
        bool kept[kElements];
        if (a.drop.threshold > 0) keep_columns(a.drop, h, query + n * 16, mine, kept);
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          const int c = n * 16 + column_of(e);
          const int64_t at = mine + row_of(slot_of(e)), t = query + c;
          const float p = at <= t && seen[c].at(at) ? exp2f(s[n][e] * (a.scale * kLog2E) - lse[c]) : 0.0f;
          const float keep = a.drop.threshold == 0 ? 1.0f : kept[e] ? a.drop.scale : 0.0f;
          s[n][e] = p * keep;
          dp[n][e] = p * (dp[n][e] * keep - delta[c]);
        }
        const Fragment p = as_left(s[n], turn[warp]);
#pragma unroll
        for (int c = 0; c < D / 16; ++c)
          multiply(dv[c], p, load_right_turned(d + n * 16 * leading(D) + c * 16, leading(D)));
        const Fragment g = as_left(dp[n], turn[warp]);
#pragma unroll
        for (int c = 0; c < D / 16; ++c)
          multiply(dk[c], g, load_right_turned(q + n * 16 * leading(D) + c * 16, leading(D)));
      }
    }
  float one[kRows], scale[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) one[r] = 1.0f, scale[r] = a.scale;
  store_rows<D>(a.dk + kvh * D, a.lddk, mine, a.tokens, dk, scale);
  store_rows<D>(a.dv + kvh * D, a.lddv, mine, a.tokens, dv, one);
}

template <typename A>
FlashArgs arguments(const A& c) {
  FlashArgs a{};
  auto in = [](const ConstMat& m) { return static_cast<const bf16*>(m.p); };
  a.q = in(c.q), a.k = in(c.k), a.v = in(c.v);
  a.ldq = c.q.ld, a.ldk = c.k.ld, a.ldv = c.v.ld, a.ldo = c.out.ld;
  a.cu = c.cu_seqlens, a.prefix = c.prefix;
  a.documents = c.documents, a.tokens = c.q.rows, a.window = c.window;
  a.heads = static_cast<int>(c.heads), a.kv_heads = static_cast<int>(c.kv_heads);
  a.scale = c.scale;
  a.drop = attention_drop(c);
  return a;
}

// 16 bytes at a time: rows and heads begin where that is allowed.
bool even(const ConstMat& m) { return m.type == DType::kBF16 && even_rows(m); }

template <typename K>
void allow(K kernel, int bytes) {
#if !defined(__HIP__)
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) == cudaSuccess,
          "flash attention needs 88 KB of shared memory");
#endif
}

template <int D>
void forward(Stream s, const FlashArgs& a) {
  constexpr int kBytes = (kOwn + kStages * 2 * kKeys) * leading(D) * 2;
  allow(flash_forward<D>, kBytes);
  const dim3 grid(static_cast<unsigned>(ceil_div(a.tokens, kOwn)), static_cast<unsigned>(a.heads));
  flash_forward<D><<<grid, kFlashThreads, kBytes, s>>>(a);
  check_launch("flash_attention");
}

template <int D>
void backward(Stream s, const FlashArgs& a, Seen* seen) {
  constexpr int kQueryBytes = (kOwn + 2 * kOther) * leading(D) * 2, kKeyBytes = 2 * (kOwn + kOther) * leading(D) * 2;
  allow(flash_dq<D>, kQueryBytes), allow(flash_dkv<D>, kKeyBytes);
  flash_delta<D><<<static_cast<unsigned>(ceil_div(a.tokens * a.heads, 256 / kWarp)), 256, 0, s>>>(a, seen);
  const auto tiles = static_cast<unsigned>(ceil_div(a.tokens, kOwn));
  flash_dq<D><<<dim3(tiles, static_cast<unsigned>(a.heads)), kFlashThreads, kQueryBytes, s>>>(a);
  flash_dkv<D><<<dim3(tiles, static_cast<unsigned>(a.kv_heads)), kFlashThreads, kKeyBytes, s>>>(a);
  check_launch("flash_attention_grad");
}

}  // namespace

bool flash_covers(const Attention& c) {
  return c.causal && (c.head_dim == 64 || c.head_dim == 128) && even(c.q) && even(c.k) && even(c.v) && even(c.out);
}
bool flash_covers(const AttentionGrad& c) {
  return c.causal && (c.head_dim == 64 || c.head_dim == 128) && even(c.q) && even(c.k) && even(c.v) && even(c.out) &&
         even(c.dout) && even(c.dq) && even(c.dk) && even(c.dv);
}

void flash_attention(Stream s, const Attention& c) {
  if (c.q.rows == 0) return;
  FlashArgs a = arguments(c);
  a.o = static_cast<bf16*>(c.out.p), a.lse = c.lse;
  if (c.head_dim == 64)
    forward<64>(s, a);
  else
    forward<128>(s, a);
}

size_t flash_attention_grad_scratch(const AttentionGrad& c) {
  return static_cast<size_t>(c.q.rows) * (static_cast<size_t>(c.heads) * sizeof(float) + sizeof(Seen));
}

void flash_attention_grad(Stream s, const AttentionGrad& c, void* scratch) {
  if (c.q.rows == 0) return;
  FlashArgs a = arguments(c);
  a.out = static_cast<const bf16*>(c.out.p), a.dout = static_cast<const bf16*>(c.dout.p), a.lddo = c.dout.ld;
  a.dq = static_cast<bf16*>(c.dq.p), a.dk = static_cast<bf16*>(c.dk.p), a.dv = static_cast<bf16*>(c.dv.p);
  a.lddq = c.dq.ld, a.lddk = c.dk.ld, a.lddv = c.dv.ld;
  a.lse = const_cast<float*>(c.lse), a.delta = static_cast<float*>(scratch);
  auto* seen = reinterpret_cast<Seen*>(a.delta + c.heads * c.q.rows);
  a.seen = seen;
  if (c.head_dim == 64)
    backward<64>(s, a, seen);
  else
    backward<128>(s, a, seen);
}

}  // namespace mxt::kernels::MXT_GPU_NS

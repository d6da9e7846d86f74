// Rows by index: embedding and its gradient, gather, scatter, the cache's store.
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256;

// y[i] = convert(x[index[i]])
template <typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    gather_convert(const void* x, int64_t ldx, const int32_t* index, void* y, int64_t ldy, int64_t cols) {
  const int64_t from = static_cast<int64_t>(index[blockIdx.x]) * ldx, to = blockIdx.x * ldy;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads)
    static_cast<To*>(y)[to + i] = from_float<To>(to_float(static_cast<const From*>(x)[from + i]));
}

// y[to[i] or i] = x[from[i] or i], raw packs of P bytes.
template <typename P>
__global__ void __launch_bounds__(kThreads)
    move_rows(const P* x, int64_t ldx, const int32_t* from, P* y, int64_t ldy, const int32_t* to, int64_t packs) {
  const int64_t i = blockIdx.x;
  const P* a = x + (from ? static_cast<int64_t>(from[i]) : i) * ldx;
  P* b = y + (to ? static_cast<int64_t>(to[i]) : i) * ldy;
  for (int64_t k = threadIdx.x; k < packs; k += kThreads) b[k] = a[k];
}

template <typename P>
__global__ void __launch_bounds__(kThreads) zero_rows(P* y, int64_t ldy, int64_t packs) {
  for (int64_t k = threadIdx.x; k < packs; k += kThreads) y[blockIdx.x * ldy + k] = P{};
}

void move(Stream s, const ConstMat& x, const int32_t* from, const Mat& y, const int32_t* to, int64_t rows) {
  if (rows == 0) return;
  const auto grid = static_cast<unsigned>(rows);
  const int64_t v = elements_of_16_bytes(x.type);
  if (wide(x) && wide(ConstMat(y)))
    move_rows<uint4><<<grid, kThreads, 0, s>>>(static_cast<const uint4*>(x.p), x.ld / v, from, static_cast<uint4*>(y.p),
                                               y.ld / v, to, x.cols / v);
  else if (x.type == DType::kBF16)
    move_rows<uint16_t><<<grid, kThreads, 0, s>>>(static_cast<const uint16_t*>(x.p), x.ld, from,
                                                  static_cast<uint16_t*>(y.p), y.ld, to, x.cols);
  else
    move_rows<float><<<grid, kThreads, 0, s>>>(static_cast<const float*>(x.p), x.ld, from, static_cast<float*>(y.p),
                                               y.ld, to, x.cols);
  check_launch("move_rows");
}

void zero(Stream s, const Mat& y) {
  if (y.rows == 0) return;
  const auto grid = static_cast<unsigned>(y.rows);
  const int64_t v = elements_of_16_bytes(y.type);
  if (wide(ConstMat(y)))
    zero_rows<uint4><<<grid, kThreads, 0, s>>>(static_cast<uint4*>(y.p), y.ld / v, y.cols / v);
  else if (y.type == DType::kBF16)
    zero_rows<uint16_t><<<grid, kThreads, 0, s>>>(static_cast<uint16_t*>(y.p), y.ld, y.cols);
  else
    zero_rows<float><<<grid, kThreads, 0, s>>>(static_cast<float*>(y.p), y.ld, y.cols);
  check_launch("zero_rows");
}

// Bitonic sort of (id, token) as one 64-bit key: unique keys, so the order is one. Padded with the largest key.
constexpr int kTile = 2048;

__global__ void make_keys(const int32_t* ids, int32_t padding, int64_t tokens, uint64_t* keys, int64_t padded) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= padded) return;
  const int32_t id = i < tokens && ids[i] != padding ? ids[i] : -1;
  keys[i] =
      i < tokens ? (static_cast<uint64_t>(static_cast<uint32_t>(id)) << 32) | static_cast<uint64_t>(i) : ~uint64_t{0};
}

__device__ __forceinline__ void order(uint64_t& a, uint64_t& b, bool ascending) {
  if ((a > b) == ascending) {
    const uint64_t t = a;
    a = b;
    b = t;
  }
}

// All phases whose partners lie within a tile: from `k` = 2 (or the given k alone) down to stride 1.
__global__ void __launch_bounds__(kTile / 2) sort_tile(uint64_t* keys, int64_t only_k) {
  __shared__ uint64_t tile[kTile];
  const int64_t base = static_cast<int64_t>(blockIdx.x) * kTile;
  const int i = threadIdx.x;
  tile[i] = keys[base + i];
  tile[i + kTile / 2] = keys[base + i + kTile / 2];
  __syncthreads();
  for (int64_t k = only_k ? only_k : 2; k <= (only_k ? only_k : kTile); k *= 2)
    for (int j = static_cast<int>((k < kTile ? k : kTile) / 2); j > 0; j /= 2) {
      const int a = 2 * i - (i & (j - 1));
      order(tile[a], tile[a + j], ((base + a) & k) == 0);
      __syncthreads();
    }
  keys[base + i] = tile[i];
  keys[base + i + kTile / 2] = tile[i + kTile / 2];
}

__global__ void sort_step(uint64_t* keys, int64_t k, int64_t j) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t a = 2 * i - (i & (j - 1));
  order(keys[a], keys[a + j], (a & k) == 0);
}

int64_t padded(int64_t tokens) {
  int64_t n = kTile;
  while (n < tokens) n *= 2;
  return n;
}

// Position p of the sorted list that begins a run of one id adds that id's tokens in ascending order. Eight rows are
// read ahead.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads) add_runs(const uint64_t* keys, int64_t tokens, const void* dy, int64_t lddy,
                                                     const float* by, float* table, int64_t ldt, int64_t cols) {
  constexpr int kAhead = 8;
  const int64_t p = blockIdx.x;
  const auto id = static_cast<int64_t>(keys[p] >> 32);
  if (p > 0 && static_cast<int64_t>(keys[p - 1] >> 32) == id) return;
  if (id >> 31 != 0) return;  // below zero: none
  const int64_t col = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * V;
  if (col >= cols) return;
  constexpr int kFloats = V % 4 == 0 ? 4 : 1;
  float sum[V / kFloats][kFloats];
  const int64_t to = id * ldt + col;
#pragma unroll
  for (int i = 0; i < V / kFloats; ++i) load<float, kFloats>(table, to + i * kFloats).unpack(sum[i]);
  bool more = true;
  for (int64_t q = p; more; q += kAhead) {
    Raw<T, V> next[kAhead];
    float factor[kAhead];
    int count = 0;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      more = more && q + k < tokens && static_cast<int64_t>(keys[q + k] >> 32) == id;
      const auto t = static_cast<int64_t>(more ? keys[q + k] & 0xffffffffu : 0);
      if (more) next[k] = load<T, V>(dy, t * lddy + col);
      factor[k] = more && by != nullptr ? by[t] : 1.0f;
      count += more;
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (k >= count) continue;
      float f[V];
      next[k].unpack(f);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i / kFloats][i % kFloats] += factor[k] * f[i];
    }
  }
#pragma unroll
  for (int i = 0; i < V / kFloats; ++i)
    store<float, kFloats>(table, to + i * kFloats, Raw<float, kFloats>::pack(sum[i]));
}

}  // namespace

void embedding(Stream s, const Embedding& e) {
  if (e.y.rows == 0) return;
  if (e.table.type == e.y.type) return move(s, e.table, e.ids, e.y, nullptr, e.y.rows);
  const auto grid = static_cast<unsigned>(e.y.rows);
  if (e.y.type == DType::kBF16)
    gather_convert<float, bf16><<<grid, kThreads, 0, s>>>(e.table.p, e.table.ld, e.ids, e.y.p, e.y.ld, e.y.cols);
  else
    gather_convert<bf16, float><<<grid, kThreads, 0, s>>>(e.table.p, e.table.ld, e.ids, e.y.p, e.y.ld, e.y.cols);
  check_launch("embedding");
}

size_t embedding_grad_scratch(const EmbeddingGrad& e) {
  return static_cast<size_t>(padded(e.dy.rows)) * sizeof(uint64_t);
}

void embedding_grad(Stream s, const EmbeddingGrad& e, void* scratch) {
  if (!e.accumulate) zero(s, e.dtable);
  const int64_t tokens = e.dy.rows;
  if (tokens == 0) return;
  auto* keys = static_cast<uint64_t*>(scratch);
  const int64_t n = padded(tokens);
  const auto tiles = static_cast<unsigned>(n / kTile);
  make_keys<<<static_cast<unsigned>(n / 256), 256, 0, s>>>(e.ids, e.padding, tokens, keys, n);
  sort_tile<<<tiles, kTile / 2, 0, s>>>(keys, 0);
  for (int64_t k = 2 * kTile; k <= n; k *= 2) {
    for (int64_t j = k / 2; j >= kTile; j /= 2)
      sort_step<<<static_cast<unsigned>(n / 2 / 256), 256, 0, s>>>(keys, k, j);
    sort_tile<<<tiles, kTile / 2, 0, s>>>(keys, k);
  }
  auto* table = static_cast<float*>(e.dtable.p);
  MXT_GPU_DISPATCH(e.dy.type, wide(e.dy) && wide(ConstMat(e.dtable)), {
    const int64_t packs = ceil_div(e.dy.cols, V),
                  threads = packs < kThreads ? ceil_div(packs, kWarp) * kWarp : kThreads;
    const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(ceil_div(packs, threads)));
    add_runs<T, V><<<grid, static_cast<unsigned>(threads), 0, s>>>(keys, tokens, e.dy.p, e.dy.ld, e.by, table,
                                                                   e.dtable.ld, e.dy.cols);
  });
  check_launch("embedding_grad");
}

void gather_rows(Stream s, const GatherRows& g) { move(s, g.x, g.rows, g.y, nullptr, g.y.rows); }

void scatter_rows(Stream s, const ScatterRows& g) {
  if (g.zero) zero(s, g.y);
  move(s, g.x, nullptr, g.y, g.rows, g.x.rows);
}

}  // namespace mxt::kernels::MXT_GPU_NS

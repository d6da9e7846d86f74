// Next tokens from logits (kernels/draw.h), in three kernels: the largest logit, the sums of pieces of 1,024 ids, each
// added up by a warp in one order, and the token. Where rows are few, many blocks share one; what a row draws does not
// depend on how many.
#include <algorithm>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp, kDrawPiece = 1024;

// What a block found in its part of a row.
struct Peak {
  float top;
  int id, broken;
};

struct DrawArgs {
  const float* logits;
  int64_t ld;
  int vocab;
  float softcap;
  const float* temperature;
  const int32_t* bits;
  float* drawn;
  int64_t ldd;
  int pieces, shares;
  Peak* peaks;   // [rows, shares]
  double* sums;  // [rows, 2, pieces]: of shares, then of softmax's terms

  __device__ const float* row(int64_t r) const { return logits + r * ld; }
  __device__ float capped(float x) const { return softcap > 0 ? softcap * tanhf(x / softcap) : x; }
  __device__ float inverse_temperature(int64_t r) const { return temperature[r] > 0 ? 1.0f / temperature[r] : 0.0f; }
};

__device__ __forceinline__ double shuffle_down(double v, int by) {
#if defined(__HIP__)
  return __shfl_down(v, by, kWarp);
#else
  return __shfl_down_sync(0xffffffffu, v, by);
#endif
}
__device__ __forceinline__ double lane_of(double v, int lane) {
#if defined(__HIP__)
  return __shfl(v, lane, kWarp);
#else
  return __shfl_sync(0xffffffffu, v, lane);
#endif
}
__device__ __forceinline__ double warp_total(double v) {  // on the first lane
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) v += shuffle_down(v, d);
  return v;
}

// The larger value, of equal ones the lower id.
__device__ __forceinline__ void take_better(float& value, int& id, float other, int at) {
  if (other > value || (other == value && at < id)) value = other, id = at;
}

// blockIdx.x: which of the row's shares of pieces; blockIdx.y: the row. So in sums_kernel.
__global__ void __launch_bounds__(kThreads) peak_kernel(DrawArgs a) {
  __shared__ float best[kWarps];
  __shared__ int where[kWarps], broken;
  allow_next_grid();
  const int tid = static_cast<int>(threadIdx.x), share = static_cast<int>(blockIdx.x);
  const float* row = a.row(blockIdx.y);
  if (tid == 0) broken = 0;
  __syncthreads();
  wait_for_previous_grid();
  float top = -INFINITY;
  int id = a.vocab;
  bool bad = false;
  for (int p = share; p < a.pieces; p += a.shares) {
    const int end = min(a.vocab, (p + 1) * kDrawPiece);
#pragma unroll
    for (int k = 0; k < kDrawPiece / kThreads; ++k) {
      const int i = p * kDrawPiece + k * kThreads + tid;
      const float x = i < end ? row[i] : -INFINITY;
      bad |= i < end && !isfinite(x);
      if (i < end) take_better(top, id, a.capped(x), i);
    }
  }
  if (bad) broken = 1;
#pragma unroll
  for (int m = kWarp / 2; m > 0; m /= 2) take_better(top, id, shuffle_xor(top, m), shuffle_xor(id, m));
  if (tid % kWarp == 0) best[tid / kWarp] = top, where[tid / kWarp] = id;
  __syncthreads();
  if (tid != 0) return;
  for (int w = 1; w < kWarps; ++w) take_better(top, id, best[w], where[w]);
  a.peaks[static_cast<int64_t>(blockIdx.y) * a.shares + share] = {top, id, broken};
}

// Of a row; every lane of a warp calls it and has it.
__device__ __forceinline__ Peak whole_peak(const DrawArgs& a, int64_t r, int lane) {
  Peak whole{-INFINITY, a.vocab, 0};
  for (int s = lane; s < a.shares; s += kWarp) {
    const Peak of = a.peaks[r * a.shares + s];
    take_better(whole.top, whole.id, of.top, of.id);
    whole.broken |= of.broken;
  }
#pragma unroll
  for (int m = kWarp / 2; m > 0; m /= 2) {
    take_better(whole.top, whole.id, shuffle_xor(whole.top, m), shuffle_xor(whole.id, m));
    whole.broken |= shuffle_xor(whole.broken, m);
  }
  return whole;
}

__global__ void __launch_bounds__(kThreads) sums_kernel(DrawArgs a) {
  allow_next_grid();
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t r = blockIdx.y;
  const float* row = a.row(r);
  wait_for_previous_grid();
  const float top = whole_peak(a, r, lane).top, inverse = a.inverse_temperature(r);
  double* sums = a.sums + r * 2 * a.pieces;
  for (int p = static_cast<int>(blockIdx.x) + warp * a.shares; p < a.pieces; p += kWarps * a.shares) {
    double shares = 0, all = 0;
    const int first = p * kDrawPiece + lane, end = min(a.vocab, (p + 1) * kDrawPiece);
    constexpr int kAhead = 8;  // reads on their way at once
    for (int begin = first; begin < end; begin += kAhead * kWarp) {
      float x[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) x[k] = begin + k * kWarp < end ? row[begin + k * kWarp] : -INFINITY;
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (begin + k * kWarp >= end) break;
        const float d = a.capped(x[k]) - top;
        all += static_cast<double>(expf(d));
        shares += static_cast<double>(expf(d * inverse));
      }
    }
    shares = warp_total(shares), all = warp_total(all);
    if (lane == 0) sums[p] = shares, sums[a.pieces + p] = all;
  }
}

__global__ void __launch_bounds__(kWarp) draw_kernel(DrawArgs a) {
  extern __shared__ double sums[];  // the row's
  allow_next_grid();
  const int lane = static_cast<int>(threadIdx.x), pieces = a.pieces;
  const int64_t r = blockIdx.x;
  wait_for_previous_grid();
  for (int i = lane; i < 2 * pieces; i += kWarp) sums[i] = a.sums[r * 2 * pieces + i];
  sync_warp();
  const auto [top, likeliest, broken] = whole_peak(a, r, lane);
  float* out = a.drawn + r * a.ldd;
  if (broken) {
    if (lane == 0) out[0] = -1.0f, out[1] = __int_as_float(0x7fc00000);
    return;
  }
  const float* row = a.row(r);
  int id = likeliest;
  double all = 0, total = 0;
  for (int p = 0; p < pieces; ++p) total += sums[p], all += sums[pieces + p];
  if (const float inverse = a.inverse_temperature(r); inverse > 0) {
    double left = (static_cast<double>(static_cast<uint32_t>(a.bits[2 * r])) * 0x1p-32 +
                   static_cast<double>(static_cast<uint32_t>(a.bits[2 * r + 1])) * 0x1p-64) *
                  total;
    int piece = 0;
    while (piece + 1 < pieces && left >= sums[piece]) left -= sums[piece++];
    // Ids side by side, a lane so many of them.
    constexpr int kOfLane = kDrawPiece / kWarp;
    const int begin = piece * kDrawPiece + lane * kOfLane;
    float share[kOfLane];
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) share[k] = begin + k < a.vocab ? row[begin + k] : -INFINITY;
    double before = 0, sum = 0;  // of the lanes before; of this one
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      share[k] = begin + k < a.vocab ? expf((a.capped(share[k]) - top) * inverse) : 0.0f;
      sum += static_cast<double>(share[k]);
    }
    for (int l = 0; l < kWarp; ++l) {
      const double other = lane_of(sum, l);
      if (l < lane) before += other;
    }
    int found = a.vocab;
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      before += static_cast<double>(share[k]);
      if (found == a.vocab && begin + k < a.vocab && left < before) found = begin + k;
    }
#pragma unroll
    for (int m = kWarp / 2; m > 0; m /= 2) found = min(found, shuffle_xor(found, m));
    if (found < a.vocab) id = found;  // sums round: past the end it stays the most likely
  }
  if (lane == 0) {
    out[0] = static_cast<float>(id);
    out[1] = static_cast<float>(static_cast<double>(a.capped(row[id]) - top) - log(all));
  }
}

int64_t pieces_of(const DrawTokens& d) { return ceil_div(d.logits.cols, kDrawPiece); }
int64_t shares_of(const DrawTokens& d) {
  constexpr int64_t kBlocks = 1024;  // some eight a multiprocessor
  return std::clamp<int64_t>(kBlocks / d.logits.rows, 1, ceil_div(pieces_of(d), kWarps));
}
size_t bytes_of_sums(const DrawTokens& d) {
  return static_cast<size_t>(d.logits.rows * 2 * pieces_of(d)) * sizeof(double);
}

}  // namespace

size_t draw_tokens_scratch(const DrawTokens& d) {
  if (d.logits.rows == 0) return 0;
  return bytes_of_sums(d) + static_cast<size_t>(d.logits.rows * shares_of(d)) * sizeof(Peak);
}

void draw_tokens(Stream s, const DrawTokens& d, void* scratch) {
  if (d.logits.rows == 0) return;
  const int64_t pieces = pieces_of(d), shares = shares_of(d);
  const size_t shared = 2 * sizeof(double) * static_cast<size_t>(pieces);
  require(shared <= 40 * 1024, "draw_tokens: more than 2.6 million ids");
  require(d.logits.rows <= 65535, "draw_tokens: more than 65,535 rows");
  const DrawArgs a{static_cast<const float*>(d.logits.p),
                   d.logits.ld,
                   static_cast<int>(d.logits.cols),
                   d.softcap,
                   d.temperature,
                   d.bits,
                   static_cast<float*>(d.drawn.p),
                   d.drawn.ld,
                   static_cast<int>(pieces),
                   static_cast<int>(shares),
                   reinterpret_cast<Peak*>(static_cast<std::byte*>(scratch) + bytes_of_sums(d)),
                   static_cast<double*>(scratch)};
  const dim3 grid(static_cast<unsigned>(shares), static_cast<unsigned>(d.logits.rows));
  launch_dependent(peak_kernel, grid, dim3(kThreads), 0, s, a);
  launch_dependent(sums_kernel, grid, dim3(kThreads), 0, s, a);
  launch_dependent(draw_kernel, dim3(static_cast<unsigned>(d.logits.rows)), dim3(kWarp), shared, s, a);
  check_launch("draw_tokens");
}

}  // namespace mxt::kernels::MXT_GPU_NS

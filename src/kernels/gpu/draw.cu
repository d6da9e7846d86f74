// Next tokens from logits (kernels/draw.h): a block a row. Sums are of pieces of 1,024 ids, each added up by a warp in
// one order, so a row's token depends on nothing else.
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / kWarp, kDrawPiece = 1024;

struct DrawArgs {
  const float* logits;
  int64_t ld;
  int vocab;
  float softcap;
  const float* temperature;
  const int32_t* bits;
  float* drawn;
  int64_t ldd;
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

__global__ void __launch_bounds__(kThreads) draw_kernel(DrawArgs a) {
  extern __shared__ double sums[];  // of each piece: of shares, then of softmax's terms
  __shared__ float best[kWarps];
  __shared__ int where[kWarps], broken;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t r = blockIdx.x;
  const float* row = a.logits + r * a.ld;
  const int pieces = (a.vocab + kDrawPiece - 1) / kDrawPiece;
  auto capped = [&](float x) { return a.softcap > 0 ? a.softcap * tanhf(x / a.softcap) : x; };
  auto z = [&](int i) { return capped(row[i]); };
  if (threadIdx.x == 0) broken = 0;
  __syncthreads();
  float top = -INFINITY;
  int id = a.vocab;
  bool bad = false;
  // Several reads are on their way at once: a block alone reads a row.
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < a.vocab; i += kThreads) {
    const float x = row[i];
    bad |= !isfinite(x);
    take_better(top, id, capped(x), i);
  }
  if (bad) broken = 1;
#pragma unroll
  for (int m = kWarp / 2; m > 0; m /= 2) take_better(top, id, shuffle_xor(top, m), shuffle_xor(id, m));
  if (lane == 0) best[warp] = top, where[warp] = id;
  __syncthreads();
  top = best[0], id = where[0];
  for (int w = 1; w < kWarps; ++w) take_better(top, id, best[w], where[w]);
  float* out = a.drawn + r * a.ldd;
  if (broken) {
    if (threadIdx.x == 0) out[0] = -1.0f, out[1] = __int_as_float(0x7fc00000);
    return;
  }
  const float t = a.temperature[r], inverse = t > 0 ? 1.0f / t : 0.0f;
  for (int p = warp; p < pieces; p += kWarps) {
    double shares = 0, all = 0;
    const int first = p * kDrawPiece + lane, end = min(a.vocab, (p + 1) * kDrawPiece);
    constexpr int kAhead = 8;
    for (int begin = first; begin < end; begin += kAhead * kWarp) {
      float x[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) x[k] = begin + k * kWarp < end ? row[begin + k * kWarp] : -INFINITY;
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (begin + k * kWarp >= end) break;
        const float d = capped(x[k]) - top;
        all += static_cast<double>(expf(d));
        shares += static_cast<double>(expf(d * inverse));
      }
    }
    shares = warp_total(shares), all = warp_total(all);
    if (lane == 0) sums[p] = shares, sums[pieces + p] = all;
  }
  __syncthreads();
  if (warp > 0) return;
  double all = 0, total = 0;
  for (int p = 0; p < pieces; ++p) total += sums[p], all += sums[pieces + p];
  if (t > 0) {
    double left = (static_cast<double>(static_cast<uint32_t>(a.bits[2 * r])) * 0x1p-32 +
                   static_cast<double>(static_cast<uint32_t>(a.bits[2 * r + 1])) * 0x1p-64) *
                  total;
    int piece = 0;
    while (piece + 1 < pieces && left >= sums[piece]) left -= sums[piece++];
    // Ids side by side, a lane so many of them.
    auto share_of = [&](int i) { return static_cast<double>(expf((z(i) - top) * inverse)); };
    constexpr int kOfLane = kDrawPiece / kWarp;
    const int begin = piece * kDrawPiece + lane * kOfLane, end = min(begin + kOfLane, a.vocab);
    double before = 0, sum = 0;  // of the lanes before; of this one
    for (int i = begin; i < end; ++i) sum += share_of(i);
    for (int l = 0; l < kWarp; ++l) {
      const double other = lane_of(sum, l);
      if (l < lane) before += other;
    }
    int found = a.vocab;
    for (int i = begin; i < end; ++i) {
      before += share_of(i);
      if (found == a.vocab && left < before) found = i;
    }
#pragma unroll
    for (int m = kWarp / 2; m > 0; m /= 2) found = min(found, shuffle_xor(found, m));
    if (found < a.vocab) id = found;  // sums round: past the end it stays the most likely
  }
  if (lane == 0) {
    out[0] = static_cast<float>(id);
    out[1] = static_cast<float>(static_cast<double>(z(id) - top) - log(all));
  }
}

}  // namespace

void draw_tokens(Stream s, const DrawTokens& d) {
  if (d.logits.rows == 0) return;
  const auto vocab = static_cast<int>(d.logits.cols);
  const size_t shared = 2 * sizeof(double) * static_cast<size_t>(ceil_div(vocab, kDrawPiece));
  require(shared <= 40 * 1024, "draw_tokens: more than 2.6 million ids");
  draw_kernel<<<static_cast<unsigned>(d.logits.rows), kThreads, shared, s>>>(
      {static_cast<const float*>(d.logits.p), d.logits.ld, vocab, d.softcap, d.temperature, d.bits,
       static_cast<float*>(d.drawn.p), d.drawn.ld});
  check_launch("draw_tokens");
}

}  // namespace mxt::kernels::MXT_GPU_NS

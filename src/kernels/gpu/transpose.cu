// Numbers of E4M3 turned: tiles of 128 × 128, four rows a thread, whose bytes change places in registers on their way
// to shared memory. Words lie there so that neither side meets a bank twice: word w of column c at w xor 4·(c/16).
#include "kernels/gpu/launch.h"
#include "kernels/gpu/quantize.cuh"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kSide = 128, kThreads = 256, kScaleThreads = 1024;
constexpr int kScalesAhead = 8;  // of a thread, whose loads are under way together

struct TransposeArgs {
  const uint8_t* q;
  uint8_t* out;
  const float *scale, *all;  // of rows, and the one that they get; null: bytes as they are
  int64_t rows, cols, ldq, ldo;
};

// Four numbers at a scale 1/factor times as large.
__device__ __forceinline__ uint32_t rescale(uint32_t four, float factor) {
#if defined(__HIP__)
  uint32_t y = 0;
  for (int i = 0; i < 4; ++i) y |= to_e4m3(from_e4m3(four >> 8 * i & 0xffu) * factor) << 8 * i;
  return y;
#else
  const __half2 by = __half2half2(__float2half_rn(factor));
  auto two = [&](uint32_t pair) -> uint32_t {
    const __half2_raw wide = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
    return __nv_cvt_halfraw2_to_fp8x2(static_cast<__half2_raw>(__hmul2(__half2(wide), by)), __NV_SATFINITE, __NV_E4M3);
  };
  return two(four & 0xffffu) | two(four >> 16) << 16;
#endif
}

template <bool Scaled>
__global__ void __launch_bounds__(kThreads) transpose_kernel(TransposeArgs a) {
  __shared__ __align__(16) uint32_t tile[kSide * kSide / 4];
  allow_next_grid();
  wait_for_previous_grid();
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kSide, col0 = static_cast<int64_t>(blockIdx.x) * kSide;
  const int lane = threadIdx.x % 32, columns = lane % 8, word = static_cast<int>(threadIdx.x) / 32 * 4 + lane / 8;
  const int64_t col = col0 + columns * 16;
  uint32_t v[4][4] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int64_t row = row0 + word * 4 + r;
    if (row >= a.rows || col >= a.cols) continue;
    const uint4 x = *reinterpret_cast<const uint4*>(a.q + row * a.ldq + col);
    v[r][0] = x.x, v[r][1] = x.y, v[r][2] = x.z, v[r][3] = x.w;
    if constexpr (Scaled) {
      const float factor = fminf(a.scale[row] / *a.all, 1.0f);  // above 1: a row of zeros
#pragma unroll
      for (int j = 0; j < 4; ++j) v[r][j] = rescale(v[r][j], factor);
    }
  }
  uint32_t* to = tile + columns * 16 * (kSide / 4) + (word ^ 4 * columns);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t low0 = __byte_perm(v[0][j], v[1][j], 0x5140), low1 = __byte_perm(v[2][j], v[3][j], 0x5140),
                   high0 = __byte_perm(v[0][j], v[1][j], 0x7362), high1 = __byte_perm(v[2][j], v[3][j], 0x7362);
    to[(j * 4 + 0) * (kSide / 4)] = __byte_perm(low0, low1, 0x5410);
    to[(j * 4 + 1) * (kSide / 4)] = __byte_perm(low0, low1, 0x7632);
    to[(j * 4 + 2) * (kSide / 4)] = __byte_perm(high0, high1, 0x5410);
    to[(j * 4 + 3) * (kSide / 4)] = __byte_perm(high0, high1, 0x7632);
  }
  __syncthreads();
  const int64_t out_row = row0 + threadIdx.x % 8 * 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int c = i * 32 + static_cast<int>(threadIdx.x) / 8;
    if (col0 + c >= a.cols || out_row >= a.ldo) continue;
    *reinterpret_cast<uint4*>(a.out + (col0 + c) * a.ldo + out_row) =
        *reinterpret_cast<const uint4*>(tile + c * (kSide / 4) + ((threadIdx.x % 8 ^ c / 16) * 4));
  }
}

// The largest of the scales of rows, which are powers of two, and what a column's sum is multiplied by. A row of zeros
// has scale 1 whatever stands beside it and does not count: where a row has that scale, it is looked at.
struct ScalesArgs {
  const uint8_t* q[2];
  int64_t ldq[2];
  const float* rows[2];
  const float* channel[2];
  float *all[2], *out[2];
  int64_t count, columns[2];
};
__global__ void __launch_bounds__(kScaleThreads) scales_kernel(ScalesArgs a) {
  __shared__ float space[kScaleThreads / kWarp], shared;
  const int which = blockIdx.x;
  const int lane = threadIdx.x % kWarp;
  float largest = 0;
  for (int64_t base = threadIdx.x / kWarp * kWarp; base < a.count; base += kScalesAhead * kScaleThreads) {
    float ahead[kScalesAhead];
#pragma unroll
    for (int j = 0; j < kScalesAhead; ++j) {
      const int64_t t = base + j * kScaleThreads + lane;
      ahead[j] = t < a.count ? a.rows[which][t] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kScalesAhead; ++j) {
      if (ahead[j] != 1.0f) largest = fmaxf(largest, ahead[j]);
      for (unsigned ones = __ballot_sync(0xffffffffu, ahead[j] == 1.0f); ones != 0; ones &= ones - 1) {
        const uint8_t* row = a.q[which] + (base + j * kScaleThreads + __ffs(static_cast<int>(ones)) - 1) * a.ldq[which];
        bool any = false;
        for (int64_t i = 0; i < a.columns[which] && !any; i += kWarp * 16) {
          uint4 x = make_uint4(0, 0, 0, 0);
          if (i + lane * 16 < a.columns[which]) x = *reinterpret_cast<const uint4*>(row + i + lane * 16);
          any = __any_sync(0xffffffffu, ((x.x | x.y | x.z | x.w) & 0x7f7f7f7fu) != 0);
        }
        if (any) largest = fmaxf(largest, 1.0f);
      }
    }
  }
  largest = block_max(largest, space);
  if (!(largest > 0)) largest = 1.0f;
  if (threadIdx.x == 0) *a.all[which] = shared = largest;
  __syncthreads();
  largest = shared;
  for (int64_t i = threadIdx.x; i < a.columns[which]; i += kScaleThreads)
    a.out[which][i] = a.channel[which] != nullptr ? largest / a.channel[which][i] : largest;
}

void transpose(Stream s, const TransposeArgs& a) {
  const dim3 grid(static_cast<unsigned>(ceil_div(a.cols, kSide)), static_cast<unsigned>(ceil_div(a.ldo, kSide)));
  launch_dependent(a.scale != nullptr ? transpose_kernel<true> : transpose_kernel<false>, grid, dim3(kThreads), 0, s,
                   a);
  check_launch("transpose");
}

int64_t whole(int64_t tokens) { return ceil_div(tokens, 16) * 16; }
size_t aligned(int64_t bytes) { return static_cast<size_t>(ceil_div(bytes, 256) * 256); }

}  // namespace

void rowwise_fp8_transpose(Stream s, const RowwiseFp8Transpose& c) {
  require(c.q.rows % 16 == 0 && c.q.cols % 16 == 0 && c.q.ld % 16 == 0 && c.out.ld == c.q.rows && wide(c.q.p) &&
              wide(c.out.p),
          "a matrix of E4M3 that is turned has whole sixteens of rows and columns");
  const auto* q = static_cast<const uint8_t*>(c.q.p);
  if (c.scale != nullptr) {
    scales_kernel<<<1, kScaleThreads, 0, s>>>(
        {{q}, {c.q.ld}, {c.scale}, {}, {c.out_scale}, {c.out_scale}, c.q.rows, {c.q.cols}});
    check_launch("scales");
  }
  transpose(s, {q, static_cast<uint8_t*>(c.out.p), c.scale, c.out_scale, c.q.rows, c.q.cols, c.q.ld, c.out.ld});
}

size_t fp8_linear_dw_scratch(const Fp8LinearDw& c) {
  const int64_t n = c.dy.cols, k = c.x.cols, tokens = whole(c.x.rows);
  return aligned(n * tokens) + aligned(k * tokens) + aligned((n + k + 2) * static_cast<int64_t>(sizeof(float)));
}

Gemm fp8_linear_dw_product(const Fp8LinearDw& c) {
  const int64_t n = c.dy.cols, k = c.x.cols, tokens = whole(c.x.rows);
  Gemm g;
  g.a = {nullptr, n, tokens, tokens, DType::kF8E4M3};
  g.b = {nullptr, k, tokens, tokens, DType::kF8E4M3};
  g.c = {c.dw, n, k, k, DType::kF32};
  g.trans_b = true;
  g.accumulate = c.accumulate;
  return g;
}

Gemm fp8_linear_dw(Stream s, const Fp8LinearDw& c, void* scratch) {
  const int64_t n = c.dy.cols, k = c.x.cols, tokens = whole(c.x.rows);
  require(c.dy.ld % 16 == 0 && c.x.ld % 16 == 0 && wide(c.dy.p) && wide(c.x.p),
          "rows of E4M3 that a gradient is made of begin at whole sixteens");
  auto* dy = static_cast<uint8_t*>(scratch);
  uint8_t* x = dy + aligned(n * tokens);
  auto* scales = reinterpret_cast<float*>(x + aligned(k * tokens));
  float *all = scales + n + k, *of_x = scales + n;
  scales_kernel<<<2, kScaleThreads, 0, s>>>({{static_cast<const uint8_t*>(c.dy.p), static_cast<const uint8_t*>(c.x.p)},
                                             {c.dy.ld, c.x.ld},
                                             {c.dy_scale, c.x_scale},
                                             {c.channel, nullptr},
                                             {all, all + 1},
                                             {scales, of_x},
                                             c.x.rows,
                                             {n, k}});
  check_launch("scales");
  transpose(s, {static_cast<const uint8_t*>(c.dy.p), dy, c.dy_scale, all, c.dy.rows, n, c.dy.ld, tokens});
  transpose(s, {static_cast<const uint8_t*>(c.x.p), x, c.x_scale, all + 1, c.x.rows, k, c.x.ld, tokens});
  Gemm g = fp8_linear_dw_product(c);
  g.a.p = dy, g.a_scale = scales;
  g.b.p = x, g.b_scale = of_x;
  return g;
}

}  // namespace mxt::kernels::MXT_GPU_NS

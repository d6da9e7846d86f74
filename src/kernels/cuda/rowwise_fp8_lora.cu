// Products of adapters with rows held in E4M3 (RowwiseFp8Linear and RowwiseFp8LinearDw of api.h). Half the bytes of
// bf16 rows, and at these ranks a product costs just what reading the rows does. E4M3 becomes bf16 in registers,
// exactly; a row's scale, a power of two, multiplies the row's sums, or the row of dz, exactly again.
#include <algorithm>

#include "kernels/cuda/lora.h"
#include "kernels/cuda/lora_parts.cuh"
#include "kernels/gpu/quantize.cuh"

namespace mxt::kernels::cuda {
namespace {

constexpr int kThreads = 256, kLinearWarps = kThreads / 32;

// Two E4M3 in the high bytes of the halves, anything in the low ones, to two bf16: sign, exponent and mantissa find
// their places, and 2^120 corrects the bias (127 for 7) of small numbers as well.
__device__ __forceinline__ uint32_t widen(uint32_t halves) {
  return multiply_pairs((halves & 0x80008000u) | (halves >> 4 & 0x07f007f0u), 0x7b807b80u);
}

struct LinearArgs {
  const uint8_t* q;
  const float* scale;
  const bf16* w;
  bf16* z;
  int64_t ldq, ldw, ldz;
  int rows, cols;
};

// 64 rows a block, or 16 where there are few, and then eight ranks. Its warps take 64 columns in turn: a thread reads
// 16 bytes of a row and, of w's, the same columns; which k a product takes first does not matter as long as both sides
// agree. The warps' sums are added in order: both ways give the same bits.
constexpr int kLinearRows = 64, kFewRows = 16, kMostFewRows = 512;
template <int Tiles, int Rows>  // Tiles of 8 ranks
__global__ void __launch_bounds__(kThreads, 1) rowwise_fp8_linear_kernel(const __grid_constant__ LinearArgs given) {
  extern __shared__ float sums[];  // [warps][rows][ranks]
  constexpr int kRanks = Tiles * 8, kSteps = Rows == kFewRows ? 4 : 2;
  LinearArgs a = given;
  a.w += static_cast<int64_t>(blockIdx.y) * kRanks * a.ldw, a.z += blockIdx.y * kRanks;
  allow_next_grid();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row0 = static_cast<int>(blockIdx.x) * Rows, g = lane / 4, t = lane % 4;
  float z[Rows / 16][Tiles][4] = {};
  wait_for_previous_grid();
  auto rows_at = [&](int k, uint4(&x)[Rows / 8]) {
#pragma unroll
    for (int i = 0; i < Rows / 8; ++i) {
      const int row = min(row0 + i * 8 + g, a.rows - 1);  // past the last: computed, not stored
      x[i] = *reinterpret_cast<const uint4*>(a.q + row * a.ldq + k + t * 16);
    }
  };
  auto multiply = [&](int k, const uint4(&x)[Rows / 8]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint4 w[Tiles];
#pragma unroll
      for (int n = 0; n < Tiles; ++n)
        w[n] = *reinterpret_cast<const uint4*>(a.w + (n * 8 + g) * a.ldw + k + t * 16 + half * 8);
#pragma unroll
      for (int m = 0; m < Rows / 16; ++m) {
        const uint32_t top[2] = {half ? x[2 * m].z : x[2 * m].x, half ? x[2 * m].w : x[2 * m].y},
                       low[2] = {half ? x[2 * m + 1].z : x[2 * m + 1].x, half ? x[2 * m + 1].w : x[2 * m + 1].y};
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const uint32_t a0 = widen(__byte_perm(top[s], 0, 0x1404)), a1 = widen(__byte_perm(low[s], 0, 0x1404)),
                         a2 = widen(__byte_perm(top[s], 0, 0x3424)), a3 = widen(__byte_perm(low[s], 0, 0x3424));
#pragma unroll
          for (int n = 0; n < Tiles; ++n)
            multiply_add(z[m][n], a0, a1, a2, a3, s ? w[n].z : w[n].x, s ? w[n].w : w[n].y);
        }
      }
    }
  };
  uint4 x[kSteps][Rows / 8];
  constexpr int kTurn = kLinearWarps * 64;
#pragma unroll
  for (int s = 0; s < kSteps; ++s)
    if (const int k = warp * 64 + s * kTurn; k < a.cols) rows_at(k, x[s]);
  for (int k = warp * 64; k < a.cols; k += kSteps * kTurn) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int now = k + s * kTurn, next = now + kSteps * kTurn;
      if (now < a.cols) multiply(now, x[s]);
      if (next < a.cols) rows_at(next, x[s]);
    }
  }
#pragma unroll
  for (int m = 0; m < Rows / 16; ++m)
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(sums + (warp * Rows + m * 16 + half * 8 + g) * kRanks + n * 8 + t * 2) =
            make_float2(z[m][n][half * 2], z[m][n][half * 2 + 1]);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < Rows * kRanks / 2; i += kThreads) {
    const int row = row0 + i / (kRanks / 2), c = i % (kRanks / 2) * 2;
    if (row >= a.rows) continue;
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int w = 0; w < kLinearWarps; ++w) {
      const float2 part = *reinterpret_cast<const float2*>(sums + w * Rows * kRanks + i * 2);
      sum.x += part.x, sum.y += part.y;
    }
    const float scale = a.scale[row];
    *reinterpret_cast<uint32_t*>(a.z + row * a.ldz + c) = pack_bf16(sum.x * scale, sum.y * scale);
  }
}

struct DwArgs {
  const bf16* dz;
  const uint8_t* q;
  const float* scale;
  float* parts;  // [splits][ranks][cols]
  int64_t lddz, cols;
  uint32_t ldq;
  int rows, rows_of_block, ranks;
};

// A block takes 256 columns and a range of rows, whose dz, times their scales, lie in shared memory. Some warps side by
// side take the columns, groups of them one part of the rows each: 16 at a time, of which a thread reads Bytes of four.
// The groups' sums are added in order, and so are the ranges' by a second kernel.
constexpr int kDwCols = 256, kDwThreads = 512;
template <int Tiles, int Bytes>  // of 16 ranks, the last perhaps of 8; 8 or 4
__global__ void __launch_bounds__(kDwThreads, 1) rowwise_fp8_linear_dw_kernel(const __grid_constant__ DwArgs a) {
  constexpr int kRanks = Tiles * 16, kRowBytes = kRanks * 2 + 16;  // 16: rows of a matrix begin in different banks
  constexpr int kColumns = Bytes * 8, kAcross = kDwCols / kColumns, kGroups = kDwThreads / 32 / kAcross;
  constexpr int kWords = Bytes / 4, kAhead = 3;
  extern __shared__ __align__(16) unsigned char space[];  // dz, then sums
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(blockIdx.y) * a.rows_of_block, rows = min(a.rows_of_block, a.rows - first);
  const int steps = (rows + 15) / 16, group = warp / kAcross, from = steps * group / kGroups,
            to = steps * (group + 1) / kGroups;
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kDwCols + warp % kAcross * kColumns + lane / 4 * Bytes;
  const uint8_t* base = a.q + first * static_cast<int64_t>(a.ldq) + (col < a.cols ? col : 0);  // past: not stored
  const int t = lane % 4;
  uint32_t x[kAhead][4][kWords];
  auto fetch = [&](int step, uint32_t(&to_x)[4][kWords]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // A row past the last: dz is zero there, and any number will do.
      const uint32_t row = min(step * 16 + t * 2 + i % 2 + i / 2 * 8, rows - 1);
      const uint8_t* at = base + row * a.ldq;
      if constexpr (kWords == 2) {
        const uint2 v = *reinterpret_cast<const uint2*>(at);
        to_x[i][0] = v.x, to_x[i][1] = v.y;
      } else {
        to_x[i][0] = *reinterpret_cast<const uint32_t*>(at);
      }
    }
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    if (from + i < to) fetch(from + i, x[i]);
  // Several loads of dz at a time: one after the other they would take as long as all the products.
  constexpr int kBatch = 4, kChunks = kRanks / 8;
  for (int i0 = static_cast<int>(threadIdx.x); i0 < steps * 16 * kChunks; i0 += kBatch * kDwThreads) {
    uint4 v[kBatch];
    float scale[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = i0 + b * kDwThreads, row = i / kChunks;
      v[b] = make_uint4(0, 0, 0, 0), scale[b] = 0;
      if (row < rows && i % kChunks * 8 < a.ranks)
        v[b] = *reinterpret_cast<const uint4*>(a.dz + (first + row) * a.lddz + i % kChunks * 8),
        scale[b] = a.scale[first + row];
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = i0 + b * kDwThreads, row = i / kChunks;
      if (row >= steps * 16) continue;
      *reinterpret_cast<Raw<bf16, 8>*>(space + row * kRowBytes + i % kChunks * 16) =
          multiply(Raw<bf16, 8>{v[b]}, pack_bf16(scale[b], scale[b]));
    }
  }
  __syncthreads();
  float da[Tiles][Bytes][4] = {};
  // Rows of dz are the sum's terms: transposed, they are the columns of the left operand.
  uint32_t dz_at =
      shared_address(space) + (from * 16 + (lane & 7) + (lane >> 4) * 8) * kRowBytes + (lane >> 3 & 1) * 16;
  for (int step = from; step < to; step += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (step + i >= to) break;
      uint32_t left[Tiles][4];
#pragma unroll
      for (int m = 0; m < Tiles; ++m) load_transposed(left[m], dz_at + m * 32);
      dz_at += 16 * kRowBytes;
#pragma unroll
      for (int n = 0; n < Bytes; ++n) {
        // Byte n of two rows into the high bytes of two halves.
        constexpr uint32_t kPick[4] = {0x4400, 0x5511, 0x6622, 0x7733};
        const uint32_t b0 = widen(__byte_perm(x[i][0][n / 4], x[i][1][n / 4], kPick[n % 4])),
                       b1 = widen(__byte_perm(x[i][2][n / 4], x[i][3][n / 4], kPick[n % 4]));
#pragma unroll
        for (int m = 0; m < Tiles; ++m) multiply_add(da[m][n], left[m], b0, b1);
      }
      if (step + i + kAhead < to) fetch(step + i + kAhead, x[i]);
    }
  }
  // Column n of a product's tile j lies at Bytes·n + j of the warp's.
  auto each = [&](auto&& f) {
#pragma unroll
    for (int m = 0; m < Tiles; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int j = 0; j < Bytes; j += 4)
          f(m * 16 + lane / 4 + e / 2 * 8, warp % kAcross * kColumns + (t * 2 + e % 2) * Bytes + j,
            make_float4(da[m][j][e], da[m][j + 1][e], da[m][j + 2][e], da[m][j + 3][e]));
  };
  auto* sums = reinterpret_cast<float*>(space);
  __syncthreads();
  if (group > 0)
    each([&](int rank, int c, float4 v) {
      *reinterpret_cast<float4*>(sums + ((group - 1) * kRanks + rank) * kDwCols + c) = v;
    });
  __syncthreads();
  if (group > 0) return;
  each([&](int rank, int c, float4 v) {
#pragma unroll
    for (int k = 0; k < kGroups - 1; ++k) {
      const float4 w = *reinterpret_cast<const float4*>(sums + (k * kRanks + rank) * kDwCols + c);
      v = make_float4(v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w);
    }
    const int64_t at = static_cast<int64_t>(blockIdx.x) * kDwCols + c;
    if (at < a.cols && rank < a.ranks)
      *reinterpret_cast<float4*>(a.parts + (static_cast<int64_t>(blockIdx.y) * a.ranks + rank) * a.cols + at) = v;
  });
}

// Any type and shape: a warp a result.
template <typename T>
__global__ void rowwise_fp8_linear_any(const uint8_t* q, int64_t ldq, const float* scale, const T* w, int64_t ldw, T* z,
                                       int64_t ldz, int64_t cols) {
  const int64_t row = blockIdx.x, rank = blockIdx.y;
  float sum = 0;
  for (int64_t k = threadIdx.x; k < cols; k += 32) sum += from_e4m3(q[row * ldq + k]) * to_float(w[rank * ldw + k]);
  sum = warp_sum(sum);
  if (threadIdx.x == 0) z[row * ldz + rank] = from_float<T>(sum * scale[row]);
}
// A thread a result.
template <typename T>
__global__ void rowwise_fp8_linear_dw_any(const T* dz, int64_t lddz, const uint8_t* q, int64_t ldq, const float* scale,
                                          float* dw, int64_t rows, int64_t cols, bool accumulate) {
  const int64_t k = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, rank = blockIdx.y;
  if (k >= cols) return;
  float sum = accumulate ? dw[rank * cols + k] : 0.0f;
  for (int64_t t = 0; t < rows; ++t) sum += to_float(dz[t * lddz + rank]) * scale[t] * from_e4m3(q[t * ldq + k]);
  dw[rank * cols + k] = sum;
}

// Of one launch: ranks, whole eights; and rows of a gradient, whose parts have a fixed place.
constexpr int64_t kMostRanks = 48, kMostRows = 32768;
int64_t ranks_at_once(int64_t left) { return std::min(left, kMostRanks); }

int64_t padded(int64_t ranks) { return ceil_div(ranks, 16) * 16; }

// What a block keeps of dz: 192 KB where a card has that much.
int64_t dw_shared() { return static_cast<int64_t>(std::min(size_t{192} << 10, device::card().shared)); }

// Whole waves over the multiprocessors, rows that fit into shared memory.
int64_t dw_rows_of_block(const RowwiseFp8LinearDw& c, int64_t rows, int64_t ranks) {
  const int64_t slices = ceil_div(c.q.cols, kDwCols), splits = std::max<int64_t>(1, kProcessors / slices);
  return std::min(dw_shared() / (padded(ranks) * 2 + 16) / 32, ceil_div(ceil_div(rows, splits), 32)) * 32;
}
bool linear_fast(const RowwiseFp8Linear& c) {
  return c.w.type == DType::kBF16 && c.w.rows % 8 == 0 && c.q.cols % 64 == 0 && even_rows(c.q) && even_rows(c.w) &&
         c.z.ld % 2 == 0 && c.q.rows < (1 << 30);
}
bool dw_fast(const RowwiseFp8LinearDw& c) {
  return c.dz.type == DType::kBF16 && c.dz.cols % 8 == 0 && even_rows(c.dz) && even_rows(c.q) && c.q.cols % 8 == 0 &&
         wide(c.dw) && c.q.rows > 0 && kMostRows * c.q.ld < (int64_t{1} << 32);
}

template <typename K>
void allow_shared(K kernel, size_t bytes) {
  require(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) == cudaSuccess,
      "an adapter's product needs more shared memory than the card has");
}

void linear_of(cudaStream_t stream, const RowwiseFp8Linear& c, int64_t first, int64_t ranks) {
  const LinearArgs a{static_cast<const uint8_t*>(c.q.p),
                     c.scale,
                     static_cast<const bf16*>(c.w.p) + first * c.w.ld,
                     static_cast<bf16*>(c.z.p) + first,
                     c.q.ld,
                     c.w.ld,
                     c.z.ld,
                     static_cast<int>(c.q.rows),
                     static_cast<int>(c.q.cols)};
  static constexpr decltype(&rowwise_fp8_linear_kernel<1, 64>) kKernels[] = {
      rowwise_fp8_linear_kernel<1, kLinearRows>, rowwise_fp8_linear_kernel<2, kLinearRows>,
      rowwise_fp8_linear_kernel<3, kLinearRows>, rowwise_fp8_linear_kernel<4, kLinearRows>,
      rowwise_fp8_linear_kernel<5, kLinearRows>, rowwise_fp8_linear_kernel<6, kLinearRows>};
  const bool few = c.q.rows <= kMostFewRows;
  const auto kernel = few ? rowwise_fp8_linear_kernel<1, kFewRows> : kKernels[ranks / 8 - 1];
  const int64_t rows = few ? kFewRows : kLinearRows, each = few ? 8 : ranks;
  const size_t bytes = static_cast<size_t>(kLinearWarps * rows * each) * sizeof(float);
  allow_shared(kernel, bytes);
  launch_dependent(kernel, dim3(static_cast<unsigned>(ceil_div(c.q.rows, rows)), static_cast<unsigned>(ranks / each)),
                   dim3(kThreads), bytes, stream, a);
}

void dw_of(cudaStream_t stream, const RowwiseFp8LinearDw& c, int64_t row, int64_t first, int64_t ranks, float* parts) {
  const int64_t all = std::min(c.q.rows - row, kMostRows), rows = dw_rows_of_block(c, all, ranks),
                splits = ceil_div(all, rows);
  const DwArgs a{static_cast<const bf16*>(c.dz.p) + row * c.dz.ld + first,
                 static_cast<const uint8_t*>(c.q.p) + row * c.q.ld,
                 c.scale + row,
                 parts,
                 c.dz.ld,
                 c.q.cols,
                 static_cast<uint32_t>(c.q.ld),
                 static_cast<int>(all),
                 static_cast<int>(rows),
                 static_cast<int>(ranks)};
  const int64_t wide = padded(ranks);
  const auto kernel = wide == 16   ? rowwise_fp8_linear_dw_kernel<1, 8>
                      : wide == 32 ? rowwise_fp8_linear_dw_kernel<2, 8>
                                   : rowwise_fp8_linear_dw_kernel<3, 4>;
  const int64_t groups = wide == 48 ? 2 : 4;
  const size_t bytes = std::max(static_cast<size_t>(rows * (wide * 2 + 16)),
                                static_cast<size_t>((groups - 1) * wide * kDwCols) * sizeof(float));
  allow_shared(kernel, bytes);
  kernel<<<dim3(static_cast<unsigned>(ceil_div(c.q.cols, kDwCols)), static_cast<unsigned>(splits)), kDwThreads, bytes,
           stream>>>(a);
  check_launch("rowwise_fp8_linear_dw");
  SumArgs sum{};
  sum.da_parts = parts, sum.da = c.dw + first * c.q.cols, sum.n_da = ranks * c.q.cols / 8;
  sum.splits = static_cast<int32_t>(splits), sum.accumulate_da = c.accumulate || row > 0;
  add_parts(stream, sum, 8);
}

}  // namespace

void rowwise_fp8_linear(cudaStream_t stream, const RowwiseFp8Linear& c) {
  if (c.q.rows == 0) return;
  const int64_t ranks = c.w.rows;
  const auto* q = static_cast<const uint8_t*>(c.q.p);
  const dim3 grid(static_cast<unsigned>(c.q.rows), static_cast<unsigned>(ranks));
  if (linear_fast(c))
    for (int64_t r = 0; r < ranks; r += kMostRanks) linear_of(stream, c, r, ranks_at_once(ranks - r));
  else if (c.w.type == DType::kBF16)
    rowwise_fp8_linear_any<<<grid, 32, 0, stream>>>(q, c.q.ld, c.scale, static_cast<const bf16*>(c.w.p), c.w.ld,
                                                    static_cast<bf16*>(c.z.p), c.z.ld, c.q.cols);
  else
    rowwise_fp8_linear_any<<<grid, 32, 0, stream>>>(q, c.q.ld, c.scale, static_cast<const float*>(c.w.p), c.w.ld,
                                                    static_cast<float*>(c.z.p), c.z.ld, c.q.cols);
  check_launch("rowwise_fp8_linear");
}

size_t rowwise_fp8_linear_dw_scratch(const RowwiseFp8LinearDw& c) {
  if (!dw_fast(c)) return 0;
  const int64_t ranks = ranks_at_once(c.dz.cols), rows = std::min(c.q.rows, kMostRows);  // of fewer not more parts
  return static_cast<size_t>(ceil_div(rows, dw_rows_of_block(c, rows, ranks)) * ranks * c.q.cols) * sizeof(float);
}

void rowwise_fp8_linear_dw(cudaStream_t stream, const RowwiseFp8LinearDw& c, void* scratch) {
  const int64_t ranks = c.dz.cols;
  const auto* q = static_cast<const uint8_t*>(c.q.p);
  if (dw_fast(c)) {
    for (int64_t row = 0; row < c.q.rows; row += kMostRows)
      for (int64_t r = 0; r < ranks; r += kMostRanks)
        dw_of(stream, c, row, r, ranks_at_once(ranks - r), static_cast<float*>(scratch));
    return;
  }
  const dim3 grid(static_cast<unsigned>(ceil_div(c.q.cols, 128)), static_cast<unsigned>(ranks));
  if (c.dz.type == DType::kBF16)
    rowwise_fp8_linear_dw_any<<<grid, 128, 0, stream>>>(static_cast<const bf16*>(c.dz.p), c.dz.ld, q, c.q.ld, c.scale,
                                                        c.dw, c.q.rows, c.q.cols, c.accumulate);
  else
    rowwise_fp8_linear_dw_any<<<grid, 128, 0, stream>>>(static_cast<const float*>(c.dz.p), c.dz.ld, q, c.q.ld, c.scale,
                                                        c.dw, c.q.rows, c.q.cols, c.accumulate);
  check_launch("rowwise_fp8_linear_dw");
}

}  // namespace mxt::kernels::cuda

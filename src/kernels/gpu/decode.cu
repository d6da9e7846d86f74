// Coded matrices (base/coding.h) to F32 and BF16: a thread makes 16 bytes, of codes that belong to one block.
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256, kItems = 8;  // packs a thread

struct DecodeArgs {
  const uint8_t *codes, *scales;
  const float* nested;
  void* out;
  int64_t ldm, row, col, ldo, packs, packs_a_row, height;  // height: rows of a part
  int64_t codes_step, scales_step, nested_step;            // bytes
  int64_t means;                                           // where the mean stands in nested
  int through;                                             // 0: nothing, 1: BF16, 2: F16
  float table[16];
  float bytes[256];
};

template <Coding kCoding>
__device__ __forceinline__ float block_scale(const DecodeArgs& a, const float* bytes, int64_t part, int64_t element) {
  const uint8_t* scales = a.scales + part * a.scales_step;
  if constexpr (kCoding == Coding::kNf4) return reinterpret_cast<const float*>(scales)[element / kNf4Block];
  if constexpr (kCoding == Coding::kNf4Double) {
    const int64_t block = element / kNf4Block;
    const float* nested = a.nested + part * (a.nested_step / 4);
    return __fadd_rn(__fmul_rn(bytes[scales[block]], nested[block / kNf4Nested]), nested[a.means]);
  }
  const uint32_t e = scales[element / kMxBlock];
  return __uint_as_float(e == 255 ? 0x7fc00000u : e == 0 ? 0x00400000u : e << 23);
}

#if defined(__HIP__)
__device__ __forceinline__ float through_f16(float x) { return static_cast<float>(static_cast<_Float16>(x)); }
#else
__device__ __forceinline__ float through_f16(float x) {
  uint16_t h;
  float y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(h));
  return y;
}
#endif

__device__ __forceinline__ float e4m3_value(uint32_t code) {
  if ((code & 127) == 127) return __uint_as_float(0x7fc00000u);
  const uint32_t exponent = code >> 3 & 15, mantissa = code & 7;
  const float size =
      exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f : __uint_as_float((exponent + 120) << 23 | mantissa << 20);
  return code & 128 ? -size : size;
}

// All V weights of a pack are whole codes of one row, and of one block where scales are blocks'.
template <typename T, int V, Coding kCoding>
__global__ void __launch_bounds__(kThreads) decode_bytes_kernel(__grid_constant__ const DecodeArgs a) {
  __shared__ float table[256];
  table[threadIdx.x] = e4m3_value(threadIdx.x);
  __syncthreads();
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads * kItems + threadIdx.x, i = 0; i < kItems && p < a.packs;
       ++i, p += kThreads) {
    const int64_t r = p / a.packs_a_row, c = (p - r * a.packs_a_row) * V, part = (a.row + r) / a.height,
                  row = a.row + r - part * a.height, first = row * a.ldm + a.col + c;
    const uint8_t* codes = a.codes + part * a.codes_step;
    const uint8_t* scales = a.scales + part * a.scales_step;
    float scale;
    if constexpr (kCoding == Coding::kE4M3)
      scale = __uint_as_float(static_cast<uint32_t>(scales[row]) << 23);
    else if constexpr (kCoding == Coding::kE4M3Rows)
      scale = reinterpret_cast<const float*>(scales)[row];
    else
      scale = reinterpret_cast<const float*>(
          scales)[row / kE4M3Block * ((a.ldm + kE4M3Block - 1) / kE4M3Block) + (a.col + c) / kE4M3Block];
    uint32_t words[(V + 3) / 4];
    if constexpr (V == 8) {
      const uint2 w = *reinterpret_cast<const uint2*>(codes + first);
      words[0] = w.x, words[1] = w.y;
    } else if constexpr (V == 4) {
      words[0] = *reinterpret_cast<const uint32_t*>(codes + first);
    } else {
      words[0] = codes[first];
    }
    float f[V];
#pragma unroll
    for (int k = 0; k < V; ++k) {
      f[k] = __fmul_rn(table[words[k / 4] >> k % 4 * 8 & 255], scale);
      if (a.through == 1) f[k] = to_float(from_float<bf16>(f[k]));
      if (a.through == 2) f[k] = through_f16(f[k]);
    }
    store<T, V>(a.out, r * a.ldo + c, Raw<T, V>::pack(f));
  }
}

// All V weights of a pack are whole bytes of codes, of one block.
template <typename T, int V, Coding kCoding>
__global__ void __launch_bounds__(kThreads) decode_kernel(__grid_constant__ const DecodeArgs a) {
  __shared__ float table[16], bytes[256];
  if (threadIdx.x < 16) table[threadIdx.x] = a.table[threadIdx.x];
  if (kCoding == Coding::kNf4Double) bytes[threadIdx.x] = a.bytes[threadIdx.x];
  __syncthreads();
  constexpr bool kLowFirst = kCoding == Coding::kMxfp4;
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads * kItems + threadIdx.x, i = 0; i < kItems && p < a.packs;
       ++i, p += kThreads) {
    const int64_t r = p / a.packs_a_row, c = (p - r * a.packs_a_row) * V, part = (a.row + r) / a.height,
                  first = (a.row + r - part * a.height) * a.ldm + a.col + c;
    const uint8_t* of_part = a.codes + part * a.codes_step;
    const float scale = block_scale<kCoding>(a, bytes, part, first);
    uint32_t codes;
    if constexpr (V == 8)
      codes = *reinterpret_cast<const uint32_t*>(of_part + first / 2);
    else if constexpr (V == 4)
      codes = *reinterpret_cast<const uint16_t*>(of_part + first / 2);
    else
      codes = of_part[first / 2] >> (first % 2 ? (kLowFirst ? 4 : 0) : (kLowFirst ? 0 : 4));
    float f[V];
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const int shift = V == 1 ? 0 : k / 2 * 8 + (kLowFirst ? k % 2 * 4 : (k + 1) % 2 * 4);
      f[k] = __fmul_rn(table[codes >> shift & 15], scale);
      if (a.through == 1) f[k] = to_float(from_float<bf16>(f[k]));
      if (a.through == 2) f[k] = through_f16(f[k]);
    }
    store<T, V>(a.out, r * a.ldo + c, Raw<T, V>::pack(f));
  }
}

}  // namespace

void decode(Stream s, const Decode& d) {
  if (d.out.rows == 0 || d.out.cols == 0) return;
  const Coded& m = d.matrix;
  const int64_t v = elements_of_16_bytes(d.out.type);
  const bool packs = wide(ConstMat(d.out)) && m.cols % v == 0 && d.col % v == 0;
  const int64_t width = packs ? v : 1, blocks = ceil_div(m.rows * m.cols, kNf4Block);
  DecodeArgs a{m.codes,
               m.scales,
               m.nested,
               d.out.p,
               m.cols,
               d.row,
               d.col,
               d.out.ld,
               d.out.rows * d.out.cols / width,
               d.out.cols / width,
               m.rows,
               d.codes_step,
               d.scales_step,
               d.nested_step,
               ceil_div(blocks, kNf4Nested),
               d.through == DType::kBF16  ? 1
               : d.through == DType::kF16 ? 2
                                          : 0,
               {},
               {}};
  const bool mx = m.coding == Coding::kMxfp4;
  for (int i = 0; i < 16; ++i) a.table[i] = mx ? kE2M1Table[i] : kNf4Table[i];
  if (m.coding == Coding::kNf4Double)
    for (size_t i = 0; i < 256; ++i) a.bytes[i] = kNf4Bytes[i];
  const auto grid = static_cast<unsigned>(ceil_div(a.packs, kThreads * kItems));
  MXT_GPU_DISPATCH(d.out.type, packs, {
    if (m.coding == Coding::kE4M3)
      decode_bytes_kernel<T, V, Coding::kE4M3><<<grid, kThreads, 0, s>>>(a);
    else if (m.coding == Coding::kE4M3Rows)
      decode_bytes_kernel<T, V, Coding::kE4M3Rows><<<grid, kThreads, 0, s>>>(a);
    else if (m.coding == Coding::kE4M3Blocks)
      decode_bytes_kernel<T, V, Coding::kE4M3Blocks><<<grid, kThreads, 0, s>>>(a);
    else if (mx)
      decode_kernel<T, V, Coding::kMxfp4><<<grid, kThreads, 0, s>>>(a);
    else if (m.coding == Coding::kNf4)
      decode_kernel<T, V, Coding::kNf4><<<grid, kThreads, 0, s>>>(a);
    else
      decode_kernel<T, V, Coding::kNf4Double><<<grid, kThreads, 0, s>>>(a);
  });
  check_launch("decode");
}

}  // namespace mxt::kernels::MXT_GPU_NS

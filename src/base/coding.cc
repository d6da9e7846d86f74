#include "base/coding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/ggml_blocks.h"
#include "base/threads.h"

namespace mxt {

// QLoRA (Dettmers et al. 2023), appendix E: quantiles of the normal distribution, as bitsandbytes states them.
const float kNf4Table[16] = {-1.0f,
                             -0.6961928009986877f,
                             -0.5250730514526367f,
                             -0.39491748809814453f,
                             -0.28444138169288635f,
                             -0.18477343022823334f,
                             -0.09105003625154495f,
                             0.0f,
                             0.07958029955625534f,
                             0.16093020141124725f,
                             0.24611230194568634f,
                             0.33791524171829224f,
                             0.44070982933044434f,
                             0.5626170039176941f,
                             0.7229568362236023f,
                             1.0f};
const float kE2M1Table[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

namespace {

// 8-bit dynamic numbers (Dettmers 2016): for i = 0 … 6 10^(i−6) times the midpoints of 2^i equal parts of [0.1, 1],
// with both signs; 0; 1. In the steps of PyTorch's float32 linspace, which bitsandbytes builds its table with.
constexpr std::array<float, 256> dynamic_bytes() {
  std::array<float, 256> t{};
  size_t n = 0;
  constexpr float kPowers[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
  for (int i = 0; i < 7; ++i) {
    const int parts = 1 << i;
    const float step = (1.0f - 0.1f) / static_cast<float>(parts);
    const auto bound = [&](int k) {
      const double d = static_cast<double>(step);  // one rounding, as with a fused multiply-add
      return static_cast<float>(k < (parts + 1) / 2 ? static_cast<double>(0.1f) + d * k : 1 - d * (parts - k));
    };
    for (int k = 0; k < parts; ++k) {
      const float middle = (bound(k) + bound(k + 1)) / 2;
      const float v = kPowers[i] * middle;
      t[n++] = v;
      t[n++] = -v;
    }
  }
  t[n++] = 0;
  t[n++] = 1;
  std::sort(t.begin(), t.end());
  return t;
}

// Index of the nearest of ascending values, of two equally near the lower.
template <size_t N>
struct Nearest {
  std::array<float, N - 1> middle{};
  explicit Nearest(const float* values) {
    for (size_t i = 0; i + 1 < N; ++i) middle[i] = (values[i] + values[i + 1]) / 2;
  }
  uint8_t operator()(float x) const {
    if constexpr (N > 16)
      return static_cast<uint8_t>(std::lower_bound(middle.begin(), middle.end(), x) - middle.begin());
    int code = 0;
    for (const float m : middle) code += x > m;
    return static_cast<uint8_t>(code);
  }
};

int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

float largest_of(const float* w, int64_t n) {
  float m = 0;
  for (int64_t i = 0; i < n; ++i) m = std::max(m, std::abs(w[i]));
  return m;
}

// One block of a flat matrix, in F32.
const float* block_of(const void* w, DType type, int64_t first, int64_t n, float* room) {
  convert(static_cast<const std::byte*>(w) + static_cast<size_t>(first) * size_of(type), type, room, DType::kF32,
          static_cast<size_t>(n));
  return room;
}

void encode_nf4(const void* w, DType type, const CodedMatrix<uint8_t, float>& to, float* scales) {
  static const Nearest<16> nearest(kNf4Table);
  const int64_t n = to.rows * to.cols;
  parallel_for(0, blocks_of(n, kNf4Block), 256, [&](int64_t b, int64_t e) {
    float room[kNf4Block];
    for (int64_t k = b; k < e; ++k) {
      const int64_t first = k * kNf4Block, count = std::min(kNf4Block, n - first);
      std::fill(room + count, room + kNf4Block, 0.0f);  // the odd end of a short block is zero
      const float* x = block_of(w, type, first, count, room);
      const float most = scales[k] = largest_of(x, count), inverse = most > 0 ? 1.0f / most : 0.0f;
      uint8_t code[kNf4Block];
      for (int64_t i = 0; i < kNf4Block; ++i) code[i] = nearest(x[i] * inverse);
      for (int64_t i = 0; i < count; i += 2)
        to.codes[(first + i) / 2] = static_cast<uint8_t>(code[i] << 4 | code[i + 1]);
    }
  });
}

// Above bound i the code i+1 is nearer; on it the even code wins.
constexpr float kE2M1Bounds[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};

double squared_error(const float* w, float scale) {
  double sum = 0;
  for (int64_t i = 0; i < kMxBlock; ++i) {
    const float q = kE2M1Table[float_to_e2m1(w[i] / scale)];
    const double e = static_cast<double>(w[i]) - static_cast<double>(q) * static_cast<double>(scale);
    sum += e * e;
  }
  return sum;
}

int mxfp4_exponent(const float* x) {
  const float most = largest_of(x, kMxBlock);
  if (!(most > 0)) return 0;
  // 4 ≤ most / 2^low < 8: with `low` values above 6 are cut, with one more nothing is.
  const int low = std::ilogb(most) - 2, exponent = std::clamp(low, -127, 127), high = std::clamp(low + 1, -127, 127);
  const bool cut = most > kE2M1Table[7] * std::ldexp(1.0f, exponent);
  return cut && squared_error(x, std::ldexp(1.0f, high)) < squared_error(x, std::ldexp(1.0f, exponent)) ? high
                                                                                                        : exponent;
}

void encode_mxfp4(const void* w, DType type, const CodedMatrix<uint8_t, float>& to) {
  MXT_ASSERT(to.cols % kMxBlock == 0);
  parallel_for(0, to.rows * to.cols / kMxBlock, 512, [&](int64_t b, int64_t e) {
    float room[kMxBlock];
    for (int64_t k = b; k < e; ++k) {
      const float* x = block_of(w, type, k * kMxBlock, kMxBlock, room);
      const int exponent = mxfp4_exponent(x);
      to.scales[k] = static_cast<uint8_t>(exponent + 127);
      const float s = std::ldexp(1.0f, exponent);
      for (int64_t i = 0; i < kMxBlock; i += 2)
        to.codes[(k * kMxBlock + i) / 2] =
            static_cast<uint8_t>(float_to_e2m1(x[i] / s) | float_to_e2m1(x[i + 1] / s) << 4);
    }
  });
}

void encode_e4m3(const void* w, DType type, const CodedMatrix<uint8_t, float>& to) {
  parallel_for(0, to.rows, 16, [&](int64_t b, int64_t e) {
    std::vector<float> room(static_cast<size_t>(to.cols));
    for (int64_t r = b; r < e; ++r) {
      const float* x = block_of(w, type, r * to.cols, to.cols, room.data());
      const float scale = f8e4m3_row_scale(largest_of(x, to.cols));
      to.scales[r] = static_cast<uint8_t>(std::bit_cast<uint32_t>(scale) >> 23);
      for (int64_t i = 0; i < to.cols; ++i) to.codes[r * to.cols + i] = float_to_f8e4m3(x[i] / scale);
    }
  });
}

// A scale for `tall` rows × what e4m3_reach() says of columns.
void encode_e4m3_scaled(const void* w, DType type, const CodedMatrix<uint8_t, float>& to, int64_t tall) {
  const int64_t across = to.coding == Coding::kE4M3Blocks ? blocks_of(to.cols, kE4M3Block) : 1;
  auto* scales = reinterpret_cast<float*>(to.scales);
  parallel_for(0, blocks_of(to.rows, tall), 1, [&](int64_t b, int64_t e) {
    std::vector<float> room(static_cast<size_t>(to.cols));
    for (int64_t k = b; k < e; ++k)
      for (int64_t col = 0, end = 0, at = k * across; col < to.cols; col = end, ++at) {
        end = e4m3_reach(to.coding, col, to.cols);
        const int64_t first = k * tall, last = std::min(to.rows, first + tall), n = end - col;
        float most = 0;
        for (int64_t r = first; r < last; ++r)
          most = std::max(most, largest_of(block_of(w, type, r * to.cols + col, n, room.data()), n));
        const float scale = scales[at] = most > 0 ? most / 448.0f : 1.0f;
        for (int64_t r = first; r < last; ++r) {
          const float* x = block_of(w, type, r * to.cols + col, n, room.data());
          for (int64_t i = 0; i < n; ++i) to.codes[r * to.cols + col + i] = float_to_f8e4m3(x[i] / scale);
        }
      }
  });
}

}  // namespace

constinit const std::array<float, 256> kNf4Bytes = dynamic_bytes();

std::string_view name_of(Coding c) {
  static constexpr std::string_view kNames[] = {"none",
                                                "nf4",
                                                "nf4 with double quantization",
                                                "mxfp4",
                                                "e4m3",
                                                "e4m3 with a scale a row",
                                                "e4m3 in blocks of 128 × 128",
                                                "q4_0",
                                                "q4_1",
                                                "q5_0",
                                                "q5_1",
                                                "q8_0",
                                                "q2_k",
                                                "q3_k",
                                                "q4_k",
                                                "q5_k",
                                                "q6_k",
                                                "tq2_0",
                                                "iq4_nl",
                                                "iq4_xs",
                                                "ggml's mxfp4"};
  static_assert(std::size(kNames) == static_cast<size_t>(Coding::kGgmlMxfp4) + 1);
  return kNames[static_cast<size_t>(c)];
}

CodedBytes coded_bytes(Coding c, int64_t rows, int64_t cols) {
  if (const GgmlBlock* block = ggml_block(c)) return {rows * blocks_of(cols, block->values) * block->bytes, 0, 0};
  const int64_t n = rows * cols, blocks = blocks_of(n, kNf4Block);
  switch (c) {
    case Coding::kNf4:
      return {blocks_of(n, 2), 4 * blocks, 0};
    case Coding::kNf4Double:
      return {blocks_of(n, 2), blocks, 4 * (blocks_of(blocks, kNf4Nested) + 1)};
    case Coding::kMxfp4:
      return {n / 2, n / kMxBlock, 0};
    case Coding::kE4M3:
      return {n, rows, 0};
    case Coding::kE4M3Rows:
      return {n, 4 * rows, 0};
    case Coding::kE4M3Blocks:
      return {n, 4 * blocks_of(rows, kE4M3Block) * blocks_of(cols, kE4M3Block), 0};
    default:
      return {};
  }
}

uint8_t float_to_e2m1(float x) {
  const float a = std::abs(x);
  uint8_t code = 0;
  // The bound itself goes to the even code: up where the lower code is odd.
  while (code < 7 && (a > kE2M1Bounds[code] || (a == kE2M1Bounds[code] && code % 2 == 1))) ++code;
  return static_cast<uint8_t>(code | (std::signbit(x) ? 8 : 0));
}

void encode_nf4_scales(const std::vector<float>& scales, uint8_t* bytes, float* nested) {
  static const Nearest<256> nearest(kNf4Bytes.data());
  const auto n = static_cast<int64_t>(scales.size());
  double sum = 0;
  for (const float s : scales) sum += static_cast<double>(s);
  const float mean = n > 0 ? static_cast<float>(sum / static_cast<double>(n)) : 0.0f;
  for (int64_t first = 0; first < n; first += kNf4Nested) {
    const int64_t count = std::min(kNf4Nested, n - first);
    float x[kNf4Nested];
    for (int64_t i = 0; i < count; ++i) x[i] = scales[static_cast<size_t>(first + i)] - mean;
    const float most = nested[first / kNf4Nested] = largest_of(x, count), inverse = most > 0 ? 1.0f / most : 0.0f;
    for (int64_t i = 0; i < count; ++i) bytes[first + i] = nearest(x[i] * inverse);
  }
  nested[blocks_of(n, kNf4Nested)] = mean;
}

void encode(const void* w, DType type, const CodedMatrix<uint8_t, float>& to) {
  if (to.coding == Coding::kMxfp4) return encode_mxfp4(w, type, to);
  if (to.coding == Coding::kE4M3) return encode_e4m3(w, type, to);
  if (is_e4m3(to.coding)) return encode_e4m3_scaled(w, type, to, to.coding == Coding::kE4M3Rows ? 1 : kE4M3Block);
  if (to.coding == Coding::kNf4) return encode_nf4(w, type, to, reinterpret_cast<float*>(to.scales));
  MXT_ASSERT(to.coding == Coding::kNf4Double);
  std::vector<float> scales(static_cast<size_t>(blocks_of(to.rows * to.cols, kNf4Block)));
  encode_nf4(w, type, to, scales.data());
  encode_nf4_scales(scales, to.scales, to.nested);
}

namespace {

// Blocks that are wanted in part are decoded beside.
void decode_blocks(const GgmlBlock& block, const uint8_t* codes, int64_t first, int64_t count, float* out) {
  float beside[256];
  for (int64_t done = 0; done < count;) {
    const int64_t at = first + done, skip = at % block.values, n = std::min(count - done, block.values - skip);
    const uint8_t* from = codes + at / block.values * block.bytes;
    block.decode(from, n == block.values ? out + done : beside);
    if (n != block.values) std::copy_n(beside + skip, n, out + done);
    done += n;
  }
}

}  // namespace

void decode(const Coded& m, int64_t first, int64_t count, float* out) {
  MXT_ASSERT(m.coding != Coding::kNone && first >= 0 && first + count <= m.rows * m.cols);
  if (const GgmlBlock* block = ggml_block(m.coding)) {
    MXT_ASSERT(m.cols % block->values == 0);
    return decode_blocks(*block, m.codes, first, count, out);
  }
  if (is_e4m3(m.coding)) {
    for (int64_t i = 0; i < count;) {
      const int64_t row = (first + i) / m.cols, col = (first + i) % m.cols,
                    end = std::min(count, i + e4m3_reach(m.coding, col, m.cols) - col);
      for (const float scale = e4m3_scale(m, row, col); i < end; ++i)
        out[i] = f8e4m3_to_float(m.codes[first + i]) * scale;
    }
    return;
  }
  const bool mx = m.coding == Coding::kMxfp4;
  const int64_t block = mx ? kMxBlock : kNf4Block;
  const float* table = mx ? kE2M1Table : kNf4Table;
  for (int64_t i = 0; i < count;) {
    const int64_t at = first + i, end = std::min(count, (at / block + 1) * block - first);
    const float scale = mx ? exponent_scale(m.scales[at / block]) : nf4_scale(m, at / block);
    for (; i < end; ++i) {
      const uint8_t byte = m.codes[(first + i) / 2];
      const bool low = ((first + i) % 2 == 0) == mx;
      out[i] = table[low ? byte & 15 : byte >> 4] * scale;
    }
  }
}

}  // namespace mxt

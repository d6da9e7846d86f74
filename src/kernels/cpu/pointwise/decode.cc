// Coded matrices to F32 and BF16. To BF16, a block's 16 possible values are made first; their two bytes are then looked
// up for 32 codes at a time.
#include "kernels/decode.h"

#include <algorithm>
#include <array>

#include "base/ggml_blocks.h"
#include "base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/decode.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

// Any weights of the flat matrix.
void some(const Decode& d, int64_t first, int64_t count, float* out) {
  mxt::decode(d.matrix, first, count, out);
  for (int64_t i = 0; i < count; ++i) {
    if (d.through == DType::kBF16) out[i] = bf16_to_float(float_to_bf16(out[i]));
    if (d.through == DType::kF16) out[i] = f16_to_float(float_to_f16(out[i]));
  }
}
void some(const Decode& d, int64_t first, int64_t count, uint16_t* out) {
  float room[256];  // a multiple of every block, which then is decoded once
  while (count > 0) {
    const int64_t n = std::min<int64_t>(count, 256 - first % 256);
    some(d, first, n, room);
    for (int64_t i = 0; i < n; ++i) out[i] = float_to_bf16(room[i]);
    first += n, count -= n, out += n;
  }
}

#if HWY_TARGET != HWY_SCALAR
// 32 weights of one block, from 16 bytes of codes, by tables of their low and of their high bytes.
template <bool kLowFirst>
HWY_INLINE void expand(const uint8_t* codes, hn::Vec<hn::FixedTag<uint8_t, 16>> low,
                       hn::Vec<hn::FixedTag<uint8_t, 16>> high, uint16_t* out) {
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::FixedTag<uint16_t, 8> d16;
  const auto bytes = hn::LoadU(d8, codes), lower = hn::And(bytes, hn::Set(d8, 15)),
             upper = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, bytes))), hn::Set(d8, 15));
  const auto even = kLowFirst ? lower : upper, odd = kLowFirst ? upper : lower;
  const auto even_low = hn::TableLookupBytes(low, even), even_high = hn::TableLookupBytes(high, even);
  const auto odd_low = hn::TableLookupBytes(low, odd), odd_high = hn::TableLookupBytes(high, odd);
  const auto words = [&](auto a, auto b, bool upper_half) HWY_ATTR {
    return hn::BitCast(d16, upper_half ? hn::InterleaveUpper(d8, a, b) : hn::InterleaveLower(d8, a, b));
  };
  for (int half = 0; half < 2; ++half) {
    const auto e = words(even_low, even_high, half), o = words(odd_low, odd_high, half);
    hn::StoreU(hn::InterleaveLower(d16, e, o), d16, out + 16 * half);
    hn::StoreU(hn::InterleaveUpper(d16, e, o), d16, out + 16 * half + 8);
  }
}

template <bool kLowFirst, int kBlock>
HWY_INLINE void whole_block(const float* table, float scale, const uint8_t* codes, uint16_t* out) {
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::FixedTag<uint16_t, 8> d16;
  HWY_ALIGN uint16_t values[16];
  for (int64_t i = 0; i < 16; i += lanes()) store(hn::Mul(load(table + i), splat(scale)), values + i);
  const auto a = hn::Load(d16, values), b = hn::Load(d16, values + 8);
  const auto low = hn::ConcatEven(d8, hn::BitCast(d8, b), hn::BitCast(d8, a)),
             high = hn::ConcatOdd(d8, hn::BitCast(d8, b), hn::BitCast(d8, a));
  for (int i = 0; i < kBlock; i += 32) expand<kLowFirst>(codes + i / 2, low, high, out + i);
}

// Whole blocks, from `first` on. Rounding through BF16 changes nothing here.
void blocks(const Decode& d, int64_t first, int64_t count, uint16_t* out) {
  const Coded& m = d.matrix;
  if (m.coding == Coding::kMxfp4) {
    for (int64_t i = 0; i < count; i += kMxBlock)
      whole_block<true, kMxBlock>(kE2M1Table, exponent_scale(m.scales[(first + i) / kMxBlock]),
                                  m.codes + (first + i) / 2, out + i);
    return;
  }
  for (int64_t i = 0; i < count; i += kNf4Block)
    whole_block<false, kNf4Block>(kNf4Table, nf4_scale(m, (first + i) / kNf4Block), m.codes + (first + i) / 2, out + i);
}

// Rows of E4M3, each by a table of its values; of blocks, which are no longer than such a table, one by one.
void bytes(const Decode& d, int64_t first, int64_t count, uint16_t* out) {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> v{};
    for (size_t c = 0; c < 256; ++c) v[c] = f8e4m3_to_float(static_cast<uint8_t>(c));
    return v;
  }();
  const Coded& m = d.matrix;
  uint16_t table[256];
  for (int64_t end = 0, i = 0; i < count; i = end) {
    const int64_t row = (first + i) / m.cols, col = (first + i) % m.cols;
    end = std::min(count, i + e4m3_reach(m.coding, col, m.cols) - col);
    const float scale = e4m3_scale(m, row, col);
    if (m.coding == Coding::kE4M3Blocks) {
      for (; i < end; ++i) out[i] = float_to_bf16(values[m.codes[first + i]] * scale);
      continue;
    }
    for (size_t c = 0; c < 256; ++c) table[c] = float_to_bf16(values[c] * scale);
    for (; i < end; ++i) out[i] = table[m.codes[first + i]];
  }
}

void flat(const Decode& d, int64_t first, int64_t count, uint16_t* out) {
  if (is_e4m3(d.matrix.coding))
    return d.through == DType::kF16 ? some(d, first, count, out) : bytes(d, first, count, out);
  const int64_t block = d.matrix.coding == Coding::kMxfp4 ? kMxBlock : kNf4Block;
  if (d.through == DType::kF16 || ggml_block(d.matrix.coding)) return some(d, first, count, out);
  const int64_t head = std::min(count, (block - first % block) % block), whole = (count - head) / block * block;
  if (head > 0) some(d, first, head, out);
  if (whole > 0) blocks(d, first + head, whole, out + head);
  if (head + whole < count) some(d, first + head + whole, count - head - whole, out + head + whole);
}
#else
void flat(const Decode& d, int64_t first, int64_t count, uint16_t* out) { some(d, first, count, out); }
#endif
void flat(const Decode& d, int64_t first, int64_t count, float* out) { some(d, first, count, out); }

template <typename T>
void rows_of(const Decode& d, int64_t begin, int64_t end) {
  const int64_t first = (d.row + begin) * d.matrix.cols + d.col;
  T* out = row_at<T>(d.out, begin);
  if (d.out.cols == d.matrix.cols && d.out.ld == d.out.cols)
    return flat(d, first, (end - begin) * d.out.cols, out);  // blocks that cross the ends of rows stay whole
  for (int64_t r = 0; r < end - begin; ++r) flat(d, first + r * d.matrix.cols, d.out.cols, out + r * d.out.ld);
}

void decode_rows(const Decode& d, int64_t begin, int64_t end) {
  const int64_t height = d.matrix.rows;
  for (int64_t next = 0; begin < end; begin = next) {
    const int64_t part = (d.row + begin) / height;
    next = std::min(end, (part + 1) * height - d.row);
    Decode one = d;  // its rows count from those of this part
    one.matrix = part_of(d, part);
    one.row = d.row - part * height;
    d.out.type == DType::kF32 ? rows_of<float>(one, begin, next) : rows_of<uint16_t>(one, begin, next);
  }
}

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
HWY_EXPORT(decode_rows);

void decode(const Decode& d) {
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 16) / std::max<int64_t>(1, d.out.cols));
  parallel_for(0, d.out.rows, grain, [&](int64_t b, int64_t e) { HWY_DYNAMIC_DISPATCH(decode_rows)(d, b, e); });
}

}  // namespace mxt::kernels::cpu
#endif

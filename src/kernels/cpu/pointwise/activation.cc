#include "base/error.h"
#include "base/philox.h"
#include "base/threads.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/activation.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

struct ValueAndSlope {
  V value, slope;
};

HWY_INLINE ValueAndSlope silu(V x) {
  const V s = sigmoid(x), one = splat(1.0f), value = hn::Mul(x, s);
  return {value, hn::MulAdd(value, hn::Sub(one, s), s)};
}

// 0.5x(1+tanh u) = x·σ(2u), 2u = 2√(2/π)(x + 0.044715x³); slope σ + x·σ(1−σ)·(2u)'.
HWY_INLINE ValueAndSlope gelu_tanh(V x) {
  const V one = splat(1.0f);
  const V square = hn::Mul(x, x), large = splat(1e6f);  // all is saturated long before; keeps u finite
  const V xx = hn::IfThenElse(hn::Gt(square, large), large, square);
  const V u2 = hn::Mul(x, hn::MulAdd(xx, splat(0.07135481627f), splat(1.5957691216f)));
  const V du2 = hn::MulAdd(xx, splat(0.2140644488f), splat(1.5957691216f));
  const V s = sigmoid(u2), value = hn::Mul(x, s);
  return {value, hn::MulAdd(hn::Mul(value, hn::Sub(one, s)), du2, s)};
}

HWY_INLINE ValueAndSlope gelu(V x) {
  const Normal n = normal(x);
  return {hn::Mul(x, n.cdf), hn::MulAdd(x, n.pdf, n.cdf)};
}

HWY_INLINE ValueAndSlope relu2(V x) {
  const V positive = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(F32())), x);  // unlike Max, keeps NaN
  return {hn::Mul(positive, positive), hn::Add(positive, positive)};
}

template <Activation kKind>
HWY_INLINE ValueAndSlope activation(V x) {
  if constexpr (kKind == Activation::kSwiGlu) return silu(x);
  if constexpr (kKind == Activation::kGeluTanh || kKind == Activation::kGeGlu) return gelu_tanh(x);
  if constexpr (kKind == Activation::kGelu) return gelu(x);
  if constexpr (kKind == Activation::kRelu2) return relu2(x);
}

template <typename T, Activation kKind>
void act_rows_of(const Act& a, int64_t begin, int64_t end) {
  const int64_t width = a.y.cols;
  for (int64_t t = begin; t < end; ++t) {
    const T* x = row_at<T>(a.x, t);
    T* y = row_at<T>(a.y, t);
    for_each(width, [&](int64_t i, auto part) HWY_ATTR {
      V v = activation<kKind>(load(x + i, part)).value;
      if constexpr (gated(kKind)) v = hn::Mul(v, load(x + width + i, part));
      store(v, y + i, part);
    });
  }
}

template <typename T, Activation kKind>
void act_grad_rows_of(const ActGrad& a, int64_t begin, int64_t end) {
  const int64_t width = a.dy.cols;
  for (int64_t t = begin; t < end; ++t) {
    const T* x = row_at<T>(a.x, t);
    const T* dy = row_at<T>(a.dy, t);
    T* dx = row_at<T>(a.dx, t);
    for_each(width, [&](int64_t i, auto part) HWY_ATTR {
      const ValueAndSlope f = activation<kKind>(load(x + i, part));
      const V g = load(dy + i, part);
      if constexpr (gated(kKind)) {
        const V up = load(x + width + i, part);
        store(hn::Mul(hn::Mul(g, up), f.slope), dx + i, part);
        store(hn::Mul(g, f.value), dx + width + i, part);
      } else {
        store(hn::Mul(g, f.slope), dx + i, part);
      }
    });
  }
}

// Calls f with the kind as a constant.
template <typename F>
void with_kind(Activation kind, F&& f) {
  switch (kind) {
    case Activation::kSwiGlu:
      return f(std::integral_constant<Activation, Activation::kSwiGlu>());
    case Activation::kGeluTanh:
      return f(std::integral_constant<Activation, Activation::kGeluTanh>());
    case Activation::kGelu:
      return f(std::integral_constant<Activation, Activation::kGelu>());
    case Activation::kRelu2:
      return f(std::integral_constant<Activation, Activation::kRelu2>());
    case Activation::kGeGlu:
      return f(std::integral_constant<Activation, Activation::kGeGlu>());
  }
}

void act_rows(const Act& a, int64_t begin, int64_t end) {
  with_kind(a.kind, [&](auto kind) HWY_ATTR {
    a.x.type == DType::kF32 ? act_rows_of<float, decltype(kind)::value>(a, begin, end)
                            : act_rows_of<uint16_t, decltype(kind)::value>(a, begin, end);
  });
}

void act_grad_rows(const ActGrad& a, int64_t begin, int64_t end) {
  with_kind(a.kind, [&](auto kind) HWY_ATTR {
    a.x.type == DType::kF32 ? act_grad_rows_of<float, decltype(kind)::value>(a, begin, end)
                            : act_grad_rows_of<uint16_t, decltype(kind)::value>(a, begin, end);
  });
}

template <typename T>
void add_rows_of(const Add& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T* x = row_at<T>(a.a, t);
    const T* z = row_at<T>(a.b, t);
    T* y = row_at<T>(a.y, t);
    for_each(a.y.cols,
             [&](int64_t i, auto part) HWY_ATTR { store(hn::Add(load(x + i, part), load(z + i, part)), y + i, part); });
  }
}

MXT_BOTH_TYPES(add_rows, Add, c.y)

// ---- dropout

constexpr int64_t kBlocks = 256;  // Philox blocks drawn at a time: 4 KiB of words

HWY_INLINE void multiply_wide(VU32 a, uint32_t b, VU32* high, VU32* low) {
  const U32 d;
  const hn::Repartition<uint64_t, U32> d64;
  const VU32 bv = hn::Set(d, b);
  *low = hn::Mul(a, bv);
#if HWY_TARGET == HWY_SCALAR
  (void)d64;
  *high = hn::Set(d, static_cast<uint32_t>(uint64_t{hn::GetLane(a)} * b >> 32));
#else
  const auto even = hn::BitCast(d, hn::ShiftRight<32>(hn::MulEven(a, bv)));
  const auto odd = hn::BitCast(d, hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), bv));
  *high = hn::OddEven(odd, even);
#endif
}

// words[0 … 4n) = blocks first … first+n of philox4x32(seed, stream, ·); n ≤ kBlocks, words has room for kBlocks + a
// vector of blocks. The index must not cross a multiple of 2³².
HWY_INLINE void draw(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, uint32_t* words) {
  const U32 d;
  for (int64_t b = 0; b < n; b += lanes()) {
    VU32 c0 = hn::Iota(d, static_cast<uint32_t>(first) + static_cast<uint32_t>(b));
    VU32 c1 = hn::Set(d, static_cast<uint32_t>(first >> 32));
    VU32 c2 = hn::Set(d, static_cast<uint32_t>(stream)), c3 = hn::Set(d, static_cast<uint32_t>(stream >> 32));
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      VU32 h0, l0, h1, l1;
      multiply_wide(c0, 0xD2511F53u, &h0, &l0);
      multiply_wide(c2, 0xCD9E8D57u, &h1, &l1);
      c0 = hn::Xor(hn::Xor(h1, c1), hn::Set(d, k0));
      c1 = l1;
      c2 = hn::Xor(hn::Xor(h0, c3), hn::Set(d, k1));
      c3 = l0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, words + 4 * b);
  }
}

template <typename T>
void dropout_rows_of(const Dropout& d, int64_t begin, int64_t end) {
  const auto threshold = static_cast<uint64_t>(static_cast<double>(d.p) * 0x1p32);
  const V scale = splat(static_cast<float>(1.0 / (1.0 - static_cast<double>(d.p))));
  const bool none = threshold > UINT32_MAX;  // p = 1
  const U32 du;
  const VU32 least = hn::Set(du, static_cast<uint32_t>(threshold));
  HWY_ALIGN uint32_t words[4 * kBlocks + HWY_MAX_BYTES];
  for (int64_t t = begin; t < end; ++t) {
    const T* x = row_at<T>(d.x, t);
    T* y = row_at<T>(d.y, t);
    for (int64_t col = 0; col < d.x.cols;) {
      const auto element = static_cast<uint64_t>((d.first_row + t) * d.x.cols + col);
      const auto skip = static_cast<int64_t>(element % 4);
      const uint64_t first = element / 4;
      const int64_t n = std::min(d.x.cols - col, 4 * kBlocks - skip), blocks = (n + skip + 3) / 4;
      if ((first >> 32) == ((first + static_cast<uint64_t>(blocks)) >> 32)) {
        draw(d.seed, d.stream, first, blocks, words);
      } else {
        for (int64_t b = 0; b < blocks; ++b) {
          const auto block = philox4x32(d.seed, d.stream, first + static_cast<uint64_t>(b));
          std::memcpy(words + 4 * b, block.data(), sizeof(block));
        }
      }
      for_each(n, [&](int64_t i, auto part) HWY_ATTR {
        const VU32 word = hn::LoadU(du, words + skip + i);
        const auto keep_it = hn::RebindMask(F32(), hn::Not(hn::Lt(word, least)));
        const V v = hn::Mul(load(x + col + i, part), scale);
        store(none ? hn::Zero(F32()) : hn::IfThenElseZero(keep_it, v), y + col + i, part);
      });
      col += n;
    }
  }
}

MXT_BOTH_TYPES(dropout_rows, Dropout, c.x)

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {

HWY_EXPORT(act_rows);
HWY_EXPORT(act_grad_rows);
HWY_EXPORT(add_rows);
HWY_EXPORT(dropout_rows);

template <typename Call, typename Kernel>
void over_rows(const Call& call, const ConstMat& m, Kernel kernel) {
  MXT_ASSERT(m.type != DType::kF64);
  parallel_for(0, m.rows, rows_per_piece(m.cols), [&](int64_t begin, int64_t end) { kernel(call, begin, end); });
}

}  // namespace

void act(const Act& a) { over_rows(a, a.x, HWY_DYNAMIC_DISPATCH(act_rows)); }
void act_grad(const ActGrad& a) { over_rows(a, a.x, HWY_DYNAMIC_DISPATCH(act_grad_rows)); }
void add(const Add& a) { over_rows(a, a.y, HWY_DYNAMIC_DISPATCH(add_rows)); }
void dropout(const Dropout& d) { over_rows(d, d.x, HWY_DYNAMIC_DISPATCH(dropout_rows)); }

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE

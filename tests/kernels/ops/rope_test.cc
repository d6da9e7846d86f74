#include <fmt/format.h>

#include <cmath>

#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(RopeOps);

struct Heads {
  int64_t tokens, heads, kv_heads, head_dim, rotary;
};
const Heads kCases[] = {{1, 1, 1, 8, 8},     {7, 3, 1, 8, 4},  {65, 9, 3, 64, 64}, {33, 4, 2, 80, 80},
                        {17, 2, 2, 128, 32}, {5, 2, 1, 80, 0}, {70, 4, 4, 6, 6},   {6, 40, 13, 80, 80}};

struct Tables {
  std::vector<float> cos, sin;
  std::vector<int32_t> positions;
};
Tables tables(const Heads& h) {
  Tables t;
  for (int64_t p = 0; p < 64; ++p)
    for (int64_t i = 0; i < h.rotary / 2; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(h.rotary));
      t.cos.push_back(static_cast<float>(std::cos(angle)));
      t.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  for (int64_t i = 0; i < h.tokens; ++i) t.positions.push_back(static_cast<int32_t>(i * 13 % 64));
  return t;
}

template <typename R>
void common(Trial& r, R& op, const Heads& h, DType wtype, bool norm) {
  const Tables t = tables(h);
  op.heads = h.heads, op.kv_heads = h.kv_heads, op.head_dim = h.head_dim, op.rotary = h.rotary;
  if (h.rotary) op.positions = r.ints(t.positions), op.cos = r.floats(t.cos), op.sin = r.floats(t.sin);
  op.wtype = wtype;
  if (norm) op.q_w = r.param(h.head_dim, wtype, 5, 0.1, 1), op.k_w = r.param(h.head_dim, wtype, 6, 0.1, 1);
}

TEST_P(RopeOps, TurnsHeadsAndCopiesValues) {
  for (DType type : kTypes)
    for (const Heads& h : kCases)
      for (int mode = 0; mode < 3; ++mode) {
        const bool norm = mode == 1, in_place = mode == 2;
        SCOPED_TRACE(fmt::format("{} t{} h{} d{} rotary {} mode {}", label(type), h.tokens, h.heads, h.head_dim,
                                 h.rotary, mode));
        const int64_t width = (h.heads + 2 * h.kv_heads) * h.head_dim;
        check_op(GetParam(),
                 [&](Trial& r) {
                   QkNormRope op;
                   common(r, op, h, type, norm);
                   if (in_place) {
                     op.out = r.inout("out", h.tokens, width, type, 1);
                     op.qkv = op.out;
                   } else {
                     op.qkv = r.input(h.tokens, width, type, 1);
                     op.out = r.output("out", h.tokens, width, type);
                   }
                   if (norm) op.rstd = r.output_floats("rstd", h.tokens * (h.heads + h.kv_heads));
                   r.ops().qk_norm_rope(op);
                 },
                 {1e-5, 2e-6});
      }
}

TEST_P(RopeOps, GradientTurnsBack) {
  for (DType type : kTypes)
    for (const Heads& h : kCases)
      for (int mode = 0; mode < 4; ++mode) {
        const bool norm = mode & 1, accumulate = mode & 2, in_place = mode & 2;
        SCOPED_TRACE(fmt::format("{} t{} h{} d{} rotary {} mode {}", label(type), h.tokens, h.heads, h.head_dim,
                                 h.rotary, mode));
        const int64_t width = (h.heads + 2 * h.kv_heads) * h.head_dim;
        check_op(GetParam(),
                 [&](Trial& r) {
                   QkNormRopeGrad op;
                   common(r, op, h, DType::kBF16, norm);
                   op.accumulate = accumulate;
                   if (norm) {
                     op.qkv = r.input(h.tokens, width, type, 1);
                     op.rstd =
                         r.floats(std::vector<float>(static_cast<size_t>(h.tokens * (h.heads + h.kv_heads)), 0.75f));
                     op.dq_w = accumulate ? r.inout_floats("dq_w", h.head_dim, 7) : r.output_floats("dq_w", h.head_dim);
                     op.dk_w = accumulate ? r.inout_floats("dk_w", h.head_dim, 8) : r.output_floats("dk_w", h.head_dim);
                   }
                   if (in_place) {
                     op.dqkv = r.inout("dqkv", h.tokens, width, type, 2);
                     op.dout = op.dqkv;
                   } else {
                     op.dout = r.input(h.tokens, width, type, 2);
                     op.dqkv = r.output("dqkv", h.tokens, width, type);
                   }
                   r.ops().qk_norm_rope_grad(op);
                 },
                 {1e-5, 3e-5});
      }
}

TEST_P(RopeOps, OnlyQueriesMayBeNormalised) {
  const Heads h{9, 4, 2, 16, 16};
  check_op(GetParam(), [&](Trial& r) {
    QkNormRope op;
    common(r, op, h, DType::kF32, true);
    op.k_w = nullptr;
    op.qkv = r.input(h.tokens, 8 * 16, DType::kF32, 1);
    op.out = r.output("out", h.tokens, 8 * 16, DType::kF32);
    op.rstd = r.output_floats("rstd", h.tokens * 6);
    r.ops().qk_norm_rope(op);
  });
}

}  // namespace
}  // namespace mxt::kernels::test

#include <fmt/format.h>

#include "kernels/harness.h"
#include "kernels/routing.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(ExpertOps);

struct Shape {
  int64_t tokens, experts, k, width;
};
// Experts that are no power of two, one expert, all chosen, more experts than rows, widths with tails.
const Shape kShapes[] = {{1, 1, 1, 1}, {7, 5, 3, 3}, {65, 12, 12, 33}, {3, 128, 8, 19}, {300, 24, 2, 70}};

std::string label(const Shape& s) { return fmt::format("{} of {} experts, {}x{}", s.k, s.experts, s.tokens, s.width); }

// A routing as the reference makes it, in the trial's memory.
struct Routed {
  std::vector<int32_t> expert, row, slot, first;
  explicit Routed(const Shape& s) {
    const auto slots = static_cast<size_t>(s.tokens * s.k);
    expert.resize(slots), row.resize(slots), slot.resize(slots), first.resize(static_cast<size_t>(s.experts) + 1);
    Trial r(reference_backend());
    Route c;
    c.logits = r.input(s.tokens, s.experts, DType::kF32, 77, 2);
    c.weights = r.output("w", s.tokens, s.k, DType::kF32);
    c.probabilities = r.output("p", s.tokens, s.experts, DType::kF32);
    c.expert = expert.data(), c.row = row.data(), c.slot = slot.data(), c.first = first.data();
    r.ops().route(c);
  }
};

// The op as it is checked everywhere, and with rows of bf16 at multiples of 16 bytes, which a GPU's faster kernels
// want.
void check_in_packs(const Backend& b, const Op& op, Tolerance t) {
  check_op(b, op, t);
  SCOPED_TRACE("in packs");
  expect_close(run(reference_backend(), op), run(b, op, 8), t);
}

std::vector<int32_t> documents_of(int64_t tokens) {
  std::vector<int32_t> cu{0};
  for (const int64_t length : {1, 4, 40})
    if (cu.back() + length < tokens) cu.push_back(cu.back() + static_cast<int32_t>(length));
  cu.push_back(static_cast<int32_t>(tokens));
  return cu;
}

TEST_P(ExpertOps, RoutesToTheLargest) {
  for (DType type : kTypes)
    for (const Shape& s : kShapes)
      for (bool renormalize : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", test::label(type), label(s), renormalize));
        check_op(GetParam(), [&](Trial& r) {
          Route c;
          c.logits = r.input(s.tokens, s.experts, type, 1, 2);  // bf16 has ties
          c.renormalize = renormalize;
          c.weights = r.output("weights", s.tokens, s.k, type);
          c.probabilities = r.output("probabilities", s.tokens, s.experts, DType::kF32);
          c.expert = r.output_ints("expert", s.tokens * s.k);
          c.row = r.output_ints("row", s.tokens * s.k);
          c.slot = r.output_ints("slot", s.tokens * s.k);
          c.first = r.output_ints("first", s.experts + 1);
          r.ops().route(c);
        });
      }
}

TEST_P(ExpertOps, RouteGrad) {
  for (DType type : kTypes)
    for (const Shape& s : kShapes)
      for (int what = 0; what < 6; ++what) {
        const bool renormalize = what % 2 == 1, weights = what / 2 != 1, balance = what / 2 != 0;
        SCOPED_TRACE(fmt::format("{} {} {}", test::label(type), label(s), what));
        const Routed routed(s);
        check_op(GetParam(), [&](Trial& r) {
          std::vector<double> p;
          for (int64_t t = 0; t < s.tokens; ++t)
            for (int64_t e = 0; e < s.experts; ++e)
              p.push_back(2.0 * static_cast<double>(1 + (t + e) % s.experts) /
                          static_cast<double>(s.experts * (s.experts + 1)));
          RouteGrad c;
          c.probabilities = r.values(p, s.tokens, s.experts, DType::kF32);
          if (weights) c.dweights = r.input(s.tokens, s.k, DType::kF32, 3);
          c.expert = r.ints(routed.expert);
          c.renormalize = renormalize;
          c.dlogits = r.output("dlogits", s.tokens, s.experts, type);
          const std::vector<int32_t> cu = documents_of(s.tokens);
          if (balance) {
            c.runs = r.ints(cu);
            c.balance = r.input(static_cast<int64_t>(cu.size()) - 1, s.experts, DType::kF32, 4);
          }
          r.ops().route_grad(c);
        });
      }
}

TEST_P(ExpertOps, RowsGoToExpertsAndBack) {
  for (DType type : kTypes)
    for (const Shape& s : kShapes)
      for (bool weights : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", test::label(type), label(s), weights));
        const Routed routed(s);
        check_op(GetParam(), [&](Trial& r) {
          const ConstMat w = weights ? r.input(s.tokens, s.k, type, 5) : ConstMat();
          const int32_t *slot = r.ints(routed.slot), *row = r.ints(routed.row);
          ExpertGather g;
          g.x = r.input(s.tokens, s.width, type, 1);
          g.slot = slot, g.k = s.k, g.weights = w;
          g.y = r.output("gathered", s.tokens * s.k, s.width, type);
          r.ops().expert_gather(g);
          ExpertSum c;
          c.x = r.input(s.tokens * s.k, s.width, type, 2);
          c.row = row, c.k = s.k, c.weights = w;
          c.y = r.output("summed", s.tokens, s.width, type);
          r.ops().expert_sum(c);
          c.y = r.inout("added", s.tokens, s.width, type, 3);
          c.add = c.y;
          r.ops().expert_sum(c);
        });
        check_op(GetParam(),
                 [&](Trial& r) {
                   ExpertDots d;
                   d.dy = r.input(s.tokens, s.width, type, 1);
                   d.x = r.input(s.tokens * s.k, s.width, type, 2);
                   d.row = r.ints(routed.row);
                   d.dweights = r.output("dweights", s.tokens, s.k, DType::kF32);
                   r.ops().expert_dots(d);
                 },
                 {1e-5, 1e-5});
      }
}

TEST_P(ExpertOps, RowsInPacks) {
  for (const Shape& s : {Shape{70, 12, 3, 264}, Shape{9, 128, 8, 1544}})
    for (const bool weighted : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", label(s), weighted));
      const Routed routed(s);
      check_in_packs(GetParam(),
                     [&](Trial& r) {
                       const int64_t rows = s.tokens * s.k;
                       const ConstMat weights = r.input(s.tokens, s.k, DType::kBF16, 5);
                       ExpertGather g;
                       g.x = r.input(s.tokens, s.width, DType::kBF16, 1);
                       g.slot = r.ints(routed.slot);
                       g.k = s.k;
                       if (weighted) g.weights = weights;
                       g.y = r.output("routed", rows, s.width, DType::kBF16);
                       r.ops().expert_gather(g);
                       ExpertDots d;
                       d.dy = r.input(s.tokens, s.width, DType::kBF16, 2);
                       d.x = r.input(rows, s.width, DType::kBF16, 3);
                       d.row = r.ints(routed.row);
                       d.dweights = r.output("dweights", s.tokens, s.k, DType::kF32);
                       r.ops().expert_dots(d);
                     },
                     {1e-5, 4e-5});
    }
}

TEST_P(ExpertOps, GroupedProducts) {
  constexpr int64_t kOut = 21;
  for (DType type : kTypes)
    for (const Shape& s : kShapes)
      for (const Grouped kind : {Grouped::kForward, Grouped::kInput, Grouped::kWeight})
        for (bool accumulate : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", test::label(type), label(s), static_cast<int>(kind), accumulate));
          const Routed routed(s);
          const int64_t rows = s.tokens * s.k;
          check_op(GetParam(),
                   [&](Trial& r) {
                     GroupedGemm g;
                     g.kind = kind;
                     g.alpha = 0.5f;
                     g.accumulate = accumulate;
                     g.experts = s.experts;
                     g.first = r.ints(routed.first);
                     auto c = [&](int64_t m, int64_t n, DType t) {
                       return accumulate ? r.inout("c", m, n, t, 3) : r.output("c", m, n, t);
                     };
                     switch (kind) {
                       case Grouped::kForward:
                         g.a = r.input(rows, s.width, type, 1), g.b = r.input(s.experts * kOut, s.width, type, 2);
                         g.c = c(rows, kOut, type);
                         break;
                       case Grouped::kInput:
                         g.a = r.input(rows, kOut, type, 1), g.b = r.input(s.experts * kOut, s.width, type, 2);
                         g.c = c(rows, s.width, type);
                         break;
                       case Grouped::kWeight:
                         g.a = r.input(rows, kOut, type, 1), g.b = r.input(rows, s.width, type, 2);
                         g.c = c(s.experts * kOut, s.width, DType::kF32);
                     }
                     r.ops().grouped_gemm(g);
                   },
                   {1e-5, 2e-5});
        }
}

// Results of more than one tile across, rows of an expert that end within a tile, terms in several stages: what a GPU
// computes by its widest kernels.
TEST_P(ExpertOps, WideGroupedProducts) {
  struct Wide {
    int64_t tokens, experts, k, out, width;  // Grouped::kForward: width terms; kInput: out terms
  };
  // The last four: few rows, as when a model answers; of an expert more than eight, several experts beyond a warp's
  // lanes.
  for (const Wide& w :
       {Wide{300, 5, 3, 320, 200}, Wide{70, 40, 2, 64, 520}, Wide{513, 2, 1, 576, 392}, Wide{1, 40, 8, 136, 2056},
        Wide{8, 70, 8, 136, 520}, Wide{20, 3, 3, 320, 200}, Wide{3, 6, 1, 72, 88}})
    for (const Grouped kind : {Grouped::kForward, Grouped::kInput})
      for (bool accumulate : {false, true}) {
        SCOPED_TRACE(fmt::format("{} rows {} {} {}", w.tokens, w.out, static_cast<int>(kind), accumulate));
        const Routed routed({w.tokens, w.experts, w.k, w.width});
        const bool forward = kind == Grouped::kForward;
        check_in_packs(GetParam(),
                       [&](Trial& r) {
                         const int64_t rows = w.tokens * w.k, n = forward ? w.out : w.width;
                         GroupedGemm g;
                         g.kind = kind;
                         g.alpha = 0.5f;
                         g.accumulate = accumulate;
                         g.experts = w.experts;
                         g.first = r.ints(routed.first);
                         g.a = r.input(rows, forward ? w.width : w.out, DType::kBF16, 1);
                         g.b = r.input(w.experts * w.out, w.width, DType::kBF16, 2);
                         g.c =
                             accumulate ? r.inout("c", rows, n, DType::kBF16, 3) : r.output("c", rows, n, DType::kBF16);
                         r.ops().grouped_gemm(g);
                       },
                       {1e-5, 2e-5});
      }
}

// One side a few columns, as adapters of experts have them: few terms, few results, sums over rows of which one side is
// few columns; whole sixteens and not, experts without rows and with more than a tile of them.
TEST_P(ExpertOps, NarrowGroupedProducts) {
  struct Narrow {
    int64_t tokens, experts, k, rank, width;
  };
  enum class Side { kTerms, kResults };
  for (const Narrow& s : {Narrow{300, 5, 3, 16, 328}, Narrow{70, 40, 2, 32, 136}, Narrow{523, 2, 1, 24, 264},
                          Narrow{200, 3, 2, 64, 96}, Narrow{9, 6, 2, 8, 72}, Narrow{40, 4, 2, 12, 68}})
    for (const Grouped kind : {Grouped::kForward, Grouped::kInput, Grouped::kWeight})
      for (const Side side : {Side::kTerms, Side::kResults})
        for (bool accumulate : {false, true}) {
          SCOPED_TRACE(fmt::format("{} x {} of {} experts, kind {}, side {}, {}", s.rank, s.width, s.experts,
                                   static_cast<int>(kind), static_cast<int>(side), accumulate));
          const Routed routed({s.tokens, s.experts, s.k, s.width});
          const int64_t rows = s.tokens * s.k, from = side == Side::kTerms ? s.rank : s.width,
                        to = side == Side::kTerms ? s.width : s.rank;
          check_in_packs(GetParam(),
                         [&](Trial& r) {
                           GroupedGemm g;
                           g.kind = kind;
                           g.alpha = 0.5f;
                           g.accumulate = accumulate;
                           g.experts = s.experts;
                           g.first = r.ints(routed.first);
                           const bool weight = kind == Grouped::kWeight;
                           g.a = r.input(rows, from, DType::kBF16, 1);
                           if (weight)
                             g.b = r.input(rows, to, DType::kBF16, 2);
                           else if (kind == Grouped::kForward)
                             g.b = r.input(s.experts * to, from, DType::kBF16, 2);
                           else
                             g.b = r.input(s.experts * from, to, DType::kBF16, 2);
                           const int64_t m = weight ? s.experts * from : rows;
                           const DType type = weight ? DType::kF32 : DType::kBF16;
                           g.c = accumulate ? r.inout("c", m, to, type, 3) : r.output("c", m, to, type);
                           r.ops().grouped_gemm(g);
                         },
                         {1e-5, 2e-5});
        }
}

TEST_P(ExpertOps, LoadsAndTheirLoss) {
  for (const Shape& s : kShapes)
    for (bool accumulate : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", label(s), accumulate));
      const Routed routed(s);
      check_op(GetParam(),
               [&](Trial& r) {
                 const std::vector<int32_t> cu = documents_of(s.tokens);
                 RouteLoad l;
                 l.expert = r.ints(routed.expert);
                 l.k = s.k;
                 l.probabilities = r.input(s.tokens, s.experts, DType::kF32, 1);
                 l.runs = r.ints(cu);
                 const auto runs = static_cast<int64_t>(cu.size()) - 1;
                 l.accumulate = accumulate;
                 auto sums = [&](const char* name, uint64_t seed) {
                   return accumulate ? r.inout(name, runs, s.experts, DType::kF32, seed)
                                     : r.output(name, runs, s.experts, DType::kF32);
                 };
                 l.count = sums("count", 2), l.mass = sums("mass", 3);
                 r.ops().route_load(l);
                 BalanceLoss b;
                 b.count = l.count, b.mass = l.mass;
                 b.runs = l.runs;
                 b.layers = 3, b.coefficient = 0.5f, b.scale = r.floats({0.5f});
                 b.loss = r.output("loss", runs, 1, DType::kF32);
                 b.balance = r.output("balance", runs, s.experts, DType::kF32);
                 r.ops().balance_loss(b);
               },
               {1e-5, 1e-5});
    }
}

}  // namespace
}  // namespace mxt::kernels::test

#include <fmt/format.h>

#include "base/philox.h"
#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(RowOps);

std::vector<int32_t> random_ids(int64_t n, int64_t below, uint64_t seed) {
  Philox g(seed, 0);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(g.below(static_cast<uint64_t>(below))));
  return ids;
}
std::vector<int32_t> distinct_rows(int64_t n, int64_t below, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < below; ++i) ids.push_back(static_cast<int32_t>(i));
  Philox g(seed, 1);
  g.shuffle(ids);
  ids.resize(static_cast<size_t>(n));
  return ids;
}

struct Shape {
  int64_t tokens, vocab, width;
};
const Shape kShapes[] = {{1, 1, 1}, {7, 5, 3}, {65, 9, 577}, {300, 1000, 64}};

TEST_P(RowOps, EmbeddingConvertsTheRowsItReads) {
  for (DType table : kTypes)
    for (DType type : kTypes)
      for (const Shape& s : kShapes) {
        SCOPED_TRACE(fmt::format("{} to {} {}x{}x{}", label(table), label(type), s.tokens, s.vocab, s.width));
        check_op(GetParam(),
                 [&](Trial& r) {
                   Embedding e;
                   e.ids = r.ints(random_ids(s.tokens, s.vocab, 7));
                   e.table = r.input(s.vocab, s.width, table, 1);
                   e.y = r.output("y", s.tokens, s.width, type);
                   r.ops().embedding(e);
                 },
                 {0, 0});
      }
}

TEST_P(RowOps, EmbeddingGradAddsTokensInOrder) {
  for (DType type : kTypes)
    for (const Shape& s : kShapes)
      for (bool accumulate : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}x{}x{} {}", label(type), s.tokens, s.vocab, s.width, accumulate));
        check_op(GetParam(),
                 [&](Trial& r) {
                   EmbeddingGrad e;
                   e.ids = r.ints(random_ids(s.tokens, s.vocab, 7));
                   e.dy = r.input(s.tokens, s.width, type, 1);
                   e.dtable = accumulate ? r.inout("dtable", s.vocab, s.width, DType::kF32, 2)
                                         : r.output("dtable", s.vocab, s.width, DType::kF32);
                   e.accumulate = accumulate;
                   r.ops().embedding_grad(e);
                 },
                 {0, 0});
      }
}

TEST_P(RowOps, EmbeddingGradLeavesIdsBelowZeroOut) {
  for (DType type : kTypes) {
    SCOPED_TRACE(label(type));
    check_op(GetParam(),
             [&](Trial& r) {
               EmbeddingGrad e;
               e.ids = r.ints({3, -1, 0, -1, 3, -7, 2});
               e.dy = r.input(7, 19, type, 1);
               e.dtable = r.output("dtable", 5, 19, DType::kF32);
               e.accumulate = false;
               r.ops().embedding_grad(e);
             },
             {0, 0});
  }
}

TEST_P(RowOps, EmbeddingGradLeavesThePaddingRowOut) {
  for (DType type : kTypes)
    for (const int32_t padding : {0, 3, 4}) {
      SCOPED_TRACE(fmt::format("{} {}", label(type), padding));
      check_op(GetParam(),
               [&](Trial& r) {
                 EmbeddingGrad e;
                 e.ids = r.ints({3, 0, 3, -1, 4, 2, 0, 4});
                 e.dy = r.input(8, 19, type, 1);
                 e.dtable = r.inout("dtable", 5, 19, DType::kF32, 2);
                 e.padding = padding;
                 r.ops().embedding_grad(e);
               },
               {0, 0});
    }
}

TEST_P(RowOps, GatherAndScatterMoveRows) {
  for (DType type : kTypes)
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(fmt::format("{} {}x{}x{}", label(type), s.tokens, s.vocab, s.width));
      check_op(GetParam(),
               [&](Trial& r) {
                 GatherRows g;
                 g.x = r.input(s.vocab, s.width, type, 1);
                 g.rows = r.ints(random_ids(s.tokens, s.vocab, 8));
                 g.y = r.output("gathered", s.tokens, s.width, type);
                 r.ops().gather_rows(g);
                 const int64_t n = std::min(s.tokens, s.vocab);
                 ScatterRows c;
                 c.x = r.input(n, s.width, type, 2);
                 c.rows = r.ints(distinct_rows(n, s.vocab, 9));
                 c.y = r.output("scattered", s.vocab, s.width, type);
                 r.ops().scatter_rows(c);
               },
               {0, 0});
    }
}

TEST_P(RowOps, CopyScales) {
  for (DType type : kTypes)
    for (const Shape& s : kShapes)
      for (const float scale : {1.0f, -2.8082504f}) {
        SCOPED_TRACE(fmt::format("{} {}x{} times {}", label(type), s.tokens, s.width, scale));
        check_op(GetParam(),
                 [&](Trial& r) {
                   Copy c;
                   c.x = r.input(s.tokens, s.width, type, 1);
                   c.y = r.output("copied", s.tokens, s.width, type);
                   c.scale = scale;
                   r.ops().copy(c);
                   const Mat itself = c.y;  // in place
                   r.ops().copy({itself, itself, scale});
                 },
                 {0, scale == 1 ? 0 : 1e-2});
      }
}

}  // namespace
}  // namespace mxt::kernels::test

#include <fmt/format.h>

#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(MixOps);

struct Shape {
  int64_t rows, cols;
};
const Shape kShapes[] = {{1, 1}, {7, 5}, {65, 40}, {300, 130}};

TEST_P(MixOps, MixesWithLearnedScalars) {
  for (DType type : kTypes)
    for (const Shape& s : kShapes)
      for (const bool with_a : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}x{} a {}", label(type), s.rows, s.cols, with_a));
        check_op(GetParam(),
                 [&](Trial& r) {
                   Mix m;
                   m.x = r.input(s.rows, s.cols, type, 1), m.z = r.input(s.rows, s.cols, type, 2);
                   m.y = r.output("y", s.rows, s.cols, type);
                   m.b = r.floats({0.3f}), m.sign = with_a ? 1.0f : -1.0f;
                   if (with_a) m.a = r.floats({1.15f});
                   r.ops().mix(m);
                 },
                 {1e-5, 1e-5});
      }
}

TEST_P(MixOps, GradientsOfBothStreamsAndScalars) {
  for (DType type : kTypes)
    for (const Shape& s : kShapes)
      for (const bool more : {false, true}) {  // with a, and adding to gradients that stand
        SCOPED_TRACE(fmt::format("{} {}x{} {}", label(type), s.rows, s.cols, more));
        check_op(GetParam(),
                 [&](Trial& r) {
                   MixGrad m;
                   m.dy = r.input(s.rows, s.cols, type, 3);
                   m.x = r.input(s.rows, s.cols, type, 1), m.z = r.input(s.rows, s.cols, type, 2);
                   m.dz = more ? r.inout("dz", s.rows, s.cols, type, 6) : r.output("dz", s.rows, s.cols, type);
                   if (more) m.sum = m.dz;
                   m.b = r.floats({0.3f}), m.sign = more ? 1.0f : -1.0f, m.accumulate = more;
                   m.db = more ? r.inout_floats("db", 1, 4) : r.output_floats("db", 1);
                   if (more) {
                     m.a = r.floats({1.15f}), m.dx = r.output("dx", s.rows, s.cols, type);
                     m.da = r.inout_floats("da", 1, 5);
                   }
                   r.ops().mix_grad(m);
                 },
                 {1e-4, 2e-3});
      }
}

struct Gates {
  int64_t rows, cols, col, groups, width, source, taps;
};
const Gates kGates[] = {
    {1, 4, 0, 1, 4, 4, 3}, {9, 20, 8, 2, 5, 30, 12}, {130, 64, 0, 1, 64, 64, 24}, {65, 60, 33, 3, 9, 17, 17}};

template <typename C>
void common(Trial& r, C& c, const Gates& g, DType type, bool more) {
  c.s = r.input(g.rows, g.source, type, 1);
  c.w = r.input(g.groups, g.taps, type, 2, 0.5);
  c.u = r.input(g.rows, g.groups * g.width, type, 3);
  c.col = g.col, c.by = 3;
  if (!more) return;
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < g.rows; ++t) positions.push_back(static_cast<int32_t>(t % 4));
  c.lambda = r.floats({0.4f}), c.positions = r.ints(positions);
}

TEST_P(MixOps, GatesAddToTheirColumns) {
  for (DType type : kTypes)
    for (const Gates& g : kGates)
      for (const bool more : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}x{} groups {} {}", label(type), g.rows, g.cols, g.groups, more));
        check_op(GetParam(),
                 [&](Trial& r) {
                   Gate c;
                   common(r, c, g, type, more);
                   c.x = r.input(g.rows, g.cols, type, 4);
                   c.y = r.output("y", g.rows, g.cols, type);
                   r.ops().gate(c);
                 },
                 {1e-5, 1e-5});
      }
}

TEST_P(MixOps, GradientsOfGates) {
  for (DType type : kTypes)
    for (const Gates& g : kGates)
      for (const bool more : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}x{} groups {} {}", label(type), g.rows, g.cols, g.groups, more));
        check_op(GetParam(),
                 [&](Trial& r) {
                   GateGrad c;
                   common(r, c, g, type, more);
                   c.dy = r.input(g.rows, g.cols, type, 5);
                   c.ds = r.output("ds", g.rows, g.source, type);
                   c.du = r.output("du", g.rows, g.groups * g.width, type);
                   c.accumulate = more;
                   c.dw = more ? r.inout_floats("dw", g.groups * g.taps, 6) : r.output_floats("dw", g.groups * g.taps);
                   if (more) c.dlambda = r.inout_floats("dlambda", 1, 7);
                   r.ops().gate_grad(c);
                 },
                 {1e-4, 1e-3});
      }
}

}  // namespace
}  // namespace mxt::kernels::test

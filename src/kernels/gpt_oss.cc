#include "kernels/gpt_oss.h"

#include "base/error.h"
#include "kernels/checks.h"

namespace mxt::kernels {
namespace {

bool same(const ConstMat& a, const ConstMat& b) { return a.rows == b.rows && a.cols == b.cols && a.type == b.type; }

}  // namespace

void check(const AttentionSinks& a) {
  MXT_ASSERT(a.heads > 0 && a.out.cols % a.heads == 0 && a.sinks && (a.lse || a.out.rows == 0));
}
void check(const AttentionSinksGrad& a) {
  MXT_ASSERT(a.heads > 0 && a.out.cols % a.heads == 0 && same(a.dout, a.out));
  MXT_ASSERT(a.sinks && a.dsinks && (a.lse || a.out.rows == 0));
}
void check(const CachedSinks& a) {
  check(a.of);
  MXT_ASSERT(a.sinks);
}
void check(const ClampedGlu& g) {
  MXT_ASSERT(g.x.rows == g.y.rows && g.x.cols == 2 * g.y.cols && g.x.type == g.y.type && g.limit > 0);
}
void check(const ClampedGluGrad& g) {
  MXT_ASSERT(same(g.dx, g.x) && g.dy.rows == g.x.rows && g.x.cols == 2 * g.dy.cols && g.dy.type == g.x.type);
  MXT_ASSERT(g.limit > 0 && (g.dx.p != g.x.p || g.dx.ld == g.x.ld));
}
void check(const ExpertBias& b) {
  MXT_ASSERT(b.experts > 0 && b.first && b.bias.cols == b.experts * b.y.cols && b.bias.type == b.y.type);
}
void check(const ExpertBiasGrad& b) { MXT_ASSERT(b.experts > 0 && b.first && b.dbias); }

}  // namespace mxt::kernels

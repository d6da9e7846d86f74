#include "kernels/adapters.h"

#include "base/error.h"

namespace mxt::kernels {
namespace {

bool same(const ConstMat& a, const ConstMat& b) { return a.rows == b.rows && a.cols == b.cols && a.type == b.type; }

}  // namespace

void check(const DoraGain& d) {
  MXT_ASSERT(d.rows >= 0 && (d.rows == 0 || (d.gain && d.norm)));
  if (d.w.p == nullptr) return;
  MXT_ASSERT(d.m && d.w.rows == d.rows && d.p.rows == d.rows && d.b.rows == d.rows);
  MXT_ASSERT(d.p.cols == d.q.cols && d.b.cols == d.q.cols && d.q.rows == d.q.cols);
  MXT_ASSERT(d.p.type == d.w.type && d.q.type == d.w.type && d.b.type == d.w.type);
}
void check(const DoraScale& d) { MXT_ASSERT(same(d.y, d.u) && (d.gain || d.u.cols == 0)); }
void check(const DoraScaleGrad& d) {
  MXT_ASSERT(same(d.dy, d.u) && same(d.du, d.u) && ((d.gain && d.norm) || d.u.cols == 0));
}
void check(const EmbeddingNoise& e) {
  MXT_ASSERT(same(e.y, e.x) && e.alpha >= 0.0f && (e.cu_seqlens || e.x.rows == 0));
}

}  // namespace mxt::kernels

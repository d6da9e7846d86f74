// Pictures: all by kernels that other operations have. What a batch says of its pictures is staged (pictures.h).
#include "base/error.h"
#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;
using kernels::Mat;

namespace {

constexpr int64_t kCornersEach = 4;

}  // namespace

// Whether the operation works on rows of pictures, of which a batch may have none.
bool Lowering::of_pictures(const Op& op) const {
  const auto any = [&](const std::vector<ValueId>& values) {
    return std::any_of(values.begin(), values.end(),
                       [&](ValueId v) { return g_.value(v).rows.dim == Dim::kPictureTokens; });
  };
  return g_.pictures.merge > 0 && (any(op.in) || any(op.out));
}

// Without pictures their calls are left out; what their parameters' gradients are then, Program::clear_gradients()
// says.
void Lowering::find_of_pictures() {
  spec_.pictures = g_.pictures;
  spec_.picture_type = g_.act_type;
  for (const Op& op : g_.ops) {
    if (!of_pictures(op)) continue;
    const auto note = [&](ParamId p) {
      if (p != kNone && std::find(spec_.of_pictures.begin(), spec_.of_pictures.end(), p) == spec_.of_pictures.end())
        spec_.of_pictures.push_back(p);
    };
    note(op.param);
    if (const auto* n = std::get_if<NormGradOp>(&op.attrs)) note(n->b);
  }
  for (StepCall& c : spec_.calls)
    if (of_pictures(g_.ops[c.op]) && !std::holds_alternative<PlaceOp>(g_.ops[c.op].attrs)) c.when |= kPicturesThere;
}

void Lowering::lower(const PictureInputOp& a) {
  const Mat y = mat(op_->out[0]);
  const int64_t ld = a.features ? g_.pictures.features : g_.pictures.values;
  Mat x{in(a.features ? Source::kFeatures : Source::kPixels), y.rows, ld, ld, y.type};
  emit(kernels::Copy{columns(x, a.col, y.cols), y});
}

void Lowering::lower(const InterpolateOp&) {
  const Mat rows = mat(op_->out[1]), y = mat(op_->out[0]);
  emit(kernels::Embedding{in<int32_t>(Source::kCorners), mat(op_->in[0]), rows});
  kernels::ExpertSum s;
  s.x = rows;
  s.row = in<int32_t>(Source::kCount);
  s.k = kCornersEach;
  s.weights = Mat{in(Source::kCornerWeights), y.rows, kCornersEach, kCornersEach, y.type};
  s.y = y;
  emit(s);
}

void Lowering::lower(const InterpolateGradOp&) {
  const Mat dy = mat(op_->in[0]), rows = mat(op_->out[0]);
  kernels::ExpertGather g;
  g.x = dy;
  g.slot = in<int32_t>(Source::kCount);
  g.k = kCornersEach;
  g.weights = Mat{in(Source::kCornerWeights), dy.rows, kCornersEach, kCornersEach, dy.type};
  g.y = rows;
  emit(g);
  emit(kernels::EmbeddingGrad{in<int32_t>(Source::kCorners), rows, grad_mat(op_->param), adds(*op_)}, first(*op_));
}

// Both sides in rows of the wider one.
void Lowering::lower(const RegroupOp&) {
  Mat x = mat(op_->in[0]), y = mat(op_->out[0]);
  MXT_ASSERT((x.cols > y.cols ? y.ld == y.cols : x.ld == x.cols));
  const auto view = [](Mat narrow, const Mat& wide) {
    return Mat{narrow.p, wide.rows, wide.cols, wide.cols, narrow.type};
  };
  if (x.cols > y.cols)
    y = view(y, x);
  else
    x = view(x, y);
  emit(kernels::Copy{x, y});
}

void Lowering::lower(const PlaceOp& a) {
  const Mat base = mat(op_->in[0]), x = mat(op_->in[1]), y = mat(op_->out[0]);
  const auto* rows = in<int32_t>(Source::kPictureRows);
  if (op_->out[0] != op_->in[0] && base.p != y.p) emit(kernels::Copy{base, y});  // the pass over graphs undid alias_of
  if (!a.add) {
    emit(kernels::ScatterRows{x, rows, y, false}, 0, kPicturesThere);
    return;
  }
  const Mat sums = mat(op_->out[1]);
  emit(kernels::GatherRows{y, rows, sums}, 0, kPicturesThere);
  emit(kernels::Add{sums, x, sums}, 0, kPicturesThere);
  emit(kernels::ScatterRows{sums, rows, y, false}, 0, kPicturesThere);
}

void Lowering::lower(const PlaceGradOp&) {
  emit(kernels::GatherRows{mat(op_->in[0]), in<int32_t>(Source::kPictureRows), mat(op_->out[0])});
}

}  // namespace mxt::runtime

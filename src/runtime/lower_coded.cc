// Products with a frozen weight held in codes. A piece of it at a time is decoded into one buffer, and multiplied from
// there as any matrix is: a matrix larger than that buffer never stands whole.
#include <algorithm>

#include "runtime/lower.h"
#include "runtime/params.h"

namespace mxt::runtime {

using namespace graph;
using kernels::Gemm;
using kernels::Mat;

namespace {

// What a piece takes: of the size of a core's cache, or enough for a device to be busy with.
constexpr int64_t kHostPiece = 4 << 20, kDevicePiece = 64 << 20, kDeviceExperts = 256 << 20;

// Of `count` rows or columns of `bytes` each, as many as a piece takes: whole 64s, which blocks of codes are cut in,
// and the pieces alike.
int64_t piece_of(int64_t count, int64_t bytes, int64_t room) {
  const int64_t most = std::max<int64_t>(1, room / bytes / 64) * 64;
  if (count <= most) return count;
  const int64_t pieces = (count + most - 1) / most;
  return ((count + pieces - 1) / pieces + 63) / 64 * 64;
}

}  // namespace

bool Lowering::coded(ValueId w) const { return g_.param_of(w).held == Storage::kCoded; }

// The weight's values from row and column on, [rows, cols] in the decode buffer.
Mat Lowering::decoded(ValueId weight, int64_t row, int64_t col, int64_t rows, int64_t cols) {
  const Value& v = g_.value(weight);
  const Param& p = g_.param_of(weight);
  const BufferId id = buffer(Source::kDecoded);
  const int64_t bytes = rows * cols * static_cast<int64_t>(size_of(v.type));
  spec_.bytes.decoded = spec_.buffers[static_cast<size_t>(id)].bytes = std::max(spec_.bytes.decoded, bytes);
  const Mat out{in(Source::kDecoded), rows, cols, cols, v.type};
  for (size_t i = 0; i < p.segments.size();) {
    const Segment& s = p.segments[i];
    const CodedPlace at = coded_place(p, i);
    kernels::Decode d;
    // Segments of one size that follow one another are decoded by one call: experts have hundreds.
    for (++i; i < p.segments.size(); ++i) {
      const Segment& next = p.segments[i];
      const CodedPlace there = coded_place(p, i);
      const int64_t codes = there.codes - at.codes, scales = there.scales - at.scales;
      if (next.coding != s.coding || next.through != s.through || next.rows != s.rows) break;
      if (d.parts == 1) d.codes_step = codes, d.scales_step = scales, d.nested_step = there.nested - at.nested;
      if (codes != d.parts * d.codes_step || scales != d.parts * d.scales_step) break;
      ++d.parts;
    }
    const int64_t height = d.parts * s.rows;
    const int64_t first = std::max(row, s.row), last = std::min(row + rows, s.row + height);
    if (first >= last) continue;
    d.matrix = {s.coding, s.rows, p.cols, in<const uint8_t>(Source::kWeight, v.param, at.codes), nullptr, nullptr};
    if (coded_bytes(s.coding, s.rows, p.cols).scales > 0)
      d.matrix.scales = in<const uint8_t>(Source::kScale, v.param, at.scales);
    if (s.coding == Coding::kNf4Double) d.matrix.nested = in<const float>(Source::kScale, v.param, at.nested);
    d.row = first - s.row;
    d.col = col;
    d.through = s.through;
    d.out = inside(out, first - row, 0, last - first, cols);
    emit(d);
  }
  return out;
}

void Lowering::lower_coded(const LinearOp&) {
  const Value& w = g_.value(op_->in[1]);
  const int64_t rows = w.rows.factor, bytes = w.cols * static_cast<int64_t>(size_of(w.type)), n = piece(rows, bytes);
  for (int64_t b = 0; b < rows; b += n) {
    const int64_t count = std::min(n, rows - b);
    Gemm g;
    g.a = mat(op_->in[0]);
    g.b = decoded(op_->in[1], b, 0, count, w.cols);
    g.c = columns(mat(op_->out[0]), b, count);
    g.trans_b = true;
    if (op_->in.size() > 2) {
      g.bias_type = g_.value(op_->in[2]).type;
      g.bias = element(op_->in[2], b);
    }
    emit_gemm(g);
  }
}

void Lowering::lower_coded(const LinearDxOp&) {
  const Value& w = g_.value(op_->in[1]);
  const int64_t rows = w.rows.factor, bytes = rows * static_cast<int64_t>(size_of(w.type)), n = piece(w.cols, bytes);
  for (int64_t b = 0; b < w.cols; b += n) {
    const int64_t count = std::min(n, w.cols - b);
    Gemm g;
    g.a = mat(op_->in[0]);
    g.b = decoded(op_->in[1], 0, b, rows, count);
    g.c = columns(mat(op_->out[0]), b, count);
    g.accumulate = op_->in.size() > 2;
    emit_gemm(g);
  }
}

// Whole experts at a time, over the rows that are theirs.
void Lowering::lower_coded(const graph::Op& op, kernels::Grouped kind, int64_t experts) {
  const Value& w = g_.value(op.in[1]);
  const int64_t height = w.rows.factor / experts, bytes = height * w.cols * static_cast<int64_t>(size_of(w.type)),
                room = ops_.device() ? kDeviceExperts : kHostPiece, n = std::clamp<int64_t>(room / bytes, 1, experts);
  for (int64_t e = 0; e < experts; e += n) {
    const int64_t count = std::min(n, experts - e);
    const Mat piece = decoded(op.in[1], e * height, 0, count * height, w.cols);
    emit_grouped(kind, mat(op.in[0]), piece, mat(op.out[0]), {op.in[2], e, count, experts}, 1, false);
  }
}

int64_t Lowering::piece(int64_t count, int64_t bytes) const {
  return piece_of(count, bytes, ops_.device() ? kDevicePiece : kHostPiece);
}

}  // namespace mxt::runtime

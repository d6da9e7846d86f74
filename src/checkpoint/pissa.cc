#include "checkpoint/pissa.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"

namespace mxt::checkpoint {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// w·wᵀ of rows of n floats, in double, on all threads; the same bits for any number of them.
Matrix gram(const Matrix& w) {
  Matrix g(w.rows(), w.rows());
  parallel_for(0, w.rows(), 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) g.row(r).noalias() = (w * w.row(r).transpose()).transpose();
  });
  return g;
}

}  // namespace

Singular largest_singular(const float* w, int64_t rows, int64_t cols, int64_t r) {
  MXT_ASSERT(r >= 1 && r <= std::min(rows, cols));
  const Matrix whole =
      Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(w, rows, cols)
          .cast<double>();
  const bool wide = rows <= cols;
  const Matrix small = wide ? whole : Matrix(whole.transpose());
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(gram(small));
  if (solver.info() != Eigen::Success) fail_input("singular values of a matrix [{}, {}] do not converge", rows, cols);
  Singular out{std::vector<float>(static_cast<size_t>(rows * r)), std::vector<float>(static_cast<size_t>(r)),
               std::vector<float>(static_cast<size_t>(r * cols))};
  for (int64_t k = 0; k < r; ++k) {
    Eigen::VectorXd near = solver.eigenvectors().col(small.rows() - 1 - k);  // ascending there
    Eigen::Index at = 0;
    near.cwiseAbs().maxCoeff(&at);
    if (near[at] < 0) near = -near;
    Eigen::VectorXd far = small.transpose() * near;
    const double s = far.norm();
    if (s > 0) far /= s;
    const Eigen::VectorXd &u = wide ? near : far, &v = wide ? far : near;
    out.s[static_cast<size_t>(k)] = static_cast<float>(s);
    for (int64_t i = 0; i < rows; ++i) out.u[static_cast<size_t>(i * r + k)] = static_cast<float>(u[i]);
    for (int64_t i = 0; i < cols; ++i) out.v[static_cast<size_t>(k * cols + i)] = static_cast<float>(v[i]);
  }
  return out;
}

namespace {

using graph::Graph;
using graph::LoraBlock;
using graph::Param;

struct Place {
  graph::ValueId w, a, b;
  LoraBlock block;
  std::string module;
};

std::vector<Place> places_of(const Graph& g) {
  std::vector<Place> out;
  for (const graph::Op& op : g.ops) {
    if (std::holds_alternative<graph::ExpertLoraAddOp>(op.attrs))
      fail_missing("init_lora_weights pissa on experts is not built in: leave it out, or them out of target_modules");
    const auto* add = std::get_if<graph::LoraAddOp>(&op.attrs);
    if (!add || (g.forward_ops > 0 && &op - g.ops.data() >= g.forward_ops)) continue;
    Place p{graph::kNone, graph::kNone, graph::kNone, {}, {}};
    for (const graph::Op& o : g.ops) {
      if (!std::holds_alternative<graph::LinearOp>(o.attrs)) continue;
      if (o.out[0] == op.in[0]) p.w = o.in[1];
      if (o.out[0] == op.in[1]) p.a = o.in[1];
    }
    if (p.w == graph::kNone || p.a == graph::kNone)
      fail_missing("init_lora_weights pissa on embeddings is not built in: leave embed_tokens out of target_modules");
    for (size_t i = 0; i < add->blocks.size(); ++i) {
      p.b = op.in[2 + i];
      p.block = add->blocks[i];
      const std::string& name = g.param_of(p.b).segments[0].name;
      p.module = name.substr(0, name.size() - std::string_view(".lora_B.weight").size());
      out.push_back(p);
    }
  }
  return out;
}

// Values of rows [row, row + rows) as the model computes with them, and back.
std::vector<float> take(const runtime::ParamSlot& s, DType type, int64_t cols, int64_t row, int64_t rows) {
  std::vector<float> out(static_cast<size_t>(rows * cols));
  convert(static_cast<const std::byte*>(s.weight) + static_cast<size_t>(row * cols) * size_of(type), type, out.data(),
          DType::kF32, out.size());
  return out;
}

}  // namespace

PissaStart init_pissa(const Graph& g, runtime::ParamStore& params) {
  PissaStart start;
  const std::vector<Place> places = places_of(g);
  log::Progress progress("singular values", static_cast<double>(places.size()));
  double done = 0;
  for (const Place& p : places) {
    const Param& base = g.param_of(p.w);
    if (base.held != graph::Storage::kPlain || base.joined > 0)
      fail_missing("init_lora_weights pissa over a base that is held in few bits ({}) is not built in: use method lora",
                   p.module);
    const DType type = g.value(p.w).type;
    const int64_t cols = base.cols, rows = p.block.cols, r = p.block.rank;
    if (r > std::min(rows, cols))
      fail_input("{}: rank {} is more than the {} singular values of a matrix [{}, {}]: lower train.method.r", p.module,
                 r, std::min(rows, cols), rows, cols);
    const auto access = params.write(g.value(p.w).param);
    std::vector<float> w = take(access.slot, type, cols, p.block.col, rows);
    const Singular top = largest_singular(w.data(), rows, cols, r);
    PissaStart::Pair pair{top.v, top.u};
    for (int64_t k = 0; k < r; ++k) {
      const float root = std::sqrt(top.s[static_cast<size_t>(k)] / p.block.scale);
      for (int64_t i = 0; i < cols; ++i) pair.a[static_cast<size_t>(k * cols + i)] *= root;
      for (int64_t i = 0; i < rows; ++i) pair.b[static_cast<size_t>(i * r + k)] *= root;
    }
    parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t j = 0; j < cols; ++j) {
          float sum = 0;
          for (int64_t k = 0; k < r; ++k)
            sum += pair.b[static_cast<size_t>(i * r + k)] * pair.a[static_cast<size_t>(k * cols + j)];
          w[static_cast<size_t>(i * cols + j)] -= p.block.scale * sum;
        }
    });
    convert(w.data(), DType::kF32,
            static_cast<std::byte*>(access.slot.weight) + static_cast<size_t>(p.block.col * cols) * size_of(type), type,
            w.size());
    {
      const auto a = params.write(g.value(p.a).param), b = params.write(g.value(p.b).param);
      MXT_ASSERT(a.slot.master && b.slot.master);
      std::copy(pair.a.begin(), pair.a.end(), a.slot.master + p.block.z_col * cols);
      std::copy(pair.b.begin(), pair.b.end(), b.slot.master);
    }
    params.sync_weights(g.value(p.a).param);
    params.sync_weights(g.value(p.b).param);
    start.modules[p.module] = std::move(pair);
    progress.update(done += 1, p.module);
  }
  return start;
}

}  // namespace mxt::checkpoint

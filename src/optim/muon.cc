// Muon (Jordan et al. 2024) for the matrices of the blocks, each tensor of the checkpoint for itself, and AdamW for all
// else, by groups (muon_groups.h). nanochat's form: rows equalised, five Polar Express steps (Amsel et al. 2025),
// NorMuon, cautious decay. torch's form: Newton-Schulz with one set of coefficients. States: a momentum, and nanochat's
// second moment by row (by column of a wide matrix), fp32; the iterations are in the type that the model computes in.
#include <algorithm>
#include <cmath>

#include "optim/kinds.h"
#include "optim/muon_groups.h"

namespace mxt::optim {
namespace {

struct Coefficients {
  double a, b, c;
};
constexpr Coefficients kPolarExpress[] = {{8.156554524902461, -22.48329292557795, 15.878769915207462},
                                          {4.042929935166739, -2.808917465908714, 0.5000178451051316},
                                          {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
                                          {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
                                          {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}};
constexpr Coefficients kNewtonSchulz = {3.4445, -4.7750, 2.0315};

class Muon final : public Optimizer {
 public:
  Muon(const config::Train& train, const graph::Graph& g)
      : Optimizer(train, g), nanochat_(settings_.muon->variant == config::MuonVariant::kNanochat), type_(g.act_type) {
    size_t at = 0;
    for (size_t i = 0; i < g.params.size(); ++i) {
      const graph::Param& p = g.params[i];
      if (!p.trainable) continue;
      groups_.push_back(muon_group(settings_, trained_[at++].param));
      states_[i] = {{"m", DType::kF32, p.rows * p.cols}};
      if (!groups_.back().muon) {
        states_[i].push_back({"v", DType::kF32, p.rows * p.cols});
        continue;
      }
      int64_t second = 0;
      for (const Tensor& t : tensors_of(p)) {
        second += std::max(t.rows, t.cols);
        largest_ = std::max(largest_, t.size());
        gram_ = std::max(gram_, square(std::min(t.rows, t.cols)));
      }
      if (nanochat_) states_[i].push_back({"second", DType::kF32, second});
    }
  }

  int64_t workspace() const override { return kOwnWork + 2 * (bytes(largest_) + bytes(gram_)); }
  double rate(const Step& step) const override { return scheduled(settings_.muon->lr, step); }

 private:
  struct Matrix {
    const Trained* of;
    Tensor t;
    float* second;
  };

  static int64_t square(int64_t n) { return n * n; }
  int64_t bytes(int64_t elements) const { return (elements * static_cast<int64_t>(size_of(type_)) + 255) / 256 * 256; }

  void attach() override {
    int64_t at = kOwnWork;
    for (auto& [p, n] : {std::pair{&x_, largest_}, {&next_, largest_}, {&a_, gram_}, {&b_, gram_}}) {
      *p = work_.bytes_at(static_cast<size_t>(at));
      at += bytes(n);
    }
    for (size_t i = 0; i < trained_.size(); ++i) {
      const Trained& t = trained_[i];
      if (!groups_[i].muon) {
        adamw_of(groups_[i])
            .tensors.push_back({t.slot.master, t.slot.grad, static_cast<float*>(t.slot.states[0]),
                                static_cast<float*>(t.slot.states[1]), t.copy, t.slot.size, 0,
                                static_cast<float>(groups_[i].weight_decay)});
        continue;
      }
      int64_t second = 0;
      for (const Tensor& of : tensors_of(t.param)) {
        matrices_.push_back({&t, of, nanochat_ ? static_cast<float*>(t.slot.states[1]) + second : nullptr});
        second += std::max(of.rows, of.cols);
      }
    }
  }

  kernels::AdamW& adamw_of(const MuonGroup& g) {
    for (auto& [group, call] : adamw_)
      if (group == g) return call;
    kernels::AdamW& call = adamw_.emplace_back(g, kernels::AdamW()).second;
    call.beta1 = g.beta1, call.beta2 = g.beta2, call.eps = static_cast<float>(g.eps);
    return call;
  }

  void apply(const Step& step, const float* grad_scale) override {
    for (auto& [group, call] : adamw_) {
      for (kernels::OptTensor& t : call.tensors) t.lr = static_cast<float>(scheduled(group.lr, step));
      call.device_grad_scale = grad_scale;
      call.step = step.step;
      ops_->adamw(call);
    }
    const MuonPace pace = muon_pace(*settings_.muon, schedule_, step.step - 1, step.steps);
    for (const Matrix& m : matrices_) update_matrix(m, step, pace, grad_scale);
  }

  void update_matrix(const Matrix& m, const Step& step, const MuonPace& pace, const float* grad_scale) {
    const int64_t rows = m.t.rows, cols = m.t.cols;
    kernels::MuonDirection d;
    d.grad = m.of->slot.grad + m.t.first;
    d.momentum = static_cast<float*>(m.of->slot.states[0]) + m.t.first;
    d.x = {x_, rows, cols, cols, type_};
    d.mu = pace.momentum;
    d.equalise = nanochat_;
    if (!nanochat_) d.eps = 1e-7f;
    d.device_grad_scale = grad_scale;
    ops_->muon_direction(d);

    kernels::MuonUpdate u;
    u.x = orthogonalised(d.x);
    u.master = m.of->slot.master + m.t.first;
    u.copy = m.of->copy ? m.of->copy + m.t.first : nullptr;
    u.second = m.second;
    u.cautious = nanochat_;
    const double tall = std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(cols)));
    u.lr = static_cast<float>(rate(step) * m.of->rate * tall);
    // torch decays by the rate before it is adjusted to the shape.
    u.weight_decay = static_cast<float>(settings_.muon->weight_decay * pace.decay / (nanochat_ ? 1.0 : tall));
    ops_->muon_update(u);
  }

  // Five steps X ← a·X + (b·A + c·A²)·X with A = X·Xᵀ, or from the other side where that is smaller.
  kernels::Mat orthogonalised(kernels::Mat x) {
    kernels::Mat next = x;
    next.p = next_;
    const bool tall = x.rows > x.cols;
    const int64_t n = std::min(x.rows, x.cols);
    const kernels::Mat a{a_, n, n, n, type_}, b{b_, n, n, n, type_};
    for (int i = 0; i < 5; ++i) {
      const Coefficients& k = nanochat_ ? kPolarExpress[i] : kNewtonSchulz;
      kernels::Gemm gram;
      gram.a = x, gram.b = x, gram.c = a;
      (tall ? gram.trans_a : gram.trans_b) = true;
      ops_->gemm(gram);
      ops_->copy({a, b, static_cast<float>(k.b)});
      kernels::Gemm squared;
      squared.a = a, squared.b = a, squared.c = b;
      squared.alpha = static_cast<float>(k.c);
      squared.accumulate = true;
      ops_->gemm(squared);
      ops_->copy({x, next, static_cast<float>(k.a)});
      kernels::Gemm product;
      product.a = tall ? x : b, product.b = tall ? b : x, product.c = next;
      product.accumulate = true;
      ops_->gemm(product);
      std::swap(x, next);
    }
    return x;
  }

  bool nanochat_;
  DType type_;
  int64_t largest_ = 0, gram_ = 0;  // elements of the largest matrix, and of the largest product with its transpose
  std::vector<MuonGroup> groups_;   // of each that trains
  std::vector<std::pair<MuonGroup, kernels::AdamW>> adamw_;
  std::vector<Matrix> matrices_;
  void *x_ = nullptr, *next_ = nullptr, *a_ = nullptr, *b_ = nullptr;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const config::Train& train, const graph::Graph& g) {
  return std::make_unique<Muon>(train, g);
}

}  // namespace mxt::optim

// Direct preference optimisation (Rafailov et al. 2023) and the losses that differ from it by a line. With
// c, r = Σ ln π of the chosen and rejected answer, c₀, r₀ the same under the reference, Δ = (c − c₀) − (r − r₀):
//   sigmoid  −ln σ(βΔ)
//   hinge    max(0, 1 − βΔ)                                  (SLiC, Zhao et al. 2023)
//   ipo      (Δ̄ − 1/(2β))², Δ̄ of means over tokens           (Azar et al. 2023)
//   simpo    −ln σ(β(c̄ − r̄) − γ), means over tokens, no reference   (Meng et al. 2024)
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "train/methods/method.h"

namespace mxt::train {
namespace {

class Dpo : public Method {
 public:
  explicit Dpo(const config::Method& m) : loss_(m.loss), beta_(m.beta), gamma_(m.simpo_gamma) {}
  int sequences_per_row() const override { return 2; }
  bool has_reference() const override { return loss_ != config::PreferenceLoss::kSimpo; }

  double loss(std::span<Sequence> all) override {
    double total = 0;
    for (size_t i = 0; i + 1 < all.size(); i += 2) total += pair(all[i], all[i + 1]);
    return total;
  }

  std::map<std::string, double> metrics() override { return means_.all(); }

 private:
  using Loss = config::PreferenceLoss;

  double pair(Sequence& chosen, Sequence& rejected) {
    MXT_ASSERT(chosen.row == rejected.row && chosen.part == 0 && rejected.part == 1);
    const double c = sum_of(chosen.logp), r = sum_of(rejected.logp);
    const double c0 = sum_of(chosen.reference), r0 = sum_of(rejected.reference);
    // What the loss reads of a sequence: its sum, or its mean over tokens.
    const bool mean = loss_ == Loss::kIpo || loss_ == Loss::kSimpo;
    const double per_c = mean ? 1.0 / static_cast<double>(chosen.logp.size()) : 1.0;
    const double per_r = mean ? 1.0 / static_cast<double>(rejected.logp.size()) : 1.0;
    const double delta = (c - c0) * per_c - (r - r0) * per_r;
    double value = 0, slope = 0;  // of the loss, by delta
    switch (loss_) {
      case Loss::kSigmoid:
        value = -log_sigmoid(beta_ * delta);
        slope = -beta_ * sigmoid(-beta_ * delta);
        break;
      case Loss::kHinge:
        value = std::max(0.0, 1 - beta_ * delta);
        slope = beta_ * delta < 1 ? -beta_ : 0;
        break;
      case Loss::kIpo:
        value = (delta - 1 / (2 * beta_)) * (delta - 1 / (2 * beta_));
        slope = 2 * (delta - 1 / (2 * beta_));
        break;
      case Loss::kSimpo:
        value = -log_sigmoid(beta_ * delta - gamma_);
        slope = -beta_ * sigmoid(gamma_ - beta_ * delta);
        break;
    }
    const double weight = row_weight(chosen.row);
    std::fill(chosen.gradient.begin(), chosen.gradient.end(), static_cast<float>(weight * slope * per_c));
    std::fill(rejected.gradient.begin(), rejected.gradient.end(), static_cast<float>(-weight * slope * per_r));
    const int64_t batch = step().batch_of(chosen.row);
    const double good = beta_ * (loss_ == Loss::kSimpo ? c * per_c : c - c0),
                 bad = beta_ * (loss_ == Loss::kSimpo ? r * per_r : r - r0);
    means_.add("rewards/chosen", batch, good);
    means_.add("rewards/rejected", batch, bad);
    means_.add("rewards/margins", batch, good - bad);
    means_.add("rewards/accuracies", batch, good > bad ? 1 : 0);
    means_.add("logps/chosen", batch, c);
    means_.add("logps/rejected", batch, r);
    return weight * value;
  }

  Loss loss_;
  double beta_, gamma_;
};

}  // namespace

std::unique_ptr<Method> make_dpo(const config::Method& m) { return std::make_unique<Dpo>(m); }

}  // namespace mxt::train

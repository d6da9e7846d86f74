// Odds-ratio preference optimisation (Hong et al. 2024), as TRL computes it. With c, r the mean log-probability of an
// answer's tokens and o = (c − r) − (ln(1 − eᶜ) − ln(1 − eʳ)), the log odds ratio:
//   loss = NLL − β · mean over pairs of ln σ(o)
// NLL is over the prompt and the chosen answer, a mean over the tokens of a device batch.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "train/methods/method.h"

namespace mxt::train {
namespace {

// ln(1 − eˣ) for x < 0; the two branches keep its digits on both sides (Mächler 2012).
double log1m_exp(double x) {
  x = std::min(x, -1e-12);  // an answer that is certain: odds without bound
  return x > -0.693147180559945 ? std::log(-std::expm1(x)) : std::log1p(-std::exp(x));
}

class Orpo : public Method {
 public:
  explicit Orpo(const config::Method& m) : beta_(m.beta) {}
  int sequences_per_row() const override { return 2; }
  bool trains_prompt(int part) const override { return part == 0; }

  void begin(const StepRows& s, std::span<const double> policy, std::span<const double> reference) override {
    Method::begin(s, policy, reference);
    tokens_.assign(static_cast<size_t>(s.batches()), 0);
    for (size_t i = 0; i < s.rows.size(); ++i)
      tokens_[static_cast<size_t>(s.batch_of(static_cast<int64_t>(i)))] += s.rows[i].targets[0];
  }

  double loss(std::span<Sequence> all) override {
    double total = 0;
    for (size_t i = 0; i + 1 < all.size(); i += 2) total += pair(all[i], all[i + 1]);
    return total;
  }

  std::map<std::string, double> metrics() override { return means_.all(); }

 private:
  double pair(Sequence& chosen, Sequence& rejected) {
    MXT_ASSERT(chosen.row == rejected.row && chosen.part == 0 && rejected.part == 1);
    const auto answer = static_cast<size_t>(chosen.answer);
    const auto good = chosen.logp.subspan(answer);
    const double n_c = static_cast<double>(good.size()), n_r = static_cast<double>(rejected.logp.size());
    const double c = sum_of(good) / n_c, r = sum_of(rejected.logp) / n_r;
    const double odds = (c - r) - (log1m_exp(c) - log1m_exp(r));
    const double ratio = log_sigmoid(odds);
    const int64_t batch = step().batch_of(chosen.row);
    const double weight = row_weight(chosen.row);
    const double per_token =
        1.0 / (static_cast<double>(step().batches()) * static_cast<double>(tokens_[static_cast<size_t>(batch)]));
    // d ln σ(o)/do = σ(−o); do/dc = 1 + eᶜ/(1 − eᶜ) = 1/(1 − eᶜ).
    const double outer = -beta_ * weight * sigmoid(-odds);
    const double by_c = outer / -std::expm1(std::min(c, -1e-12)), by_r = -outer / -std::expm1(std::min(r, -1e-12));
    for (size_t t = 0; t < chosen.gradient.size(); ++t)
      chosen.gradient[t] = static_cast<float>(-per_token + (t >= answer ? by_c / n_c : 0.0));
    std::fill(rejected.gradient.begin(), rejected.gradient.end(), static_cast<float>(by_r / n_r));
    const double nll = -sum_of(chosen.logp);
    means_.add("rewards/chosen", batch, beta_ * c);
    means_.add("rewards/rejected", batch, beta_ * r);
    means_.add("rewards/margins", batch, beta_ * (c - r));
    means_.add("rewards/accuracies", batch, c > r ? 1 : 0);
    means_.add("logps/chosen", batch, c);
    means_.add("logps/rejected", batch, r);
    means_.add("log_odds_ratio", batch, ratio);
    means_.add("log_odds_chosen", batch, odds);
    const auto tokens = static_cast<double>(chosen.logp.size());
    means_.add("nll_loss", batch, nll / tokens, tokens);
    return per_token * nll - beta_ * weight * ratio;
  }

  double beta_;
  std::vector<int64_t> tokens_;  // of the chosen sequences of each batch
};

}  // namespace

std::unique_ptr<Method> make_orpo(const config::Method& m) { return std::make_unique<Orpo>(m); }

}  // namespace mxt::train

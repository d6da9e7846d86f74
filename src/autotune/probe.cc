#include "autotune/probe.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include "autotune/calls.h"
#include "autotune/choose.h"
#include "autotune/clock.h"
#include "autotune/slice.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"

namespace mxt::autotune {
namespace {

// Shares of what is left of the budget when a part begins.
constexpr double kThreadsShare = 0.15, kPassesShare = 0.3, kCallsShare = 0.75;
constexpr int kLeastRounds = 5, kMostRounds = 15, kEnumerateRounds = 31;
constexpr double kSampleUs = 300;  // shorter calls are repeated to fill a sample

using Parts = std::vector<double>;  // µs of each call that one choice is for

// Rounds over candidates in turn. `sample(i)` measures candidate i; `cost(i)` is what it is expected to take, in µs, before that is
// known. A candidate that the deadline does not allow before its first sample, or that fails, has no samples.
class Rounds {
 public:
  Rounds(std::vector<std::string> names, std::function<double(size_t)> cost, std::function<Parts(size_t)> sample) : names_(std::move(names)), cost_(std::move(cost)), sample_(std::move(sample)), samples_(names_.size()) {}

  void run(const Deadline& deadline, const Settings& settings, double count = 1, double pass_us = 0) {
    const size_t n = names_.size();
    std::vector<double> longest(n, 0);
    std::vector<bool> out(n, false);
    auto timed = [&](size_t i) {
      const double begin = Deadline::now();
      Parts p = sample_(i);
      longest[i] = std::max(longest[i], (Deadline::now() - begin) * 1e6);
      return p;
    };
    for (size_t i = 0; i < n; ++i) {  // the first run pays for pages, code and caches, and does not count
      out[i] = !deadline.allows(cost_(i));
      if (out[i]) continue;
      try {
        timed(i);
      } catch (const Error& e) {
        log::debug("probe: {}: {}", names_[i], e.what());
        out[i] = true;
      }
    }
    const int most = settings.enumerate ? kEnumerateRounds : kMostRounds;
    for (int round = 0; round < most; ++round) {
      if (round >= kLeastRounds && !settings.enumerate && !undecided(totals(), count, pass_us)) break;
      double whole = 0;
      for (size_t i = 0; i < n; ++i) whole += out[i] ? 0 : longest[i];
      if (round > 0 && !deadline.allows(whole)) break;  // a round is whole, or it is not begun
      for (size_t i = 0; i < n; ++i)
        if (!out[i] && deadline.allows(longest[i])) samples_[i].push_back(timed(i));
    }
  }
  std::vector<kernels::Candidate> totals() const {
    return summaries([](const Parts& p) { return std::accumulate(p.begin(), p.end(), 0.0); });
  }
  std::vector<kernels::Candidate> part(size_t k) const {
    return summaries([k](const Parts& p) { return p[k]; });
  }

 private:
  template <typename F>
  std::vector<kernels::Candidate> summaries(F value) const {
    std::vector<kernels::Candidate> all;
    for (size_t i = 0; i < names_.size(); ++i) {
      std::vector<double> v;
      for (const Parts& p : samples_[i]) v.push_back(value(p));
      all.push_back(summarise(names_[i], std::move(v)));
    }
    return all;
  }
  std::vector<std::string> names_;
  std::function<double(size_t)> cost_;
  std::function<Parts(size_t)> sample_;
  std::vector<std::vector<Parts>> samples_;
};

class Probe {
 public:
  Probe(const Subject& subject, kernels::Ops& ops, const Settings& settings) : s_(subject), ops_(ops), settings_(settings), end_(settings.budget_s), clock_(ops) { report_.plan = s_.plan; }

  Report run() {
    const double begin = Deadline::now();
    rate_ = product_rate(ops_, s_.options.type) * 1e-6;
    pass_ = s_.passes.front();
    threads();
    passes();
    calls();
    check();
    report_.plan.measured = true;
    report_.seconds = report_.plan.budget_s = Deadline::now() - begin;
    return std::move(report_);
  }

 private:
  // µs that `flops` will take, twice over: from one product, larger where the device is fast.
  double expect(double flops) const { return 2 * flops / rate_; }
  models::BuildOptions options(const Pass& p) const {
    models::BuildOptions o = s_.options;
    o.recompute = p.recompute;
    return o;
  }
  std::unique_ptr<Slice> slice(int64_t layers, const Pass& p, const kernels::KernelPlan& plan, std::shared_ptr<runtime::ParamStore> params = nullptr) const {
    Pass part = p;  // as many of the slice's tensors as of the model's
    if (p.recompute.tensors > 0 && p.recompute != graph::Recompute::kLayer) part.recompute.tensors = std::max<int64_t>(1, p.recompute.tensors * std::min(layers, s_.model.num_layers) / s_.model.num_layers);
    return std::make_unique<Slice>(slice_of(s_.model, layers), options(part), s_.seq_len, p.micro_batch, s_.packed, plan, ops_, std::move(params));
  }
  void record(const std::string& key, const std::vector<kernels::Candidate>& all, size_t choice) {
    report_.plan.candidates[key] = all;
    report_.plan.choices[key] = all[choice].algorithm;
    for (const auto& c : all) report_.unmeasured += c.median_us == 0;
  }

  void threads() {
    if (s_.threads.empty()) return;
    std::vector<std::string> names;
    for (int n : s_.threads) names.push_back(std::to_string(n));
    report_.plan.choices["step threads"] = names[0];
    if (names.size() == 1) return;
    auto part = slice(1, pass_, s_.plan);
    Rounds r(names, [&](size_t i) { return expect(part->flops()) * s_.threads[0] / s_.threads[i]; },
             [&](size_t i) {
               set_num_threads(s_.threads[i]);
               return Parts{part->pass_us(clock_) / static_cast<double>(part->rows())};
             });
    r.run(end_.part(kThreadsShare), settings_);
    const auto all = r.totals();
    const size_t choice = choose(all);
    record("step threads", all, choice);
    set_num_threads(s_.threads[choice]);
  }

  void passes() {
    auto& choices = report_.plan.choices;
    choices["step micro_batch"] = std::to_string(pass_.micro_batch);
    choices["step recompute"] = std::string(graph::recompute_name(pass_.recompute));
    if (s_.passes.size() < 2) return;
    std::vector<std::string> names;
    std::vector<std::unique_ptr<Slice>> slices;
    std::shared_ptr<runtime::ParamStore> params;
    for (const Pass& p : s_.passes) {
      names.push_back(std::to_string(p.micro_batch));
      slices.push_back(slice(1, p, s_.plan, params));
      params = slices.back()->params();
    }
    Rounds r(names, [&](size_t i) { return expect(slices[i]->flops()); },
             [&](size_t i) { return Parts{slices[i]->pass_us(clock_) / static_cast<double>(slices[i]->rows())}; });
    r.run(end_.part(kPassesShare), settings_);
    const auto all = r.totals();
    const size_t choice = choose(all);
    record("step micro_batch", all, choice);
    pass_ = s_.passes[choice];
    choices["step recompute"] = std::string(graph::recompute_name(pass_.recompute));
  }

  void calls() {
    const graph::Graph g = models::build(s_.model, options(pass_));
    const auto all = choices_of(runtime::Program(g, s_.plan, ops_, {pass_.micro_batch * s_.seq_len, 0, false, s_.seq_len}).tunables());
    // What the default pass calls and this one does not is no choice of the plan.
    std::erase_if(report_.plan.choices, [](const auto& c) { return !c.first.starts_with("step "); });
    const Deadline deadline = end_.part(kCallsShare);
    double work = 0;  // flops that are still to be looked at
    for (const Choice& c : all) work += c.flops() * c.count();
    double pass_us = work / rate_, measured_us = 0, measured_work = 0;
    for (const Choice& c : all) {
      const bool gemm = std::holds_alternative<kernels::Gemm>(c.calls[0].call);
      const auto names = gemm ? ops_.gemm_algorithms() : ops_.attention_algorithms();
      // Its part of what is left: its part of the work that is left, and a little more for the small ones.
      const double share = std::min(1.0, 0.1 + c.flops() * c.count() / std::max(1.0, work));
      work -= c.flops() * c.count();
      const Rounds r = measure(c, names, deadline.part(share), pass_us);
      const auto total = r.totals();
      const size_t choice = choose(total, c.count(), pass_us);
      for (size_t i = 0; i < c.calls.size(); ++i) {
        const auto each = r.part(i);
        record(c.calls[i].key, each, choice);
        report_.lines.push_back({c.calls[i].key, names[0], names[choice], static_cast<double>(c.calls[i].count), each[0].median_us, each[choice].median_us});
      }
      if (total[0].median_us > 0) {
        measured_us += total[0].median_us * c.count();
        measured_work += c.flops() * c.count();
        pass_us = measured_us * (1 + std::max(0.0, work) / measured_work);
      }
    }
  }

  Rounds measure(const Choice& c, const std::vector<std::string>& names, const Deadline& deadline, double pass_us) {
    // Making the operands takes time as well: about a second for 2 GB.
    const double once = expect(c.flops()), fill = static_cast<double>(CallBench::bytes(c)) * 5e-4;
    std::unique_ptr<CallBench> bench;
    if (deadline.allows(once + fill)) bench = std::make_unique<CallBench>(c, ops_, s_.seq_len, s_.packed);
    int repeats = 1;
    Rounds r(names, [&](size_t) { return bench ? once : 1e18; },
             [&](size_t i) {
               Parts p = bench->sample(static_cast<int>(i), clock_, repeats);
               const double us = std::accumulate(p.begin(), p.end(), 0.0);
               if (repeats == 1 && us < kSampleUs) repeats = static_cast<int>(std::clamp(kSampleUs / std::max(us, 1.0), 1.0, 50.0));
               return p;
             });
    r.run(deadline, settings_, c.count(), pass_us);
    return r;
  }

  // Slices of one and of two layers, with the default choices and with the plan's: what the whole comes to, and whether it is a gain.
  void check() {
    const Pass usual = s_.passes.front();
    kernels::KernelPlan chosen = report_.plan;
    const int threads_usual = s_.threads.empty() ? 0 : s_.threads[0], threads_chosen = num_threads();
    std::vector<std::unique_ptr<Slice>> slices;
    std::vector<std::shared_ptr<runtime::ParamStore>> params(2);
    const int64_t more = std::min<int64_t>(3, s_.model.num_layers);
    for (int i = 0; i < 4; ++i) {  // usual 1 layer, usual more, chosen 1, chosen more
      const auto layers = i % 2;
      slices.push_back(slice(layers ? more : 1, i < 2 ? usual : pass_, i < 2 ? s_.plan : chosen, params[static_cast<size_t>(layers)]));
      params[static_cast<size_t>(layers)] = slices.back()->params();
    }
    auto pass = [&](size_t i) {
      if (threads_usual) set_num_threads(i == 0 ? threads_usual : threads_chosen);
      return Parts{slices[2 * i]->pass_us(clock_) / static_cast<double>(slices[2 * i]->rows()), slices[2 * i + 1]->pass_us(clock_) / static_cast<double>(slices[2 * i]->rows())};
    };
    Rounds r({"default", "planned"}, [&](size_t i) { return expect(slices[2 * i]->flops() + slices[2 * i + 1]->flops()); }, pass);
    r.run(end_, settings_);
    if (threads_usual) set_num_threads(threads_chosen);
    const auto one = r.part(0), several = r.part(1), total = r.totals();
    if (total[0].median_us == 0 || total[1].median_us == 0) return;
    // The ends of the model (embedding, head, loss) grow with the vocabulary.
    const double words = static_cast<double>(s_.model.vocab_size) / static_cast<double>(std::min(kSliceVocab, s_.model.vocab_size));
    auto whole = [&](size_t i) {
      const double layer = more > 1 ? std::max(0.0, several[i].median_us - one[i].median_us) / static_cast<double>(more - 1) : one[i].median_us;
      const double ends = std::max(0.0, one[i].median_us - layer);
      return layer * static_cast<double>(s_.model.num_layers) + ends * words;  // of one row
    };
    const double rows = static_cast<double>(s_.rows);
    report_.usual_step_us = whole(0) * rows;
    report_.chosen_step_us = whole(1) * rows;
    if (end_.left() > 0) {
      const double update = slices[2]->update_us(clock_);
      int64_t trained = 0;
      const graph::Graph g = models::build(s_.model, options(pass_));
      for (const graph::Param& p : g.params)
        if (p.trainable) trained += p.rows * p.cols;
      report_.update_us = update * static_cast<double>(trained) / static_cast<double>(std::max<int64_t>(1, slices[2]->trained()));
    }
    if (total[1].median_us > total[0].median_us && !within_noise(total[1], total[0])) {
      report_.kept_default = true;
      report_.chosen_step_us = report_.usual_step_us;
      report_.plan.choices = s_.plan.choices;
      if (threads_usual) report_.plan.choices["step threads"] = std::to_string(threads_usual);
      for (Line& l : report_.lines) l.chosen = l.usual, l.chosen_us = l.usual_us;
    }
    report_.plan.candidates["step"] = {{"default", report_.usual_step_us + report_.update_us, total[0].spread_us / total[0].median_us * report_.usual_step_us},
                                       {"planned", report_.chosen_step_us + report_.update_us, total[1].spread_us / total[1].median_us * report_.chosen_step_us}};
  }

  const Subject& s_;
  kernels::Ops& ops_;
  const Settings& settings_;
  Deadline end_;
  Clock clock_;
  Report report_;
  Pass pass_;
  double rate_ = 1;  // flops per µs
};

}  // namespace

double product_rate(kernels::Ops& ops, DType type) {
  Clock clock(ops);
  double rate = 0;
  for (const int64_t n : {256, 1024, 4096}) {  // larger where the device is fast
    kernels::Gemm g;
    g.a = {nullptr, n, n, n, type};
    g.b = {nullptr, n, n, n, type};
    g.c = {nullptr, n, n, n, type};
    g.trans_b = true;
    const Choice c{{{"calibration", g, 1}}};
    CallBench bench(c, ops, 0, false);
    bench.sample(0, clock, 1);
    const double us = bench.sample(0, clock, 1)[0];
    rate = c.flops() / us * 1e6;
    if (us > 500) break;
  }
  return rate;
}

Report probe(const Subject& subject, kernels::Ops& ops, const Settings& settings) {
  MXT_ASSERT(!subject.passes.empty());
  return Probe(subject, ops, settings).run();
}

}  // namespace mxt::autotune

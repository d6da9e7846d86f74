#include "autotune/probe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "autotune/call_bench.h"
#include "autotune/choose.h"
#include "autotune/comparison.h"
#include "autotune/device_timer.h"
#include "autotune/slice.h"
#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"

namespace mxt::autotune {
namespace {

// Parts of the budget. What a question that is not asked would have had goes to the calls; the last tenth is for
// building graphs, and for what takes longer than it was expected to.
constexpr double kUsed = 0.9, kThreadsPart = 0.07, kPinningPart = 0.07, kPassesPart = 0.2, kCheckPart = 0.3;
constexpr size_t kPassRounds[] = {15, 9, kLeastRounds};  // of slices of the model: as many as fit
constexpr double kSampleUs = 500;                        // shorter calls are repeated to fill a sample
constexpr int kMostRepeats = 50;
constexpr double kMoreThanPeak =
    1.3;  // what passes and calls take, over what their operations would at the product's rate
// Memory's part of a call's expected time: 5 GB/s, or 500 GB/s of a device's own memory; less than any has.
constexpr double kHostBytesPerUs = 5e3, kDeviceBytesPerUs = 5e5;

// Rounds by what a sample is expected to take: a long one averages over more of what disturbs.
size_t rounds_for(double sample_us) { return sample_us > 50e3 ? kLeastRounds : sample_us > 10e3 ? 9 : 15; }

// The rate as it enters expectations: rounded down to half an octave, so that two probes expect alike.
double steady(double rate) { return std::exp2(std::floor(2 * std::log2(rate)) / 2); }

class Probe {
 public:
  Probe(const Subject& subject, kernels::Ops& ops, const Settings& settings)
      : s_(subject), ops_(ops), settings_(settings), end_(kUsed * settings.budget_s), clock_(ops, settings.stop) {
    report_.plan = s_.plan;
  }

  Report run() {
    const double begin = Deadline::now();
    rate_ = steady(product_rate(ops_, s_.options.type) * 1e-6);
    pass_ = s_.passes.front();
    threads();
    pinning();
    passes();
    calls();
    check();
    adapters();
    report_.plan.measured = true;
    report_.seconds = report_.plan.budget_s = Deadline::now() - begin;
    return std::move(report_);
  }

 private:
  double expect(double flops) const { return kMoreThanPeak * flops / rate_; }  // µs
  // How many rounds of so many operations, and one to warm up, fit a part of the budget. Decided by counting alone:
  // what is asked does not depend on how the clock ran before.
  size_t rounds_that_fit(double flops, double part) const {
    const double n = std::floor(part * settings_.budget_s * 1e6 / expect(flops)) - 1;
    return n >= 1 ? static_cast<size_t>(std::min(n, 1e6)) : 0;
  }
  // Of passes that something is chosen by; 0: too few.
  size_t pass_rounds(double flops, double part) const {
    const size_t n = rounds_that_fit(flops, part);
    for (const size_t rounds : kPassRounds)
      if (rounds <= n) return rounds;
    return 0;
  }
  // Asks about passes where they fit; then their part of the budget is no longer the calls'.
  void ask_if_fits(Comparison& q, double flops, double part_of_budget) {
    const size_t rounds = pass_rounds(flops, part_of_budget);
    if (rounds == 0) return;
    ask(q, rounds, part(part_of_budget), settings_.enumerate);
    used_ += part_of_budget;
  }
  Deadline part(double share) const { return Deadline(std::min(end_.left(), share * settings_.budget_s)); }

  models::BuildOptions options(const Pass& p) const {
    models::BuildOptions o = s_.options;
    o.recompute = p.recompute;
    return o;
  }
  int64_t tokens_of(const Pass& p) const {
    return s_.pass_tokens ? s_.pass_tokens(p.micro_batch) : p.micro_batch * s_.seq_len;
  }
  std::unique_ptr<Slice> slice(int64_t layers, const Pass& p, const kernels::KernelPlan& plan,
                               std::shared_ptr<runtime::ParamStore> params = nullptr,
                               const models::LoraPlan* lora = nullptr) const {
    Pass part = p;  // as many of the slice's tensors as of the model's
    if (p.recompute.tensors > 0 && p.recompute != graph::Recompute::kLayer)
      part.recompute.tensors =
          std::max<int64_t>(1, p.recompute.tensors * std::min(layers, s_.model.num_layers) / s_.model.num_layers);
    models::BuildOptions built = options(part);
    if (lora != nullptr) built.lora = lora;
    return std::make_unique<Slice>(slice_of(s_.model, layers), built, s_.train, s_.seq_len,
                                   (tokens_of(p) + s_.seq_len - 1) / s_.seq_len, s_.packed, plan, ops_,
                                   std::move(params), s_.offload, p.packed_weights);
  }
  void record(const std::string& key, const std::vector<kernels::Candidate>& all, size_t choice) {
    report_.plan.candidates[key] = all;
    report_.plan.choices[key] = all[choice].algorithm;
    for (const auto& c : all) report_.unmeasured += c.median_us == 0;
  }
  static Parts a_row(Slice& slice, DeviceTimer& clock) {
    return {slice.pass_us(clock) / static_cast<double>(slice.rows())};
  }

  // A pass of one row with each number of threads.
  void threads() {
    if (s_.threads.empty()) return;
    std::vector<std::string> names;
    double each = 0;  // passes of the default's length that one round takes
    for (int n : s_.threads) {
      names.push_back(std::to_string(n));
      each += static_cast<double>(s_.threads[0]) / n;
    }
    report_.plan.choices["step threads"] = names[0];
    if (names.size() == 1) return;
    const auto one = slice(1, {1, pass_.recompute, pass_.packed_weights}, s_.plan);
    Comparison q(names, margin_, [&](size_t i) {
      set_num_threads(s_.threads[i]);
      return a_row(*one, clock_);
    });
    ask_if_fits(q, each * one->flops(), kThreadsPart);
    record("step threads", q.summary(), q.choice());
    set_num_threads(s_.threads[q.choice()]);
  }

  // Whether threads stay on a core each.
  void pinning() {
    if (!s_.pinning || num_threads() != usable_cores()) return;
    const auto one = slice(1, {1, pass_.recompute, pass_.packed_weights}, s_.plan);
    Comparison q({"none", "cores"}, margin_, [&](size_t i) {
      pin_threads(i == 1);
      return a_row(*one, clock_);
    });
    ask_if_fits(q, 2 * one->flops(), kPinningPart);
    record("step pinning", q.summary(), q.choice());
    pin_threads(q.choice() == 1);
  }

  void passes() {
    report_.plan.choices["step micro_batch"] = std::to_string(pass_.micro_batch);
    set_step();
    if (s_.passes.size() < 2) return;
    std::vector<std::string> names;
    std::vector<std::unique_ptr<Slice>> slices;
    std::shared_ptr<runtime::ParamStore> params;
    double flops = 0;
    for (const Pass& p : s_.passes) {
      names.push_back(std::to_string(p.micro_batch));
      slices.push_back(slice(1, p, s_.plan, params));
      params = slices.back()->params();
    }
    // As many rows of each as the largest takes: of samples of different length the short ones would escape what
    // interrupts the long ones.
    int64_t rows = 0;
    for (const auto& x : slices) rows = std::max(rows, x->rows());
    const auto times = [&](size_t i) { return std::max<int64_t>(1, rows / slices[i]->rows()); };
    for (size_t i = 0; i < slices.size(); ++i) flops += slices[i]->flops() * static_cast<double>(times(i));
    Comparison q(names, margin_, [&](size_t i) {
      double us = 0;
      for (int64_t k = 0; k < times(i); ++k) us += slices[i]->pass_us(clock_);
      return Parts{us / static_cast<double>(times(i) * slices[i]->rows())};
    });
    ask_if_fits(q, flops, kPassesPart);
    record("step micro_batch", q.summary(), q.choice());
    pass_ = s_.passes[q.choice()];
    set_step();
  }

  // What follows from the rows of a pass.
  void set_step() {
    auto& choices = report_.plan.choices;
    choices["step recompute"] = std::string(graph::recompute_name(pass_.recompute));
    if (s_.plan.choices.contains("step weights"))
      choices["step weights"] = std::string(runtime::weights_name(pass_.packed_weights));
  }

  // A call of the step with what it takes to ask about it.
  struct Call {
    const Choice* choice;
    std::vector<int> algorithms;
    double once_us = 0;  // expected, of one time
    int repeats = 1;     // of one sample
    size_t rounds = 0;
    std::unique_ptr<CallBench> bench;  // null: not asked about
    std::unique_ptr<Comparison> question;
    double sample_us() const { return once_us * repeats; }
    double takes_us() const { return static_cast<double>(algorithms.size() * (rounds + 1)) * sample_us(); }
  };

  Call call(const Choice& c) const {
    Call call{&c, algorithms_of(c, ops_)};
    // Attention is timed over three mixes of documents, and its gradient reads what a forward pass has written.
    double work = c.flops();
    if (std::holds_alternative<kernels::Attention>(c.calls[0].call))
      work *= (c.calls.size() > 1 ? 9.0 / 7 : 1) * (s_.packed ? 1 + 1 / 4.0 + 1 / 16.0 : 1);
    call.once_us = expect(work) + static_cast<double>(Operands::bytes(c, ops_)) /
                                      (ops_.device() ? kDeviceBytesPerUs : kHostBytesPerUs);
    call.repeats = static_cast<int>(std::clamp(kSampleUs / call.once_us, 1.0, static_cast<double>(kMostRepeats)));
    call.rounds =
        call.algorithms.size() == 1 ? kLeastRounds : rounds_for(call.sample_us()) * (settings_.enumerate ? 3 : 1);
    return call;
  }

  void calls() {
    const graph::Graph g = models::build(s_.model, options(pass_));
    const auto choices = choices_of(
        runtime::Program(g, s_.plan, ops_, {tokens_of(pass_), 0, false, s_.seq_len, pass_.packed_weights}).tunables());
    // What the default pass calls and this one does not is no choice of the plan.
    std::erase_if(report_.plan.choices, [](const auto& c) { return !c.first.starts_with("step "); });
    const double share = kUsed - kCheckPart - used_;
    std::vector<Call> all;
    for (const Choice& c : choices) all.push_back(call(c));
    const auto asked = affordable(all, share * settings_.budget_s * 1e6);
    std::vector<const Choice*> lent;
    for (const Call* c : asked) lent.push_back(c->choice);
    const Deadline deadline = part(share);
    const Operands operands(lent, ops_);
    for (Call* c : asked) c->bench = std::make_unique<CallBench>(*c->choice, ops_, operands, s_.seq_len, s_.packed);
    for (Call& c : all) {
      std::vector<std::string> names;
      for (int a : c.algorithms) names.push_back(name_of(*c.choice, a));
      c.question = std::make_unique<Comparison>(
          names, margin_, [this, &c](size_t i) { return c.bench->sample(c.algorithms[i], clock_, c.repeats); });
    }
    rounds(asked, deadline);
    for (Call& c : all) answer(c);
  }

  std::string name_of(const Choice& c, int algorithm) const {
    const auto names =
        std::holds_alternative<kernels::Gemm>(c.calls[0].call) ? ops_.gemm_algorithms() : ops_.attention_algorithms();
    return names[static_cast<size_t>(algorithm)];
  }

  // The calls that are asked about: those with something to choose first, then those that stand most often in a pass
  // (they gain most for the time they take), as long as the expected time lasts. All of a call's candidates are timed,
  // or none.
  static std::vector<Call*> affordable(std::vector<Call>& all, double us) {
    std::vector<Call*> order, asked;
    for (Call& c : all) order.push_back(&c);
    std::stable_sort(order.begin(), order.end(), [](const Call* a, const Call* b) {
      const bool open = a->algorithms.size() > 1;
      return open != (b->algorithms.size() > 1) ? open : a->choice->count() > b->choice->count();
    });
    for (Call* c : order) {
      if (c->takes_us() > us) continue;
      us -= c->takes_us();
      asked.push_back(c);
    }
    return asked;
  }

  // Rounds go over all calls in turn: what slows the machine for a second costs each call a round or two, not one call
  // all of them. Then more rounds for those whose answer is near the edge.
  static void rounds(std::vector<Call*> calls, const Deadline& deadline) {
    std::erase_if(calls, [&](Call* c) { return !deadline.allows(c->sample_us()) || !c->question->warm(); });
    auto turn = [&](auto&& takes_part) {
      std::vector<Call*> now;
      double us = 0;
      for (Call* c : calls)
        if (takes_part(*c)) {
          now.push_back(c);
          us += c->question->cost();
        }
      if (now.empty() || !deadline.allows(us)) return false;
      for (Call* c : now) c->question->round();
      return true;
    };
    if (turn([](const Call&) { return true; })) {
      for (Call* c : calls) c->question->give_up_hopeless();
      // Late already: the last of the list are left out, instead of all being asked too little.
      double us = 0;
      for (const Call* c : calls) us += static_cast<double>(c->rounds - 1) * c->question->cost();
      for (; !calls.empty() && !deadline.allows(us); calls.pop_back()) {
        us -= static_cast<double>(calls.back()->rounds - 1) * calls.back()->question->cost();
        calls.back()->question->forget_if_short();
      }
    }
    // Long samples, of which there are few, spread over two turns each.
    for (size_t n = 0, idle = 0; idle < 2; ++n) {
      const bool done = turn(
          [&](const Call& c) { return c.question->rounds() < c.rounds && (n % 2 == 0 || c.rounds > kLeastRounds); });
      idle = done ? 0 : idle + 1;
    }
    while (turn([&](const Call& c) { return c.question->rounds() < 3 * c.rounds && c.question->open(); })) continue;
    for (Call* c : calls) c->question->forget_if_short();
  }

  void answer(const Call& c) {
    const size_t choice = c.question->choice();
    const auto& names = c.question->names();
    for (size_t i = 0; i < c.choice->calls.size(); ++i) {
      const auto each = c.question->summary(i);
      record(c.choice->calls[i].key, each, choice);
      report_.lines.push_back({c.choice->calls[i].key, names[0], names[choice],
                               static_cast<double>(c.choice->calls[i].count), each[0].median_us,
                               each[choice].median_us});
    }
  }

  // A pass of one layer with the default choices and with the plan's, in turn: whether the whole is a gain; without one
  // the default choices stay. In host memory a gain within noise is none: single calls near the edge would make plans
  // differ for nothing. A device's clock is steady, so there only a loss speaks against the plan. Then a pass of two
  // layers, for what a step of the whole model takes.
  void check() {
    const Pass usual = s_.passes.front();
    const int threads_usual = s_.threads.empty() ? 0 : s_.threads[0], threads_chosen = num_threads();
    const auto pinned = report_.plan.choices.find("step pinning");
    const bool pin = pinned != report_.plan.choices.end() && pinned->second == "cores";
    const bool differs = !same_choices();
    const auto planned = slice(1, pass_, report_.plan);
    std::unique_ptr<Slice> by_default;
    if (differs) by_default = slice(1, usual, s_.plan, planned->params());
    const int64_t more = std::min<int64_t>(2, s_.model.num_layers);
    const auto two = slice(more, pass_, report_.plan);
    Comparison q(differs ? std::vector<std::string>{"planned", "default"} : std::vector<std::string>{"planned"},
                 margin_, [&](size_t i) {
                   if (differs) set_conditions(i == 1 ? threads_usual : threads_chosen, pin && i == 0);
                   return a_row(i == 0 ? *planned : *by_default, clock_);
                 });
    Comparison longer({"planned"}, margin_, [&](size_t) { return a_row(*two, clock_); });
    const double flops = planned->flops() * (differs ? 2 : 1) + two->flops();
    if (differs && pass_rounds(flops, kCheckPart) == 0) {  // no plan that was not checked
      keep_default();
      return check();
    }
    // One round will do for a time that nothing is chosen by.
    const size_t rounds =
        differs ? pass_rounds(flops, kCheckPart) : std::min(kLeastRounds, rounds_that_fit(flops, kCheckPart));
    if (rounds == 0) return;
    ask(q, rounds, end_, settings_.enumerate && differs);
    set_conditions(threads_chosen, pin);
    ask(longer, std::min(rounds, kLeastRounds), end_, false);
    const auto one = q.summary(), several = longer.summary();
    const Gain gained = differs && one[0].median_us > 0 ? gain(q.totals(), 1, 0) : Gain{};
    const double least = ops_.device() ? -std::max(kNoise, gained.error) : std::max(kHostWhole, gained.error);
    if (differs && (one[0].median_us == 0 || gained.value <= least)) {
      report_.declined_gain = gained.value;
      keep_default();
    }
    if (one[0].median_us == 0 || several[0].median_us == 0) return;
    step_of(one[0], several[0], 1 + gained.value, *two);
  }

  void keep_default() {
    const int threads = s_.threads.empty() ? 0 : s_.threads[0];
    report_.kept_default = true;
    pass_ = s_.passes.front();
    report_.plan.choices = s_.plan.choices;
    if (threads) report_.plan.choices["step threads"] = std::to_string(threads);
    if (report_.plan.candidates.contains("step pinning")) report_.plan.choices["step pinning"] = "none";
    set_conditions(threads, false);
    for (Line& l : report_.lines) l.chosen = l.usual, l.chosen_us = l.usual_us;
  }

  // What the plan chooses otherwise than the default plan, which lacks nothing that it has: calls take the first
  // algorithm.
  bool same_choices() const {
    const Pass& usual = s_.passes.front();
    if (pass_.micro_batch != usual.micro_batch || pass_.recompute != usual.recompute ||
        pass_.packed_weights != usual.packed_weights)
      return false;
    if (!s_.threads.empty() && num_threads() != s_.threads[0]) return false;
    if (const auto p = report_.plan.choices.find("step pinning");
        p != report_.plan.choices.end() && p->second != "none")
      return false;
    return std::all_of(report_.lines.begin(), report_.lines.end(), [](const Line& l) { return l.chosen == l.usual; });
  }

  static void set_conditions(int threads, bool pin) {
    if (threads > 0) set_num_threads(threads);
    pin_threads(pin);
  }

  // Adapters of a rank that no one-pass kernel has beside the next rank that one has: a row through a layer with each,
  // by the default choices. Nothing is chosen by it; the plan says what the rank costs.
  void adapters() {
    if (s_.one_pass_ranks.empty() || s_.options.lora == nullptr) return;
    int64_t own = 0, nearest = 0;
    models::LoraPlan next = *s_.options.lora;
    next.target = [&, of = s_.options.lora->target](const std::string& module) {
      auto t = of(module);
      if (!t || std::find(s_.one_pass_ranks.begin(), s_.one_pass_ranks.end(), t->rank) != s_.one_pass_ranks.end())
        return t;
      const auto more = std::find_if(s_.one_pass_ranks.begin(), s_.one_pass_ranks.end(),
                                     [&](int64_t rank) { return rank > t->rank; });
      if (more == s_.one_pass_ranks.end()) return t;  // above all: products are long there, and cost nothing extra
      own = t->rank, nearest = *more;
      t->rank = nearest;
      return t;
    };
    const auto mine = slice(1, pass_, s_.plan);
    const std::unique_ptr<Slice> other = slice(1, pass_, s_.plan, nullptr, &next);
    if (own == 0 || rounds_that_fit(mine->flops() + other->flops(), kCheckPart) < kLeastRounds) return;
    Comparison q({fmt::format("rank {}", own), fmt::format("rank {}", nearest)}, margin_,
                 [&](size_t i) { return a_row(i == 0 ? *mine : *other, clock_); });
    ask(q, kLeastRounds, end_, false);
    report_.plan.candidates["step adapters"] = q.summary();
  }

  // A step of the whole model from slices of one and of two layers.
  void step_of(const kernels::Candidate& one, const kernels::Candidate& two, double default_over_planned,
               Slice& slice) {
    const double layers = static_cast<double>(s_.model.num_layers), rows = static_cast<double>(s_.rows);
    const double layer = layers > 1 ? std::max(0.0, two.median_us - one.median_us) : one.median_us,
                 ends = std::max(0.0, one.median_us - layer);
    // The ends of the model (embedding, head, loss) grow with the vocabulary.
    const double words =
        static_cast<double>(s_.model.vocab_size) / static_cast<double>(std::min(kSliceVocab, s_.model.vocab_size));
    report_.chosen_step_us = (layer * layers + ends * words) * rows;
    report_.usual_step_us = report_.chosen_step_us * default_over_planned;
    if (report_.kept_default) report_.chosen_step_us = report_.usual_step_us;
    if (end_.left() > 0) {
      int64_t trained = 0;
      const graph::Graph g = models::build(s_.model, options(pass_));
      for (const graph::Param& p : g.params)
        if (p.trainable) trained += p.rows * p.cols;
      report_.update_us = slice.update_us(clock_) * static_cast<double>(trained) /
                          static_cast<double>(std::max<int64_t>(1, slice.trained()));
    }
    const double spread = one.spread_us / one.median_us;
    report_.plan.candidates["step"] = {
        {"default", report_.usual_step_us + report_.update_us, spread * report_.usual_step_us},
        {"planned", report_.chosen_step_us + report_.update_us, spread * report_.chosen_step_us}};
  }

  const Subject& s_;
  kernels::Ops& ops_;
  const Settings& settings_;
  Deadline end_;
  DeviceTimer clock_;
  Report report_;
  Pass pass_;
  double used_ = 0;  // of the budget, by the questions before the calls
  const double margin_ = ops_.device() ? kDeviceMargin : kHostMargin;
  double rate_ = 1;  // flops per µs, as steady() has it
};

}  // namespace

double product_rate(kernels::Ops& ops, DType type) {
  DeviceTimer clock(ops);
  double rate = 0;
  for (const int64_t n : {256, 1024, 4096}) {  // larger where the device is fast
    kernels::Gemm g;
    g.a = {runtime::place({0, 0}), n, n, n, type};
    g.b = {runtime::place({1, 0}), n, n, n, type};
    g.c = {runtime::place({2, 0}), n, n, n, type};
    g.trans_b = true;
    const Choice c{{{"calibration", g, 1}}};
    const Operands operands({&c}, ops);
    CallBench bench(c, ops, operands, 0, false);
    bench.sample(0, clock, 1);
    double us = bench.sample(0, clock, 1)[0];
    // The least of many: another program's turn is not the device's rate.
    const Deadline enough(0.25);
    for (int i = 0; i < 30 && enough.left() > 0; ++i) us = std::min(us, bench.sample(0, clock, 1)[0]);
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

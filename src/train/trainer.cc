#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/adapter.h"
#include "checkpoint/heads.h"
#include "checkpoint/pissa.h"
#include "checkpoint/state.h"
#include "checkpoint/weights.h"
#include "data/prepare.h"
#include "device/memory.h"
#include "formats/classifier.h"
#include "formats/family.h"
#include "optim/optimizer.h"
#include "train/adapter.h"
#include "train/batches.h"
#include "train/host_floats.h"
#include "train/memory.h"
#include "train/methods/method.h"
#include "train/reference.h"
#include "train/sampler.h"
#include "train/sequences.h"
#include "train/value_model.h"

namespace mxt::train {
namespace {

std::vector<int32_t> to_int32(const std::vector<int64_t>& ids) {
  std::vector<int32_t> out;
  for (int64_t id : ids) out.push_back(static_cast<int32_t>(id));
  return out;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Run {
 public:
  Run(Setup& s, const kernels::KernelPlan& plan, kernels::Ops& ops, const TrainOptions& o)
      : s_(s),
        plan_(plan),
        ops_(ops),
        o_(o),
        graph_(s.training_graph()),
        program_(std::make_unique<runtime::Program>(graph_, plan, ops, program_settings(s))),
        losses_(ops.device(), (s.rows_per_step + s.micro_batch - 1) / s.micro_batch * s.max_tokens),
        loads_(ops.device(), program_->experts() > 0 ? s.rows_per_step * (1 + program_->experts()) : 0) {
    check_memory(plan);
    optimizer_ = optim::make_optimizer(s.recipe.train, graph_);
    params_ = std::make_unique<runtime::ParamStore>(graph_, true, ops.device(), s.offload, optimizer_->states());
    program_->allocate(*params_);
    optimizer_->bind(*params_, ops);
    load_weights();
    if (s.packed_weights) params_->pack_frozen(graph_, ops);
    if (s.processor) batch_.see(*s.processor);
    open_data();
    steps_ = total_steps(s.recipe, data_->rows(), s.rows_per_step);
    method_ = new_method();
    if (method_) pass_ = std::make_unique<SequencePass>(*method_, graph_, s.seq_len, s.share_prompts);
    evaluates_ = s.recipe.train.eval_every && data::has_part(o.data, "eval");
    if (evaluates_ && method_) eval_rows_ = std::make_unique<EvalRows>(o.data);
    const bool refers = method_ && method_->has_reference(), keeps = keeps_reference(s.recipe);
    if (evaluates_ || refers || (method_ && method_->scores_policy())) score_graph_ = s.scoring_graph();
    // A reference that is kept is asked by a program of its own.
    if (evaluates_ || (refers && !keeps) || (method_ && method_->scores_policy())) {
      scorer_ = std::make_unique<runtime::Program>(score_graph_, plan, ops, program_settings(s));
      scorer_->allocate(*params_);
    }
    if (method_ && method_->wants_values()) values_ = std::make_unique<ValueModel>(s, plan, ops);
    if (s.recipe.train.eval_every && !evaluates_) {
      log::warn(
          "train.eval_every: the data have no held-out part, so nothing is evaluated: set data.eval_fraction or "
          "data.eval_path");
    }
    for (const auto& [key, list] : plan.candidates)
      if (key.starts_with("gemm"))
        for (const auto& c : list) note_peak(key, c);
  }

  TrainResult run() {
    TrainResult r;
    r.steps = steps_;
    if (!method_ || !method_->has_reference()) {
      resume();
      o_.begins();
    } else {  // the reference is asked while the weights are those that training starts from
      check_resume();
      o_.begins();
      if (keeps_reference(s_.recipe))
        kept_ = std::make_unique<KeptReference>(graph_, score_graph_, *params_, plan_, ops_, program_settings(s_));
      else
        ask_reference();
      resume();
    }
    if (live_) rollout_log_ = std::make_unique<RolloutLog>(o_.out + "/rollouts.jsonl", state_.step);
    drop_later();
    if (state_.step > 0) keep_last();  // who saved that step may have been killed before
    MetricsLog log(o_.out, state_.step);
    write_file_atomic(o_.out + "/program.txt", runtime::print(program_->spec(), ops_));
    const double begin = now();
    const uint64_t decided = kernels::decisions();
    log::Progress progress("training", static_cast<double>(steps_));
    int64_t trained_tokens = 0;
    double trained_flops = 0;
    while (state_.step < steps_) {
      StepMetrics m = step();
      trained_tokens += step_tokens_;
      trained_flops += step_flops_;
      if (r.first_loss == 0 && !log.all().size()) r.first_loss = m.loss;
      // A gradient that is not finite has gone into the weights by now, even where the loss before it was still a
      // number.
      for (const auto& [what, value] : {std::pair{"loss", m.loss}, std::pair{"gradient's norm", m.grad_norm}})
        if (!std::isfinite(value)) {
          if (state_.step == 1 && std::isnan(m.loss))  // no step had changed a weight
            fail_input(
                "step 1: no loss from the weights as they were: {} holds weights that are not numbers, or they "
                "overflow in {}",
                s_.recipe.model.name, config::text_of(s_.recipe.train.precision));
          fail_input("step {}: the {} is {}: lower train.optimizer.lr, or look at the data; {}", state_.step, what,
                     std::isnan(value) ? "nan" : fmt::format("{}", value),  // its sign says nothing
                     checkpoint::saved_steps(o_.out + "/checkpoints").empty()
                         ? "no step was saved before"
                         : fmt::format("the last good state is in {}/checkpoints", o_.out));
        }
      const bool last = state_.step == steps_;
      bool best = false;
      const auto& t = s_.recipe.train;
      if (evaluates_ && (state_.step % *t.eval_every == 0 || last)) {
        m.eval_loss =
            method_ ? evaluate_method() : evaluate(*scorer_, o_.data, s_.micro_batch, s_.max_tokens, s_.processor);
        if (state_.best_eval < 0 || *m.eval_loss < state_.best_eval) {
          state_.best_eval = *m.eval_loss;
          state_.best_step = state_.step;
          best = true;
        }
      }
      log.write(m);
      if (o_.on_step) o_.on_step(m);
      const std::string detail = fmt::format("step {}/{}  loss {:.4f}  {:.0f} tok/s{}", state_.step, steps_, m.loss,
                                             m.tok_s, m.mfu ? fmt::format("  {:.0f}% of peak", 100 * *m.mfu) : "");
      if (state_.step % t.log_every == 0 || last) progress.update(static_cast<double>(state_.step), detail);
      const bool stopped = o_.stop && o_.stop->load();
      if ((t.save_every && (best || state_.step % *t.save_every == 0) && !last) || stopped) save_state();
      if (stopped && !last) {
        r.interrupted = true;
        break;
      }
    }
    log.flush();
    if (flat_steps_ > 1) log::warn("{} steps had answers that teach nothing", flat_steps_);
    r.decisions = kernels::decisions() - decided;
    MXT_ASSERT(r.decisions == 0);
    program_.reset();
    scorer_.reset();
    if (!r.interrupted) save_final();
    r.peak_memory = device::peak_resident_bytes();
    r.seconds = now() - begin;
    r.done = state_.step;
    r.tokens = state_.tokens;
    if (!log.all().empty()) {
      r.first_loss = log.all().front().loss;
      r.last_loss = log.all().back().loss;
    }
    r.tok_s = r.seconds > 0 ? static_cast<double>(trained_tokens) / r.seconds : 0;
    r.tflops = r.seconds > 0 ? trained_flops / r.seconds / 1e12 : 0;
    r.best_eval = state_.best_eval;
    return r;
  }

 private:
  std::unique_ptr<Method> new_method() const {
    auto method = make_method(s_.recipe.train.method);
    if (!method) return method;
    method->set_ends(o_.ends.empty() ? to_int32(s_.model.eos) : o_.ends);
    method->set_pad(formats::score_pad(s_.model));
    return method;
  }

  using ReferenceOf = std::function<std::span<const float>(size_t)>;

  void open_data() {
    const config::Train& t = s_.recipe.train;
    if (t.rollouts.path) {
      // Passes of shared prompts are sized by the longest answer.
      std::vector<Rollout> given = read_rollouts(
          o_.data + "/" + data::kRolloutsName, *t.rollouts.path,
          {t.method.num_generations, s_.model.vocab_size, s_.seq_len, s_.share_prompts ? t.method.max_new_tokens : 0});
      auto rollouts = std::make_unique<RolloutRows>(std::move(given), s_.rows_per_step, steps_per_batch(t.method));
      rollouts_ = rollouts.get();
      data_ = std::move(rollouts);
      return;
    }
    if (t.method.is_rl()) {
      MXT_ASSERT(o_.decode);
      sampler_ = std::make_unique<Sampler>(s_, *params_, ops_, o_.decode, o_.ends, o_.rewards, o_.tools);
      auto live = std::make_unique<LiveRows>(
          o_.data, s_.recipe.meta.seed, s_.recipe.data.shuffle, t.method, s_.rows_per_step, o_.decode,
          [this](int64_t draw, const std::vector<Prompt>& prompts) { return sample(draw, prompts); });
      live_ = live.get();
      data_ = std::move(live);
      return;
    }
    auto rows = std::make_unique<TrainRows>(o_.data, s_.recipe.meta.seed, s_.recipe.data.shuffle, s_.rows_per_step);
    rows_ = rows.get();
    data_ = std::move(rows);
  }

  // What policy and value model say of answers before these change them, and the reference where it is asked ahead.
  void ask_values(int64_t index, std::span<Rollout> rollouts) {
    std::vector<Completion*> all;
    for (Rollout& r : rollouts)
      for (Completion& c : r.completions) all.push_back(&c);
    for (size_t i = 0; reference_ && i < all.size(); ++i) {
      const auto given = reference_->train(data_->row_index(index, static_cast<int64_t>(i)), 0);
      all[i]->reference.assign(given.begin(), given.end());
    }
    if (all.empty() || !all[0]->old_values.empty()) return;  // amid the epochs
    const auto count = static_cast<int64_t>(all.size());
    SequencePass pass(*method_, score_graph_, s_.seq_len, s_.share_prompts);
    score_rows(
        *scorer_, pass, count, s_.micro_batch, s_.max_tokens,
        [&](int64_t i, SequencePass& p) { p.add_row(i, data_->row(index, i)); },
        [&](const Sequence& s) {
          Completion& c = *all[static_cast<size_t>(s.row)];
          if (c.old_logp.empty()) c.old_logp.assign(s.logp.begin(), s.logp.end());
        });
    auto values = values_->estimate(count, [&](int64_t i) { return data_->row(index, i); });
    for (size_t i = 0; i < all.size(); ++i) all[i]->old_values = std::move(values[i]);
  }

  // Answers to a step's prompts, with the reference's log-probabilities where the method wants them.
  std::vector<Rollout> sample(int64_t draw, const std::vector<Prompt>& prompts) {
    std::vector<Rollout> out;
    try {
      out = sampler_->sample(draw, prompts, o_.stop);
    } catch (const Error&) {  // nothing of the step has been done yet
      if (state_.step > 0) save_state();
      throw;
    }
    if (!kept_) return out;
    std::vector<Completion*> all;
    std::vector<LabelledAnswer> answers;
    for (Rollout& r : out)
      for (Completion& c : r.completions) {
        all.push_back(&c);
        answers.push_back(labelled(r.prompt, c));
      }
    SequencePass pass(*method_, score_graph_, s_.seq_len, s_.share_prompts);
    score_rows(
        kept_->scorer(), pass, static_cast<int64_t>(all.size()), s_.micro_batch, s_.max_tokens,
        [&](int64_t i, SequencePass& p) {
          p.add(i, 0, 0, answers[static_cast<size_t>(i)].ids, answers[static_cast<size_t>(i)].labels);
        },
        [&](const Sequence& s) { all[static_cast<size_t>(s.row)]->reference.assign(s.logp.begin(), s.logp.end()); });
    return out;
  }

  void check_memory(const kernels::KernelPlan& plan) {
    require_fit(s_, plan, ops_, ops_.device() ? ops_.device()->memory().free : host_memory());
  }

  void load_weights() {
    const uint64_t seed = s_.recipe.meta.seed;
    MXT_ASSERT(s_.weights || s_.recipe.model.init == config::Init::kRandom);
    if (s_.weights)
      checkpoint::load_base(graph_, *params_, *s_.weights);
    else
      checkpoint::init_random(graph_, *params_, seed);
    if (s_.weights && checkpoint::lacks_head(graph_, *s_.weights)) checkpoint::draw_head(graph_, *params_, seed);
    if (!s_.has_lora) return;
    const auto& lora = *s_.recipe.train.method.lora;
    if (lora.init_lora_weights == config::LoraInit::kPissa)
      pissa_ = checkpoint::init_pissa(graph_, *params_);
    else if (lora.init_adapter)
      checkpoint::load_adapter(*lora.init_adapter, graph_, *params_, &s_.lora, s_.model.family);
    else
      checkpoint::init_adapter(graph_, *params_, seed);
  }

  // The fastest product that the plan measured is the rate that utilisation is counted against.
  void note_peak(const std::string& key, const kernels::Candidate& c) {
    int64_t m = 0, n = 0, k = 0;
    for (std::string_view w : split(key, ' ')) {
      if (w.size() < 2) continue;
      const std::string digits(w.substr(1));
      if (digits.find_first_not_of("0123456789") != std::string::npos) continue;
      if (w[0] == 'm') m = std::stoll(digits);
      if (w[0] == 'n') n = std::stoll(digits);
      if (w[0] == 'k') k = std::stoll(digits);
    }
    if (c.median_us > 0)
      peak_ = std::max(
          peak_, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / c.median_us * 1e6);
  }

  // Of a method: the part of the step that its rows make, pass by pass.
  double method_passes(int64_t index, int64_t rows) {
    const auto row = [&](int64_t i) { return data_->row(index, i); };
    const std::span<Rollout> rollouts = data_->rollouts(index);
    if (values_) ask_values(index, rollouts);
    method_->take_rollouts(rollouts, index % steps_per_batch(s_.recipe.train.method) == 0);
    std::vector<const Completion*> completions;
    for (const Rollout& r : rollouts)
      for (const Completion& c : r.completions) completions.push_back(&c);
    const StepRows step = rows_of(*method_, s_.recipe.train.batch.per_device, rows, s_.seq_len, row);
    const auto ahead = ahead_of(*method_, step, s_.seq_len, row);
    const auto policy = score_policy(ahead), kept = score_kept(ahead);
    method_->begin(step, policy, reference_ ? reference_->ahead(index) : kept);
    double loss = 0;
    bool ran = false;
    for (int64_t first = 0; first < rows; first += s_.micro_batch) {
      pass_->clear();
      std::vector<std::pair<int64_t, int>> places;  // row of the data and part, of each sequence
      int64_t targets = 0;
      for (int64_t i = first; i < std::min(rows, first + s_.micro_batch); ++i) {
        if (method_->skips(i)) continue;
        pass_->add_row(i, row(i));
        for (int part = 0; part < method_->sequences_per_row(); ++part) {
          places.emplace_back(data_->row_index(index, i), part);
          targets += step.rows[static_cast<size_t>(i)].targets[static_cast<size_t>(part)];
        }
      }
      const bool last = first + s_.micro_batch >= rows;
      if (pass_->sequences() == 0 && (ran || !last)) continue;
      // A step in which nothing is trained on has a gradient all the same: zero.
      const bool empty = pass_->sequences() == 0;
      if (empty) pass_->add_row(0, row(0));
      const int64_t real = pass_->batch().real_tokens(), documents = pass_->batch().documents();
      pass_->pad(s_.max_tokens);
      runtime::Batch b = pass_->batch().view();
      b.first_micro = !std::exchange(ran, true);
      b.seed = s_.recipe.meta.seed;
      b.step = static_cast<uint64_t>(index);
      b.first_row = step_tokens_;
      const auto asked = ask_kept(first, std::min(rows, first + s_.micro_batch) - first, row);
      const ReferenceOf reference = [&](size_t i) -> std::span<const float> {
        if (!asked.empty()) return asked[i];
        if (reference_) return reference_->train(places[i].first, places[i].second);
        return completions[static_cast<size_t>(places[i].first)]->reference;
      };
      program_->run(b, [&] {
        const auto sequences = pass_->read(*program_, method_->has_reference() && !empty ? reference : ReferenceOf());
        if (!empty) loss += method_->loss(sequences);
        pass_->write(*program_);
      });
      step_tokens_ += real;
      step_flops_ += program_->flops(real, real / std::max<int64_t>(documents, 1), targets);
    }
    if (live_ && index % steps_per_batch(s_.recipe.train.method) == 0) rollout_log_->write(index + 1, rollouts);
    return loss;
  }

  std::vector<double> score_policy(const std::vector<AheadSequence>& sequences) {
    if (sequences.empty()) return {};
    return score_ahead(*method_, score_graph_, *scorer_, sequences, s_.micro_batch, s_.max_tokens, s_.share_prompts);
  }

  // The kept reference, where it is asked of each row when the policy is. What a policy sampled has its answers
  // already.
  std::vector<double> score_kept(const std::vector<AheadSequence>& sequences) {
    if (!kept_ || live_ || sequences.empty()) return {};
    return score_ahead(*method_, score_graph_, kept_->scorer(), sequences, s_.micro_batch, s_.max_tokens, false);
  }
  std::vector<std::vector<float>> ask_kept(int64_t first, int64_t rows, const std::function<data::Row(int64_t)>& row) {
    if (!kept_ || live_) return {};
    return kept_->ask(*method_, first, rows, s_.seq_len, s_.max_tokens, row);
  }

  // The method's loss of the held-out rows, as one step of them all would have it.
  double evaluate_method() {
    const auto row = [&](int64_t i) { return eval_rows_->row(i); };
    const auto method = new_method();
    const StepRows all = rows_of(*method, s_.recipe.train.batch.per_device, eval_rows_->rows(), s_.seq_len, row);
    const auto ahead = ahead_of(*method, all, s_.seq_len, row);
    const auto policy = score_policy(ahead), kept = score_kept(ahead);
    method->begin(all, policy, reference_ ? reference_->eval_ahead() : kept);
    SequencePass pass(*method, score_graph_, s_.seq_len);
    double loss = 0;
    for (int64_t first = 0; first < eval_rows_->rows(); first += s_.micro_batch) {
      pass.clear();
      std::vector<std::pair<int64_t, int>> places;
      for (int64_t i = first; i < std::min(eval_rows_->rows(), first + s_.micro_batch); ++i) {
        pass.add_row(i, row(i));
        for (int part = 0; part < method->sequences_per_row(); ++part) places.emplace_back(i, part);
      }
      pass.pad(s_.max_tokens);
      scorer_->run(pass.batch().view());
      const auto asked = ask_kept(first, std::min(eval_rows_->rows(), first + s_.micro_batch) - first, row);
      const ReferenceOf reference = [&](size_t i) -> std::span<const float> {
        if (!asked.empty()) return asked[i];
        return reference_->eval(places[i].first, places[i].second);
      };
      loss += method->loss(pass.read(*scorer_, reference_ || kept_ ? reference : ReferenceOf()));
    }
    return loss;
  }

  // The reference's log-probabilities: the policy's, before its first step.
  void ask_reference() {
    Blake3 made;
    for (const std::string* s : {&o_.recipe_digest, &o_.plan_digest, &o_.data_digest, &o_.base_digest})
      made.update(*s + "\n");
    made.update(std::to_string(steps_));
    make_folders(o_.out + "/checkpoints");
    reference_ = std::make_unique<Reference>(
        Reference::Inputs{o_.out + "/checkpoints/reference.safetensors", made.hex(), s_.micro_batch, s_.max_tokens,
                          s_.seq_len, steps_, s_.recipe.train.batch.per_device, s_.share_prompts},
        *method_, score_graph_, *scorer_, *data_, eval_rows_.get());
  }

  void resume() {
    check_resume();
    if (!o_.resume) return;
    const std::string folder = o_.out + "/checkpoints";
    const auto saved = checkpoint::saved_steps(folder);
    if (saved.empty()) return;
    const int64_t step = o_.resume_from >= 0 ? o_.resume_from : saved.back();
    state_ = checkpoint::load_state(checkpoint::step_folder(folder, step), graph_, *params_, state_);
    if (values_) values_->load(folder, state_);
    if (rollouts_) rollouts_->load(state_.method, state_.step);
    if (live_) live_->load(state_.method, state_.step);
    log::info("resumed at step {} of {}", state_.step, steps_);
  }

  void check_resume() {
    state_.recipe = o_.recipe_digest;
    state_.device = s_.backend->kind;
    state_.plan_choices = o_.plan_digest;
    state_.dataset = o_.data_digest;
    state_.base = o_.base_digest;
    if (!o_.resume) return;
    const std::string folder = o_.out + "/checkpoints";
    const auto saved = checkpoint::saved_steps(folder);
    if (o_.resume_from >= 0 && std::find(saved.begin(), saved.end(), o_.resume_from) == saved.end())
      fail_input("{}: there is no step-{} to resume from ({})", folder, o_.resume_from,
                 saved.empty() ? "no steps are saved" : fmt::format("saved: {}", fmt::join(saved, " ")));
  }

  // What an earlier try saved after the step that training goes on from: --resume would take it for this one's, whose
  // metrics would lack the steps between, and keep_last would count it. Not where training begins, before it has saved
  // a step of its own: who has forgotten --resume can still stop it.
  void drop_later() {
    if (state_.step == 0) return;
    const std::string folder = o_.out + "/checkpoints";
    for (const int64_t step : checkpoint::saved_steps(folder)) {
      if (step <= state_.step) continue;
      log::info("step {}: what an earlier try saved at step {} is removed", state_.step, step);
      checkpoint::remove_step(folder, step);
    }
  }

  // The losses of a step whose loss the graph holds; they are read after the step's one wait for the device.
  struct SftLosses {
    std::vector<std::pair<const float*, int64_t>> nll;
    std::vector<float> weights;  // of all passes' tokens, where targets have weights
    double total = 0;            // targets, or their weights
    double mean() const {
      double sum = 0;
      size_t at = 0;
      for (const auto& [values, n] : nll)
        for (int64_t t = 0; t < n; ++t)
          sum += static_cast<double>(values[t]) * (weights.empty() ? 1.0 : static_cast<double>(weights[at++]));
      return total > 0 ? sum / total : 0;
    }
  };

  // Weights by data::part_of; nothing where the recipe has none.
  std::optional<std::array<float, 4>> part_weights() const {
    const auto& w = s_.recipe.data.loss_weights;
    if (!w) return std::nullopt;
    return std::array<float, 4>{1, static_cast<float>(w->structure), static_cast<float>(w->name),
                                static_cast<float>(w->arguments)};
  }

  SftLosses sft_passes(int64_t index, int64_t rows) {
    SftLosses out;
    const auto by_part = part_weights();
    if (by_part) batch_.weigh(*by_part);
    for (int64_t i = 0; i < rows; ++i)
      out.total += by_part ? rows_->weight(index, i, *by_part) : static_cast<double>(rows_->targets(index, i));
    for (int64_t first = 0, micro = 0; first < rows; first += s_.micro_batch, ++micro) {
      batch_.clear();
      for (int64_t i = first; i < std::min(rows, first + s_.micro_batch); ++i)
        rows_->add(index, i, batch_), batch_.end_row();
      const int64_t real = batch_.real_tokens(), documents = batch_.documents();
      batch_.pad(s_.max_tokens);
      runtime::Batch b = batch_.view();
      b.loss_scale = 1.0f / static_cast<float>(out.total > 0 ? out.total : 1);
      b.first_micro = micro == 0;
      b.seed = s_.recipe.meta.seed;
      b.step = static_cast<uint64_t>(index);
      b.first_row = step_tokens_;
      b.balance_scale = 1.0f / static_cast<float>(rows);
      program_->run(b);
      float* nll = losses_.at(micro * s_.max_tokens);
      program_->copy_nll(nll);
      out.nll.push_back({nll, real});
      if (by_part) out.weights.insert(out.weights.end(), batch_.weights().begin(), batch_.weights().begin() + real);
      if (program_->experts() > 0)
        program_->copy_loads(loads_.at(first), loads_.at(s_.rows_per_step + first * program_->experts()), b.rows);
      step_tokens_ += real;
      step_flops_ += program_->flops(real, real / std::max<int64_t>(documents, 1), batch_.targets());
    }
    return out;
  }

  StepMetrics step() {
    const double begin = now();
    const int64_t index = state_.step, rows = data_->rows_of_step(index);
    step_tokens_ = 0;
    step_flops_ = 0;
    StepMetrics m;
    if (method_) {
      m.loss = method_passes(index, rows);
      if (values_)
        m.loss += values_->learn(
            *method_, rows, [&](int64_t i) { return data_->row(index, i); }, static_cast<uint64_t>(index));
      m.method = method_->metrics();
      note_flat(m.method, index + 1);
    }
    SftLosses sft;
    if (!method_) sft = sft_passes(index, rows);
    const optim::Step update{index + 1, steps_};
    optimizer_->update(update);
    if (values_) {
      values_->update(update);
      m.method["val/grad_norm"] = values_->grad_norm();
    }
    const double norm = optimizer_->grad_norm();  // the step's one wait for the device
    if (!method_) m.loss = sft.mean();
    state_.step = index + 1;
    state_.tokens += step_tokens_;
    m.step = state_.step;
    m.lr = optimizer_->rate(update);
    m.grad_norm = norm;
    if (program_->experts() > 0 && !method_) note_loads(rows, m);
    m.tokens = state_.tokens;
    const double seconds = now() - begin;
    m.tok_s = static_cast<double>(step_tokens_) / seconds;
    m.tflops = step_flops_ / seconds / 1e12;
    if (peak_ > 0) {
      if (const double rate = m.tflops * 1e12; rate > peak_) {
        if (!peak_passed_)
          log::warn(
              "step {} did {:.3f} TFLOP/s, more than the {:.3f} of the plan's fastest product: the machine was busy "
              "when the plan was measured; utilisation counts from the fastest step so far",
              m.step, m.tflops, peak_ * 1e-12);
        peak_passed_ = true;
        peak_ = rate;
      }
      m.mfu = m.tflops * 1e12 / peak_;
    }
    m.memory = ops_.device() ? ops_.device()->memory().held : device::resident_bytes();
    m.peak_memory = device::peak_resident_bytes();
    return m;
  }

  // A step with nothing to learn from is said once; at the end they are counted.
  void note_flat(const std::map<std::string, double>& metrics, int64_t step) {
    const auto flat = metrics.find("frac_reward_zero_std"), cut = metrics.find("completions/clipped_ratio");
    if (flat == metrics.end()) return;
    const bool masked = s_.recipe.train.method.mask_truncated_completions && cut->second == 1;
    const char* why = !metrics.contains("reward") ? "no answer could be scored"
                      : flat->second == 1         ? "the rewards of every group are equal"
                      : masked                    ? "every answer was cut off, and such are left out"
                                                  : nullptr;
    if (why && flat_steps_++ == 0) log::warn("step {}: {}, so its answers teach nothing", step, why);
  }

  // After the step's one wait for the device.
  void note_loads(int64_t rows, StepMetrics& m) {
    const int64_t experts = program_->experts();
    double balance = 0, all = 0, most = 0;
    for (int64_t r = 0; r < rows; ++r) balance += static_cast<double>(*loads_.at(r));
    for (int64_t e = 0; e < experts; ++e) {
      double chosen = 0;
      for (int64_t r = 0; r < rows; ++r) chosen += static_cast<double>(*loads_.at(s_.rows_per_step + r * experts + e));
      all += chosen;
      most = std::max(most, chosen);
    }
    m.balance_loss = balance / static_cast<double>(rows);
    m.expert_load = most * static_cast<double>(experts) / all;
  }

  void save_state() {
    const std::string folder = o_.out + "/checkpoints";
    make_folders(folder);
    if (rollouts_) state_.method = rollouts_->save(state_.step);
    if (live_) state_.method = live_->save(state_.step);
    if (values_) values_->save(folder, state_);
    checkpoint::save_state(checkpoint::step_folder(folder, state_.step), graph_, *params_, state_);
    drop_later();
    keep_last();
  }

  void keep_last() {
    const std::string folder = o_.out + "/checkpoints";
    checkpoint::keep_steps(folder, s_.recipe.train.keep_last, state_.best_step);
    if (values_) values_->keep_beside(folder, state_.step);
  }

  void save_final() {
    const std::string target = o_.out + "/checkpoint", temp = target + ".tmp";
    std::error_code ec;
    fs::remove_all(temp, ec);
    if (s_.has_lora) {
      formats::AdapterConfig a = adapter_config(s_.recipe);
      a.fan_in_fan_out = s_.model.family->conv1d;
      checkpoint::save_adapter(temp, graph_, *params_, std::move(a), pissa_ ? &*pissa_ : nullptr,
                               {stacks_experts(*s_.recipe.train.method.lora, s_.model), s_.model.family->turned_experts,
                                s_.model.num_experts > 0 && !s_.model.family->stacked_adapters});
    } else {
      const config::Precision held = s_.recipe.model.torch_dtype;
      checkpoint::save_model(temp, graph_, *params_,
                             s_.options.head == models::Head::kScore ? formats::as_classifier(s_.model) : s_.model,
                             held == config::Precision::kFloat32   ? DType::kF32
                             : held == config::Precision::kFloat16 ? DType::kF16
                                                                   : DType::kBF16);
    }
    // Which choices computed it: two plans that choose alike give equal checkpoints.
    OrderedJson training{{"plan_choices", o_.plan_digest}};
    if (reference_) training["reference"] = reference_->digest();
    if (kept_) training["reference"] = "live";
    write_file_atomic(temp + "/training.json", training.dump(2) + "\n");
    replace_folder(temp, target);
  }

  Setup& s_;
  const kernels::KernelPlan& plan_;
  kernels::Ops& ops_;
  const TrainOptions& o_;
  graph::Graph graph_, score_graph_;
  std::unique_ptr<runtime::Program> program_;
  std::unique_ptr<runtime::Program> scorer_;
  std::unique_ptr<runtime::ParamStore> params_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<checkpoint::PissaStart> pissa_;  // what the adapters began as, where the base was taken apart for them
  std::unique_ptr<StepData> data_;
  TrainRows* rows_ = nullptr;        // data_, where its loss is the graph's or its rows are answers
  RolloutRows* rollouts_ = nullptr;  // data_, of given rollouts
  std::unique_ptr<Method> method_;   // null where the graph holds the loss
  std::unique_ptr<SequencePass> pass_;
  std::unique_ptr<Sampler> sampler_;
  LiveRows* live_ = nullptr;            // data_, of a policy that samples
  std::unique_ptr<ValueModel> values_;  // where the method wants one
  std::unique_ptr<RolloutLog> rollout_log_;
  std::unique_ptr<EvalRows> eval_rows_;
  std::unique_ptr<Reference> reference_;  // asked before the first step
  std::unique_ptr<KeptReference> kept_;   // or in every step
  bool evaluates_ = false;
  HostFloats losses_, loads_;  // loads_: of each row of a step its load-balancing loss, then how often each expert
  PackedBatch batch_;
  checkpoint::TrainState state_;
  int64_t steps_ = 0, step_tokens_ = 0;
  double step_flops_ = 0,
         peak_ = 0;  // peak_: the largest rate seen, in flops a second; 0 = the plan measured no product
  bool peak_passed_ = false;
  int64_t flat_steps_ = 0;  // steps whose answers taught nothing
};

}  // namespace

double evaluate(runtime::Program& program, const std::string& data, int64_t micro_batch, int64_t max_tokens,
                const std::optional<image::Processor>& processor) {
  const EvalRows rows(data);
  PackedBatch batch;
  if (processor) batch.see(*processor);
  double loss = 0;
  int64_t targets = 0;
  for (int64_t first = 0; first < rows.rows(); first += micro_batch) {
    batch.clear();
    for (int64_t i = first; i < std::min(rows.rows(), first + micro_batch); ++i) rows.add(i, batch);
    const int64_t real = batch.real_tokens();
    targets += batch.targets();
    batch.pad(max_tokens);
    program.run(batch.view());
    for (int64_t t = 0; t < real; ++t) loss += static_cast<double>(program.nll()[t]);
  }
  return targets > 0 ? loss / static_cast<double>(targets) : 0;
}

TrainResult train(Setup& setup, const kernels::KernelPlan& plan, kernels::Ops& ops, const TrainOptions& options) {
  Run run(setup, plan, ops, options);
  return run.run();
}

}  // namespace mxt::train

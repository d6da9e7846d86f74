#include "train/sampler.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/philox.h"
#include "checkpoint/adapter.h"
#include "formats/family.h"
#include "formats/peft.h"

namespace mxt::train {
namespace {

constexpr uint64_t kSampleStream = uint64_t{0x5A3B} << 32;

// Of so many answers, and copies of the states that their prompts end in.
int64_t cache_bytes(const Setup& s, int64_t answers, int64_t copies = 0) {
  const int64_t pages = (s.seq_len + infer::PagedCache::kPage - 1) / infer::PagedCache::kPage;
  return infer::PagedCache::bytes(s.model, s.type, answers * pages) +
         infer::SequenceStates::bytes(s.model, s.type) * (answers + copies);
}

// A step's answers at once. A card reads its weights once for all of them: up to 256, as long as their keys and values
// take no more than a third of its memory; in turns of equal size.
infer::SchedulerSettings scheduler_settings(const Setup& s) {
  constexpr int64_t kUsual = 64, kMost = 256;
  infer::SchedulerSettings out;
  out.batch = std::min(s.rows_per_step, kUsual);
  if (!s.backend->own_memory) return out;
  const int64_t room = s.recipe.hardware.expected_hbm_gb * 1'000'000'000 / 3,
                most = std::clamp(room / std::max<int64_t>(1, cache_bytes(s, 1)), kUsual, kMost),
                turns = (s.rows_per_step + most - 1) / most;
  out.batch = (s.rows_per_step + turns - 1) / turns;
  return out;
}

}  // namespace

bool samples(const config::Recipe& r) { return r.train.method.is_rl() && !r.train.rollouts.path; }

int64_t sampler_cache_bytes(const Setup& s) {
  const infer::SchedulerSettings settings = scheduler_settings(s);
  return cache_bytes(s, settings.batch, settings.state_copies());
}

runtime::ProgramBytes sampler_program_bytes(const Setup& s, const kernels::KernelPlan& plan, const kernels::Ops& ops) {
  const graph::Graph g = models::build(s.model, infer::Model::generation(s.options, s.seq_len));
  const infer::SchedulerSettings settings = scheduler_settings(s);
  const runtime::ProgramSettings program{std::max(settings.tokens_per_pass, settings.batch), 0, true, 0, false};
  return runtime::lower(g, plan, ops, program).bytes;
}

std::vector<infer::RewardModel::Bytes> judge_bytes(const Setup& s, kernels::Ops& ops) {
  const config::Method& m = s.recipe.train.method;
  std::vector<std::string> judges;
  if (m.rewards.empty() && m.reward_model) judges.push_back(*m.reward_model);
  for (const config::RewardPart& part : m.rewards)
    if (part.model) judges.push_back(*part.model);
  std::vector<infer::RewardModel::Bytes> out;
  for (const std::string& judge : judges) {
    std::optional<models::LoraPlan> lora;
    formats::ModelConfig config = s.model;
    if (formats::Adapter::is_adapter(judge))
      lora = checkpoint::adapter_plan(judge, config.family);
    else if (fs::exists(judge))
      config = formats::WeightSource::open(judge)->config();
    else if (s.has_lora)
      lora = s.lora;
    out.push_back(infer::RewardModel::bytes(config, lora ? &*lora : nullptr, s.type, s.seq_len, ops));
  }
  return out;
}

Sampler::Sampler(const Setup& setup, runtime::ParamStore& live, kernels::Ops& ops, Decode decode,
                 std::vector<int32_t> ends, const RewardServices& services, const ToolServices& tools)
    : s_(setup),
      decode_(std::move(decode)),
      ends_(std::move(ends)),
      model_(setup.model, setup.options, live, setup.seq_len, ops),
      scheduler_(model_, scheduler_settings(setup)),
      rewards_(setup.recipe.train.method, services),
      tools_(setup.recipe.train.method, tools) {
  scheduler_.prepare();
}

std::vector<Rollout> Sampler::sample(int64_t draw, const std::vector<Prompt>& prompts, StopFlag stop) {
  const config::Method& m = s_.recipe.train.method;
  scheduler_.forget_cache();  // the weights have changed since
  std::vector<Rollout> out(prompts.size());
  std::vector<std::shared_ptr<AnswerTurns>> turns;
  for (size_t p = 0; p < prompts.size(); ++p) {
    out[p].prompt = prompts[p].ids;
    out[p].completions.resize(static_cast<size_t>(m.num_generations));
    for (size_t k = 0; k < out[p].completions.size(); ++k) {
      infer::Request r;
      r.prompt = prompts[p].ids;
      r.max_tokens = std::min<int64_t>(m.max_new_tokens, s_.seq_len - static_cast<int64_t>(r.prompt.size()));
      r.sampling.temperature = m.temperature;
      r.sampling.top_p = m.top_p;
      r.tempered = true;  // training's are
      const auto bits = philox4x32(static_cast<uint64_t>(s_.recipe.meta.seed),
                                   kSampleStream | static_cast<uint64_t>(draw), p * out[p].completions.size() + k);
      r.sampling.seed = uint64_t{bits[0]} << 32 | bits[1];
      Completion* c = &out[p].completions[k];
      infer::Sink sink;
      if (!m.tools.empty()) {
        turns.push_back(std::make_shared<AnswerTurns>(tools_, decode_, ends_, r.max_tokens, *c));
        r.tool = turns.back();
        sink.token = [answer = turns.back().get(), stop](const infer::NewToken& t) {
          return answer->told(t.id, t.logprob) && !(stop && *stop);
        };
      } else
        sink.token = [this, c, stop](const infer::NewToken& t) {
          c->ids.push_back(t.id);
          c->sampled_logp.push_back(t.logprob);
          return std::find(ends_.begin(), ends_.end(), t.id) == ends_.end() && !(stop && *stop);
        };
      sink.done = [c](const infer::Outcome& o) {
        if (o.finish == infer::Finish::kFailed) c->error = o.error;
      };
      scheduler_.submit(std::move(r), std::move(sink));
    }
  }
  while (scheduler_.step()) check_stop(stop);
  for (const auto& answer : turns) answer->finish();
  std::vector<Answer> answers;
  std::vector<Completion*> completions;
  for (size_t p = 0; p < out.size(); ++p) {
    const std::string prompt = out[p].text = decode_(prompts[p].ids);
    for (Completion& c : out[p].completions) {
      if (!c.error.empty() || c.ids.empty())
        fail_input("sampling an answer failed: {}{}", c.error,
                   draw > 0 ? "; if the steps before have spoilt them, lower train.optimizer.lr" : "");
      std::span<const int32_t> said(c.ids);
      if (std::find(ends_.begin(), ends_.end(), c.ids.back()) != ends_.end()) said = said.first(said.size() - 1);
      c.text = c.turns.empty() ? decode_(said) : c.turns.back().text;
      std::vector<int32_t> whole = prompts[p].ids;
      whole.insert(whole.end(), c.ids.begin(), c.ids.end());
      answers.push_back({prompt, c.text, prompts[p].reference, c.trained(), std::move(whole), c.turns});
      completions.push_back(&c);
    }
  }
  rewards_.score(answers, completions, stop);
  return out;
}

LiveRows::LiveRows(const std::string& folder, uint64_t seed, bool shuffle, const config::Method& method,
                   int64_t rows_per_step, Sampler::Decode decode, Sample sample)
    : prompts_(data::Dataset::open(folder)),
      seed_(seed),
      shuffle_(shuffle),
      prompts_per_step_(rows_per_step / method.num_generations),
      generations_(method.num_generations),
      iterations_(steps_per_batch(method)),
      decode_(std::move(decode)),
      sample_(std::move(sample)) {}

int64_t LiveRows::rows_of_step(int64_t step) const {
  const int64_t first = step / iterations_ % draws_per_epoch() * prompts_per_step_;
  return std::min(prompts_per_step_, prompts_.rows() - first) * generations_;
}

std::vector<Prompt> LiveRows::prompts_of(int64_t draw) {
  const int64_t epoch = draw / draws_per_epoch(), first = draw % draws_per_epoch() * prompts_per_step_;
  std::vector<uint32_t> order;
  if (shuffle_) order = data::epoch_order(seed_, epoch, prompts_.rows());
  std::vector<Prompt> out;
  for (int64_t i = first; i < std::min(first + prompts_per_step_, prompts_.rows()); ++i) {
    const data::Row r = prompts_.row(shuffle_ ? order[static_cast<size_t>(i)] : i);
    if (r.cu_seqlens.size() != 3) fail_input("the prepared data hold no prompts with answers: prepare them again");
    const auto n = static_cast<size_t>(r.cu_seqlens[1]);
    out.push_back({{r.ids.begin(), r.ids.begin() + static_cast<ptrdiff_t>(n)}, decode_(r.ids.subspan(n))});
  }
  return out;
}

std::span<Rollout> LiveRows::rollouts(int64_t step) {
  if (step / iterations_ != drawn_) {
    now_ = sample_(step / iterations_, prompts_of(step / iterations_));
    drawn_ = step / iterations_;
    lay_out();
  }
  return now_;
}

void LiveRows::lay_out() {
  ids_.clear(), labels_.clear(), cu_.clear();
  for (const Rollout& r : now_)
    for (const Completion& c : r.completions) {
      auto [ids, labels] = labelled(r.prompt, c);
      cu_.push_back({0, static_cast<int32_t>(ids.size())});
      ids_.push_back(std::move(ids));
      labels_.push_back(std::move(labels));
    }
}

data::Row LiveRows::row(int64_t step, int64_t i) {
  rollouts(step);
  return at(i);
}

data::Row LiveRows::at(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  return {ids_.at(i), labels_[i], cu_[i]};
}

std::string LiveRows::save(int64_t next_step) const {
  if (next_step % iterations_ == 0 || next_step / iterations_ != drawn_) return "";
  OrderedJson all = OrderedJson::array();
  for (const Rollout& r : now_) all.push_back(to_json(r));
  return all.dump();
}

void LiveRows::load(const std::string& saved, int64_t next_step) {
  if (saved.empty()) return;
  now_.clear();
  for (const OrderedJson& j : parse_ordered_json(saved, "the saved step's rollouts"))
    now_.push_back(rollout_from_json(j));
  drawn_ = next_step / iterations_;
  lay_out();
}

RolloutLog::RolloutLog(std::string path, int64_t resume_step) : path_(std::move(path)) {
  std::string kept;
  if (resume_step > 0) {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      const Json j = Json::parse(line, nullptr, false);
      if (j.is_discarded() || !j.contains("step") || j["step"].get<int64_t>() > resume_step) break;
      kept += line + "\n";
    }
  }
  write_file_atomic(path_, kept);
}

void RolloutLog::write(int64_t step, std::span<const Rollout> rollouts) {
  std::ofstream file(path_, std::ios::app);
  for (const Rollout& r : rollouts) {
    OrderedJson j{{"step", step}};
    j.update(to_json(r));
    file << j.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << "\n";
  }
  file.flush();
  if (!file) fail_input("{}: cannot be written", path_);
}

}  // namespace mxt::train

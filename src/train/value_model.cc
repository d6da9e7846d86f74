#include "train/value_model.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/adapter.h"
#include "checkpoint/weights.h"
#include "formats/family.h"
#include "models/heads.h"

namespace mxt::train {
namespace {

models::BuildOptions options_of(const Setup& s, models::Purpose purpose) {
  models::BuildOptions o = s.options;
  o.head = models::Head::kScore;
  o.purpose = purpose;
  o.entropy = false;
  o.logit_scale = 1;
  o.join_lora = false;
  if (purpose == models::Purpose::kScore) o.recompute = graph::Recompute::kNone;
  return o;
}

runtime::ProgramSettings settings_of(const Setup& s) {
  runtime::ProgramSettings settings = program_settings(s);
  settings.packed_weights = false;
  return settings;
}

void clear_head(const graph::Graph& g, runtime::ParamStore& params) {
  for (size_t i = 0; i < g.params.size(); ++i) {
    if (!models::is_head(g.params[i])) continue;
    {
      const auto access = params.write(static_cast<graph::ParamId>(i));
      std::fill_n(access.slot.master, access.slot.size, 0.0f);
    }
    params.sync_weights(static_cast<graph::ParamId>(i));
  }
}

std::string folder_of(const std::string& checkpoints) { return checkpoints + "/value"; }

}  // namespace

ValueModel::ValueModel(const Setup& s, const kernels::KernelPlan& plan, kernels::Ops& ops)
    : s_(s),
      graph_(models::build(s.model, options_of(s, models::Purpose::kTrain))),
      score_graph_(models::build(s.model, options_of(s, models::Purpose::kScore))),
      optimizer_(optim::make_optimizer(s.recipe.train, graph_)),
      params_(std::make_unique<runtime::ParamStore>(graph_, true, ops.device(), s.offload, optimizer_->states())),
      program_(std::make_unique<runtime::Program>(graph_, plan, ops, settings_of(s))),
      scorer_(std::make_unique<runtime::Program>(score_graph_, plan, ops, settings_of(s))) {
  program_->allocate(*params_);
  scorer_->allocate(*params_);
  optimizer_->bind(*params_, ops);
  const auto seed = static_cast<uint64_t>(s.recipe.meta.seed);
  s.weights ? checkpoint::load_base(graph_, *params_, *s.weights) : checkpoint::init_random(graph_, *params_, seed);
  clear_head(graph_, *params_);
  if (!s.has_lora) return;
  const auto& from = s.recipe.train.method.lora->init_adapter;
  from ? checkpoint::load_adapter(*from, graph_, *params_, &s.lora, s.model.family)
       : checkpoint::init_adapter(graph_, *params_, seed);
}

runtime::ParamBytes ValueModel::param_bytes(const Setup& s) {
  return train::param_bytes(s, models::build(s.model, options_of(s, models::Purpose::kTrain)));
}

std::array<runtime::ProgramBytes, 2> ValueModel::program_bytes(const Setup& s, const kernels::KernelPlan& plan,
                                                               kernels::Ops& ops) {
  const auto bytes = [&](models::Purpose purpose) {
    return runtime::Program(models::build(s.model, options_of(s, purpose)), plan, ops, settings_of(s)).bytes();
  };
  return {bytes(models::Purpose::kTrain), bytes(models::Purpose::kScore)};
}

void ValueModel::pack(int64_t first, int64_t last, const RowOf& row) {
  batch_.clear();
  places_.clear();
  for (int64_t i = first; i < last; ++i) {
    const data::Row r = row(i);
    size_t prompt = 0;
    while (prompt < r.labels.size() && r.labels[prompt] == data::kNoTarget) ++prompt;
    MXT_ASSERT(prompt > 0 && r.ids.size() <= static_cast<size_t>(s_.seq_len));
    int64_t at = batch_.tokens();
    if (s_.share_prompts)
      at = batch_.add_answer(r.ids, r.labels);
    else
      batch_.add_document(r.ids, r.labels);
    Place& place = places_.emplace_back(Place{i, {}});
    for (size_t t = prompt; t < r.labels.size(); ++t)
      if (r.labels[t] != data::kNoTarget) place.states.push_back(static_cast<size_t>(at) + t - 1);
    place.states.push_back(static_cast<size_t>(at) + r.ids.size() - 1);
  }
  batch_.pad(s_.max_tokens);
}

std::vector<std::vector<float>> ValueModel::estimate(int64_t rows, const RowOf& row) {
  std::vector<std::vector<float>> out;
  std::vector<float> values;
  for (int64_t first = 0; first < rows; first += s_.micro_batch) {
    pack(first, std::min(rows, first + s_.micro_batch), row);
    scorer_->run(batch_.view());
    values.resize(static_cast<size_t>(batch_.tokens()));
    scorer_->read(score_graph_.roots.at(0).value, values.data());
    for (const Place& p : places_) {
      std::vector<float>& of = out.emplace_back();
      for (const size_t at : p.states) of.push_back(values[at]);
    }
  }
  return out;
}

double ValueModel::learn(Method& method, int64_t rows, const RowOf& row, uint64_t step) {
  double loss = 0;
  std::vector<float> values, gradient, of, by;
  int64_t tokens = 0;
  const graph::Root root = graph_.roots.at(0);
  for (int64_t first = 0; first < rows; first += s_.micro_batch) {
    pack(first, std::min(rows, first + s_.micro_batch), row);
    runtime::Batch b = batch_.view();
    b.first_micro = first == 0;
    b.seed = static_cast<uint64_t>(s_.recipe.meta.seed);
    b.step = step;
    b.first_row = tokens;
    tokens += batch_.real_tokens();
    program_->run(b, [&] {
      values.resize(static_cast<size_t>(batch_.tokens()));
      gradient.assign(values.size(), 0);
      program_->read(root.value, values.data());
      for (const Place& p : places_) {
        of.clear();
        for (const size_t at : p.states) of.push_back(values[at]);
        by.assign(of.size(), 0);
        loss += method.value_loss(p.row, of, by);
        for (size_t k = 0; k < by.size(); ++k) gradient[p.states[k]] = by[k];
      }
      program_->write(root.seed, gradient.data());
    });
  }
  return loss;
}

void ValueModel::save(const std::string& checkpoints, const checkpoint::TrainState& state) const {
  const std::string folder = folder_of(checkpoints);
  make_folders(folder);
  checkpoint::save_state(checkpoint::step_folder(folder, state.step), graph_, *params_, state);
}

void ValueModel::keep_beside(const std::string& checkpoints, int64_t step) const {
  const std::string folder = folder_of(checkpoints);
  const auto policies = checkpoint::saved_steps(checkpoints);
  for (const int64_t saved : checkpoint::saved_steps(folder))
    if (saved != step && std::find(policies.begin(), policies.end(), saved) == policies.end())
      checkpoint::remove_step(folder, saved);
  checkpoint::remove_partial_steps(folder);
}

void ValueModel::load(const std::string& checkpoints, const checkpoint::TrainState& state) {
  const std::string folder = checkpoint::step_folder(folder_of(checkpoints), state.step);
  if (!fs::exists(folder + "/state.json"))
    fail_input("{}: the value model's state is missing, without which step {} cannot go on: begin anew", folder,
               state.step);
  checkpoint::load_state(folder, graph_, *params_, state);
}

}  // namespace mxt::train

// train.backend: trl. The rows, their order and the rates are this program's; the weights are changed by TRL, launched
// in OUT/trainer. What it reports goes the way of the trainer's own reports.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/threads.h"
#include "data/dataset.h"
#include "exit.h"
#include "export/limits.h"
#include "export/rows.h"
#include "export/target.h"
#include "export/yaml.h"
#include "foreign.h"
#include "formats/classifier.h"
#include "optim/schedule.h"
#include "pipeline.h"
#include "trl_launcher.h"

namespace mxt::app {
namespace {

namespace ex = exporting;
using config::Backend;
constexpr const char* kScratch = ".work";  // below OUT/trainer: rows, saved states; no part of the receipt

bool is_trl(Backend b) { return b == Backend::kTrl || b == Backend::kTrlCpu; }

// Rows with the lengths of their documents, each cut at `seq_len` tokens but for labelled answers, which also stand
// behind shorter prompts, in the folder's order. Returns the tokens of each that are trained on, with their prompts.
std::vector<int64_t> write_part(const std::string& prepared, const char* part, int64_t seq_len,
                                const std::string& path) {
  std::vector<int64_t> tokens;
  const data::Dataset set = data::Dataset::open(prepared, part);
  AtomicFile out(path);
  for (int64_t i = 0; i < set.rows(); ++i) {
    const data::Row row = set.row(i);
    if (!row.pictures.empty()) fail_missing("{}: rows with pictures: train.backend trl is given none", prepared);
    std::vector<int32_t> ids, labels, documents;
    for (size_t d = 0; d + 1 < row.cu_seqlens.size(); ++d) {
      const auto first = static_cast<size_t>(row.cu_seqlens[d]);
      const int64_t whole = row.cu_seqlens[d + 1] - row.cu_seqlens[d],
                    n = row.marks.empty() ? std::min(whole, seq_len) : whole;
      const auto part_of = [&](const auto& of) { return of.subspan(first, static_cast<size_t>(n)); };
      ids.insert(ids.end(), part_of(row.ids).begin(), part_of(row.ids).end());
      labels.insert(labels.end(), part_of(row.labels).begin(), part_of(row.labels).end());
      documents.push_back(static_cast<int32_t>(n));
    }
    Json line{{"input_ids", ids}, {"labels", labels}, {"documents", documents}};
    if (!row.marks.empty()) line["mark"] = row.marks[0];
    out.write(line.dump() + "\n");
    tokens.push_back(row.marks.empty() ? static_cast<int64_t>(ids.size())
                                       : std::min(static_cast<int64_t>(ids.size()), seq_len));
  }
  out.commit();
  return tokens;
}

// What TRL is given for a method.
ex::Form form_of(config::MethodKind kind) {
  using K = config::MethodKind;
  if (kind == K::kKto) return ex::Form::kLabelled;
  return kind == K::kDpo || kind == K::kOrpo || kind == K::kReward ? ex::Form::kPair : ex::Form::kTokens;
}

// Indexes of the rows of every epoch, one epoch after another.
std::vector<uint32_t> whole_order(const config::Recipe& r, int64_t rows, int64_t epochs) {
  std::vector<uint32_t> all;
  for (int64_t e = 0; e < epochs; ++e) {
    if (r.data.shuffle) {
      const auto order = data::epoch_order(static_cast<uint64_t>(r.meta.seed), e, rows);
      all.insert(all.end(), order.begin(), order.end());
    } else {
      for (int64_t i = 0; i < rows; ++i) all.push_back(static_cast<uint32_t>(i));
    }
  }
  return all;
}

// Highest N of FOLDER/checkpoint-N; 0 where there is none. What a killed trainer left of one is removed: it would go on
// from the last, and writes trainer_state.json when all else is there.
int64_t saved_step(const std::string& folder) {
  int64_t last = 0;
  std::vector<fs::path> partial;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    const std::string name = entry.path().filename().string(), state = entry.path().string() + "/trainer_state.json";
    if (!name.starts_with("checkpoint-")) continue;
    if (fs::exists(state) && Json::accept(read_file(state)))
      last = std::max<int64_t>(last, std::atoll(name.c_str() + 11));
    else
      partial.push_back(entry.path());
  }
  for (const fs::path& left : partial) fs::remove_all(left, ec);
  return last;
}

}  // namespace

bool Pipeline::foreign() const { return recipe_.train.backend != Backend::kNative; }

void Pipeline::check_foreign() const {
  if (!foreign()) return;
  const std::string name(config::text_of(recipe_.train.backend));
  if (!is_trl(recipe_.train.backend))
    fail_missing(
        "{}: train.backend {}: this program launches trl alone: `mindxtrain export {} --for {} --out DIR` writes what "
        "{} reads",
        recipe_.source, name, o_.recipe_path, name, name);
  using K = config::MethodKind;
  const K kind = recipe_.train.method.kind;
  if (kind != K::kFull && kind != K::kLora && kind != K::kQLora && kind != K::kCpt &&
      !recipe_.train.method.is_preference())
    fail_missing(
        "{}: train.method.kind {}: with train.backend trl this program launches full, lora, qlora, cpt, dpo, orpo, kto "
        "and reward: leave train.backend out, or `mindxtrain export {} --for trl --out DIR`",
        recipe_.source, config::text_of(kind), o_.recipe_path);
  if (recipe_.hardware.gpus * recipe_.hardware.nodes > 1)
    fail_missing("{}: hardware.gpus: with train.backend trl this program launches one process", recipe_.source);
  ex::refuse_variants(recipe_, "TRL");
  // All before minutes of preparing. An adapter to begin from is launched with, whatever makes it.
  config::Recipe asked = recipe_;
  if (asked.train.method.lora) asked.train.method.lora->init_adapter.reset();
  const ex::Base base = foreign_base(recipe_, "TRL");
  ex::Job job{.recipe = asked, .base = base, .rows = {}, .out = o_.out};
  job.rows.form = form_of(kind);
  job.launched = true;
  ex::target_of("trl").settings(job);
  if (fs::exists(o_.out + "/train.json")) return;
  if (const TrlPython trl = find_trl(); kind == K::kQLora && !trl.versions.contains("bitsandbytes"))
    fail_missing(
        "{}: train.method.kind qlora: with train.backend trl it wants bitsandbytes, which {} has not: "
        "{} -m pip install bitsandbytes",
        recipe_.source, trl.python, trl.python);
}

void Pipeline::train_foreign(const train::TrainOptions& t) {
  const TrlPython trl = find_trl();
  log::info("train.backend: trl {} ({}); such a run cannot be replayed bit for bit", trl.versions.value("trl", "?"),
            trl.python);
  const std::string work = fs::absolute(o_.out).lexically_normal().string() + "/trainer",
                    scratch = work + "/" + kScratch;
  const std::string states = scratch + "/out", checkpoint = scratch + "/checkpoint";
  std::error_code ec;
  // States of other rows, another base or another recipe are no states of this run.
  const std::string key = t.recipe_digest + t.data_digest + t.base_digest, key_file = scratch + "/key";
  if (!t.resume || !fs::exists(key_file) || read_file(key_file) != key) fs::remove_all(scratch, ec);
  fs::remove_all(checkpoint, ec);
  make_folders(scratch);
  write_file_atomic(key_file, key);
  const config::Recipe made = made_recipe();
  const bool evaluates = recipe_.train.eval_every && data::has_part(data_folder_, "eval");
  const int64_t seq_len = setup_->seq_len;
  const auto tokens = write_part(data_folder_, "train", seq_len, scratch + "/train.jsonl");
  if (evaluates) write_part(data_folder_, "eval", seq_len, scratch + "/test.jsonl");
  const auto rows = static_cast<int64_t>(tokens.size());
  const int64_t per_step = setup_->rows_per_step, steps = train::total_steps(made, rows, per_step),
                per_epoch = (rows + per_step - 1) / per_step, epochs = (steps + per_epoch - 1) / per_epoch;
  const auto order = whole_order(made, rows, epochs);
  write_file_atomic(scratch + "/order.u32",
                    {reinterpret_cast<const char*>(order.data()), order.size() * sizeof(uint32_t)});

  const ex::Base base = foreign_base(recipe_, "TRL");
  ex::Job job{.recipe = made, .base = base, .rows = {}, .out = work};
  job.base.name = fs::absolute(model_path_).lexically_normal().string();
  job.rows.form = form_of(made.train.method.kind);
  job.rows.folder = scratch;
  job.rows.held_out = evaluates;
  job.launched = true;
  ex::Settings s = ex::target_of("trl").settings(job);
  for (const char* own :
       {"dataset_name", "dataset_train_split", "datasets", "test_split_size", "env", "model_revision"})
    s.yaml.erase(own);
  s.yaml["attn_implementation"] = "sdpa";
  s.yaml["output_dir"] = states;
  s.yaml["max_steps"] = steps;
  s.yaml["num_train_epochs"] = epochs;
  s.yaml["report_to"] = "none";
  s.yaml["remove_unused_columns"] = false;
  s.yaml["train_sampling_strategy"] = "sequential";  // in the order that it is given
  s.yaml.erase("precompute_ref_log_probs");          // it asks its reference in the step
  if (job.rows.form == ex::Form::kTokens) {
    s.yaml["packing"] = false;
    s.yaml["dataset_kwargs"] = {{"skip_prepare_dataset", true}};
    s.yaml["max_length"] = nullptr;
  }
  write_file_atomic(work + "/trl.yaml", ex::yaml_text(s.yaml));
  write_file_atomic(work + "/launch.py", kTrlLauncher);
  OrderedJson rates = OrderedJson::array();
  for (int64_t i = 0; i < steps; ++i)
    rates.push_back(optim::learning_rate(made.train.schedule, made.train.optimizer.lr, i, steps));
  OrderedJson j{{"settings", work + "/trl.yaml"},
                {"rows", scratch + "/train.jsonl"},
                {"eval_rows", scratch + "/test.jsonl"},
                {"order", scratch + "/order.u32"},
                {"cache", scratch + "/cache"},
                {"checkpoint", checkpoint},
                {"base_name", recipe_.model.name},
                {"method", made.train.method.is_preference() ? config::text_of(made.train.method.kind) : "sft"},
                {"max_length", seq_len},
                {"pad", std::max<int64_t>(0, formats::score_pad(setup_->model))},
                {"eos", setup_->model.eos.empty() ? 0 : setup_->model.eos[0]},
                {"saved_dtype", config::text_of(recipe_.model.torch_dtype)},
                {"rates", rates}};
  if (const std::string from = init_adapter(); !from.empty()) j["init_adapter"] = fs::absolute(from).string();
  write_file_atomic(scratch + "/job.json", j.dump(2) + "\n");
  write_file_atomic(work + "/versions.json", trl.versions.dump(2) + "\n");

  const int64_t before = saved_step(states);
  if (before > 0) log::info("resuming at step {}", before);
  t.begins();
  follow_trl(trl, {.folder = work,
                   .scratch = scratch,
                   .before = before,
                   .steps = steps,
                   .per_step = per_step,
                   .per_epoch = per_epoch,
                   .rates = rates,
                   .tokens = tokens,
                   .order = order});
  if (result_.interrupted) return;
  replace_folder(checkpoint, o_.out + "/checkpoint");
  fs::remove_all(scratch, ec);
}

// Steps come through a pipe; a signal is passed on, and the state that the child then saves is what goes on.
void Pipeline::follow_trl(const TrlPython& trl, const ForeignSteps& f) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  train::MetricsLog metrics(o_.out, f.before);
  int64_t seen = 0, row = 0, step = 0;
  const auto rows = static_cast<int64_t>(f.tokens.size());
  // Tokens of the steps up to `to`.
  const auto count_to = [&](int64_t to) {
    for (; step < to; ++step) {
      const int64_t in_epoch = step % f.per_epoch, n = std::min(f.per_step, rows - in_epoch * f.per_step);
      for (int64_t i = 0; i < n; ++i) seen += f.tokens[f.order[static_cast<size_t>(row++)]];
    }
    return seen;
  };
  count_to(f.before);
  double last_time = 0;
  std::optional<train::StepMetrics> open;  // a step whose evaluation may follow
  const auto write = [&] {
    if (!open) return;
    metrics.write(*open);
    if (open->step % recipe_.train.log_every == 0)
      log::info("step {}/{} loss {:.4f} lr {:.2e} {:.0f} tok/s", open->step, f.steps, open->loss, open->lr,
                open->tok_s);
    open.reset();
  };
  const auto take = [&](const Json& line) {
    const int64_t at = line.value("step", int64_t{0});
    if (at < 1 || at > f.steps) return;
    if (line.contains("eval_loss") && open && open->step == at) {
      open->eval_loss = line["eval_loss"].get<double>();
      if (result_.best_eval < 0 || *open->eval_loss < result_.best_eval) result_.best_eval = *open->eval_loss;
    }
    if (!line.contains("loss")) return;
    write();
    const int64_t had = seen;
    open.emplace();
    open->step = at;
    open->loss = line["loss"].get<double>();
    open->grad_norm = line.value("grad_norm", 0.0);
    open->lr = f.rates[static_cast<size_t>(at - 1)].get<double>();
    for (const auto& [key, value] : line.items())
      if (value.is_number() && key != "step" && key != "time" && key != "loss" && key != "grad_norm")
        open->method[key] = value.get<double>();
    open->tokens = count_to(at);
    const double now = line.value("time", 0.0);
    if (last_time > 0 && now > last_time) open->tok_s = static_cast<double>(seen - had) / (now - last_time);
    last_time = now;
    result_.done = at;
  };
  const int code = run_trl(trl, f.folder, f.scratch, take);
  write();
  metrics.flush();
  result_.steps = f.steps;
  result_.tokens = seen;
  result_.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  result_.tok_s = result_.seconds > 0 ? static_cast<double>(seen) / result_.seconds : 0;
  if (const auto& all = metrics.all(); !all.empty()) {
    result_.first_loss = all.front().loss;
    result_.last_loss = all.back().loss;
  }
  if (code == 4 || (code != 0 && g_stop.load())) {
    result_.interrupted = true;
    return;
  }
  if (code != 0)
    fail_input("train.backend trl: TRL ended with {}: its last line: {} (all of it: {}/log.txt)", code,
               last_line(f.folder + "/log.txt"), f.folder);
}

}  // namespace mxt::app

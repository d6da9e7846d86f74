#include "pipeline.h"

#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/host.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "checkpoint/adapter.h"
#include "checkpoint/state.h"
#include "checkpoint/weights.h"
#include "data/inputs.h"
#include "data/own_source.h"
#include "data/prepare.h"
#include "data/source/records.h"
#include "data/synth/synth.h"
#include "device/memory.h"
#include "eval/code/sandbox.h"
#include "eval/evaluate.h"
#include "eval/exact_match.h"
#include "exit.h"
#include "harness.h"
#include "home_path.h"
#include "infer/end_of_turn.h"
#include "infer/scorer.h"
#include "infer/tool_turn.h"
#include "kernels/api.h"
#include "left_out.h"
#include "machine.h"
#include "probe.h"
#include "provenance/identity.h"
#include "provenance/manifest.h"
#include "provenance/receipt.h"
#include "quantize/quantize.h"
#include "quantize_model.h"
#include "recipe_issues.h"
#include "reporter.h"
#include "reward_models.h"
#include "run_env.h"
#include "shipped.h"
#include "throttle.h"
#include "train/planned.h"
#include "train/supported.h"

namespace mxt::app {
namespace {

// Held-out requests of a synth task, and their answers.
std::vector<eval::Question> questions_of(const config::Recipe& r) {
  if (!r.data.made() || !r.eval || !r.eval->generation) return {};
  const config::Synth& s = *r.data.made();
  return synth_questions(std::string(config::text_of(s.task)), std::min(s.test_rows, r.eval->generation->limit),
                         static_cast<uint64_t>(s.seed.value_or(r.meta.seed)));
}

// What training writes beside the checkpoint, and nothing makes again.
constexpr const char* kTrainingLogs[] = {"metrics.jsonl", "loss.svg"};

// Without a tokenizer answers are given, and end where the model's configuration says.
std::vector<int32_t> answer_ends(const TokenizerBundle& text, const formats::ModelConfig& model) {
  return text.tok ? infer::end_of_turn(*text.tok, text.chat.get(), model)
                  : std::vector<int32_t>(model.eos.begin(), model.eos.end());
}

}  // namespace

void take_run_folder(Pipeline::Options& o) {
  if (!o.out.empty()) return;
  o.recipe = load_recipe(o.recipe_path);
  std::string name = o.recipe->meta.run_name;
  std::replace(name.begin(), name.end(), '/', '_');
  if (name.find_first_not_of('.') == std::string::npos)
    fail_input("{}: meta.run_name \"{}\" makes no folder's name: give --out", o.recipe_path, name);
  o.out = "out/" + name;
  log::info("--out: {}", o.out);
}

std::string folder_digest(const std::string& folder) {
  if (!fs::exists(folder)) return "";
  if (fs::is_regular_file(folder)) return hash_file(folder).blake3;
  Blake3 h;
  for (const std::string& f : list_entries(folder))
    h.update(f + " " + (fs::is_regular_file(folder + "/" + f) ? hash_file(folder + "/" + f).blake3 : "no file") + "\n");
  return h.hex();
}

namespace {

// Every byte of its shards is what its manifest says.
void verify_dataset(const std::string& folder) {
  for (const char* part : {"train", "eval"}) {
    if (!data::has_part(folder, part)) continue;
    if (data::is_windows(folder))
      data::WindowDataset::open(folder, part, true);
    else
      data::Dataset::open(folder, part, true);
  }
}

void require_prepared(const std::string& folder) {
  if (!fs::exists(folder + "/dataset.json"))
    fail_input(
        "{}: is no prepared dataset (it has no dataset.json): make one with `mindxtrain dataset prep RECIPE --out {}`",
        folder, folder);
}

// The run's folder holds its data, so that its receipt covers them: files of a prepared folder are linked into it, or
// copied where they lie on another disk.
void adopt_dataset(const std::string& from, const std::string& to) {
  const char* name = "/dataset.json";
  std::error_code ec;
  if (fs::equivalent(from, to, ec)) return;
  verify_dataset(from);
  const auto files = list_files(from);
  const auto same = [&](const std::string& f) {
    return fs::exists(to + "/" + f) && hash_file(to + "/" + f).blake3 == hash_file(from + "/" + f).blake3;
  };
  if (fs::exists(to + name) && read_file(to + name) == read_file(from + name) &&
      std::all_of(files.begin(), files.end(), same))
    return;
  const std::string part = to + ".part";
  fs::remove_all(part, ec);
  for (const std::string& f : files) {
    make_folders(fs::path(part + "/" + f).parent_path().string());
    fs::create_hard_link(from + "/" + f, part + "/" + f, ec);
    if (ec) fs::copy_file(from + "/" + f, part + "/" + f, ec);
    if (ec) fail_input("{}/{}: cannot be copied to {}: {}", from, f, part, ec.message());
  }
  replace_folder(part, to);
}

// The GPUs that this process may see, the first of them that the recipe asks for.
provenance::EnergySources energy_sources(const config::Hardware& h) {
  provenance::EnergySources s;
  if (h.cpu_lane() || h.name == config::GpuName::kCpu) return s;
  s.amd = config::is_mi300_class(h.name);
  const std::string visible = environment(s.amd ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES");
  for (const std::string_view gpu : split(visible, ','))
    if (!trim(gpu).empty()) s.gpus.emplace_back(trim(gpu));
  for (int64_t n = 0; visible.empty() && n < h.gpus; ++n) s.gpus.push_back(std::to_string(n));
  s.gpus.resize(std::min(s.gpus.size(), static_cast<size_t>(h.gpus)));
  return s;
}

}  // namespace

Pipeline::Pipeline(const Options& o)
    : o_(o), recipe_(o.recipe ? *o.recipe : load_recipe(o.recipe_path)), meter_(energy_sources(recipe_.hardware)) {
  apply_throttle(recipe_, o.threads);
  if (const std::string slow = slow_processor(); !slow.empty() && recipe_.hardware.cpu_lane()) log::warn("{}", slow);
  data::refuse_own_source(recipe_.data, o_.out + "/dataset");  // before its first file lies there
  recipe_digest_ = config::recipe_hash(recipe_);
  take_folder();
  if (const std::string usage = o_.out + "/usage.json"; fs::exists(usage)) {
    spent_before_ = Json::parse(read_file(usage), nullptr, false);
    if (!spent_before_.is_object()) spent_before_ = Json(Json::value_t::discarded);
  }
  for (const char* folder : {"dataset", "checkpoint", "eval", "quantized"})
    if (fs::is_symlink(fs::symlink_status(o_.out + "/" + folder)))
      fail_input(
          "{}/{}: is a symbolic link, and a receipt covers a folder that holds its files itself: make --out the link, "
          "or remove this one",
          o_.out, folder);
  if (o_.write_receipt) provenance::check_receipt_place(recipe_.receipt);  // before hours of training, not after
  if (recipe_.receipt.sign_key && o_.sign)
    key_ = provenance::load_key(home_path(*recipe_.receipt.sign_key), key_passphrase);
  record_ = std::make_unique<RunRecord>(recipe_, o_.out, o_.verb);
  for (const std::string& line : config::off_stages(recipe_)) log::info("{}", line);
  for (const std::string& line : config::hints(recipe_)) log::info("{}", line);
  // What cannot be is refused before anything is fetched or opened for it.
  check_foreign();
  if (o_.report && !fs::exists(o_.out + "/train.json")) require_trackers(recipe_);
  if (std::string_view(o_.verb) == "run" && recipe_.eval && recipe_.eval->generation && !recipe_.data.made())
    fail_missing(
        "{}: eval.generation: this build asks for the answers to a synth task's rows alone; for other rows name a task "
        "that reads them in eval.harness.tasks",
        recipe_.source);
  if (std::string_view(o_.verb) == "run") require_layout(recipe_);
  require_trainable(recipe_, o_.data.empty());
  // A mistyped path is told before a minute of measuring.
  if (o_.data.empty() && recipe_.data.source == config::DataSource::kLocal && recipe_.data.path)
    data::find_source_files(*recipe_.data.path, recipe_.data.split);
  if (!o_.plan_path.empty()) {
    const auto env = kernels::plan_from_json(read_file(o_.plan_path), o_.plan_path).env;
    try {
      set_environment(config::check_plan_env(recipe_, env));
    } catch (const Error& e) {
      throw Error(e.code(), o_.plan_path + ": " + e.what());
    }
  } else {
    set_environment(recipe_.train.env);
  }
  if (recipe_.train.backend == config::Backend::kNative) {
    train::require_supported(recipe_);
    train::backend_of(recipe_)->open();  // a GPU that cannot be used is said before gigabytes are fetched for it
  }
  for (const std::string& judge : judges_of(recipe_.train.method))
    if (!judge.starts_with(kMadeBefore)) judges_fetched_[judge] = require_reward_model(judge, Fetch::kAllowed);
  if (!recipe_.model.name.starts_with(kMadeBefore)) open_model();
}

void Pipeline::open_model() {
  model_path_ = resolve_model(made_recipe());
  text_ = text_side_of(recipe_, model_path_);
}

// Of a plan from elsewhere: choices that are looked up by no call of this step (another shape, a misspelt name).
void Pipeline::say_unused_choices(const std::string& path) const {
  if (path != o_.plan_path) return;
  const auto setup = train::make_setup(made_recipe(), model_path_, vocabulary_of(text_), &plan_);
  const std::vector<std::string> unused = train::unused_choices(plan_, *setup, *backend_.ops);
  if (!unused.empty())
    log::warn("{}: {} of its choices are for calls that this step has not: {}{}", path, unused.size(), unused.front(),
              unused.size() > 1 ? ", …" : "");
}

void Pipeline::plan() {
  record_->stage("plan");
  const std::string kept = o_.out + "/plan.json";
  setup_ = train::make_setup(made_recipe(), model_path_, vocabulary_of(text_), nullptr);
  if (std::string_view(o_.verb) == "run" && quantizes())  // what a training cannot end in is no work for it
    quantize::check_layout(recipe_.quantize->scheme, setup_->model, text_.tok != nullptr, recipe_.model.name);
  if (const std::string from = init_adapter(); !from.empty())
    checkpoint::check_adapter(from, setup_->training_graph(), setup_->lora, setup_->model.family);
  if (recipe_.train.method.mask_truncated_completions && answer_ends(text_, setup_->model).empty())
    fail_input(
        "{}: train.method.mask_truncated_completions: {} has no end token (of its tokenizer, config.json or chat "
        "template), so no answer is known to be cut off: remove it, or name one",
        recipe_.source, recipe_.model.name);
  backend_ = train::open_backend(*setup_);
  const auto device = train::identity_of(backend_, num_threads());
  std::string from = o_.plan_path;
  if (from.empty() && fs::exists(kept)) from = kept;
  if (const std::string& measured = recipe_.autotune.plan_path;
      from.empty() && measured != config::Autotune{}.plan_path) {
    if (fs::is_regular_file(measured))
      log::info("autotune.plan_path: {} is there, and --plan {} would take it; this run makes its own ({})", measured,
                measured, kept);
    else
      log::info("autotune.plan_path: {} is what `bench` writes; this run's plan stands in {}", measured, kept);
  }
  if (!from.empty()) {
    const std::string bytes = read_file(from);
    plan_ = kernels::plan_from_json(bytes, from);
    auto differences = train::differences(plan_, device, *setup_);
    // Saved steps go on with the plan that they were made with: a new one in its place would strand them.
    const bool needed = o_.resume && !checkpoint::saved_steps(o_.out + "/checkpoints").empty();
    if (differences.empty()) {
      const auto planned = train::make_setup(made_recipe(), model_path_, vocabulary_of(text_), &plan_);
      const std::string open = train::open_choices(plan_, *planned, *backend_.ops);
      if (!open.empty() && needed)
        log::warn("{}: {}; the saved steps go on with this build's defaults there", from, open);
      else if (!open.empty())
        differences.push_back(open);
    }
    if (!differences.empty() && from == kept && o_.plan_path.empty() && !needed) {
      log::info("the plan of {} does not fit this machine any more ({}): made anew", o_.out, differences.front());
      from.clear();
    } else if (!differences.empty()) {
      fail_input("{}: the plan does not fit: {}", from, fmt::join(differences, "; "));
    } else {
      config::check_plan_env(recipe_, plan_.env);
      say_unused_choices(from);
      if (from != kept && needed && fs::exists(kept) &&
          kernels::plan_choices(plan_) != kernels::plan_choices(kernels::plan_from_json(read_file(kept), kept)))
        fail_input("{}: is another plan than the one that {} has saved steps with: resume without --plan", from,
                   o_.out);
      if (from != kept) write_file_atomic(kept, bytes);
    }
  }
  if (from.empty()) {
    if (recipe_.autotune.enabled && !foreign()) {
      log::info("probe: at most {} s", recipe_.autotune.budget_seconds);
      const auto report = measured_plan(*setup_, !threads_given(o_.threads), false);
      plan_ = report.plan;
      const std::string table = table_of(report, setup_->rows_per_step, setup_->seq_len);  // outlives the lines' views
      for (std::string_view line : split(table, '\n'))
        if (!line.empty()) log::info("{}", line);
    } else {
      plan_ = reference_plan(*setup_);
    }
    write_file_atomic(kept, kernels::to_json(plan_));
  }
  plan_digest_ = blake3_hex(kernels::plan_choices(plan_));
  if (const auto n = plan_.choices.find("step threads"); n != plan_.choices.end() && !threads_given(o_.threads)) {
    set_num_threads(std::min(std::atoi(n->second.c_str()), num_threads()));
  }
  const auto pinning = plan_.choices.find("step pinning");
  pin_threads(pinning != plan_.choices.end() && pinning->second == "cores" && may_pin(recipe_));
  setup_ = train::make_setup(made_recipe(), model_path_, vocabulary_of(text_), &plan_);
  if (std::string_view(o_.verb) == "run") require_report_fits(*setup_);
}

void Pipeline::prepare() {
  record_->stage("dataset");
  data_folder_ = o_.out + "/dataset";
  if (!o_.data.empty()) {
    require_prepared(o_.data);
    const auto coder = make_coder(text_, setup_->model.vocab_size);
    if (const std::string other = data::compare_settings(o_.data, recipe_, *coder); !other.empty())
      fail_input("{}: was prepared with other settings than this recipe's: {}", o_.data, other);
    if (const std::string other = data::compare_rows(o_.data, recipe_, *coder, data_access(recipe_)); !other.empty())
      fail_input("{}: was prepared from other rows than this recipe's: {}", o_.data, other);
    adopt_dataset(o_.data, data_folder_);
  } else {
    const std::string made = "dataset/dataset.json";
    if (fs::exists(o_.out + "/" + made) && noted(made) && !is_as_left(made)) {
      log::warn("{}/{}: was changed since it was made: the data are prepared again", o_.out, made);
      fs::remove(o_.out + "/" + made);
    }
    const auto coder = make_coder(text_, setup_->model.vocab_size);
    // Steps that cannot go on with other data are not worth the data that they were saved with.
    if (std::string_view(o_.verb) == "train" && o_.resume && fs::exists(o_.out + "/" + made) &&
        !checkpoint::saved_steps(o_.out + "/checkpoints").empty())
      if (const std::string other = data::compare_rows(data_folder_, recipe_, *coder, data_access(recipe_));
          !other.empty())
        fail_input("{}: the steps to resume from were saved with other data than there are now: {}", o_.out, other);
    const data::Prepared p = data::prepare(recipe_, *coder, data_folder_, data_access(recipe_));
    if (p.kept) log::info("dataset: {} (kept)", p.text());
    if (!p.kept || !noted(made)) note(made);
    if (learned_from_ && !learned_from_->are_those_of(data_folder_))
      fail_input(
          "{}: the rows of {} have changed since the tokenizer was learned from them: run it again, which learns "
          "it anew",
          recipe_.source, learned_from_->name());
  }
  // What preparing needs beside its result, and leaves where it was killed at its end: no part of what the receipt
  // covers.
  std::error_code ec;
  for (const char* left : {"/.lock", "/.work"}) fs::remove_all(data_folder_ + left, ec);
  data_digest_ = blake3_hex(read_file(data_folder_ + "/dataset.json"));
  malloc_trim(0);  // what preparing took is no part of what training was planned to take
}

std::string Pipeline::base_digest() {
  if (base_digest_.empty()) {
    std::string all = setup_->model.raw ? setup_->model.raw->dump() : "";
    if (setup_->weights) all += base_weights_ = setup_->weights->digest_text();
    if (const std::string from = init_adapter(); !from.empty()) all += folder_digest(from);
    for (const std::string& judge : reward_models()) all += folder_digest(judge);
    base_digest_ = blake3_hex(all);
  }
  return base_digest_;
}

std::string Pipeline::train_record() {
  OrderedJson j;
  j["recipe"] = recipe_digest_;
  j["base"] = base_digest();
  j["plan_choices"] = plan_digest_;
  j["dataset"] = data_digest_;
  j["checkpoint"] = folder_digest(o_.out + "/checkpoint");
  return j.dump(2) + "\n";
}

train::RewardServices Pipeline::reward_services(int64_t longest) {
  train::RewardServices out;
  out.run_programs = [](const std::vector<std::string>& programs, double seconds, StopFlag stop) {
    return eval::run_python_programs(programs, {.seconds = seconds}, stop);
  };
  out.program_path = environment("PATH");
  out.open_model = [this, longest](const std::string& folder) {
    return open_reward_model(folder, *text_.tok, setup_->type, longest, *backend_.ops);
  };
  return out;
}

// What the recipe's rewards say of the greedy answers to held-out requests, on average.
OrderedJson Pipeline::held_out_reward(const eval::ExactMatch& e) {
  std::vector<train::Answer> answers;
  std::vector<train::Completion> worth(e.samples.size());
  std::vector<train::Completion*> to;
  size_t longest = 1;
  for (const auto& s : e.samples) {
    std::vector<int32_t> whole = s.prompt;
    whole.insert(whole.end(), s.ids.begin(), s.ids.end());
    longest = std::max(longest, whole.size());
    answers.push_back({text_.tok->decode(s.prompt), s.got, s.expected, static_cast<int64_t>(s.ids.size()), whole});
  }
  for (train::Completion& c : worth) to.push_back(&c);
  train::Rewards(made_recipe().train.method, reward_services(static_cast<int64_t>(longest)))
      .score(answers, to, &g_stop);
  double sum = 0;
  int64_t rows = 0;
  for (const train::Completion& c : worth)
    if (c.reward) sum += *c.reward, ++rows;
  return {{"rows", rows}, {"mean", rows > 0 ? OrderedJson(sum / static_cast<double>(rows)) : OrderedJson()}};
}

bool Pipeline::train() {
  record_->stage("train");
  const std::string record = o_.out + "/train.json";
  if (o_.resume_from < 0 && fs::exists(record) && fs::exists(o_.out + "/checkpoint") &&
      read_file(record) == train_record()) {
    log::info("training: already finished, kept");
    return true;
  }
  train::TrainOptions t;
  t.out = o_.out;
  t.data = data_folder_;
  t.recipe_digest = config::hash_without_hardware(recipe_);
  t.plan_digest = plan_digest_;
  t.data_digest = data_digest_;
  t.base_digest = base_digest();
  t.resume = o_.resume;
  t.resume_from = o_.resume_from;
  t.stop = &g_stop;
  t.on_step = o_.on_step;
  if (recipe_.train.method.is_rl() && text_.tok) {
    t.decode = [tok = text_.tok](std::span<const int32_t> ids) { return tok->decode(ids); };
    t.ends = answer_ends(text_, setup_->model);
    t.rewards = reward_services(setup_->seq_len);
    const config::Method& m = recipe_.train.method;
    t.tools.run = [](const std::string& source, const std::vector<std::string>& argv, const std::string& input,
                     double seconds) { return eval::run_python_tool(source, argv, input, {.seconds = seconds}); };
    if (!m.tools.empty() && text_.chat) {
      const auto turn = std::make_shared<infer::ToolTurn>(text_.tok, text_.chat, m.max_result_tokens);
      t.tools.cut = [turn](const std::string& result) { return turn->cut(result); };
      t.tools.turn = [turn](const auto& calls, const auto& results) { return turn->after(calls, results); };
    }
  }
  // What was measured and made of an earlier checkpoint is no part of a run that ends in another. `run` has measured
  // the base just now; `train` measures nothing.
  t.begins = [&] {
    std::error_code ec;
    fs::remove(record, ec);
    for (const char* stale : {"/quantize.json", "/quantized", "/eval/after", "/eval/after.json"})
      fs::remove_all(o_.out + stale, ec);
    if (std::string_view(o_.verb) == "train") fs::remove_all(o_.out + "/eval", ec);
    malloc_trim(0);  // nor what laying out the programs took
  };
  // `run` does again what its inputs have changed for; who asks to resume is told instead.
  const std::string steps = o_.out + "/checkpoints";
  if (const auto saved = checkpoint::saved_steps(steps); std::string_view(o_.verb) == "run" && !saved.empty()) {
    const checkpoint::TrainState now{.recipe = t.recipe_digest,
                                     .plan_choices = t.plan_digest,
                                     .dataset = t.data_digest,
                                     .base = t.base_digest,
                                     .device = std::string(setup_->backend->kind)};
    const std::string other = checkpoint::other_than(checkpoint::step_folder(steps, saved.back()), now);
    if (other == "dataset" || other.starts_with("base")) {
      log::info("{}: the saved steps are of another {}: training begins anew", o_.out, other);
      t.resume = false;
    }
  }
  std::optional<Reporter> reporter;
  if (o_.report) reporter.emplace(recipe_, o_.out);
  if (foreign())
    train_foreign(t);
  else
    result_ = train::train(*setup_, plan_, *backend_.ops, t);
  if (reporter) reporter->finish(!result_.interrupted);
  if (result_.interrupted) {
    log::info("stopped at step {} of {}, state saved: the same command{} goes on", result_.done, result_.steps,
              std::string_view(o_.verb) == "train" ? " with --resume" : "");
    record_->end(registry::State::kStopped, metrics(), nullptr);
    return false;
  }
  if (!setup_->has_lora && setup_->weights && !foreign())
    say_left_out(setup_->training_graph(), *setup_->weights, o_.out + "/checkpoint");
  if (!setup_->has_lora && text_.tok) save_text_side(text_, o_.out + "/checkpoint");
  if (setup_->has_lora && text_.tok && !own_templates(text_)) save_template(text_, o_.out + "/checkpoint");
  // How the base was meant to be sampled, and where its answers end; how it is shown pictures.
  for (const char* name : {"generation_config.json", "preprocessor_config.json", "processor_config.json"})
    if (const std::string how = model_path_ + "/" + name; !setup_->has_lora && fs::is_regular_file(how))
      write_file_atomic(o_.out + "/checkpoint/" + name, read_file(how));
  if (!setup_->has_lora) save_processor();
  write_file_atomic(record, train_record());
  for (const char* log : kTrainingLogs)
    if (fs::exists(o_.out + "/" + log)) note(log);
  trained_now_ = true;
  return true;
}

// Pictures are shown to the trained model as they were in training: what its base has no file of, or the recipe sized.
void Pipeline::save_processor() {
  if (!setup_->processor) return;
  const config::Pictures& sized = recipe_.data.pictures;
  const auto path = [&](const char* name) { return o_.out + "/checkpoint/" + name; };
  const std::string plain = path("preprocessor_config.json"), nested = path("processor_config.json");
  const bool there = fs::is_regular_file(plain);
  if (!sized.min_pixels && !sized.max_pixels && (there || fs::is_regular_file(nested))) return;
  const auto write = [](const std::string& file, const OrderedJson& j) {
    write_file_atomic(file, json_text(j, 2) + "\n");
  };
  if (fs::is_regular_file(nested)) {
    OrderedJson j = parse_ordered_json(read_file(nested), nested);
    if (j.contains("image_processor"))
      write(nested, (j["image_processor"] = image::processor_to_json(*setup_->processor, j["image_processor"]), j));
  }
  write(plain, image::processor_to_json(*setup_->processor,
                                        there ? parse_ordered_json(read_file(plain), plain) : OrderedJson::object()));
}

bool Pipeline::evaluate(bool after) {
  if (!recipe_.eval) return true;
  record_->stage(after ? "eval" : "eval before");
  const auto questions = questions_of(recipe_);
  const bool perplexity = recipe_.eval->perplexity_path.has_value();
  const bool base = recipe_.eval->bits_per_byte || (after && (recipe_.eval->core || recipe_.eval->chat_core));
  if (questions.empty() && !perplexity && !base) return true;
  if (!after && recipe_.model.init == config::Init::kRandom) return true;
  make_folders(o_.out + "/eval");
  const std::string name = after ? "after.json" : "before.json", path = o_.out + "/eval/" + name;
  const std::string model = after && !setup_->has_lora ? o_.out + "/checkpoint" : model_path_;
  const std::string adapter = after && setup_->has_lora ? o_.out + "/checkpoint" : after ? "" : init_adapter();
  const std::string inputs = blake3_hex(
      recipe_digest_ + plan_digest_ + base_digest() + make_coder(text_, setup_->model.vocab_size)->digest() +
      (perplexity ? hash_file(shipped_file(*recipe_.eval->perplexity_path)).blake3 : std::string("no text")) +
      (base ? data_digest_ + folder_digest(recipe_.eval->core.value_or("")) +
                  folder_digest(recipe_.eval->chat_core.value_or(""))
            : "") +
      (after ? folder_digest(o_.out + "/checkpoint") : std::string("base")));
  if (fs::exists(path)) {
    const Json j = Json::parse(read_file(path), nullptr, false);
    if (j.is_object() && j.value("inputs", Json()) == Json(inputs) && is_as_left("eval/" + name)) return true;
  }
  OrderedJson out;
  out["inputs"] = inputs;
  if (base && !measure_base(after, &out)) return false;
  infer::Model m(model, adapter, setup_->type, 2048, *backend_.ops, infer::Weights::kForMany);
  if (!questions.empty()) {
    if (!text_.tok || !text_.chat)
      fail_input("{}: eval.generation: the model has no chat template to ask with", recipe_.source);
    const config::Generation& g = *recipe_.eval->generation;
    const eval::AnswerSettings how{g.max_tokens, g.samples, static_cast<uint64_t>(recipe_.meta.seed),
                                   asks_with_pictures(text_)};
    const eval::ExactMatch e = eval::exact_match(m, *text_.tok, *text_.chat, questions, how, &g_stop);
    out.update(exact_match_json(e, g.match));
    // Answers here have one turn: they are not what a policy with tools is rewarded for.
    if (const config::Method& t = recipe_.train.method; t.is_rl() && t.tools.empty() && !recipe_.train.rollouts.path)
      out["reward"] = held_out_reward(e);
    OrderedJson samples = OrderedJson::array();
    for (const auto& s : e.samples)
      samples.push_back({{"messages", parse_ordered_json(s.question, path)},
                         {"expected", s.expected},
                         {"got", s.got},
                         {"exact", s.exact}});
    out["samples"] = samples;
  }
  if (perplexity) {
    const std::string& file = *recipe_.eval->perplexity_path;
    if (!text_.tok) fail_input("{}: eval.perplexity_path: the model's folder has no tokenizer", recipe_.source);
    const auto ids = text_.tok->encode(read_file(shipped_file(file)));
    if (ids.size() < 2) fail_input("{}: eval.perplexity_path: {} is too short to score", recipe_.source, file);
    infer::Scorer scorer(m, 1024);
    out["perplexity"] = {{"file", file}, {"tokens", ids.size()}, {"value", scorer.perplexity(ids, 1024, &g_stop)}};
  }
  write_file_atomic(path, out.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  note("eval/" + name);
  const Score s = read_score(path);
  log::info("eval {}: {}", after ? "after" : "before", s.text());
  return true;
}

// OUT/pieces.json holds the digest of what was finished: a piece that was edited or cut since is made again, never put
// under a new manifest.
Json Pipeline::noted_pieces() const {
  const std::string path = o_.out + "/pieces.json";
  const Json j = fs::exists(path) ? Json::parse(read_file(path), nullptr, false) : Json();
  return j.is_object() ? j : Json::object();
}

bool Pipeline::noted(const std::string& piece) const { return noted_pieces().contains(piece); }

bool Pipeline::is_as_left(const std::string& piece) const {
  return noted_pieces().value(piece, Json()) == Json(folder_digest(o_.out + "/" + piece));
}

void Pipeline::note(const std::string& piece) const {
  Json j = noted_pieces();
  j[piece] = folder_digest(o_.out + "/" + piece);
  write_file_atomic(o_.out + "/pieces.json", j.dump(2) + "\n");
}

bool Pipeline::harness_asked() const { return recipe_.eval && !recipe_.eval->harness.tasks.empty(); }

bool Pipeline::harness(bool after) {
  if (!harness_asked()) return true;
  const config::Harness& h = recipe_.eval->harness;
  HarnessRequest r;
  r.tasks = h.tasks;
  r.task_path = h.task_path.value_or("");
  r.fewshot = h.fewshot;
  r.limit = h.limit.value_or(0);
  r.type = setup_->type;
  if (setup_->backend->own_memory) r.device = config::text_of(recipe_.hardware.name);
  if (!after) {  // before hours of training, not after
    check_harness(r);
    const std::string& baseline = recipe_.eval->regression.baseline;
    if (!baseline.empty() && baseline != recipe_.model.name) check_baseline(baseline);
  }
  if (!after && recipe_.model.init == config::Init::kRandom) return true;
  r.model = after && !setup_->has_lora ? o_.out + "/checkpoint" : model_path_;
  r.adapter = after && setup_->has_lora ? o_.out + "/checkpoint" : after ? "" : init_adapter();
  r.model_name = after ? recipe_.meta.run_name : recipe_.model.name;
  r.out = o_.out + (after ? "/eval/after" : "/eval/before");
  make_folders(o_.out + "/cache");  // outside eval/, whose digest must not tell how often a run was interrupted
  r.cache = o_.out + (after ? "/cache/eval_after.jsonl" : "/cache/eval_before.jsonl");
  r.inputs = blake3_hex(recipe_digest_ + base_digest() + harness_digest(r) +
                        (after ? folder_digest(o_.out + "/checkpoint") : std::string("base")));
  r.stamped = false;
  const std::string piece = after ? "eval/after" : "eval/before";
  std::error_code ec;
  if (!is_as_left(piece)) fs::remove_all(r.out, ec);  // its answers are in the cache
  const auto results = run_harness(r, text_);
  if (!results) return false;
  note(piece);
  log::info("eval {}:\n{}", after ? "after" : "before", eval::results_table(*results));
  const config::Regression& gate = recipe_.eval->regression;
  if (after && !gate.baseline.empty()) {
    const std::string before = o_.out + "/eval/before/results.json";
    const bool base = gate.baseline == recipe_.model.name && fs::exists(before);  // measured already
    gate_failed_ = !regression_gate(r, *results, base ? before : gate.baseline, gate.threshold_pct);
    if (g_stop) return false;
  }
  return true;
}

void Pipeline::require_gate() const {
  if (gate_failed_)
    fail_verify("{}: eval.regression: a score fell below {} by more than threshold_pct = {} allows", recipe_.source,
                recipe_.eval->regression.baseline, recipe_.eval->regression.threshold_pct);
}

void Pipeline::manifest() {
  record_->stage("manifest");
  provenance::ManifestBuilder b(o_.out);
  b.set_recipe(recipe_);
  b.add_file("recipe", "recipe.yaml");
  b.add_file("plan", "plan.json");
  b.add_value("plan_choices", Json::parse(kernels::plan_choices(plan_)));
  if (fs::exists(o_.out + "/program.txt")) b.add_file("program", "program.txt");
  if (recipe_.model.tokenizer == "train") b.add_folder("tokenizer", "tokenizer");
  b.add_folder("dataset", "dataset");
  if (!before_.empty()) b.add_folder(recipe_.model.name.starts_with(kMadeBefore) ? "base" : "init_adapter", before_);
  for (const auto& [named, made] : judges_before_)
    b.add_folder("reward_model " + fs::path(made).parent_path().filename().string(), made);
  b.add_folder("checkpoint", "checkpoint");
  if (fs::exists(o_.out + "/eval") && !list_files(o_.out + "/eval").empty()) b.add_folder("eval", "eval");
  if (quantizes() && fs::exists(o_.out + "/quantized")) b.add_folder("quantized", "quantized");
  Json identities = provenance::build_identity();
  const auto d = train::identity_of(backend_, num_threads());
  identities["device"] = {{"kind", d.kind}, {"name", d.name}, {"arch", d.arch}, {"threads", d.threads}};
  identities["libraries"] = d.libraries;
  // An image does not know its own digest: whoever starts it says (ops/).
  if (const std::string digest = environment("MINDXTRAIN_CONTAINER_DIGEST"); !digest.empty())
    identities["container_digest"] = digest;
  if (setup_->weights) identities["base_model"] = {{"name", recipe_.model.name}, {"weights", base_weights_}};
  identities.update(method_inputs());
  if (foreign()) {
    b.add_folder("trainer", "trainer");
    identities["trainer"] = {{"name", "trl"},
                             {"versions", read_json_file(o_.out + "/trainer/versions.json")},
                             {"replay", "not bit for bit: another program trained"}};
  }
  b.set("identities", identities);
  if (const Json r = results(); !r.empty()) b.set("results", r);
  const Json used = usage();
  b.set("energy", used.value("energy", Json()));
  b.set("environment", {{"finished", used.value("finished", Json())},
                        {"host", host_name()},
                        {"run_seconds", used.value("run_seconds", Json())},
                        {"cost_usd", used.value("cost_usd", Json())},
                        {"price", used.value("price", Json())},
                        {"train_seconds", used.value("train_seconds", Json())},
                        {"tok_s", used.value("tok_s", Json())},
                        {"decisions_in_loop", used.value("decisions_in_loop", Json())},
                        {"peak_memory_bytes", used.value("peak_memory_bytes", Json())}});
  for (const char* record : kTrainingLogs) {
    if (noted(record) && !is_as_left(record))
      fail_verify(
          "{}/{}: was changed since training wrote it, and a manifest over it would say what was not: restore it",
          o_.out, record);
    if (fs::exists(o_.out + "/" + record)) b.add_record(record);
  }
  if (fs::exists(o_.out + "/tensorboard"))
    for (const std::string& f : list_files(o_.out + "/tensorboard")) b.add_record("tensorboard/" + f);
  b.write(key_);
  const std::string path = o_.out + "/manifest.json";
  const auto report = provenance::verify(path, {.of_a_run = true, .stop = &g_stop});
  provenance::require_verified(report, path);
  const OrderedJson receipt = provenance::make_receipt(read_json_file(path), recipe_.receipt);
  write_file_atomic(o_.out + "/" + provenance::kReceiptName, receipt.dump(2) + "\n");
  if (o_.write_receipt) provenance::write_receipt(receipt, recipe_.receipt);
  Json digests = Json::object();
  const Json written = read_json_file(path);
  for (const Json& subject : written["subject"])
    digests[subject["name"].get<std::string>()] = subject["digest"]["blake3"];
  record_->end(registry::State::kFinished, metrics(), digests);
}

}  // namespace mxt::app

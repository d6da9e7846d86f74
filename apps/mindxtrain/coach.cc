#include "coach.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "answers.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/builtin.h"
#include "config/recipe_file.h"
#include "cost.h"
#include "data/prepare.h"
#include "data/preview.h"
#include "data/source/absent.h"
#include "estimate.h"
#include "machine.h"
#include "model_files.h"
#include "net/hub.h"
#include "recipe_issues.h"
#include "run_record.h"
#include "serve/api_error.h"
#include "shipped.h"
#include "version.h"

namespace mxt::app {
std::string answer_text(const OrderedJson& j) { return j.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

namespace {

constexpr int64_t kPreviewRows = 64;
constexpr size_t kMaxRecipe = config::kMaxRecipeBytes;

// The comment that a recipe begins with, whole (head() is its first line).
std::string lead_of(std::string_view text) {
  std::string out;
  for (std::string_view line : split(text, '\n')) {
    if (!line.starts_with('#')) break;
    line = trim(line.substr(1));
    out += (out.empty() ? "" : " ") + std::string(line);
  }
  return out;
}

// What of a recipe a list shows.
OrderedJson outline(const config::Recipe& r) {
  return {{"project", r.meta.project},
          {"run_name", r.meta.run_name},
          {"description", r.meta.description},
          {"hardware", r.hardware.cpu_lane() ? "cpu" : std::string(config::text_of(r.hardware.name))},
          {"gpus", r.hardware.gpus},
          {"model", r.model.init == config::Init::kRandom ? std::string("random weights") : r.model.name},
          {"method", std::string(config::text_of(r.train.method.kind))},
          {"seq_len", r.data.seq_len},
          {"rows_per_step", r.train.batch.per_device * r.train.batch.grad_accum}};
}

}  // namespace

CoachDesk::CoachDesk(Roots roots, Jobs* jobs, std::vector<std::string> models)
    : roots_(std::move(roots)),
      jobs_(jobs),
      models_(std::move(models)),
      registry_path_(registry_path()),
      scratch_((fs::temp_directory_path() / fmt::format("mindxtrain-coach-{}", ::getpid())).string()),
      trial_(scratch_) {}

CoachDesk::~CoachDesk() {
  trial_.stop();
  std::error_code ec;
  fs::remove_all(scratch_, ec);
}

std::string CoachDesk::about() {
  return answer_text({{"version", kVersion},
                      {"jobs", jobs_ != nullptr},
                      {"models", models_},
                      {"folder", fs::current_path().string()}});
}

std::string CoachDesk::recipes() {
  OrderedJson list = OrderedJson::array();
  for (const auto& b : config::builtin_recipes()) {
    config::Recipe r;
    OrderedJson j{{"name", b.name}, {"head", lead_of(b.text)}};
    if (config::check_recipe(b.text, b.name, &r, this_machine).empty()) {
      j.update(outline(r));
      j["trainable"] = trainable_here(r).reason;  // "": here, by this build; else why not
    }
    list.push_back(std::move(j));
  }
  return answer_text(list);
}

std::string CoachDesk::recipe(const std::string& name) {
  const auto& b = config::builtin_recipe(name);
  return answer_text({{"name", b.name}, {"head", lead_of(b.text)}, {"text", b.text}});
}

std::string CoachDesk::schema() { return config::schema().dump(); }

std::string CoachDesk::check(const std::string& text) {
  if (text.size() > kMaxRecipe) serve::refuse("recipe", "a recipe of more than {} bytes", kMaxRecipe);
  config::Recipe r;
  auto issues = config::check_recipe(text, "recipe", &r, this_machine);
  const bool valid = issues.empty();
  if (valid) issues = roots_.outside(r);
  if (valid && issues.empty()) issues = stage_issues(r);  // which looks into files
  OrderedJson j = check_answer(issues, r);
  // "what is wrong; what to do"
  for (auto& i : j["issues"]) {
    const auto what = i["what"].get<std::string>();
    const size_t semicolon = what.find("; ");
    i["remedy"] = semicolon == std::string::npos ? "" : what.substr(semicolon + 2);
    if (semicolon != std::string::npos) i["what"] = what.substr(0, semicolon);
  }
  if (valid) j["outline"] = outline(r);
  return answer_text(j);
}

config::Recipe CoachDesk::accepted(const std::string& text) const {
  if (text.size() > kMaxRecipe) serve::refuse("recipe", "a recipe of more than {} bytes", kMaxRecipe);
  config::Recipe r = parse_recipe(text, "recipe");
  if (const auto outside = roots_.outside(r); !outside.empty()) fail_input("{}", outside[0].text());
  return r;
}

std::string CoachDesk::plan(const std::string& text, const std::string& device) {
  if (!device.empty() && !price_table().find(device)) serve::refuse("device", "device is not in the price table");
  const config::Recipe r = accepted(text);
  std::lock_guard lock(heavy_);
  EstimateOptions o;
  o.device = device;
  o.fetch = Fetch::kNever;
  return answer_text(estimate(r, o));
}

std::string CoachDesk::preflight(const std::string& text) {
  OrderedJson j = doctor_answer();
  OrderedJson findings = OrderedJson::array();
  auto say = [&](const char* level, const std::string& what, const std::string& remedy = "") {
    findings.push_back({{"level", level}, {"what", what}, {"remedy", remedy}});
  };
  if (text.empty()) {
    j["findings"] = std::move(findings);
    return answer_text(j);
  }
  const config::Recipe r = accepted(text);
  say("ok", "the recipe is valid");
  const bool nvidia = config::is_nvidia(r.hardware.gfx_arch);
  if (r.hardware.cpu_lane())
    say("ok", fmt::format("the processor: {}", j["cpu"]["model"].get<std::string>()));
  else if (nvidia && j["nvidia_driver"].get<bool>())
    say("ok", "an NVIDIA driver is here");
  else
    say("missing", fmt::format("{} is not on this machine", config::text_of(r.hardware.name)),
        "run the recipe there, or set hardware.name: cpu to train here");
  auto model = [&](const std::string& name, const char* key) {
    try {
      say("ok", fmt::format("{}: {} is here", key,
                            fs::path(resolve_model(name, r.model.revision, Fetch::kNever)).filename().string()));
    } catch (const Error& e) {
      const bool hub =
          !name.starts_with(".") && !name.starts_with("/") && net::is_repo_id(name) && !name.ends_with(".gguf");
      if (hub)
        say("note", fmt::format("{}: {} is not on this machine yet", key, name),
            "the run downloads it from the Hub; gated models want HF_TOKEN");
      else
        say("missing", fmt::format("{}: {}", key, e.what()));
    }
  };
  if (r.model.name.starts_with(kMadeBefore))
    say("note", fmt::format("model.name: {} runs first, as a part of the run", r.model.name));
  else if (r.model.init == config::Init::kPretrained)
    model(r.model.name, "model.name");
  if (r.model.tokenizer == "train")
    say("note", "model.tokenizer: is learned from the data, as a part of the run");
  else if (r.model.tokenizer && *r.model.tokenizer != "char")
    model(*r.model.tokenizer, "model.tokenizer");
  auto files = [&](const std::string& named, const char* key, bool ships = false) {
    const std::string pattern = ships ? shipped_file(named) : named, get = data::how_to_get(named);
    const size_t n = fs::is_directory(pattern) ? list_files(pattern).size() : glob_files(pattern).size();
    if (n > 0)
      say("ok", fmt::format("{}: {} file{}", key, n, n == 1 ? "" : "s"));
    else
      say("missing", fmt::format("{}: {}: no such file", key, named),
          get.empty() ? "put it there, or change the path" : "get it with: " + get);
  };
  if (r.data.path) files(*r.data.path, "data.path");
  if (r.data.eval_path) files(*r.data.eval_path, "data.eval_path");
  if (r.eval && r.eval->perplexity_path) files(*r.eval->perplexity_path, "eval.perplexity_path", true);
  if (r.eval && r.eval->harness.task_path && !r.eval->harness.tasks.empty())
    files(*r.eval->harness.task_path, "eval.harness.task_path");
  say(j["disk_free_bytes"].get<uint64_t>() < (uint64_t{1} << 30) ? "missing" : "ok",
      fmt::format("{} free on the disk", human_bytes(j["disk_free_bytes"].get<uint64_t>())));
  say(jobs_ ? "ok" : "missing", jobs_ ? "runs can be launched from here" : "this server launches no runs",
      jobs_ ? "" : "start it with --jobs FOLDER");
  for (const auto& l : config::off_stages(r)) say("note", l);
  for (const auto& l : config::hints(r)) say("note", l);
  j["findings"] = std::move(findings);
  return answer_text(j);
}

namespace {

OrderedJson row_answer(const data::Dataset& set, int64_t row, const data::SampleEncoder& coder) {
  OrderedJson documents = OrderedJson::array();
  for (const auto& d : data::preview_documents(set, row, coder)) {
    OrderedJson pieces = OrderedJson::array();
    for (const auto& p : d.pieces) {
      pieces.push_back({{"text", p.text}, {"trained", p.trained}});
      if (!p.picture.empty()) pieces.back()["picture"] = p.picture;
    }
    documents.push_back({{"tokens", d.tokens}, {"trained", d.trained}, {"pieces", std::move(pieces)}});
  }
  const data::PartInfo& info = set.info();
  return {{"row", row},
          {"rows", set.rows()},
          {"tokens", info.tokens},
          {"targets", info.targets},
          {"seq_len", set.seq_len()},
          {"documents", std::move(documents)}};
}

}  // namespace

std::string CoachDesk::preview(const std::string& text, int64_t row) {
  config::Recipe r = accepted(text);
  if (r.data.source != config::DataSource::kLocal && r.data.source != config::DataSource::kSynth &&
      r.data.source != config::DataSource::kMindxDreams)
    fail_input("data.source: rows that have to be fetched are shown once a run has prepared them");
  if (r.data.sampling != config::Sampling::kDocuments)
    fail_input("data.sampling: random windows of one text have no rows; every token is trained on");
  r.data.max_samples = std::min(r.data.max_samples.value_or(kPreviewRows), kPreviewRows);
  if (r.data.synth) r.data.synth->rows = std::min(r.data.synth->rows, kPreviewRows);
  std::lock_guard lock(heavy_);
  const auto coder = coder_of(r, Fetch::kNever);
  const std::string folder = scratch_ + "/" + config::recipe_hash(r).substr(0, 16);
  data::prepare(r, *coder, folder, data_access(r, Fetch::kNever));
  OrderedJson j = row_answer(data::Dataset::open(folder), row, *coder);
  j["sample"] = true;
  return answer_text(j);
}

std::string CoachDesk::run_row(const std::string& key, int64_t row) {
  const Found f = find(key);
  if (!f.has("dataset/dataset.json")) fail_input("the run has prepared no data yet");
  if (data::is_windows(f.folder + "/dataset"))
    fail_input("random windows of one text have no rows; every token is trained on");
  const config::Recipe r = as_made(config::load_recipe(f.folder + "/recipe.yaml"), f.folder);
  std::lock_guard lock(heavy_);
  return answer_text(row_answer(data::Dataset::open(f.folder + "/dataset"), row, *coder_of(r, Fetch::kNever)));
}

}  // namespace mxt::app

// Coach's view of runs: the registry's rows and the server's jobs, joined by their folders.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "answers.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "coach.h"
#include "data/dataset.h"
#include "model_files.h"
#include "provenance/manifest.h"
#include "provenance/receipt.h"
#include "run_record.h"
#include "serve/api_error.h"
#include "train/setup.h"

namespace mxt::app {
namespace {

constexpr size_t kLogBytes = 64 << 10, kMaxManifest = 4 << 20, kMaxName = 200;

std::string utc(int64_t t) {
  if (t == 0) return "";
  const std::time_t seconds = t;
  std::tm tm{};
  gmtime_r(&seconds, &tm);
  char buf[32];
  std::strftime(buf, sizeof buf, "%Y-%m-%dT%H:%M:%SZ", &tm);
  return buf;
}

// Steps that the run will have; 0 while that is not known.
int64_t steps_told(const std::string& folder) {
  try {
    const config::Recipe r = config::load_recipe(folder + "/recipe.yaml");
    if (r.train.schedule.max_steps) return *r.train.schedule.max_steps;
    const std::string data = folder + "/dataset";
    if (!fs::exists(data + "/dataset.json") || data::is_windows(data)) return 0;
    return train::total_steps(r, data::Dataset::open(data).rows(), r.train.batch.per_device * r.train.batch.grad_accum);
  } catch (const Error&) {
    return 0;  // its folder has gone or is of another version: the run is shown without
  }
}

// Whether a reward says what its answers are worth.
bool is_rewarded(const std::string& folder) {
  try {
    return config::load_recipe(folder + "/recipe.yaml").train.method.is_rl();
  } catch (const Error&) {
    return false;  // as above
  }
}

// The end of a file, from a line's beginning.
std::string tail(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  if (!f) return "";
  f.seekg(0, std::ios::end);
  const auto size = static_cast<size_t>(f.tellg());
  const size_t from = size > kLogBytes ? size - kLogBytes : 0;
  f.seekg(static_cast<std::streamoff>(from));
  std::string text(size - from, '\0');
  f.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (from > 0) text.erase(0, text.find('\n') + 1);
  return text;
}

}  // namespace

std::string CoachDesk::Found::state() const {
  if (!job) return std::string(registry::name_of(run->state));
  // A job that runs is what its process says of itself.
  return job->state;
}

bool CoachDesk::Found::over() const {
  const std::string s = state();
  return s != "queued" && s != "running" && s != "cancelling";
}

bool CoachDesk::Found::has(const char* file) const {
  return !(run && run->replaced_by != 0) && fs::exists(folder + "/" + file);
}

std::vector<CoachDesk::Found> CoachDesk::all() {
  std::vector<Found> out;
  std::map<std::string, size_t> by_folder;
  if (jobs_)
    for (auto& job : jobs_->rows()) {
      const std::string folder = jobs_->folder() + "/" + job.id + "/run";
      by_folder[folder] = out.size();
      out.push_back({job.id, folder, std::move(job), {}, {}});
    }
  const auto registry = registry::Registry::open(registry_path_);
  for (auto& run : registry.list()) {
    if (const auto it = by_folder.find(run.folder); it != by_folder.end()) {
      if (!out[it->second].run) out[it->second].run = std::move(run);
      continue;
    }
    out.push_back({std::to_string(run.id), run.folder, {}, std::move(run), {}});
  }
  const auto waiting = registry.waiting_notes();
  for (Found& f : out) {
    if (f.run)
      f.note = f.run->note;
    else if (const auto n = waiting.find(f.folder); n != waiting.end())
      f.note = n->second;
  }
  auto when = [](const Found& f) { return f.job ? utc(f.job->created) : f.run->started; };
  std::stable_sort(out.begin(), out.end(), [&](const Found& a, const Found& b) { return when(a) > when(b); });
  return out;
}

CoachDesk::Found CoachDesk::find(const std::string& key) {
  for (auto& f : all())
    if (f.key == key) return std::move(f);
  serve::refuse_status(404, "invalid_request_error", "run_not_found", "there is no such run");
}

OrderedJson CoachDesk::summary(const Found& f) const {
  OrderedJson j{{"key", f.key}, {"job", f.job.has_value()}, {"state", f.state()}};
  j["name"] = !f.note.name.empty() ? f.note.name : f.job ? f.job->name : f.run->run_name;
  j["tags"] = f.note.tags;
  j["archived"] = f.note.archived;
  j["project"] = f.run ? f.run->project : "";
  j["created"] = f.job ? utc(f.job->created) : f.run->started;
  j["started"] = f.job ? utc(f.job->started) : f.run->started;
  j["ended"] = f.job ? utc(f.job->ended) : f.run->ended;
  j["attempts"] = f.job ? f.job->attempts : f.run->attempts;
  j["stage"] = f.run ? f.run->stage : "";
  j["message"] = f.run ? f.run->message : "";
  if (f.run && f.run->replaced_by != 0 && j["message"] == "")
    j["message"] = fmt::format("Its folder now holds run {}: what it wrote is gone.", f.run->replaced_by);
  j["folder"] = replace_invalid_utf8(f.folder);
  j["metrics"] = f.run ? OrderedJson::parse(f.run->metrics, nullptr, false) : OrderedJson::object();
  return j;
}

std::string CoachDesk::runs() {
  OrderedJson list = OrderedJson::array();
  for (const auto& f : all()) list.push_back(summary(f));
  return answer_text(list);
}

std::string CoachDesk::run(const std::string& key) {
  const Found f = find(key);
  OrderedJson j = summary(f);
  const bool own = f.has("recipe.yaml");
  j["steps"] = own ? steps_told(f.folder) : 0;
  j["rewarded"] = own && is_rewarded(f.folder);
  registry::Run at = f.run.value_or(registry::Run());
  at.folder = f.folder;
  j["last_step"] = last_step(at);
  j["digests"] = f.run ? OrderedJson::parse(f.run->digests, nullptr, false) : OrderedJson::object();
  auto has = [&](const char* name) { return f.has(name); };
  j["has"] = {{"plan", has("plan.json")},          {"dataset", has("dataset/dataset.json")},
              {"checkpoint", has("train.json")},   {"manifest", has("manifest.json")},
              {"rollouts", has("rollouts.jsonl")}, {"log", f.job.has_value()}};
  const std::string recipe =
      f.job ? fs::path(f.folder).parent_path().string() + "/recipe.yaml" : f.folder + "/recipe.yaml";
  j["recipe"] = fs::exists(recipe) && (f.job || own) ? OrderedJson(read_file(recipe)) : OrderedJson(nullptr);
  const std::string state = f.state();
  j["can"] = {{"stop", f.job && (state == "running" || state == "queued")},
              {"resume", f.job && (state == "cancelled" || state == "failed")},
              {"try", has("train.json")}};
  if (f.job && state == "failed" && j["message"] == "") {
    std::string log = tail(fs::path(f.folder).parent_path().string() + "/log.txt");
    while (!log.empty() && log.back() == '\n') log.pop_back();
    j["message"] = log.substr(log.rfind('\n') + 1);
  }
  return answer_text(j);
}

std::string CoachDesk::note_run(const std::string& key, const std::string& change) {
  const OrderedJson body = parse_ordered_json(change, "request");
  if (!body.is_object()) serve::refuse("", "the request body must be a JSON object");
  Found f = find(key);
  auto text = [](const OrderedJson& v, const char* field) {
    const std::string s = v.is_string() ? std::string(trim(v.get<std::string>())) : "";
    if (!v.is_string() || s.size() > kMaxName || printable(s) != s)
      serve::refuse(field, "{} must be a text of at most {} bytes without control characters", field, kMaxName);
    return s;
  };
  const auto apply = [&](registry::Note& note) {
    for (const auto& [field, v] : body.items()) {
      if (field == "name") {
        note.name = text(v, "name");
      } else if (field == "tags") {
        if (!v.is_array() || v.size() > registry::Note::kMostTags)
          serve::refuse("tags", "tags must be a list of at most {} texts", registry::Note::kMostTags);
        note.tags.clear();
        for (const auto& t : v)
          if (std::string tag = text(t, "tags");
              !tag.empty() && std::find(note.tags.begin(), note.tags.end(), tag) == note.tags.end())
            note.tags.push_back(std::move(tag));
      } else if (field == "archived") {
        if (!v.is_boolean()) serve::refuse("archived", "archived must be true or false");
        note.archived = v.get<bool>();
      } else {
        serve::refuse(field, "unrecognized request argument: {}", replace_invalid_utf8(field));
      }
    }
  };
  auto registry = registry::Registry::open(registry_path_);
  if (f.run) {
    f.note = registry.change_note(f.run->id, apply);
  } else {
    apply(f.note);
    registry.set_waiting_note(f.folder, f.note);
  }
  return answer_text(summary(f));
}

std::string CoachDesk::remove_run(const std::string& key) {
  const Found f = find(key);
  if (!f.over())
    serve::refuse_status(409, "invalid_request_error", "run_active", "the run has not ended: stop it first");
  auto registry = registry::Registry::open(registry_path_);
  if (f.job) jobs_->forget(f.job->id);
  if (f.run)
    registry.remove(*f.run);
  else
    registry.set_waiting_note(f.folder, {});
  return answer_text({{"removed", f.key}, {"folder", replace_invalid_utf8(f.folder)}});
}

std::string CoachDesk::run_plan(const std::string& key) {
  const Found f = find(key);
  if (!f.has("plan.json")) fail_input("the run has no plan yet");
  return read_file(f.folder + "/plan.json");
}

std::string CoachDesk::run_manifest(const std::string& key) {
  const Found f = find(key);
  if (!f.has("manifest.json")) fail_input("the run has no manifest yet");
  return answer_text({{"manifest", read_file(f.folder + "/manifest.json")}});
}

std::string CoachDesk::run_log(const std::string& key) {
  const Found f = find(key);
  return answer_text({{"text", f.job ? tail(fs::path(f.folder).parent_path().string() + "/log.txt") : ""}});
}

std::string CoachDesk::compare(const std::string& a, const std::string& b) {
  const Found x = find(a), y = find(b);
  if (!x.run || !y.run) fail_input("a run that has not begun cannot be compared");
  OrderedJson j = compare_answer(*x.run, *y.run);
  j["runs"] = {summary(x), summary(y)};
  return answer_text(j);
}

std::pair<std::vector<std::string>, bool> CoachDesk::events(const std::string& key, size_t line) {
  const Found f = find(key);
  std::vector<std::string> lines;
  if (!f.has("metrics.jsonl")) return {{}, f.over()};
  std::ifstream file(f.folder + "/metrics.jsonl");
  std::string text;
  for (size_t n = 0; std::getline(file, text) && !file.eof() && lines.size() < 1000;
       ++n)  // without its newline a line is not whole yet
    if (n >= line) lines.push_back(text);
  return {std::move(lines), f.over()};
}

std::string CoachDesk::verify(const std::string& text) {
  if (text.size() > kMaxManifest) serve::refuse("manifest", "a manifest of more than {} bytes", kMaxManifest);
  const Json manifest = parse_json(text, "manifest.json");
  // Whose files? The run with these bytes as its manifest, else one of the same recipe.
  const auto at = "/predicate/run/recipe_hash"_json_pointer;
  const std::string recipe =
      manifest.is_object() && manifest.contains(at) && manifest[at].is_string() ? manifest[at].get<std::string>() : "";
  std::optional<Found> own;
  for (auto& f : all()) {
    if (!f.run || recipe.empty() || f.run->recipe_hash != recipe || !f.has("manifest.json")) continue;
    const bool same = read_file(f.folder + "/manifest.json") == text;
    if (same || !own) own = std::move(f);
    if (same) break;
  }
  const auto report = provenance::verify_text(text, "manifest.json", own ? own->folder : "", {.of_a_run = true});
  OrderedJson j{{"verified", own && report.ok()},
                {"here", own.has_value()},
                {"whole", report.ok()},
                {"manifest_blake3", report.manifest_digest}};
  j["run"] = own ? OrderedJson(own->key) : OrderedJson(nullptr);
  j["folder"] = own ? OrderedJson(own->folder) : OrderedJson(nullptr);
  j["signer"] = report.signer.empty() ? OrderedJson(nullptr) : OrderedJson(report.signer);
  j["subjects"] = report.subjects;
  j["findings"] = OrderedJson::array();
  for (const auto& x : report.findings) j["findings"].push_back({{"field", x.field}, {"what", x.what}});
  j["files"] = OrderedJson::array();
  try {
    for (const auto& [name, entry] : manifest.at("predicate").at("subjects").items())
      if (entry.contains("files"))
        for (const auto& f : entry["files"])
          j["files"].push_back({{"subject", name},
                                {"path", f.at("path")},
                                {"bytes", f.at("bytes")},
                                {"blake3", f.at("blake3")},
                                {"here", own && fs::exists(own->folder + "/" + f.at("path").get<std::string>())}});
    if (report.ok()) j["receipt"] = provenance::make_receipt(manifest, config::Receipt{});
  } catch (const nlohmann::json::exception& e) {
    j["findings"].push_back(
        {{"field", "/predicate/subjects"}, {"what", std::string("is not of the shape of a manifest: ") + e.what()}});
    j["verified"] = j["whole"] = false;
  }
  return answer_text(j);
}

std::string CoachDesk::start_trial(const std::string& key) {
  const Found f = find(key);
  if (!f.has("train.json")) fail_input("the run has no finished model yet");
  const config::Recipe r = as_made(config::load_recipe(f.folder + "/recipe.yaml"), f.folder);
  std::string base;
  if (r.model.init == config::Init::kPretrained) base = r.model.name;
  trial_.start(f.key, base, f.folder + "/checkpoint");
  return trial();
}

std::string CoachDesk::trial() { return answer_text(trial_.describe()); }

std::string CoachDesk::stop_trial() {
  trial_.stop();
  return trial();
}

std::string CoachDesk::trial_address(const std::string& model, std::string& api_key) {
  return trial_.address(model, api_key);
}

}  // namespace mxt::app

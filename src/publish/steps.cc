#include "publish/steps.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/host.h"
#include "base/log.h"
#include "base/text.h"
#include "publish/service.h"

namespace mxt::publish {
namespace {

// RUN/publish.json. Damaged or of another manifest, it says nothing: a step finds out at its service what is there.
class StateFile {
 public:
  explicit StateFile(const Run& run) : path_(run.folder + "/publish.json"), manifest_(run.manifest_digest) {
    Json j = fs::exists(path_) ? Json::parse(read_file(path_), nullptr, false) : Json();
    if (j.is_object() && j.value("manifest", Json()) == Json(manifest_) && j.contains("steps") &&
        j["steps"].is_object())
      steps = j["steps"];
  }
  void write() const {
    const OrderedJson j = {{"manifest", manifest_}, {"steps", steps}};
    write_file_atomic(path_, j.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  }
  // A step's entry; one that was made for another target is begun anew.
  Json& entry(const Step& s) {
    Json& e = steps[s.name()];
    if (!e.is_object() || e.value("target", Json()) != Json(s.target())) e = {{"target", s.target()}, {"done", false}};
    return e;
  }
  Json steps = Json::object();

 private:
  std::string path_, manifest_;
};

bool is_done(const Json& entry) { return entry.value("done", Json()) == Json(true); }

std::vector<std::unique_ptr<Step>> chosen_steps(const Run& run, const Surroundings& around,
                                                const std::vector<std::string>& only) {
  if (run.recipe.publish && !run.recipe.publish->enabled)
    fail_input("{}: publish.enabled is false: set it to true, or give --config a recipe that has it so",
               run.recipe.source);
  auto steps = steps_of(run, around);
  std::string names;
  for (const auto& s : steps) names += (names.empty() ? "" : ", ") + s->name();
  if (steps.empty())
    fail_input("{}: its publish section names no destination: write publish.hf, publish.ipfs … (docs/publish.md)",
               run.recipe.source);
  for (const std::string& o : only)
    if (std::none_of(steps.begin(), steps.end(), [&](const auto& s) { return s->name() == o; }))
      fail_input("--only {}: {} publishes to {}", o, run.recipe.source, names);
  if (!only.empty())
    std::erase_if(steps, [&](const auto& s) { return std::find(only.begin(), only.end(), s->name()) == only.end(); });
  return steps;
}

}  // namespace

Json StepContext::state() const {
  const Json& e = all_.at(name_);
  return e.contains("state") ? e["state"] : Json();
}

void StepContext::save(const Json& state) const {
  all_[name_]["state"] = state;
  write_();
}

Json StepContext::result_of(const std::string& step) const {
  const auto it = all_.find(step);
  return it != all_.end() && is_done(*it) ? it->value("result", Json()) : Json();
}

std::vector<std::string> wrong_settings(const config::Recipe& recipe) {
  Run run;
  run.recipe = recipe;
  Surroundings nowhere;  // the recipe alone is looked at, whatever this machine's environment says
  nowhere.variable = [](const std::string&) { return std::string(); };
  std::vector<std::string> out;
  steps_of(run, nowhere, [&](const Error& e) { out.emplace_back(e.what()); });
  return out;
}

void check_before_run(const config::Recipe& recipe, const Surroundings& around) {
  Run run;
  run.recipe = recipe;
  for (const auto& s : chosen_steps(run, around, {})) {
    Json none = {{s->name(), Json::object()}};
    s->check(StepContext(run, around, none, s->name(), [] {}));
  }
}

std::vector<StepOutcome> publish(const Run& run, const Surroundings& given, const std::vector<std::string>& only,
                                 bool dry_run, const std::function<void(const StepOutcome&)>& progress) {
  // What was asked of the environment, addresses apart, is a secret; a service may say it back in an error.
  std::vector<std::string> secrets{given.hub.token};
  Surroundings around = given;
  around.variable = [&](const std::string& name) {
    const std::string value = given.variable(name);
    if (!name.ends_with("_URL") && !name.ends_with("_ENDPOINT")) secrets.push_back(value);
    return value;
  };
  const auto steps = chosen_steps(run, around, only);
  for (const std::string& line : without_effect(run.recipe)) log::warn("{}", line);
  std::optional<FolderLock> lock;
  if (!dry_run) {
    lock.emplace(run.folder);
    remove_unfinished(run.folder);  // a program that was killed leaves a CAR as large as the model
  }
  StateFile file(run);
  const auto context = [&](const Step& s) {
    file.entry(s);
    return StepContext(run, around, file.steps, s.name(), [&] { file.write(); });
  };
  std::vector<StepOutcome> out;
  const auto add = [&](StepOutcome o) {
    if (progress) progress(o);
    out.push_back(std::move(o));
  };
  for (const auto& s : steps)
    if (!dry_run && !is_done(file.entry(*s))) s->check(context(*s));
  if (!dry_run) file.write();  // nothing is sent where it could not be kept that it was
  for (const auto& s : steps) {
    check_stop(around.stop);
    const StepContext c = context(*s);
    Json& entry = file.entry(*s);
    if (is_done(entry)) {
      add({s->name(), s->target(), StepOutcome::State::kKept, entry.value("result", Json())});
      continue;
    }
    if (dry_run) {
      const OrderedJson planned = s->preview(c);
      add({s->name(), s->target(), StepOutcome::State::kPreview, planned});
      entry["done"] = true;  // for the steps after it, and in memory alone: what they send says where it will be
      entry["result"] = planned;
      continue;
    }
    try {
      const Json result = s->run(c);
      file.steps[s->name()] = {{"target", s->target()}, {"done", true}, {"result", result}, {"finished", utc_now()}};
      file.write();
      add({s->name(), s->target(), StepOutcome::State::kDone, result});
    } catch (const Error& e) {
      const std::string what = without_secrets(secrets, e.what());
      file.entry(*s)["error"] = replace_invalid_utf8(what);
      file.write();
      throw Error(e.code(), fmt::format("{}: {}", s->name(), what));
    }
  }
  return out;
}

}  // namespace mxt::publish

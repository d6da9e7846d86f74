#include "run_record.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "exit.h"
#include "home_path.h"
#include "model_files.h"

namespace mxt::app {
namespace {

int64_t g_failed = 0;  // id of the run of this process that ended without end()

}  // namespace

std::string registry_path() {
  std::string home = environment("MINDXTRAIN_HOME");
  if (home.empty()) {
    const std::string data = environment("XDG_DATA_HOME"), user = home_folder();
    home = !data.empty() ? data + "/mindxtrain" : user.empty() ? "" : user + "/.local/share/mindxtrain";
  }
  if (home.empty())
    fail_input(
        "no home folder is known for the registry of runs and what is kept beside it: set MINDXTRAIN_HOME to a folder");
  return home + "/runs.sqlite";
}

registry::Registry open_registry() {
  const std::string path = registry_path();
  try {
    return registry::Registry::open(path);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}; MINDXTRAIN_HOME names another for the registry of runs", e.what()));
  }
}

template <typename F>
void RunRecord::with_registry(F&& f) {
  if (!registry_) return;
  try {
    f();
  } catch (const Error& e) {
    log::warn("{} (the run goes on without it)", e.what());
    registry_.reset();
  }
}

RunRecord::RunRecord(const config::Recipe& r, const std::string& folder, const std::string& verb) {
  try {
    registry_ = open_registry();
  } catch (const Error& e) {
    log::warn("{} (the run goes on without it)", e.what());
  }
  with_registry([&] { id_ = registry_->begin(folder, r.meta.project, r.meta.run_name, config::recipe_hash(r), verb); });
}

RunRecord::~RunRecord() {
  if (ended_ || !registry_) return;
  const auto state = g_stop.load() ? registry::State::kStopped : registry::State::kFailed;
  with_registry([&] { registry_->end(id_, state, "", nullptr, nullptr); });
  if (state == registry::State::kFailed) g_failed = id_;
}

void RunRecord::stage(const std::string& name) {
  with_registry([&] { registry_->set_stage(id_, name); });
}

void RunRecord::end(registry::State state, const Json& metrics, const Json& digests) {
  ended_ = true;
  with_registry([&] { registry_->end(id_, state, "", metrics, digests); });
}

void note_failure(const std::string& message) {
  if (g_failed == 0) return;
  try {
    open_registry().end(g_failed, registry::State::kFailed, message, nullptr, nullptr);
  } catch (const Error&) {
    // The message is on stderr all the same.
  }
}

}  // namespace mxt::app

// A run's row in the registry, from begin to end.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "config/recipe.h"
#include "registry/registry.h"

namespace mxt::app {

// $MINDXTRAIN_HOME, else $XDG_DATA_HOME/mindxtrain, else ~/.local/share/mindxtrain: runs.sqlite in it.
std::string registry_path();
// It, opened. Errors: as Registry::open's, with where else it may lie.
registry::Registry open_registry();

// A registry that cannot be written costs a warning, never the run.
class RunRecord {
 public:
  RunRecord(const config::Recipe& recipe, const std::string& folder, const std::string& verb);
  ~RunRecord();  // without end(): stopped where a signal asked for it, else failed
  RunRecord(const RunRecord&) = delete;
  void stage(const std::string& name);
  void end(registry::State state, const Json& metrics, const Json& digests);

 private:
  template <typename F>
  void with_registry(F&& f);
  std::optional<registry::Registry> registry_;
  int64_t id_ = 0;
  bool ended_ = false;
};

// Adds the reason to the run of this process that failed; main() knows it.
void note_failure(const std::string& message);

}  // namespace mxt::app

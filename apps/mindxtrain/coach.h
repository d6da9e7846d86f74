// What stands behind the page at /coach/: the verbs' own parts, with the paths of a request held to the server's
// folders.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "jobs.h"
#include "playground.h"
#include "recipe_paths.h"
#include "registry/registry.h"
#include "serve/coach/coach.h"

namespace mxt::app {

// As a request is answered: what is no UTF-8 is replaced.
std::string answer_text(const OrderedJson& j);

class CoachDesk final : public serve::Coach {
 public:
  // `jobs` may be null: then nothing can be launched. `models`: what this server's /v1 has.
  CoachDesk(Roots roots, Jobs* jobs, std::vector<std::string> models);
  ~CoachDesk() override;

  std::string about() override;
  std::string recipes() override;
  std::string recipe(const std::string& name) override;
  std::string schema() override;
  std::string check(const std::string& recipe) override;
  std::string plan(const std::string& recipe, const std::string& device) override;
  std::string preflight(const std::string& recipe) override;
  std::string preview(const std::string& recipe, int64_t row) override;
  std::string runs() override;
  std::string run(const std::string& key) override;
  std::string run_plan(const std::string& key) override;
  std::string run_row(const std::string& key, int64_t row) override;
  std::string run_samples(const std::string& key, int64_t step) override;
  std::string run_manifest(const std::string& key) override;
  std::string run_log(const std::string& key) override;
  std::string note_run(const std::string& key, const std::string& change) override;
  std::string remove_run(const std::string& key) override;
  std::string compare(const std::string& a, const std::string& b) override;
  std::pair<std::vector<std::string>, bool> events(const std::string& key, size_t line) override;
  std::string verify(const std::string& manifest) override;
  std::string start_trial(const std::string& key) override;
  std::string trial() override;
  std::string stop_trial() override;
  std::string trial_address(const std::string& model, std::string& api_key) override;

 private:
  // A job before its run has begun has no row of its own; a run of the command line no job.
  struct Found {
    std::string key, folder;
    std::optional<registry::JobRow> job;
    std::optional<registry::Run> run;
    registry::Note note;
    std::string state() const;  // queued running cancelling finished cancelled stopped failed interrupted
    bool over() const;
    bool has(const char* file) const;  // in its folder, which may hold a later run by now
  };
  std::vector<Found> all();
  Found find(const std::string& key);  // ApiError 404
  OrderedJson summary(const Found& f) const;
  // The recipe of a request: valid, and within the roots (kBadInput).
  config::Recipe accepted(const std::string& text) const;

  Roots roots_;
  Jobs* jobs_;
  std::vector<std::string> models_;
  std::string registry_path_, scratch_;
  std::mutex heavy_;  // one plan or preview at a time
  Playground trial_;
};

}  // namespace mxt::app

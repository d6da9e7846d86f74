// Coach: the page at /coach/ and what stands behind it. `serve` knows HTTP, who may ask and how a stream goes out; what
// a recipe, a run or a receipt is, an implementation of this interface knows (apps/mindxtrain/coach.cc).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mxt::serve {

// Answers are JSON. Errors: ApiError, or Error whose text is for the person at the page. Called from several threads.
// `key` names a run: a job's id, or a number of the registry; never a path.
class Coach {
 public:
  virtual ~Coach() = default;
  virtual std::string about() = 0;  // version, models, what this server can do
  virtual std::string recipes() = 0;
  virtual std::string recipe(const std::string& name) = 0;
  virtual std::string schema() = 0;
  virtual std::string check(const std::string& recipe) = 0;  // every issue with line, column, key
  virtual std::string plan(const std::string& recipe, const std::string& device) = 0;  // device "": the recipe's
  virtual std::string preflight(const std::string& recipe) = 0;                        // recipe "": the machine alone
  virtual std::string preview(const std::string& recipe, int64_t row) = 0;
  virtual std::string runs() = 0;
  virtual std::string run(const std::string& key) = 0;
  virtual std::string run_plan(const std::string& key) = 0;
  virtual std::string run_row(const std::string& key, int64_t row) = 0;
  virtual std::string run_samples(const std::string& key, int64_t step) = 0;  // what a step drew; 0: the last that did
  virtual std::string run_manifest(const std::string& key) = 0;               // {"manifest": its text}
  virtual std::string run_log(const std::string& key) = 0;
  // What a person says of a run: {"name"?, "tags"?, "archived"?}; the run as it is now.
  virtual std::string note_run(const std::string& key, const std::string& change) = 0;
  virtual std::string remove_run(const std::string& key) = 0;  // out of the list; its files stay
  virtual std::string compare(const std::string& a, const std::string& b) = 0;
  // Lines of the run's metrics from `line` on, and whether it is over.
  virtual std::pair<std::vector<std::string>, bool> events(const std::string& key, size_t line) = 0;
  virtual std::string verify(const std::string& manifest) = 0;  // the text of a manifest.json
  // The base and the tuned model of a run, each to be asked by "base" and "tuned"; one run at a time.
  virtual std::string start_trial(const std::string& key) = 0;
  virtual std::string trial() = 0;
  virtual std::string stop_trial() = 0;
  // http://127.0.0.1:PORT of a server that has this model, and the key it wants; ApiError where none runs.
  virtual std::string trial_address(const std::string& model, std::string& api_key) = 0;
};

}  // namespace mxt::serve

// What `publish` does, as steps: one for each destination that the recipe writes, in order, each resumable.
//
// RUN/publish.json holds their state: {"manifest", "steps": {NAME: {"target", "done", "state" or "result", "error"?,
// "finished"?}}}. A step that is done is not done again; one that failed goes on from what it had saved. The run's own
// files are never touched.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/stop.h"
#include "net/http.h"
#include "net/hub.h"
#include "publish/run.h"

namespace mxt::publish {

// What the caller knows of the machine: values of environment variables ("" = not set) and how to reach the network.
struct Surroundings {
  std::function<std::string(const std::string& name)> variable;
  net::HttpOptions http;
  net::HubSettings hub;
  StopFlag stop = nullptr;
  double poll_seconds = 1;  // between two looks at a chain
  bool again = false;       // a service that named another content id is sent the run once more
};

class StepContext {
 public:
  StepContext(const Run& run, const Surroundings& around, Json& all, std::string name, std::function<void()> write)
      : run(run), around(around), all_(all), name_(std::move(name)), write_(std::move(write)) {}
  const Run& run;
  const Surroundings& around;
  // What this step saved before it was interrupted, or null.
  Json state() const;
  // Keeps that on disk at once: what has been sent, before its answer is waited for.
  void save(const Json& state) const;
  // The result of another step that is done, in a dry run its preview; else null.
  Json result_of(const std::string& step) const;

 private:
  Json& all_;
  std::string name_;
  std::function<void()> write_;
};

class Step {
 public:
  virtual ~Step() = default;
  virtual std::string name() const = 0;    // as --only and publish.json say it: "hf"
  virtual std::string target() const = 0;  // where to: state that was made for another target is not used
  // Before anything is sent anywhere: kMissing names the credential or address that is not there and how to set it.
  virtual void check(const StepContext& c) const = 0;
  // What run() would send; sends nothing that changes anything. What later steps take of its result stands in it under
  // the same keys where it is known before ("url", "cid").
  virtual OrderedJson preview(const StepContext& c) const = 0;
  // What is to be remembered of it (addresses, ids, CIDs); never a secret. May be called again after any failure and
  // must not repeat what was done. Errors: kBadInput where the service refuses or is down, kVerifyFailed where a digest
  // or id that came back is not ours, kMissing.
  virtual Json run(const StepContext& c) const = 0;
};

// The steps of a run, in the order in which they are done; its recipe is all that is looked at. A setting that is
// wrong: kBadInput or kMissing, in words that begin with its key; to `wrong`, where that is given, one for each
// destination.
std::vector<std::unique_ptr<Step>> steps_of(const Run& run, const Surroundings& around,
                                            const std::function<void(const Error&)>& wrong = {});

// What publishing would refuse in a recipe whatever becomes of its run: "publish.hf.repo: \"x\" is not owner/name".
std::vector<std::string> wrong_settings(const config::Recipe& recipe);
// What the recipe writes and nothing is done with: "publish.bankon: has no subname …".
std::vector<std::string> without_effect(const config::Recipe& recipe);
// What publish() asks before it sends anything, of a recipe whose run is still to be made. Errors: as publish()'s.
void check_before_run(const config::Recipe& recipe, const Surroundings& around);

struct StepOutcome {
  std::string name, target;
  enum class State { kDone, kKept, kPreview } state = State::kDone;  // kKept: it was done before
  OrderedJson result;
};

// Checks all steps, then does them one after another and stops at the first that fails, its state saved. `only`: names
// of steps, empty = all. Errors (kBadInput): a name that is none; nothing to publish; another process is at it.
std::vector<StepOutcome> publish(const Run& run, const Surroundings& around, const std::vector<std::string>& only,
                                 bool dry_run, const std::function<void(const StepOutcome&)>& progress = {});

}  // namespace mxt::publish

// train.report_to: a run's curves, given to trackers while it trains.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "config/recipe.h"
#include "net/http.h"
#include "track/track.h"

namespace mxt::app {

// The curves of the run in this folder; without points where it has not trained yet. Its id and time are those of the
// folder's recipe.yaml, so that every attempt of a run is one run to a tracker.
track::Curves curves_of(const std::string& folder, const config::Recipe& recipe);

// TRACKIO_DIR, else where trackio keeps its files: below the Hub's folder.
std::string trackio_folder();

// MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_TOKEN.
track::MlflowLogin mlflow_login();

// Before the work whose curves they get. Errors (kMissing): MLflow's server is not named by MLFLOW_TRACKING_URI, or
// does not answer.
void require_trackers(const config::Recipe& recipe);

// A thread that reads metrics.jsonl, which the trainer writes, and tells the trackers; training waits for none of them.
class Reporter {
 public:
  // Nothing is started where the recipe names no tracker. Errors: as require_trackers().
  Reporter(const config::Recipe& recipe, std::string folder);
  ~Reporter();  // as finish(false)
  Reporter(const Reporter&) = delete;
  // The last points, and how the run ended. A tracker that fails costs a warning.
  void finish(bool finished);

 private:
  struct Sink;
  void follow();
  void report(bool last, bool finished);
  const config::Recipe& recipe_;
  std::string folder_;
  net::HttpClient client_;
  std::vector<std::unique_ptr<Sink>> sinks_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace mxt::app

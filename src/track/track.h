// A run's curves for the trackers that people look at: Weights & Biases (an offline run, which its client reads and
// syncs), trackio (its SQLite file) and MLflow (its REST interface). The first two write files and reach no network.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "net/http.h"

namespace mxt::track {

struct Point {
  int64_t step = 0;
  double time = 0;                                     // Unix, seconds
  std::vector<std::pair<std::string, double>> values;  // "train/loss", …
};

struct Curves {
  std::string project, run_name;
  std::string id;             // letters and digits: the same run has the same id in every tracker
  double started = 0;         // Unix, seconds
  OrderedJson config;         // an object: the recipe
  std::vector<Point> points;  // by step
  bool finished = false;
};

// What OUT/metrics.jsonl of a run holds, as TensorBoard names it. `started`: of the run; a step's time is what its
// tokens took. A line that is cut off ends the curve. Errors (kBadInput): no such file, no line in it.
Curves read_curves(const std::string& metrics_file, double started);

// FOLDER/wandb/offline-run-DATE-ID/run-ID.wandb, whole or not at all; returns its path. Format: wandb's datastore, a
// LevelDB log of Record protocol buffers (wandb/sdk/internal/datastore.py, wandb/proto/wandb_internal.proto).
std::string write_wandb(const Curves& curves, const std::string& folder);

// FOLDER/PROJECT.db, made where it is missing; rows of this run replace what an earlier call wrote. Returns its path.
// Format: trackio's sqlite_storage.py. kBadInput where the file is none of trackio's, or of a form that is not known.
std::string write_trackio(const Curves& curves, const std::string& folder);

// What MLflow's own client reads from MLFLOW_TRACKING_USERNAME, _PASSWORD and _TOKEN: a name and its password, else a
// token; all "" where the server asks for none.
struct MlflowLogin {
  std::string username, password, token;
};

// Whether the server at `url` answers and lets us in; makes nothing there. Errors: as MlflowRun's.
void check_mlflow(const std::string& url, const std::string& project, net::HttpClient& client,
                  const MlflowLogin& login = {});

// A run on the MLflow server at `url` (its REST interface 2.0): the experiment is the project. Made with the recipe as
// parameters, or found again by the curves' id; then given the points that it has not got. Errors (kMissing): the
// server cannot be reached or refuses.
class MlflowRun {
 public:
  MlflowRun(const Curves& head, const std::string& url, net::HttpClient& client, const MlflowLogin& login = {});
  ~MlflowRun();
  MlflowRun(const MlflowRun&) = delete;
  void send(const Curves& curves);  // the points after the last one that it has
  void end(const Curves& curves);   // finished, or killed
  std::string address() const;      // for a browser

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace mxt::track

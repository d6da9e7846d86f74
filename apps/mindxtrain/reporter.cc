#include "reporter.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "home_path.h"
#include "model_files.h"
#include "registry/registry.h"

namespace mxt::app {
namespace {

using Clock = std::chrono::steady_clock;
// Between two looks: never less, and so much more that reading a long run's curves takes no time that counts.
constexpr std::chrono::seconds kShortest{5};
constexpr int kIdlePart = 50;

double modified(const std::string& path) {
  struct stat s{};
  return stat(path.c_str(), &s) == 0 ? static_cast<double>(s.st_mtim.tv_sec) : 0;
}

}  // namespace

track::Curves curves_of(const std::string& folder, const config::Recipe& recipe) {
  const std::string whole = registry::whole_name(folder), metrics = whole + "/metrics.jsonl";
  const double started = modified(whole + "/recipe.yaml");
  track::Curves c;
  if (fs::exists(metrics) && fs::file_size(metrics) > 0) c = track::read_curves(metrics, started);
  c.started = started;
  c.project = recipe.meta.project;
  c.run_name = recipe.meta.run_name;
  // One that goes on is the same run; one that begins anew in a folder of the same name is another.
  c.id = blake3_hex(fmt::format("{}\n{}\n{:.0f}", whole, config::recipe_hash(recipe), started)).substr(0, 8);
  c.config = OrderedJson::parse(config::canonical(recipe));
  return c;
}

std::string trackio_folder() {
  if (const std::string own = environment("TRACKIO_DIR"); !own.empty()) return own;
  if (const std::string hub = environment("HF_HOME"); !hub.empty()) return hub + "/trackio";
  const std::string cache = environment("XDG_CACHE_HOME");
  return (cache.empty() ? home_folder() + "/.cache" : cache) + "/huggingface/trackio";
}

track::MlflowLogin mlflow_login() {
  return {environment("MLFLOW_TRACKING_USERNAME"), environment("MLFLOW_TRACKING_PASSWORD"),
          environment("MLFLOW_TRACKING_TOKEN")};
}

namespace {

std::string mlflow_url(const config::Recipe& recipe) {
  const std::string url = environment("MLFLOW_TRACKING_URI");
  if (url.empty())
    fail_missing("{}: train.report_to: mlflow: which server? set MLFLOW_TRACKING_URI=http://HOST:PORT", recipe.source);
  return url;
}

}  // namespace

void require_trackers(const config::Recipe& recipe) {
  const auto& to = recipe.train.report_to;
  if (std::find(to.begin(), to.end(), config::Tracker::kMlflow) == to.end()) return;
  net::HttpClient client({.proxies = proxies()});
  track::check_mlflow(mlflow_url(recipe), recipe.meta.project, client, mlflow_login());
}

// A tracker: what it does with curves that have grown, and whether it failed the last time.
struct Reporter::Sink {
  std::string name;
  std::function<void(const track::Curves&, bool last)> take;
  bool failed = false;
};

Reporter::Reporter(const config::Recipe& recipe, std::string folder)
    : recipe_(recipe), folder_(std::move(folder)), client_({.proxies = proxies()}) {
  const auto add = [&](const char* name, std::function<void(const track::Curves&, bool)> take) {
    sinks_.push_back(std::make_unique<Sink>(Sink{name, std::move(take)}));
  };
  for (const config::Tracker t : recipe_.train.report_to) {
    if (t == config::Tracker::kWandb)
      add("wandb", [this](const track::Curves& c, bool) { track::write_wandb(c, folder_); });
    if (t == config::Tracker::kTrackio)
      add("trackio", [](const track::Curves& c, bool) { track::write_trackio(c, trackio_folder()); });
    if (t != config::Tracker::kMlflow) continue;
    const auto run =
        std::make_shared<track::MlflowRun>(curves_of(folder_, recipe_), mlflow_url(recipe_), client_, mlflow_login());
    log::info("mlflow: {}", run->address());
    add("mlflow", [run](const track::Curves& c, bool last) { last ? run->end(c) : run->send(c); });
  }
  if (!sinks_.empty()) thread_ = std::thread([this] { follow(); });
}

Reporter::~Reporter() { finish(false); }

void Reporter::finish(bool finished) {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  report(true, finished);
}

void Reporter::follow() {
  double seen = -1;
  auto wait = Clock::duration(kShortest);
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, wait, [&] { return stop_; })) {
    lock.unlock();
    std::error_code ec;
    const auto size = static_cast<double>(fs::file_size(folder_ + "/metrics.jsonl", ec));
    const auto began = Clock::now();
    if (!ec && size != seen) report(false, false);
    seen = size;
    wait = std::max<Clock::duration>(kShortest, kIdlePart * (Clock::now() - began));
    lock.lock();
  }
}

void Reporter::report(bool last, bool finished) {
  track::Curves c;
  try {
    c = curves_of(folder_, recipe_);
  } catch (const std::exception& e) {
    if (last) log::warn("train.report_to: {}", e.what());
    return;  // not a whole line yet
  }
  c.finished = finished;
  if (c.points.empty()) return;
  for (const auto& sink : sinks_) {
    try {
      sink->take(c, last);
      sink->failed = false;
    } catch (const std::exception& e) {  // nothing that a tracker does ends a run
      if (!sink->failed) log::warn("train.report_to: {}: {} (the run goes on)", sink->name, e.what());
      sink->failed = true;
    }
  }
}

}  // namespace mxt::app

#include "jobs.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/entropy.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/recipe.h"
#include "machine.h"
#include "run_record.h"
#include "serve/api_error.h"

extern char** environ;

namespace mxt::app {
namespace {

// The 22nd field of /proc/PID/stat: with the number it names a process for good. 0 where there is none, or only its
// remains.
uint64_t start_time(int64_t pid) {
  std::ifstream f("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(f, line)) return 0;
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= line.size() || line[name_end + 2] == 'Z') return 0;
  size_t at = name_end + 2;
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(line.c_str() + at, nullptr, 10);
}

std::string new_id() { return fmt::format("job-{:010}-{:08x}", std::time(nullptr), unguessable()); }

bool over(const std::string& state) { return state == "finished" || state == "failed" || state == "cancelled"; }

}  // namespace

struct Jobs::Job : registry::JobRow {
  bool ours = false;  // a child of this process
};

Jobs::Jobs(std::string folder, int running, Roots roots)
    : folder_((make_folders(folder), fs::canonical(folder).string())),  // as the registry names it
      most_(running),
      roots_(std::move(roots)),
      lock_(folder_),
      registry_(open_registry()) {
  for (registry::JobRow& row : registry_.jobs(folder_)) {
    if (!fs::exists(folder_ + "/" + row.id + "/recipe.yaml")) continue;  // its folder was removed: so is the job
    auto job = std::make_unique<Job>(Job{std::move(row), false});
    // Its process has gone and nobody saw how: it goes on where it was. One that was being cancelled has been.
    if (!over(job->state) && job->state != "queued" &&
        (job->process_start == 0 || start_time(job->pid) != job->process_start)) {
      job->state = job->state == "cancelling" ? "cancelled" : "queued";
      save(*job);
    }
    jobs_[job->id] = std::move(job);
  }
  thread_ = std::thread([this] { loop(); });
}

Jobs::~Jobs() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

void Jobs::save(const Job& job) { registry_.save_job(job); }

OrderedJson Jobs::describe(const Job& job) const {
  OrderedJson j{{"id", job.id},
                {"object", "training.job"},
                {"name", job.name},
                {"status", job.state},
                {"created_at", job.created},
                {"attempts", job.attempts},
                {"folder", folder_ + "/" + job.id + "/run"}};
  j["started_at"] = job.started ? OrderedJson(job.started) : OrderedJson(nullptr);
  j["finished_at"] = job.ended ? OrderedJson(job.ended) : OrderedJson(nullptr);
  j["exit_code"] = job.exit_code ? OrderedJson(*job.exit_code) : OrderedJson(nullptr);
  if (job.state == "failed") {
    // The last line of its log says why.
    std::ifstream log(folder_ + "/" + job.id + "/log.txt");
    std::string line, last;
    while (std::getline(log, line))
      if (!line.empty()) last = line;
    j["error"] = last;
  }
  return j;
}

void Jobs::forget(const std::string& id) {
  std::lock_guard lock(mutex_);
  const Job& job = find(id);
  if (!over(job.state))
    serve::refuse_status(409, "invalid_request_error", "run_active", "the job has not ended: cancel it first");
  registry_.remove_job(folder_, job.id);
  jobs_.erase(id);
}

Jobs::Job& Jobs::find(const std::string& id) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) serve::refuse_status(404, "invalid_request_error", "job_not_found", "there is no such job");
  return *it->second;
}

std::string Jobs::create(const std::string& body) {
  Json j;
  try {
    j = parse_json(body, "request");
  } catch (const Error& e) {
    serve::refuse("", "{}", e.what());
  }
  if (!j.is_object() || !j.contains("recipe") || !j["recipe"].is_string())
    serve::refuse("recipe", "recipe must be the text of a recipe");
  for (const auto& [key, v] : j.items())
    if (key != "recipe" && key != "name") serve::refuse(key, "unrecognized request argument: {}", key);
  const std::string given = j.contains("name") && j["name"].is_string() ? j["name"].get<std::string>() : "";
  if (j.contains("name") && (!j["name"].is_string() || given.size() > 200 || printable(given) != given))
    serve::refuse("name", "name must be a text of at most 200 bytes without control characters");
  const auto text = j["recipe"].get<std::string>();
  config::Recipe recipe;
  if (const auto issues = config::check_recipe(text, "recipe", &recipe, this_machine); !issues.empty())
    serve::refuse("recipe", "{}{}", issues[0].text(),
                  issues.size() > 1 ? fmt::format(" (and {} more)", issues.size() - 1) : "");
  if (const auto outside = roots_.outside(recipe); !outside.empty())
    serve::refuse("recipe", "{}: {}", outside[0].key, outside[0].what);
  auto job = std::make_unique<Job>();
  job->folder = folder_;
  job->state = "queued";
  job->id = new_id();
  job->name = j.value("name", recipe.meta.run_name);
  job->created = std::time(nullptr);
  const std::string at = folder_ + "/" + job->id;
  make_folders(at);
  write_file_atomic(at + "/recipe.yaml", text);
  std::lock_guard lock(mutex_);
  save(*job);
  const std::string out = describe(*job).dump();
  jobs_[job->id] = std::move(job);
  wake_.notify_all();
  return out;
}

std::string Jobs::list() {
  std::lock_guard lock(mutex_);
  OrderedJson data = OrderedJson::array();
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    look(*it->second);
    data.push_back(describe(*it->second));
  }
  return OrderedJson{{"object", "list"}, {"data", std::move(data)}}.dump(-1, ' ', false,
                                                                         OrderedJson::error_handler_t::replace);
}

std::string Jobs::get(const std::string& id) {
  std::lock_guard lock(mutex_);
  Job& job = find(id);
  look(job);
  return describe(job).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string Jobs::cancel(const std::string& id) {
  std::lock_guard lock(mutex_);
  Job& job = find(id);
  look(job);
  if (job.state == "queued") {
    job.state = "cancelled";
    job.ended = std::time(nullptr);
  } else if (job.state == "running") {
    job.state = "cancelling";
    ::kill(static_cast<pid_t>(job.pid), SIGTERM);  // it saves its state and ends
  } else if (over(job.state)) {
    serve::refuse_status(409, "invalid_request_error", "job_over", "the job is over: " + job.state);
  }
  save(job);
  return describe(job).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string Jobs::resume(const std::string& id) {
  std::lock_guard lock(mutex_);
  Job& job = find(id);
  look(job);
  if (job.state != "cancelled" && job.state != "failed")
    serve::refuse_status(409, "invalid_request_error", "job_not_stopped",
                         "the job cannot be resumed: it is " + job.state);
  job.state = "queued";
  job.ended = 0;
  job.exit_code.reset();
  save(job);
  wake_.notify_all();
  return describe(job).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::vector<registry::JobRow> Jobs::rows() {
  std::lock_guard lock(mutex_);
  std::vector<registry::JobRow> out;
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    look(*it->second);
    out.push_back(*it->second);
  }
  return out;
}

std::pair<std::vector<std::string>, bool> Jobs::events(const std::string& id, size_t line) {
  bool ended;
  {
    std::lock_guard lock(mutex_);
    Job& job = find(id);
    look(job);
    ended = over(job.state);
  }
  std::vector<std::string> lines;
  std::ifstream f(folder_ + "/" + id + "/run/metrics.jsonl");
  std::string text;
  for (size_t n = 0; std::getline(f, text) && !f.eof() && lines.size() < 1000;
       ++n)  // without its newline a line is not whole yet
    if (n >= line) lines.push_back(text);
  return {std::move(lines), ended};
}

void Jobs::start(Job& job) {
  const std::string at = folder_ + "/" + job.id, recipe = at + "/recipe.yaml", out = at + "/run", log = at + "/log.txt";
  const char* argv[] = {"mindxtrain", "run", recipe.c_str(), "--out", out.c_str(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&files, 3);  // no socket of ours goes along
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);  // a signal to the server is not for it
  pid_t pid = 0;
  const int rc = ::posix_spawn(&pid, "/proc/self/exe", &files, &attributes, const_cast<char**>(argv), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  ++job.attempts;
  job.started = std::time(nullptr);
  if (rc != 0) {
    job.state = "failed";
    job.ended = job.started;
    log::warn("job {}: cannot be started: {}", job.id, std::strerror(rc));
  } else {
    job.state = "running";
    job.pid = pid;
    job.process_start = start_time(pid);
    job.ours = true;
    log::info("job {} started", job.id);
  }
  save(job);
}

void Jobs::look(Job& job) {
  if (job.state != "running" && job.state != "cancelling") return;
  int status = 0;
  if (job.ours) {
    if (::waitpid(static_cast<pid_t>(job.pid), &status, WNOHANG) != job.pid) return;
    if (WIFEXITED(status)) job.exit_code = WEXITSTATUS(status);
  } else if (start_time(job.pid) == job.process_start) {
    return;
  }
  job.ended = std::time(nullptr);
  // One that another server started ended unseen: a finished run has its manifest.
  const bool well =
      job.exit_code ? *job.exit_code == 0 : !job.ours && fs::exists(folder_ + "/" + job.id + "/run/manifest.json");
  const bool interrupted = job.exit_code && *job.exit_code == static_cast<int>(Exit::kInterrupted);
  job.state = job.state == "cancelling"                      ? "cancelled"
              : well                                         ? "finished"
              : interrupted || (!job.exit_code && !job.ours) ? "queued"
                                                             : "failed";
  job.ours = false;
  save(job);
}

void Jobs::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    int running = 0;
    for (auto& [id, job] : jobs_) {
      look(*job);
      running += job->state == "running" || job->state == "cancelling";
    }
    for (auto& [id, job] : jobs_)
      if (job->state == "queued" && running < most_) {
        try {
          start(*job);
        } catch (const std::exception& e) {
          log::warn("job {}: {}", id, e.what());
        }
        ++running;
      }
    wake_.wait_for(lock, std::chrono::milliseconds(500));
  }
}

}  // namespace mxt::app

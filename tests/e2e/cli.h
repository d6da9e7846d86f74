// Running the binary and reading what it left.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/philox.h"
#include "binary.h"
#include "folders.h"

namespace mxt::cli {

// What the tests run is not to be seen among the user's own runs.
inline const int kOwnRegistry = setenv("MINDXTRAIN_HOME", (testing::TempDir() + "mxt_registry_e2e").c_str(), 0);

struct Result {
  int code;
  std::string out;  // stdout and stderr together
};

inline Result run(const std::string& arguments, const std::string& environment = "") {
  const std::string command = environment + " '" + kBinary + "' " + arguments + " 2>&1";
  FILE* p = popen(command.c_str(), "r");
  Result r{-1, {}};
  char buf[4096];
  for (size_t n; (n = fread(buf, 1, sizeof buf, p)) > 0;) r.out.append(buf, n);
  const int status = pclose(p);
  r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return r;
}

// The binary on its way, to be disturbed; its output goes nowhere.
inline pid_t start(std::vector<std::string> arguments, const std::string& home = "") {
  arguments.insert(arguments.begin(), kBinary);
  std::vector<char*> argv;
  for (auto& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) std::abort();  // a signal to -1 would go to everybody
  if (child > 0) return child;
  if (!home.empty()) setenv("MINDXTRAIN_HOME", home.c_str(), 1);
  if (freopen("/dev/null", "w", stderr) && freopen("/dev/null", "w", stdout)) execv(kBinary, argv.data());
  _exit(9);
}

// Sends the signal and waits for the end: the exit code, 128 and the signal where one ended it.
inline int stop(pid_t child, int signal) {
  kill(child, signal);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Kills at random moments, spread over however long a program takes here and now: one that came too late halves the
// span of those that follow, so that some are in time on any machine.
class Kills {
 public:
  Kills(uint64_t seed, double seconds) : random_(seed, 1), span_(seconds) {}

  void one(std::vector<std::string> arguments) {
    const pid_t child = start(std::move(arguments));
    const double part = random_.below(1000) / 1000.0;
    std::this_thread::sleep_for(std::chrono::duration<double>(part * span_));
    if (stop(child, SIGKILL) == 128 + SIGKILL)
      ++in_time;
    else
      span_ /= 2;
  }

  int in_time = 0;

 private:
  Philox random_;
  double span_;
};

// A fresh folder, removed at the end.
class Folder {
 public:
  explicit Folder(const std::string& name) : path(testing::TempDir() + "mxt_" + name + "_" + std::to_string(getpid())) {
    fs::remove_all(path);
    make_folders(path);
  }
  ~Folder() {
    std::error_code ec;
    fs::remove_all(path, ec);
  }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

inline std::vector<Json> lines(const std::string& path) {
  std::vector<Json> out;
  const std::string text = read_file(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    out.push_back(Json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

inline std::string golden(const std::string& model) {
  return std::string(kSourceDir) + "/tests/golden/models/" + model;
}

// What trains with `train.backend: trl`.
inline std::string python() {
  const char* named = std::getenv("MINDXTRAIN_PYTHON");
  return named ? named : "python3";
}
inline bool has_trl() {
  return std::system(("'" + python() + "' -c 'import trl, peft' > /dev/null 2>&1").c_str()) == 0;
}

struct Tiny {
  std::string model = "qwen3_gqa", method = "{kind: full}", precision = "float32", extra;
  double lr = 3e-3;
  int per_device = 2, grad_accum = 1, steps = 20;
  bool packing = false;
  bool probe = false;  // default choices: what is not about the probe need not wait for it
};

// A recipe over a golden model and its rows, with the settings of tools/golden/models.py.
inline std::string recipe(const Tiny& t) {
  return fmt::format(R"(meta: {{project: test, run_name: tiny}}
hardware: {{name: cpu}}
autotune: {{enabled: {8}, budget_seconds: 20}}
model: {{name: "{0}", torch_dtype: float32}}
data: {{source: local, path: "{0}/rows.jsonl", seq_len: 64, packing: {1}, shuffle: false}}
train:
  method: {2}
  precision: {3}
  optimizer: {{lr: {9}, betas: [0.9, 0.95], weight_decay: 0.1, grad_clip: 1.0}}
  schedule: {{type: cosine, warmup_ratio: 0.1, max_steps: {4}}}
  batch: {{per_device: {5}, grad_accum: {6}}}
{7})",
                     golden(t.model), t.packing, t.method, t.precision, t.steps, t.per_device, t.grad_accum, t.extra,
                     t.probe, t.lr);
}

}  // namespace mxt::cli

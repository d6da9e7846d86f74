#include "playground.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/entropy.h"
#include "base/error.h"
#include "base/files.h"
#include "formats/peft.h"
#include "serve/api_error.h"

extern char** environ;

namespace mxt::app {
namespace {

// A port that is free now. Somebody else may take it before the child does; the child then says so and the person tries
// again.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof a;
  const bool ok = fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0 &&
                  ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n) == 0;
  if (fd >= 0) ::close(fd);
  if (!ok) fail_input("no free port on this machine: {}", std::strerror(errno));
  return ntohs(a.sin_port);
}

bool answers(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool ok = ::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0;
  ::close(fd);
  return ok;
}

}  // namespace

void Playground::start(const std::string& run, const std::string& base, const std::string& checkpoint) {
  std::lock_guard lock(mutex_);
  stop_locked();
  key_.clear();
  for (int i = 0; i < 8; ++i) key_ += fmt::format("{:08x}", unguessable());
  run_ = run;
  failed_.clear();
  make_folders(scratch_);
  try {
    const bool adapter = fs::exists(checkpoint + "/adapter_config.json");
    if (adapter && base.empty()) fail_input("the run's adapter has no pretrained base to stand on");
    if (adapter && formats::Adapter::open(checkpoint).beyond_layers().empty()) {
      spawn({"--model", base, "--name", "base", "--adapter", "tuned=" + checkpoint}, {"base", "tuned"});
    } else {
      if (!base.empty()) spawn({"--model", base, "--name", "base"}, {"base"});
      if (adapter)
        spawn({"--model", base, "--adapter", "tuned=" + checkpoint}, {"tuned"});
      else
        spawn({"--model", checkpoint, "--name", "tuned"}, {"tuned"});
    }
  } catch (...) {
    stop_locked();
    throw;
  }
}

void Playground::spawn(const std::vector<std::string>& arguments, std::vector<std::string> models) {
  Server s;
  s.port = free_port();
  s.models = std::move(models);
  s.log = fmt::format("{}/trial-{}.log", scratch_, servers_.size());
  std::vector<std::string> words{
      "mindxtrain",         "serve",   "--host", "127.0.0.1",   "--port", std::to_string(s.port), "--drain", "0",
      "--until-stdin-ends", "--batch", "4",      "--cache-gib", "0.5"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  std::string key = "MINDXTRAIN_API_KEY=" + key_;
  std::vector<char*> env;
  for (char** e = environ; *e; ++e)
    if (std::strncmp(*e, "MINDXTRAIN_API_KEY=", 19) != 0) env.push_back(*e);
  env.push_back(key.data());
  env.push_back(nullptr);
  int life[2];  // the child's standard input ends when this process does
  if (::pipe2(life, O_CLOEXEC) != 0) fail_input("the models cannot be served: {}", std::strerror(errno));
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, life[0], 0);
  posix_spawn_file_actions_addopen(&files, 1, s.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&files, 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int rc = ::posix_spawn(&s.pid, "/proc/self/exe", &files, &attributes, argv.data(), env.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  ::close(life[0]);
  s.life = life[1];
  if (rc != 0) ::close(s.life);
  if (rc != 0) fail_input("the models cannot be served: {}", std::strerror(rc));
  servers_.push_back(std::move(s));
}

std::string Playground::failure_of(Server& s) {
  int status = 0;
  if (::waitpid(s.pid, &status, WNOHANG) != s.pid) return "";
  s.pid = 0;
  std::string log = fs::exists(s.log) ? read_file(s.log) : "";
  while (!log.empty() && log.back() == '\n') log.pop_back();
  const std::string last = log.substr(log.rfind('\n') + 1);
  return last.empty() ? "the server of the models ended" : last;
}

OrderedJson Playground::describe() {
  std::lock_guard lock(mutex_);
  OrderedJson models = OrderedJson::array();
  bool ready = true;
  for (Server& s : servers_) {
    if (const std::string why = failure_of(s); !why.empty()) {
      failed_ = why;
      stop_locked();
      return {{"run", run_}, {"state", "failed"}, {"models", OrderedJson::array()}, {"message", failed_}};
    }
    s.ready = s.ready || answers(s.port);
    ready = ready && s.ready;
    for (const auto& m : s.models) models.push_back(m);
  }
  const char* state = !failed_.empty() ? "failed" : servers_.empty() ? "none" : ready ? "ready" : "starting";
  return {{"run", run_}, {"state", state}, {"models", std::move(models)}, {"message", failed_}};
}

std::string Playground::address(const std::string& model, std::string& api_key) {
  std::lock_guard lock(mutex_);
  for (const Server& s : servers_)
    if (std::find(s.models.begin(), s.models.end(), model) != s.models.end()) {
      api_key = key_;
      return fmt::format("http://127.0.0.1:{}", s.port);
    }
  serve::refuse_status(409, "invalid_request_error", "no_trial", "no run's models are loaded for trying");
}

void Playground::stop() {
  std::lock_guard lock(mutex_);
  stop_locked();
  run_.clear();
  failed_.clear();
}

void Playground::stop_locked() {
  for (const Server& s : servers_)
    if (s.pid > 0) ::kill(s.pid, SIGTERM);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (Server& s : servers_) {
    while (s.pid > 0 && ::waitpid(s.pid, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        ::kill(s.pid, SIGKILL);
        ::waitpid(s.pid, nullptr, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ::close(s.life);
  }
  servers_.clear();
}

}  // namespace mxt::app

#include "foreign.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/text.h"
#include "base/threads.h"
#include "config/model_table.h"
#include "exit.h"
#include "formats/weight_source.h"
#include "model_files.h"
#include "shipped.h"

extern char** environ;

namespace mxt::app {
namespace {

// Not from the working directory, which -c looks in first: a trl.py there is somebody's own program.
constexpr const char* kVersions =
    "import sys; sys.path = [p for p in sys.path if p]; import json, platform, trl, transformers, peft, torch, "
    "datasets, importlib.util as u, importlib.metadata as m; print(json.dumps({'python': "
    "platform.python_version(), 'trl': trl.__version__, 'transformers': transformers.__version__, 'peft': "
    "peft.__version__, 'torch': torch.__version__, 'datasets': datasets.__version__, "
    "**({'bitsandbytes': m.version('bitsandbytes')} if u.find_spec('bitsandbytes') else {})}))";

// Reads nothing from a network, and takes as many threads as this program.
std::vector<std::string> environment_of_trl() {
  std::vector<std::string> env;
  for (char** v = environ; *v; ++v)
    if (!std::string_view(*v).starts_with("OMP_NUM_THREADS=")) env.emplace_back(*v);
  for (const char* own : {"HF_HUB_OFFLINE=1", "HF_HUB_DISABLE_TELEMETRY=1", "TOKENIZERS_PARALLELISM=false",
                          "PYTHONUNBUFFERED=1", "TRANSFORMERS_VERBOSITY=warning"})
    env.emplace_back(own);
  env.push_back(fmt::format("OMP_NUM_THREADS={}", num_threads()));
  return env;
}

// Descriptors 0, 1, 2 and, unless −1, 3 of the child.
pid_t start(const std::vector<std::string>& command, int output, int errors, int reports) {
  const std::vector<std::string> env = environment_of_trl();
  std::vector<char*> argv, envp;
  for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
  for (const std::string& e : env) envp.push_back(const_cast<char*>(e.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, 1);
  posix_spawn_file_actions_adddup2(&files, errors, 2);
  if (reports >= 0) posix_spawn_file_actions_adddup2(&files, reports, 3);
  posix_spawn_file_actions_addclosefrom_np(&files, reports >= 0 ? 4 : 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);  // a Ctrl-C of the terminal is passed on once, by us
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int rc = posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (rc != 0) fail_missing("{} cannot be started: {}", command[0], std::strerror(rc));
  return pid;
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) fail_input("no pipe can be made: {}", std::strerror(errno));
    read = fds[0], write = fds[1];
  }
  ~Pipe() {
    close(read);
    if (write >= 0) close(write);
  }
  void close_write() {
    close(write);
    write = -1;
  }
};

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  kill(-pid, SIGKILL);  // what it left behind
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Lines until the other end is closed; `idle` is called a few times a second.
void read_lines(int fd, const std::function<void(const std::string&)>& take, const std::function<void()>& idle) {
  std::string buffer;
  char piece[4096];
  for (;;) {
    pollfd p{fd, POLLIN, 0};
    if (poll(&p, 1, 200) > 0) {
      const ssize_t n = read(fd, piece, sizeof piece);
      if (n == 0 || (n < 0 && errno != EINTR)) return;
      if (n > 0) buffer.append(piece, static_cast<size_t>(n));
      for (size_t end; (end = buffer.find('\n')) != std::string::npos; buffer.erase(0, end + 1))
        take(buffer.substr(0, end));
    }
    idle();
  }
}

}  // namespace

exporting::Base foreign_base(const config::Recipe& recipe, const std::string& title) {
  exporting::Base b;
  b.name = recipe.model.name;
  b.revision = recipe.model.revision.value_or("");
  if (recipe.model.init == config::Init::kRandom) return b;
  if (const std::string id = shipped_weights_id(b.name); !id.empty()) {
    b.name = id;
  } else if (fs::exists(b.name)) {
    b.name = fs::absolute(b.name).lexically_normal().string();
    if (formats::is_gguf(b.name))
      fail_missing("{}: model.name: {} reads no GGUF file: name the model's Hub id or a folder of it", recipe.source,
                   title);
    b.revision.clear();
    b.config = formats::read_model_config(b.name);
    b.family = b.config->model_type;
    return b;
  }
  if (const config::KnownModel* known = config::model_of_id(b.name)) b.family = known->architecture;
  return b;
}

TrlPython find_trl() {
  TrlPython trl;
  trl.python = environment("MINDXTRAIN_PYTHON");
  if (trl.python.empty()) trl.python = "python3";
  const std::string how =
      "make one (python3 -m venv DIR && DIR/bin/pip install trl peft), and set MINDXTRAIN_PYTHON=DIR/bin/python";
  Pipe answer;
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  pid_t pid = -1;
  try {
    pid = start({trl.python, "-c", kVersions}, answer.write, nowhere, -1);
  } catch (const Error& e) {
    close(nowhere);
    fail_missing("train.backend trl: {}: {}", e.what(), how);
  }
  close(nowhere);
  answer.close_write();
  std::string text;
  read_lines(
      answer.read, [&](const std::string& line) { text = line; },
      [&] {
        if (g_stop.load()) kill(-pid, SIGKILL);  // importing torch may take a minute
      });
  const int code = wait_for(pid);
  check_stop(&g_stop);
  if (code == 0) trl.versions = Json::parse(text, nullptr, false);
  if (!trl.versions.is_object())
    fail_missing("train.backend trl: {} has no trl and peft that can be imported: {}", trl.python, how);
  return trl;
}

int run_trl(const TrlPython& trl, const std::string& folder, const std::string& scratch,
            const std::function<void(const Json&)>& take) {
  const std::string log_file = folder + "/log.txt";
  const int log_fd = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) fail_input("{}: cannot be written: {}", log_file, std::strerror(errno));
  Pipe reports;
  pid_t pid = -1;
  try {
    pid = start({trl.python, folder + "/launch.py", scratch + "/job.json", "3"}, log_fd, log_fd, reports.write);
  } catch (...) {
    close(log_fd);
    throw;
  }
  close(log_fd);
  reports.close_write();
  bool told = false;
  try {
    read_lines(
        reports.read,
        [&](const std::string& line) {
          if (const Json j = Json::parse(line, nullptr, false); j.is_object()) take(j);
        },
        [&] {
          if (told || !g_stop.load()) return;
          told = true;
          log::info("stopping: TRL ends its step and saves");
          kill(pid, SIGTERM);
        });
  } catch (...) {
    kill(-pid, SIGKILL);
    wait_for(pid);
    throw;
  }
  return wait_for(pid);
}

std::string last_line(const std::string& file) {
  std::string last;
  if (!fs::exists(file)) return last;
  const std::string text = read_file(file);
  for (std::string_view line : split(text, '\n'))
    if (!trim(line).empty()) last = trim(line);
  return printable(last.substr(0, 300));
}

}  // namespace mxt::app

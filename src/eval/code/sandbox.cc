#include "eval/code/sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/threads.h"
#include "device/memory.h"
#include "eval/code/jail.h"

namespace mxt::eval {
namespace {

// Reads the word and the program, runs it in an empty module, says the word. Only the end of the last line gets there.
constexpr const char* kRunner = R"(import os, sys
def run():
    data = sys.stdin.buffer.read()
    word, _, source = data.partition(b"\n")
    sys.stdin = open(os.devnull)
    say = os.write
    try:
        exec(compile(source, "program", "exec"), {})
    except BaseException:
        os._exit(1)
    say(3, word)
    os._exit(0)
run()
)";

// The same for a tool: after the word come its arguments as JSON, the bytes of the program, the program, and what it
// reads. What it has written is said behind the word and its length.
constexpr const char* kToolRunner = R"(import io, json, os, sys
def run():
    data = sys.stdin.buffer.read()
    word, _, rest = data.partition(b"\n")
    argv, _, rest = rest.partition(b"\n")
    size, _, rest = rest.partition(b"\n")
    source, told = rest[:int(size)], rest[int(size):]
    sys.argv = json.loads(argv)
    sys.stdin = io.TextIOWrapper(io.BytesIO(told), encoding="utf-8")
    sys.stdout = written = io.StringIO()
    say, encode = os.write, str.encode
    try:
        exec(compile(source, sys.argv[0], "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if end.code not in (None, 0):
            os._exit(1)
    except BaseException:
        os._exit(1)
    out = encode(written.getvalue(), "utf-8", "replace")
    out = word + b"%012d" % len(out) + out
    while out:
        out = out[say(3, out):]
    os._exit(0)
run()
)";

struct Fd {
  int fd = -1;
  Fd() = default;
  explicit Fd(int f) : fd(f) {}
  Fd(const Fd&) = delete;
  ~Fd() { reset(); }
  void reset() {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
};

void make_pipe(Fd& read, Fd& write) {
  int p[2];
  if (::pipe2(p, O_CLOEXEC) != 0) fail_missing("sandbox: no pipe can be made: {}", std::strerror(errno));
  read.fd = p[0];
  write.fd = p[1];
}

}  // namespace

std::string find_python() {
  for (const char* p : {"/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3", "/opt/bin/python3"})
    if (::access(p, X_OK) == 0) return p;
  fail_missing("running programs needs python3 (Debian: apt install python3-minimal)");
}

namespace {

bool write_whole(const std::string& path, const std::string& text) {
  const Fd f(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return f.fd >= 0 && ::write(f.fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Who the namespace's root is outside: nobody where we are root, else ourselves.
bool map_ids(pid_t child) {
  const std::string proc = "/proc/" + std::to_string(child);
  const bool root = ::geteuid() == 0;
  if (!root && !write_whole(proc + "/setgroups", "deny")) return false;
  const auto line = [&](unsigned id) { return "0 " + std::to_string(id) + " 1\n"; };
  return write_whole(proc + "/uid_map", line(root ? 65534u : ::geteuid())) &&
         write_whole(proc + "/gid_map", line(root ? 65534u : ::getegid()));
}

// Where its root is mounted, in its own mount namespace alone: a folder that every machine has, and that nothing inside
// needs. One made for it would stay where this process is killed.
constexpr const char* kMountPoint = "/proc";

// What the runner says, the word in front, at most `most` bytes of it; "" where it does not say the word.
std::string run_one(const char* runner, const std::string& program, const std::string& python,
                    const SandboxLimits& limits, StopFlag stop = nullptr, size_t most = 64) {
  uint8_t random[16];
  if (::getrandom(random, sizeof random, 0) != sizeof random)
    fail_missing("sandbox: no random numbers: {}", std::strerror(errno));
  const std::string word = to_hex(random), input = word + "\n" + program;

  Fd in_r, in_w, out_r, out_w, err_r, err_w, go_r, go_w;
  make_pipe(in_r, in_w);
  make_pipe(out_r, out_w);
  make_pipe(err_r, err_w);
  make_pipe(go_r, go_w);
  Jail jail;
  jail.root = kMountPoint;
  jail.python = python;
  jail.runner = runner;
  jail.limits = limits;
  jail.input = in_r.fd;
  jail.result = out_w.fd;
  jail.errors = err_w.fd;
  jail.go = go_r.fd;
  jail.prepare();

  constexpr unsigned long kSpaces =
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  const pid_t child = static_cast<pid_t>(::syscall(SYS_clone, kSpaces | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) jail.enter();  // does not return
  if (child < 0)
    fail_missing(
        "running programs needs user namespaces, which this kernel forbids: {} (sysctl "
        "kernel.unprivileged_userns_clone=1, user.max_user_namespaces, AppArmor's restriction)",
        std::strerror(errno));
  in_r.reset();
  out_w.reset();
  err_w.reset();
  go_r.reset();

  std::string said, problem;
  const bool mapped = map_ids(child);
  const int map_error = errno;
  if (mapped) {
    // Where the whole machine runs out of memory, the kernel ends the program and not us.
    (void)write_whole("/proc/" + std::to_string(child) + "/oom_score_adj", "1000");
    (void)!::write(go_w.fd, "g", 1);
    // Feed the program, hear the word, until the end or the deadline. A program that closes its files or says too much
    // ends nothing early.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(limits.seconds);
    ::fcntl(in_w.fd, F_SETFL, O_NONBLOCK);
    size_t fed = 0;
    bool out_open = true, err_open = true;
    while (out_open || err_open) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
      if (left <= 0 || (stop && stop->load())) break;
      pollfd p[3] = {
          {out_open ? out_r.fd : -1, POLLIN, 0}, {err_open ? err_r.fd : -1, POLLIN, 0}, {in_w.fd, POLLOUT, 0}};
      if (::poll(p, 3, static_cast<int>(std::min<int64_t>(left, 100))) < 0 && errno != EINTR) break;
      char buffer[512];
      if (p[0].revents) {
        const ssize_t n = ::read(out_r.fd, buffer, sizeof buffer);
        if (n <= 0)
          out_open = false;
        else if (said.size() <= most)
          said.append(buffer, static_cast<size_t>(n));
      }
      if (p[1].revents) {
        const ssize_t n = ::read(err_r.fd, buffer, sizeof buffer);
        if (n <= 0)
          err_open = false;
        else if (problem.size() < 4096)
          problem.append(buffer, static_cast<size_t>(n));
      }
      if (p[2].revents) {
        const ssize_t n = (p[2].revents & POLLERR) ? -1 : ::write(in_w.fd, input.data() + fed, input.size() - fed);
        if (n < 0 && errno == EAGAIN) continue;
        if (n > 0) fed += static_cast<size_t>(n);
        if (n < 0 || fed == input.size()) in_w.reset();
      }
    }
  }
  // The first process of a process namespace takes all others with it.
  ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!mapped)
    fail_missing("running programs needs user namespaces; ids cannot be mapped: {}", std::strerror(map_error));
  check_stop(stop);
  if (!problem.empty()) fail_missing("running programs needs a sandbox, which cannot be made here: {}", problem);
  return said.starts_with(word) ? said : "";
}

}  // namespace

namespace {

constexpr size_t kWord = 32, kLength = 12, kMostOfTool = size_t{1} << 20;

bool passes(const std::string& program, const std::string& python, const SandboxLimits& limits,
            StopFlag stop = nullptr) {
  return run_one(kRunner, program, python, limits, stop).size() == kWord;
}

const std::string& working_python() {
  static const std::string python = find_python();
  static const bool works = [] {
    const SandboxLimits generous{60, uint64_t{1} << 30, uint64_t{32} << 20, 4};
    if (!passes("x = 1\n", python, generous) || passes("raise SystemExit(0)\n", python, generous))
      fail_missing("running programs needs a Python that works in the sandbox; {} does not", python);
    return true;
  }();
  (void)works;
  ::signal(SIGPIPE, SIG_IGN);
  return python;
}

}  // namespace

std::vector<bool> run_python_programs(const std::vector<std::string>& programs, const SandboxLimits& limits,
                                      StopFlag stop) {
  const std::string& python = working_python();
  const uint64_t each = limits.processes * limits.memory_bytes + limits.scratch_bytes;
  const auto at_once = static_cast<int64_t>(
      std::clamp<uint64_t>(device::available_host_bytes() / each, 1, static_cast<uint64_t>(num_threads())));
  std::vector<char> passed(programs.size());  // (of a vector<bool> neighbours share a byte)
  std::atomic<size_t> next = 0;
  parallel_for(0, at_once, 1, [&](int64_t, int64_t) {
    for (size_t i = next++; i < programs.size(); i = next++) {
      try {
        check_stop(stop);
        passed[i] = passes(programs[i], python, limits, stop);
      } catch (...) {
        next = programs.size();  // the others take no further one
        throw;
      }
    }
  });
  return {passed.begin(), passed.end()};
}

std::optional<std::string> run_python_tool(const std::string& source, const std::vector<std::string>& argv,
                                           const std::string& input, const SandboxLimits& limits) {
  const std::string& python = working_python();
  const Json arguments = argv;
  const std::string told = arguments.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n" +
                           std::to_string(source.size()) + "\n" + source + input;
  const std::string said = run_one(kToolRunner, told, python, limits, nullptr, kWord + kLength + kMostOfTool);
  if (said.size() < kWord + kLength) return std::nullopt;
  const std::string text = said.substr(kWord + kLength);
  if (said.substr(kWord, kLength) != fmt::format("{:0{}}", text.size(), kLength)) return std::nullopt;  // cut off
  return text;
}

}  // namespace mxt::eval

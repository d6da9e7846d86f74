#include "train/rewards/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/child_files.h"
#include "base/error.h"

namespace mxt::train {
namespace {

// Between the run and its program stands a keeper: whoever loses its parent below it becomes its child, in whatever
// session or group, so that it can end them all. It is a copy of a process with threads: nothing in it allocates.
struct Keeper {
  char* const* argv;
  int input, output, errors;  // the program's
  int life;                   // read: closed when the run gives the program up, or is no more
  int started;                // written: why the program cannot be started

  [[noreturn]] void keep() const;

 private:
  [[noreturn]] void become_program() const;
};

void Keeper::become_program() const {
  ::setpgid(0, 0);  // `kill 0` is of its own
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  const int files[] = {input, output, errors};
  int moved[3], say = ::fcntl(started, F_DUPFD_CLOEXEC, 10);
  bool good = say >= 0;
  for (int i = 0; i < 3; ++i) good = good && (moved[i] = ::fcntl(files[i], F_DUPFD, 10)) >= 0;
  for (int i = 0; i < 3; ++i) good = good && ::dup2(moved[i], i) == i;
  if (good) {
    close_files_but(3, {&say, 1});
    ::execvp(argv[0], argv);
  }
  const int why = errno;
  (void)!::write(say, &why, sizeof why);
  ::_exit(127);
}

// Its children as the kernel lists them; false where it lists none.
bool end_children() {
  const int fd = ::open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[4096];
  const ssize_t n = ::read(fd, text, sizeof text);
  ::close(fd);
  pid_t pid = 0;
  for (ssize_t i = 0; i < n; ++i) {  // each is followed by a space
    if (text[i] >= '0' && text[i] <= '9') {
      pid = pid * 10 + (text[i] - '0');
    } else {
      if (pid > 1) ::kill(pid, SIGKILL);
      pid = 0;
    }
  }
  return n > 0;
}

void Keeper::keep() const {
  ::setpgid(0, 0);  // the terminal's signals are for the run
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  // Of all that the run has open (its lock, its logs) nothing stays open here.
  int own[] = {input, output, errors, life, started};
  close_files_but(0, own);
  const pid_t program = ::_Fork();
  if (program == 0) become_program();
  if (program < 0) {
    const int why = errno;
    (void)!::write(started, &why, sizeof why);
    ::_exit(127);
  }
  for (const int fd : {input, output, errors, started}) ::close(fd);
  // Until the program ends, or its time.
  int status = 0, code = 128 + SIGKILL;
  for (pollfd wait{life, POLLIN, 0}; ::poll(&wait, 1, 2) <= 0;)
    if (::waitpid(program, &status, WNOHANG) == program) {
      code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
  ::kill(-program, SIGKILL);  // also where the kernel keeps no list
  // Whose parent has ended is a child in the next round. A second is enough for all who can be ended.
  for (int tries = 0; tries < 500; ++tries) {
    const bool more = end_children();
    pid_t ended;
    while ((ended = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (!more && ended < 0 && errno == ECHILD) break;
    if (ended == 0) ::usleep(2000);
  }
  ::_exit(code);
}

}  // namespace

void Handle::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Child::Child(const std::vector<std::string>& command, int input, int output, int errors) {
  std::vector<char*> argv;
  for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  int life[2], started[2];
  if (::pipe2(life, O_CLOEXEC) != 0) fail_input("pipe: {}", std::strerror(errno));
  const Handle its_life(life[0]);
  life_ = life[1];
  if (::pipe2(started, O_CLOEXEC) != 0) {
    const int why = errno;
    ::close(life_);
    fail_input("pipe: {}", std::strerror(why));
  }
  const Handle heard(started[0]);
  Handle says(started[1]);
  const Keeper keeper{argv.data(), input, output, errors, its_life.get(), says.get()};
  keeper_ = ::_Fork();
  if (keeper_ == 0) keeper.keep();
  int why = keeper_ < 0 ? errno : 0;
  says.close();
  if (keeper_ > 0) {
    ssize_t n;
    do n = ::read(heard.get(), &why, sizeof why);
    while (n < 0 && errno == EINTR);
  }
  if (why == 0) return;
  ::close(life_);
  if (keeper_ > 0) ::waitpid(keeper_, nullptr, 0);
  fail_missing("{} cannot be started: {}", command[0], std::strerror(why));
}

Child::~Child() {
  ::close(life_);
  while (!code_ && ::waitpid(keeper_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<int> Child::wait(std::chrono::steady_clock::time_point until) {
  for (;;) {
    int status = 0;
    if (!code_ && ::waitpid(keeper_, &status, WNOHANG) == keeper_)
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code_ || std::chrono::steady_clock::now() >= until) return code_;
    ::usleep(2000);
  }
}

}  // namespace mxt::train

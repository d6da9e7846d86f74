#include "base/child_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace mxt {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// The exit code of a copy of this process that has run `inside`.
template <class F>
int code_of_child(F inside) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(inside());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(CloseFilesBut, KeepsThoseNamedInAnyOrderAndTwiceAndAllBelowTheFirst) {
  EXPECT_EQ(code_of_child([] {
              for (int fd = 20; fd < 30; ++fd)
                if (::dup2(0, fd) != fd) return 1;
              std::array<int, 5> keep{27, 22, 27, -1, 20};
              close_files_but(22, keep);
              for (int fd = 20; fd < 30; ++fd)
                if (is_open(fd) != (fd < 22 || fd == 22 || fd == 27)) return fd;
              return 0;
            }),
            0);
}

TEST(CloseFilesBut, ClosesAllWhereNoneIsNamed) {
  EXPECT_EQ(code_of_child([] {
              if (::dup2(0, 900) != 900) return 1;
              close_files_but(3, {});
              for (int fd = 3; fd < 1000; ++fd)
                if (is_open(fd)) return 2;
              return is_open(0) ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace mxt

#include "base/child_files.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace mxt {
namespace {

void close_between(int first, int last) {
  if (first > last || ::syscall(SYS_close_range, static_cast<unsigned>(first), static_cast<unsigned>(last), 0u) == 0)
    return;
  // A kernel or a sandbox without that call: as far as files usually reach.
  for (int fd = first; fd <= std::min(last, 4096); ++fd) ::close(fd);
}

}  // namespace

void close_files_but(int first, std::span<int> keep) noexcept {
  std::sort(keep.begin(), keep.end());
  for (const int fd : keep) {
    if (fd < first) continue;
    close_between(first, fd - 1);
    first = fd + 1;
  }
  close_between(first, std::numeric_limits<int>::max());
}

}  // namespace mxt

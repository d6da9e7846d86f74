#include "config/recipe_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace mxt::config {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// The first byte of a pipe whose other end may not be open yet: until it is, a read that does not wait says "end".
void await_writer(int fd, const std::string& path, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&p, 1, 100);
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) return;  // the read that follows says why
    if (std::chrono::steady_clock::now() > end)
      fail_input("{}: is a pipe, and nothing has come through it in {:g} s: write the recipe to it, or name a file",
                 path, seconds);
  }
}

}  // namespace

std::string read_recipe_file(const std::string& path, double pipe_seconds) {
  if (path.find("://") != std::string::npos)
    fail_input("{}: is an address: fetch it, read it, and name the file", path);
  for (const char* rows : {".jsonl", ".parquet", ".csv", ".arrow"})
    if (path.ends_with(rows))
      fail_input("{}: holds rows: a recipe names them under data.path (`mindxtrain init` writes one)", path);
  struct stat st{};
  if (stat(path.c_str(), &st) != 0 || S_ISDIR(st.st_mode)) return read_file(path);  // which says what is wrong
  const bool pipe = S_ISFIFO(st.st_mode), terminal = S_ISCHR(st.st_mode) && isatty(0) && path == "/dev/stdin";
  if (!S_ISREG(st.st_mode) && !pipe && !terminal)
    fail_input("{}: is neither a file nor a pipe: a recipe is a YAML file (mindxtrain init --list names some)", path);
  const auto refuse_size = [&] {
    fail_input("{}: is larger than {} KiB, the most that a recipe has: rows belong into files that data.path names",
               path, kMaxRecipeBytes >> 10);
  };
  if (S_ISREG(st.st_mode)) {
    if (std::cmp_greater(st.st_size, kMaxRecipeBytes)) refuse_size();
    return read_file(path);
  }
  const Descriptor in(open(path.c_str(), O_RDONLY | O_CLOEXEC | (pipe ? O_NONBLOCK : 0)));
  if (in.get() < 0) fail_input("{}: cannot be read: {}", path, std::strerror(errno));
  if (pipe) {
    await_writer(in.get(), path, pipe_seconds);
    fcntl(in.get(), F_SETFL, fcntl(in.get(), F_GETFL) & ~O_NONBLOCK);
  }
  std::string out;
  char piece[1 << 14];
  for (;;) {
    const ssize_t n = read(in.get(), piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_input("{}: cannot be read: {}", path, std::strerror(errno));
    if (n == 0) return out;
    out.append(piece, static_cast<size_t>(n));
    if (out.size() > kMaxRecipeBytes) refuse_size();
  }
}

}  // namespace mxt::config

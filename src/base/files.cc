#include "base/files.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"

namespace mxt {
namespace {

std::string why(int e) {
  if (e == ENOSPC || e == EDQUOT) return "no space left on the disk: free some, or write elsewhere";
  if (e == EROFS || e == EACCES || e == EPERM) return "not permitted: choose a folder that you may write to";
  return std::strerror(e);
}

void sync_folder_of(const std::string& path) {
  const std::string dir = fs::path(path).parent_path().empty() ? "." : fs::path(path).parent_path().string();
  const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    fsync(fd);
    close(fd);
  }
}

constexpr size_t kBuffer = 1 << 20;
constexpr size_t kMostOfADevice = 16 << 20;  // /dev/zero does not end

// What stands in a clone in place of a large file that git-LFS was not asked for.
void refuse_pointer(const std::string& path, std::string_view bytes) {
  if (bytes.size() < 1024 && bytes.starts_with("version https://git-lfs.github.com/spec/"))
    fail_input("{}: is a git-LFS pointer, not the file itself: run `git lfs pull` where it was cloned", path);
}

constexpr auto kLateWriter = std::chrono::seconds(10);

// Of a pipe that was opened without waiting and reads as if at its end: whether it had a writer, and is. Waits a moment
// for one that was started beside this program.
bool is_at_end(int pipe) {
  pollfd p{.fd = pipe, .events = POLLIN, .revents = 0};
  return poll(&p, 1, 100) > 0 && !(p.revents & POLLIN);
}

}  // namespace

std::string read_file(const std::string& path) {
  // To open a pipe that nobody writes to would wait for ever.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_input("{}: cannot be read: {}", path, std::strerror(errno));
  struct stat st{};
  if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
    close(fd);
    fail_input("{}: is a folder, a file was expected", path);
  }
  const auto end = std::chrono::steady_clock::now() + kLateWriter;
  std::string out;
  if (st.st_size > 0) out.reserve(static_cast<size_t>(st.st_size));
  char buf[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, buf, sizeof buf);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // a writer is there: what it has to say may take as long as it takes
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      continue;
    }
    if (n < 0) {
      const int e = errno;
      close(fd);
      fail_input("{}: cannot be read: {}", path, std::strerror(e));
    }
    if (n == 0) {
      if (!S_ISFIFO(st.st_mode) || !out.empty() || is_at_end(fd)) break;
      if (std::chrono::steady_clock::now() < end) continue;
      close(fd);
      fail_input("{}: is a pipe, and nobody has begun to write to it in {} s: start its writer, or name a file", path,
                 kLateWriter.count());
    }
    out.append(buf, static_cast<size_t>(n));
    if (S_ISCHR(st.st_mode) && out.size() > kMostOfADevice) {
      close(fd);
      fail_input("{}: is a device that gives more than {} MiB, and may never end: name a file", path,
                 kMostOfADevice >> 20);
    }
  }
  close(fd);
  refuse_pointer(path, out);
  return out;
}

namespace {

// Of a path that is a stream, a pipe or a device, which nothing can take the place of: its descriptor, to be written to
// as pieces come; -1 of any other. "-" is the standard output.
int open_stream(const std::string& path) {
  if (path == "-" || path == "/dev/stdout") return fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  if (path == "/dev/stderr") return fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  std::error_code ec;
  const auto kind = fs::status(path, ec).type();
  if (kind == fs::file_type::character) return open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (kind != fs::file_type::fifo) return -1;
  // To open a pipe that nobody reads waits for ever; a reader that was started beside this program may be a moment
  // late.
  constexpr int kTries = 20;
  int fd = -1;
  for (int i = 0; i < kTries && (fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK)) < 0 && errno == ENXIO; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (fd < 0 && errno == ENXIO) fail_input("{}: is a pipe that nobody reads: start its reader first", path);
  if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  static std::atomic<unsigned> counter{0};
  buffer_.reserve(kBuffer);
  if ((fd_ = open_stream(path_)) >= 0) return;
  std::error_code ec;
  // A link stays one: what it points to is replaced.
  if (fs::is_symlink(fs::symlink_status(path_, ec))) {
    const fs::path target = fs::canonical(path_, ec);
    if (ec) fail_input("{}: is a link that leads nowhere: {}", path_, why(ec.value()));
    path_ = target.string();
  }
  const fs::path p(path_);
  if (const auto kind = fs::status(p, ec).type();
      kind != fs::file_type::not_found && kind != fs::file_type::regular && kind != fs::file_type::none)
    fail_input("{}: is {}, and a file would take its place: choose another name", path_,
               kind == fs::file_type::directory ? "a folder" : "no regular file");
  temp_ = (p.parent_path() / fmt::format(".{}.{}.{}.tmp", p.filename().string(), getpid(), counter++)).string();
  fd_ = open(temp_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0 && errno == ENOENT)
    fail_input("{}: cannot be written: there is no folder {}: make it first", path_, p.parent_path().string());
  if (fd_ < 0) fail_input("{}: cannot be written: {}", path_, why(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    close(fd_);
    if (!temp_.empty()) unlink(temp_.c_str());
  }
}

void AtomicFile::flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_input("{}: cannot be written: {}", path_, why(errno));
    done += static_cast<size_t>(n);
  }
  buffer_.clear();
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  written_ += bytes;
  while (bytes > 0) {
    const size_t n = std::min(bytes, kBuffer - buffer_.size());
    buffer_.insert(buffer_.end(), p, p + n);
    p += n;
    bytes -= n;
    if (buffer_.size() == kBuffer) flush();
  }
}

void AtomicFile::commit() {
  flush();
  if (temp_.empty()) {  // a stream
    if (close(std::exchange(fd_, -1)) != 0) fail_input("{}: cannot be written: {}", path_, why(errno));
    return;
  }
  if (fsync(fd_) != 0) fail_input("{}: cannot be written: {}", path_, why(errno));
  if (close(fd_) != 0) {
    fd_ = -1;
    unlink(temp_.c_str());
    fail_input("{}: cannot be written: {}", path_, why(errno));
  }
  fd_ = -1;
  if (rename(temp_.c_str(), path_.c_str()) != 0) {
    const int e = errno;
    unlink(temp_.c_str());
    fail_input("{}: cannot be replaced: {}", path_, why(e));
  }
  sync_folder_of(path_);
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  AtomicFile f(path);
  f.write(bytes);
  f.commit();
}

namespace {

// As AtomicFile names them: .NAME.PROCESS.NUMBER.tmp
bool is_unfinished(std::string_view name) {
  if (!name.starts_with(".") || !name.ends_with(".tmp")) return false;
  name.remove_suffix(4);
  for (int i = 0; i < 2; ++i) {
    const size_t dot = name.find_last_not_of("0123456789");
    if (dot == std::string_view::npos || dot == 0 || name[dot] != '.' || dot + 1 == name.size()) return false;
    name = name.substr(0, dot);
  }
  return true;
}

}  // namespace

void remove_unfinished(const std::string& folder) {
  std::error_code ec;
  std::vector<fs::path> found;
  for (auto it = fs::recursive_directory_iterator(folder, ec); !ec && it != fs::recursive_directory_iterator();
       it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (!it->is_directory(ec)) {
      if (is_unfinished(name)) found.push_back(it->path());
    } else if (name.starts_with(".")) {
      it.disable_recursion_pending();
    }
  }
  for (const fs::path& p : found) fs::remove(p, ec);
}

UnfinishedFolder::UnfinishedFolder(const std::string& target) {
  std::error_code ec;
  const fs::path t(target);
  const std::string name = t.filename().string();
  if (name.empty() || name == "." || name == "..") fail_input("{}: name the folder that is to be made", target);
  if (fs::exists(t, ec) && !fs::is_directory(t, ec)) fail_input("{}: is no folder: choose another name", target);
  const fs::path parent = t.has_parent_path() ? t.parent_path() : fs::path(".");
  make_folders(parent.string());
  const std::string before = "." + name + ".", after = ".part";
  for (auto it = fs::directory_iterator(parent, ec); !ec && it != fs::directory_iterator(); it.increment(ec)) {
    const std::string n = it->path().filename().string();
    if (!n.starts_with(before) || !n.ends_with(after) || n.size() <= before.size() + after.size()) continue;
    const std::string pid = n.substr(before.size(), n.size() - before.size() - after.size());
    if (pid.find_first_not_of("0123456789") != std::string::npos || pid.size() > 9) continue;
    if (kill(static_cast<pid_t>(std::stol(pid)), 0) != 0 && errno == ESRCH) fs::remove_all(it->path(), ec);
  }
  path_ = (t.parent_path() / (before + std::to_string(getpid()) + after)).string();
  fs::remove_all(path_, ec);  // this process's own, of an attempt that failed
  make_folders(path_);
}

UnfinishedFolder::~UnfinishedFolder() {
  std::error_code ec;
  fs::remove_all(path_, ec);
}

void replace_folder(const std::string& temp, const std::string& target) {
  std::error_code ec;
  const fs::path t(target);
  const std::string old = (t.parent_path() / ("." + t.filename().string() + ".replaced")).string();
  fs::remove_all(old, ec);
  if (fs::exists(target)) {
    // Exchange in one step where the kernel can; else there is a moment with neither, which .old covers.
#ifdef RENAME_EXCHANGE
    if (renameat2(AT_FDCWD, temp.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      fs::remove_all(temp, ec);
      sync_folder_of(target);
      return;
    }
#endif
    if (rename(target.c_str(), old.c_str()) != 0) fail_input("{}: cannot be replaced: {}", target, why(errno));
  }
  if (rename(temp.c_str(), target.c_str()) != 0) fail_input("{}: cannot be replaced: {}", target, why(errno));
  sync_folder_of(target);
  fs::remove_all(old, ec);
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_input("{}: cannot be read: {}", path, std::strerror(errno));
  struct stat st{};
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    fail_input("{}: is not a regular file", path);
  }
  size_ = static_cast<size_t>(st.st_size);
  if (size_ > 0) {
    data_ = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    if (data_ == MAP_FAILED) {
      const int e = errno;
      close(fd);
      data_ = nullptr;
      fail_input("{}: cannot be mapped: {}", path, std::strerror(e));
    }
  }
  close(fd);
  try {
    refuse_pointer(path, {static_cast<const char*>(data_), data_ ? size_ : 0});
  } catch (...) {
    munmap(std::exchange(data_, nullptr), size_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (data_) munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& o) noexcept
    : path_(std::move(o.path_)), data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& o) noexcept {
  std::swap(path_, o.path_);
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  return *this;
}

void MappedFile::drop_pages() const {
  if (data_) madvise(data_, size_, MADV_DONTNEED);
}

FolderLock::FolderLock(const std::string& folder) {
  if (folder.empty()) fail_input("the folder to write to has no name: give --out one");
  make_folders(folder);
  path_ = folder + "/.lock";
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_input("{}: cannot be written: {}", folder, why(errno));
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    close(fd_);
    fd_ = -1;
    fail_input("{}: another mindxtrain process is using this folder: wait for it, or choose another --out", folder);
  }
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

void make_folders(const std::string& path) {
  std::error_code ec;
  fs::create_directories(path, ec);
  if (ec) fail_input("{}: cannot be created: {}", path, why(ec.value()));
}

uint64_t free_disk_bytes(const std::string& path) {
  std::error_code ec;
  fs::path p = path.empty() ? "." : path;
  while (!fs::exists(p, ec) && p.has_parent_path() && p != p.parent_path()) p = p.parent_path();
  if (p.empty()) p = ".";
  const auto s = fs::space(p, ec);
  return ec ? 0 : s.available;
}

std::vector<std::string> list_files(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code ec;
  std::string at = folder;
  for (auto it = fs::recursive_directory_iterator(folder, ec); !ec && it != fs::recursive_directory_iterator();
       it.increment(ec)) {
    at = it->path().string();
    if (it->path().filename().string().starts_with(".")) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (it->is_symlink() && !fs::exists(it->path(), ec))
      fail_input("{}: is a link that leads nowhere", it->path().string());
    if (it->is_regular_file()) out.push_back(it->path().lexically_relative(folder).generic_string());
  }
  // A folder that is there and cannot be read would be rows, or files of a digest, left out in silence.
  if (ec && ec != std::errc::no_such_file_or_directory && ec != std::errc::not_a_directory)
    fail_input("{}: cannot be read: {}", at, ec.message());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> list_entries(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code ec;
  for (auto it = fs::recursive_directory_iterator(folder, ec); !ec && it != fs::recursive_directory_iterator();
       it.increment(ec))
    if (!fs::is_directory(it->symlink_status())) out.push_back(it->path().lexically_relative(folder).generic_string());
  if (ec) fail_input("{}: cannot be read: {}", folder, why(ec.value()));
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

// Matches path components one by one; `**` stands for any number of them.
void glob_into(const fs::path& base, const std::vector<std::string>& parts, size_t i, std::vector<std::string>& out) {
  std::error_code ec;
  if (i == parts.size()) {
    if (fs::is_regular_file(base, ec)) out.push_back(base.generic_string());
    return;
  }
  const std::string& part = parts[i];
  if (part.find_first_of("*?[") == std::string::npos) {
    const fs::path next = base.empty() ? fs::path(part) : base / part;
    if (fs::exists(next, ec)) glob_into(next, parts, i + 1, out);
    return;
  }
  const fs::path dir = base.empty() ? fs::path(".") : base;
  if (part == "**") glob_into(base, parts, i + 1, out);
  auto it = fs::directory_iterator(dir, ec);
  if (ec == std::errc::permission_denied) fail_input("{}: cannot be read: {}", dir.string(), ec.message());
  for (; !ec && it != fs::directory_iterator(); it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(".")) continue;
    const fs::path next = base.empty() ? fs::path(name) : base / name;
    if (part == "**") {
      if (it->is_directory(ec) && !it->is_symlink(ec)) glob_into(next, parts, i, out);
    } else if (fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) == 0) {
      glob_into(next, parts, i + 1, out);
    }
  }
}

constexpr size_t kMaxPatterns = 10000, kMaxPattern = 4096;

// `a{b,c}d` is `abd` and `acd`. Braces without a comma of their own, or not closed, are as they stand (as in bash).
void expand_braces(const std::string& done, std::string_view rest, std::vector<std::string>& out) {
  for (size_t open = rest.find('{'); open != std::string_view::npos; open = rest.find('{', open + 1)) {
    std::vector<size_t> cuts{open};  // the brace, its commas, the closing brace
    size_t close = open;
    for (int depth = 0; close < rest.size(); ++close) {
      const char c = rest[close];
      depth += c == '{';
      if (c == ',' && depth == 1) cuts.push_back(close);
      if (c == '}' && --depth == 0) break;
    }
    if (close == rest.size() || cuts.size() == 1) continue;
    cuts.push_back(close);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const std::string_view choice = rest.substr(cuts[i] + 1, cuts[i + 1] - cuts[i] - 1);
      // A choice may hold braces itself, so it goes through here again with what follows.
      expand_braces(done + std::string(rest.substr(0, open)), std::string(choice) + std::string(rest.substr(close + 1)),
                    out);
    }
    return;
  }
  if (out.size() == kMaxPatterns)
    fail_input("the braces of the pattern stand for more than {} patterns; write fewer", kMaxPatterns);
  out.push_back(done + std::string(rest));
}

}  // namespace

std::vector<std::string> glob_files(const std::string& pattern) {
  std::error_code ec;
  if (fs::is_regular_file(pattern, ec)) return {pattern};
  if (pattern.size() > kMaxPattern)
    fail_input("the pattern has {} bytes, at most {} are taken", pattern.size(), kMaxPattern);
  std::vector<std::string> out, patterns;
  expand_braces("", pattern, patterns);
  for (const std::string& p : patterns) {
    std::vector<std::string> parts;
    fs::path root;
    for (const auto& c : fs::path(p)) {
      if (c == "/")
        root = "/";
      else if (!c.empty())
        parts.push_back(c.string());
    }
    glob_into(root, parts, 0, out);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace mxt

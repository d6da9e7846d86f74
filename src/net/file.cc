#include "net/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/text.h"

namespace mxt::net {
namespace {

constexpr int kIdleAttempts = 4;  // that brought nothing, one after another

// A file being fetched: appended to across runs, renamed when whole.
class PartialFile {
 public:
  explicit PartialFile(const std::string& path) : path_(path) {
    make_folders(fs::path(path).parent_path().string());
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail_input("{}: cannot be written: {}", path, std::strerror(errno));
    const off_t end = lseek(fd_, 0, SEEK_END);
    size_ = end > 0 ? static_cast<uint64_t>(end) : 0;
  }
  ~PartialFile() {
    if (fd_ >= 0) close(fd_);
  }
  PartialFile(const PartialFile&) = delete;

  uint64_t size() const { return size_; }
  void restart() {
    if (ftruncate(fd_, 0) != 0 || lseek(fd_, 0, SEEK_SET) != 0)
      fail_input("{}: cannot be written: {}", path_, std::strerror(errno));
    size_ = 0;
  }
  void append(std::string_view s) {
    while (!s.empty()) {
      const ssize_t n = ::write(fd_, s.data(), s.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == ENOSPC)
        fail_input("{}: no space left on the disk: free some; the part that is here will be used", path_);
      if (n < 0) fail_input("{}: cannot be written: {}", path_, std::strerror(errno));
      size_ += static_cast<uint64_t>(n);
      s.remove_prefix(static_cast<size_t>(n));
    }
  }
  void finish(const std::string& target) {
    if (fsync(fd_) != 0) fail_input("{}: cannot be written: {}", path_, std::strerror(errno));
    if (rename(path_.c_str(), target.c_str()) != 0)
      fail_input("{}: cannot be renamed: {}", path_, std::strerror(errno));
  }

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// A 206 must go on exactly where we stopped.
bool continues_at(const Headers& headers, uint64_t at) {
  const std::string* range = find_header(headers, "Content-Range");
  return range && range->starts_with(fmt::format("bytes {}-", at));
}

void require_room(const FileFetch& f, const PartialFile& file, const std::string& temp) {
  if (!f.size || free_disk_bytes(temp) >= *f.size - file.size()) return;
  fail_input("{} needs {} but only {} are free below {}: free some, or {}", f.what, human_bytes(*f.size - file.size()),
             human_bytes(free_disk_bytes(temp)), fs::path(temp).parent_path().string(), f.elsewhere);
}

// One request for what is missing; false where the server says that nothing lies there.
bool ask_for_rest(HttpClient& http, const FileFetch& f, PartialFile& file) {
  HttpRequest q;
  q.url = f.url;
  q.headers = f.headers;
  q.headers.emplace_back("Accept-Encoding", "identity");
  q.max_bytes = f.size.value_or(uint64_t{1} << 50);
  if (file.size() > 0) q.range_begin = file.size();
  q.on_headers = [&](int status, const Headers& headers) {
    if (status == 200 && file.size() > 0) file.restart();  // the server knows no ranges
    if (status == 206 && !continues_at(headers, file.size()))
      fail_input("{}: the server answered another part than was asked for", q.url);
  };
  q.on_data = [&](std::string_view piece) {
    if (f.size && piece.size() > *f.size - file.size())
      fail_input("{} is longer than the {} bytes that {} promised", f.what, *f.size, f.promiser);
    file.append(piece);
    if (f.progress) f.progress(file.size());
  };
  const HttpResponse r = http.send(q);
  if (r.status == 416 && q.range_begin) return false;
  if (r.status != 200 && r.status != 206) f.refuse(r);
  return true;
}

// A dropped connection goes on from where it stopped, as long as each attempt brings something.
void fetch_all(HttpClient& http, const FileFetch& f, PartialFile& file) {
  for (int idle = 0; !f.size || file.size() < *f.size;) {
    const uint64_t before = file.size();
    try {
      if (!ask_for_rest(http, f, file)) {
        file.restart();
        if (++idle > kIdleAttempts) fail_missing("{}: the server has no such part of it: try again later", f.what);
        continue;
      }
      if (!f.size) return;
    } catch (const Error& e) {
      const bool lost = e.code() == Exit::kMissing && file.size() != before;
      if (!lost && ++idle > kIdleAttempts) throw;
      if (e.code() != Exit::kMissing) throw;
    }
    if (file.size() > before)
      idle = 0;
    else if (++idle > kIdleAttempts)
      fail_missing("{} stops after {} of {} bytes: try again later", f.what, file.size(), *f.size);
  }
}

}  // namespace

void fetch_file(HttpClient& http, const FileFetch& f, const std::string& target) {
  const std::string temp = target + ".incomplete";
  PartialFile file(temp);
  if (f.size && file.size() > *f.size) file.restart();
  require_room(f, file, temp);
  fetch_all(http, f, file);
  if (!f.sha256.empty()) {
    const std::string got = hash_file(temp).sha256;
    if (got != f.sha256) {
      file.restart();
      fail_verify("{} has sha256 {} but {} promised {}: it was damaged on its way and is removed, try again", f.what,
                  got, f.promiser, f.sha256);
    }
  }
  file.finish(target);
}

}  // namespace mxt::net

#include "data/store/scratch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace mxt::data {
namespace {

constexpr size_t kBuffer = size_t{256} << 10;
// What is small enough to count whole is read without a call to the kernel for each place.
constexpr size_t kMapped = size_t{256} << 20;

}  // namespace

Scratch::Scratch(const std::string& folder) : folder_(folder) {
  std::string name = folder + "/.scratch-XXXXXX";
  fd_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0)
    fail_input("{}: no file can be made here: {}; check the folder and its permissions", folder, std::strerror(errno));
  ::unlink(name.c_str());
}

Scratch::~Scratch() {
  if (map_) ::munmap(const_cast<void*>(map_), size_);
  ::close(fd_);
}

void Scratch::append(const void* data, size_t bytes) {
  MXT_ASSERT(!finished_);
  const char* p = static_cast<const char*>(data);
  buffer_.insert(buffer_.end(), p, p + bytes);
  size_ += bytes;
  if (buffer_.size() >= kBuffer) flush();
}

void Scratch::flush() {
  for (size_t at = 0; at < buffer_.size();) {
    const ssize_t n = ::write(fd_, buffer_.data() + at, buffer_.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_input("{}: writing failed: {}; free some space", folder_, std::strerror(errno));
    at += static_cast<size_t>(n);
  }
  buffer_.clear();
}

void Scratch::finish() {
  flush();
  std::vector<char>().swap(buffer_);
  finished_ = true;
  if (size_ <= kMapped) map();
}

void Scratch::read(size_t at, size_t bytes, void* to) const {
  MXT_ASSERT(finished_ && at <= size_ && bytes <= size_ - at);
  if (size_ <= kMapped) {
    if (bytes > 0) std::memcpy(to, static_cast<const char*>(map_) + at, bytes);
    return;
  }
  char* p = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd_, p, bytes, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_input("{}: reading failed: {}", folder_, n < 0 ? std::strerror(errno) : "the file ends early");
    p += n;
    at += static_cast<size_t>(n);
    bytes -= static_cast<size_t>(n);
  }
}

void Scratch::expect(size_t at, size_t bytes) const {
  (void)::posix_fadvise(fd_, static_cast<off_t>(at), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);  // a hint
}

void Scratch::forget() const {
  if (map_) ::madvise(const_cast<void*>(map_), size_, MADV_DONTNEED);
}

const void* Scratch::map() const {
  MXT_ASSERT(finished_);
  if (size_ == 0 || map_) return map_;
  void* p = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
  if (p == MAP_FAILED) fail_input("{}: a file of {} bytes cannot be mapped: {}", folder_, size_, std::strerror(errno));
  return map_ = p;
}

}  // namespace mxt::data

#include "net/body.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "net/patience.h"

namespace mxt::net {

void give_time(HttpRequest& r) {
  constexpr double kAnswerSeconds = 120;       // to a small request
  constexpr double kSlowestUpload = 64 << 10;  // bytes a second
  constexpr double kSlowestWork = 16 << 20;    // bytes a second that a service does with them what it does
  const auto bytes = static_cast<double>(r.parts.empty() ? r.body.size() : BodyReader(r.parts).size());
  r.idle_seconds = kAnswerSeconds + bytes / kSlowestWork;
  r.answer_seconds = kAnswerComesSeconds + bytes / kSlowestWork;
  if (r.total_seconds == 0) r.total_seconds = kAnswerSeconds + bytes / kSlowestUpload;
}

uint64_t BodyReader::size() const {
  uint64_t n = 0;
  for (const BodyPart& p : parts_) n += p.text.size() + p.bytes;
  return n;
}

void BodyReader::rewind() {
  close_file();
  part_ = 0;
  done_ = 0;
}

size_t BodyReader::read(char* to, size_t room) {
  for (; part_ < parts_.size(); ++part_, done_ = 0, close_file()) {
    const BodyPart& p = parts_[part_];
    if (done_ < p.text.size()) {
      const size_t n = p.text.copy(to, room, done_);
      done_ += n;
      return n;
    }
    const uint64_t at = done_ - p.text.size();
    if (at == p.bytes) continue;
    if (fd_ < 0) fd_ = open(p.file.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t n =
        fd_ < 0 ? -1 : pread(fd_, to, std::min<uint64_t>(room, p.bytes - at), static_cast<off_t>(p.offset + at));
    if (n < 0) fail_input("{}: cannot be read: {}", p.file, std::strerror(errno));
    if (n == 0) fail_input("{}: became shorter while it was sent", p.file);
    done_ += static_cast<uint64_t>(n);
    return static_cast<size_t>(n);
  }
  return 0;
}

void BodyReader::close_file() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace mxt::net

#include "data/source/input.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/error.h"

namespace mxt::data {
namespace {

constexpr size_t kReadBuffer = size_t{1} << 18;

class File {
 public:
  explicit File(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail_input("{}: cannot be opened: {}; check the path and its permissions", path, std::strerror(errno));
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;

  size_t read(char* to, size_t room) {
    for (;;) {
      const ssize_t n = ::read(fd_, to, room);
      if (n >= 0) {
        total_ += static_cast<uint64_t>(n);
        return static_cast<size_t>(n);
      }
      if (errno != EINTR) fail_input("{}: reading failed: {}", path_, std::strerror(errno));
    }
  }
  uint64_t total() const { return total_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_;
  uint64_t total_ = 0;
};

// A frame, or a skippable one, with which pzstd's files begin (RFC 8878, 3.1).
bool is_zstd(std::string_view s) {
  if (s.size() < 4) return false;
  const bool skippable = (static_cast<unsigned char>(s[0]) & 0xf0) == 0x50 && s.substr(1, 3) == "\x2a\x4d\x18";
  return skippable || s.substr(0, 4) == "\x28\xb5\x2f\xfd";
}

bool starts_with(std::string_view s, std::string_view head) { return s.substr(0, head.size()) == head; }

// UTF-16 or UTF-32 without a byte order mark: of its first two characters, which in rows are ASCII, every other byte or
// three of four are zero.
bool is_wide(std::string_view text) {
  if (text.size() < 4) return false;
  const bool zero[] = {text[0] == 0, text[1] == 0, text[2] == 0, text[3] == 0};
  return (zero[0] && !zero[1] && zero[2] && !zero[3]) || (!zero[0] && zero[1] && !zero[2] && zero[3]) ||
         (zero[0] && zero[1] && zero[2] && !zero[3]) || (!zero[0] && zero[1] && zero[2] && zero[3]);
}

}  // namespace

class Input::Unpacker {
 public:
  explicit Unpacker(std::unique_ptr<File> file) : file_(std::move(file)), packed_(kReadBuffer) {}
  Unpacker(Unpacker&&) = default;
  virtual ~Unpacker() = default;
  virtual size_t read(char* to, size_t room) = 0;  // 0 = the end
  uint64_t packed_bytes() const { return file_->total(); }
  // Where the text that is being unpacked goes on.
  std::string where() const { return fmt::format("{}:{}", file_->path(), line ? *line : 1); }
  const uint64_t* line = nullptr;
  std::string_view head() {
    refill();
    return {packed_.data() + at_, end_ - at_};
  }
  std::unique_ptr<File> file_;
  std::vector<char> packed_;
  size_t at_ = 0, end_ = 0;

 protected:
  bool refill() {  // keeps at least one packed byte ready
    if (at_ < end_) return true;
    at_ = 0;
    end_ = file_->read(packed_.data(), packed_.size());
    return end_ > 0;
  }
};

class Input::Plain : public Unpacker {
 public:
  using Unpacker::Unpacker;
  size_t read(char* to, size_t room) override {
    if (!refill()) return 0;
    const size_t n = std::min(room, end_ - at_);
    std::memcpy(to, packed_.data() + at_, n);
    at_ += n;
    return n;
  }
};

class Input::Gzip : public Unpacker {
 public:
  explicit Gzip(Unpacker&& head) : Unpacker(std::move(head)) {
    if (inflateInit2(&z_, 15 + 16) != Z_OK) fail_input("{}: gzip cannot be started: out of memory", file_->path());
  }
  ~Gzip() override { inflateEnd(&z_); }
  size_t read(char* to, size_t room) override {
    z_.next_out = reinterpret_cast<Bytef*>(to);
    z_.avail_out = static_cast<uInt>(room);
    while (z_.avail_out == room) {
      if (!refill()) {
        if (!between_) fail_input("{}: the gzip data ends early; the file is truncated, get it again", where());
        return 0;
      }
      if (between_) {  // another member may follow; zero padding (as tar writes) ends the file
        if (packed_[at_] == 0) return 0;
        inflateReset(&z_);
        between_ = false;
      }
      z_.next_in = reinterpret_cast<Bytef*>(packed_.data() + at_);
      z_.avail_in = static_cast<uInt>(end_ - at_);
      const int rc = inflate(&z_, Z_NO_FLUSH);
      at_ = end_ - z_.avail_in;
      if (rc == Z_STREAM_END)
        between_ = true;
      else if (rc != Z_OK && rc != Z_BUF_ERROR)
        fail_input("{}: the gzip data is corrupt ({}); get the file again", where(), z_.msg ? z_.msg : "bad stream");
    }
    return room - z_.avail_out;
  }

 private:
  z_stream z_{};
  bool between_ = false;  // a member has ended
};

class Input::Zstd : public Unpacker {
 public:
  explicit Zstd(Unpacker&& head) : Unpacker(std::move(head)), stream_(ZSTD_createDStream()) {
    if (!stream_) fail_input("{}: zstd cannot be started: out of memory", file_->path());
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }
  size_t read(char* to, size_t room) override {
    ZSTD_outBuffer out{to, room, 0};
    while (out.pos == 0) {
      // A full output may hide bytes still inside the decoder, so it is called once more before new input is needed.
      if (!refill() && hint_ == 0) return 0;
      ZSTD_inBuffer in{packed_.data(), end_, at_};
      const size_t before = in.pos;
      hint_ = ZSTD_decompressStream(stream_, &out, &in);
      at_ = in.pos;
      if (ZSTD_isError(hint_))
        fail_input("{}: the zstd data is corrupt ({}); get the file again", where(), ZSTD_getErrorName(hint_));
      if (out.pos == 0 && in.pos == before && at_ == end_ && !refill())
        fail_input("{}: the zstd data ends early; the file is truncated, get it again", where());
    }
    return out.pos;
  }

 private:
  ZSTD_DStream* stream_;
  size_t hint_ = 0;  // 0 = a frame has just ended
};

Input::Input(std::string path, const SourceLimits& limits)
    : path_(std::move(path)), limits_(limits), buffer_(kReadBuffer) {
  std::error_code ec;
  if (const auto n = std::filesystem::file_size(path_, ec); !ec) file_bytes_ = n;
  auto plain = std::make_unique<Plain>(std::make_unique<File>(path_));
  const std::string_view head = plain->head();
  if (head.size() < 1024 && starts_with(head, "version https://git-lfs.github.com/spec/"))
    fail_input("{}: is a git-LFS pointer, not the file itself; run `git lfs pull` where it was cloned", path_);
  if (starts_with(head, "\x1f\x8b"))
    unpacker_ = std::make_unique<Gzip>(std::move(*plain));
  else if (is_zstd(head))
    unpacker_ = std::make_unique<Zstd>(std::move(*plain));
  else if (head.empty() && (path_.ends_with(".gz") || path_.ends_with(".zst")))
    fail_input("{}: is empty, not even a compressed empty text; get the file again", path_);
  else if (path_.ends_with(".gz") || path_.ends_with(".zst"))
    fail_input("{}: is not compressed as its name says; rename it, or compress it", path_);
  else
    unpacker_ = std::move(plain);

  unpacker_->line = &line_;

  while (end_ < 4) {  // enough for a byte order mark
    const size_t n = unpacker_->read(buffer_.data() + end_, buffer_.size() - end_);
    if (n == 0) break;
    end_ += n;
  }
  const std::string_view text(buffer_.data(), end_);
  if (starts_with(text, "version https://git-lfs.github.com/spec/"))
    fail_input(
        "{}: holds a git-LFS pointer that was compressed, not rows; run `git lfs pull` where it was cloned, and "
        "compress the file itself",
        path_);
  if (starts_with(text, "\xef\xbb\xbf"))
    at_ = 3;
  else if (starts_with(text, "\xff\xfe") || starts_with(text, "\xfe\xff") ||
           starts_with(text, std::string_view("\0\0\xfe\xff", 4)) || is_wide(text))
    fail_input("{}: is UTF-16 or UTF-32 text; convert it to UTF-8 (iconv -t UTF-8)", path_);
}

Input::~Input() = default;

double Input::done() const {
  return file_bytes_ == 0
             ? 1.0
             : std::min(1.0, static_cast<double>(unpacker_->packed_bytes()) / static_cast<double>(file_bytes_));
}

bool Input::fill() {
  at_ = 0;
  end_ = unpacker_->read(buffer_.data(), buffer_.size());
  unpacked_ += end_;
  if (unpacked_ > limits_.free_bytes && unpacked_ / limits_.ratio > unpacker_->packed_bytes())
    fail_input("{}: unpacks to more than {} times its size; refused as a decompression bomb", path_, limits_.ratio);
  return end_ > 0;
}

bool Input::append_line(std::string* out) {
  bool any = false;
  while (at_ < end_ || fill()) {
    any = true;
    const char* from = buffer_.data() + at_;
    const void* nl = std::memchr(from, '\n', end_ - at_);
    const size_t n = nl ? static_cast<size_t>(static_cast<const char*>(nl) - from) + 1 : end_ - at_;
    if (out->size() + n > limits_.row_bytes)
      fail_input("{}:{}: the row is longer than {} MiB; split it into smaller documents", path_, line_,
                 limits_.row_bytes >> 20);
    out->append(from, n);
    at_ += n;
    if (nl) {
      ++line_;
      break;
    }
  }
  return any;
}

}  // namespace mxt::data

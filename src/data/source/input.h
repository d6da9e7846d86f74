// A file as a stream of text bytes, unpacked on the way (gzip and zstd are known by their first bytes), with the line
// count that messages need. Memory is bounded by the buffers; a file that unpacks without end is refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mxt::data {

struct SourceLimits {
  uint64_t row_bytes = uint64_t{64} << 20;   // one row
  uint64_t free_bytes = uint64_t{64} << 20;  // unpacked bytes below which the ratio is not looked at
  uint64_t ratio = 4000;                     // unpacked to packed; gzip cannot pass 1032, honest zstd text seldom 1000
};

class Input {
 public:
  // Errors (kBadInput): unreadable, corrupt or truncated compression, past the ratio, UTF-16 or UTF-32 text. A UTF-8
  // byte order mark is skipped.
  Input(std::string path, const SourceLimits& limits);
  ~Input();
  Input(const Input&) = delete;

  static constexpr int kEnd = -1;
  int peek() { return at_ < end_ || fill() ? static_cast<unsigned char>(buffer_[at_]) : kEnd; }
  int get() {
    if (at_ == end_ && !fill()) return kEnd;
    const unsigned char c = static_cast<unsigned char>(buffer_[at_++]);
    line_ += c == '\n';
    return c;
  }
  // Appends up to and including the next '\n' (or the end). False at the end of the file. Errors: `out` past row_bytes.
  bool append_line(std::string* out);

  const std::string& path() const { return path_; }
  const SourceLimits& limits() const { return limits_; }
  double done() const;                     // part of the file that has been read, 0 to 1
  uint64_t line() const { return line_; }  // of the next byte, from 1

 private:
  class Unpacker;
  class Plain;
  class Gzip;
  class Zstd;
  bool fill();

  std::string path_;
  SourceLimits limits_;
  std::unique_ptr<Unpacker> unpacker_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
  uint64_t line_ = 1, unpacked_ = 0, file_bytes_ = 0;
};

}  // namespace mxt::data

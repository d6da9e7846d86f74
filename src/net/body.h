// The body of a request, piece by piece: text, and files that are not held in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "net/http.h"

namespace mxt::net {

class BodyReader {
 public:
  explicit BodyReader(const std::vector<BodyPart>& parts) : parts_(parts) {}
  ~BodyReader() { close_file(); }
  BodyReader(const BodyReader&) = delete;
  uint64_t size() const;
  void rewind();
  // At most `room` bytes; 0 at the end. Errors (kBadInput): a file that cannot be read, or became shorter.
  size_t read(char* to, size_t room);

 private:
  void close_file();
  const std::vector<BodyPart>& parts_;
  size_t part_ = 0;
  uint64_t done_ = 0;  // of this part
  int fd_ = -1;
};

}  // namespace mxt::net

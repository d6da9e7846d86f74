// A file of numbers too many for memory: appended, then read through a mapping. It has no name from the start, so
// nothing of it is ever left behind, whatever ends the program.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace mxt::data {

class Scratch {
 public:
  // Errors (kBadInput): the folder cannot be written.
  explicit Scratch(const std::string& folder);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Errors (kBadInput): the disk is full.
  void append(const void* data, size_t bytes);
  size_t size() const { return size_; }
  void finish();  // from here on it may be read, no longer appended to
  template <typename T>
  std::span<const T> as() const {
    return {static_cast<const T*>(map_), size_ / sizeof(T)};
  }

 private:
  void flush();
  std::string folder_;
  int fd_ = -1;
  std::vector<char> buffer_;
  size_t size_ = 0;
  const void* map_ = nullptr;
};

}  // namespace mxt::data

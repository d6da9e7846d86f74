// A file of numbers too many for memory: appended, then read. It has no name from the start, so nothing of it is ever
// left behind, whatever ends the program.
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
  // For reading here and there: a mapping would count whole neighbourhoods of each place as this program's memory.
  // Errors (kBadInput): the disk fails.
  void read(size_t at, size_t bytes, void* to) const;
  void expect(size_t at, size_t bytes) const;  // it will be read soon: the disk may begin
  // All of it, mapped at the first call: for files that are few bytes a row, and for reading from one end to the other.
  template <typename T>
  std::span<const T> as() const {
    return {static_cast<const T*>(map()), size_ / sizeof(T)};
  }
  void forget() const;  // what was read through the mapping no longer counts as memory

 private:
  void flush();
  const void* map() const;
  std::string folder_;
  int fd_ = -1;
  std::vector<char> buffer_;
  size_t size_ = 0;
  bool finished_ = false;
  mutable const void* map_ = nullptr;
};

}  // namespace mxt::data

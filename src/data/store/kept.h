// Finished work kept by a name that says all of what it was made from, so that work that was interrupted goes on where
// it stood, and what jobs have done is found. Each is one file that appears whole or not at all.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mxt::data {

class Kept {
 public:
  explicit Kept(std::string folder) : folder_(std::move(folder)) {}  // made with the first file
  // The bytes, or none where they are not there or damaged.
  std::optional<std::string> find(const std::string& name) const;
  void put(const std::string& name, std::span<const std::string_view> bytes) const;

 private:
  std::string folder_;
};

template <typename T>
std::string_view bytes_of(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

// Reads what put() was given, array by array.
class KeptReader {
 public:
  explicit KeptReader(std::string_view bytes) : left_(bytes) {}
  template <typename T>
  bool take(std::vector<T>* v, uint64_t n) {
    if (n > left_.size() / sizeof(T)) return false;
    v->resize(n);
    if (n) std::copy_n(left_.data(), n * sizeof(T), reinterpret_cast<char*>(v->data()));
    left_.remove_prefix(n * sizeof(T));
    return true;
  }
  bool done() const { return left_.empty(); }

 private:
  std::string_view left_;
};

}  // namespace mxt::data

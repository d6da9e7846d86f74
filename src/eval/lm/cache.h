// Finished requests on disk, by a hash of everything that the answer depends on: an evaluation that was killed goes on
// where it was.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

#include "base/json.h"

namespace mxt::eval {

class RequestCache {
 public:
  // Appends to `path` ("" = memory only). A last line that was cut off by a kill is dropped.
  explicit RequestCache(const std::string& path);
  ~RequestCache();
  RequestCache(const RequestCache&) = delete;
  const OrderedJson* find(const std::string& key) const;
  void put(const std::string& key, const OrderedJson& answer);
  size_t size() const { return answers_.size(); }

 private:
  std::string path_;
  int fd_ = -1;
  std::unordered_map<std::string, OrderedJson> answers_;
};

}  // namespace mxt::eval

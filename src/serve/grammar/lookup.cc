#include "serve/grammar/lookup.h"

#include <algorithm>
#include <functional>

#include "base/json_text.h"
#include "serve/grammar/decimal.h"

namespace mxt::serve {
namespace {

size_t mixed(size_t a, size_t b) { return a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2)); }

// Equal for equal values, whatever a number is kept as and in whatever order members stand.
size_t hash_of(const OrderedJson& v) {
  if (const auto number = decimal_of(v)) return mixed(1, std::hash<std::string>()(number->whole));
  size_t h = static_cast<size_t>(v.type()) + 2;
  if (v.is_string()) return mixed(h, std::hash<std::string>()(v.get_ref<const std::string&>()));
  if (v.is_boolean()) return mixed(h, v.get<bool>());
  if (v.is_array())
    for (const OrderedJson& x : v) h = mixed(h, hash_of(x));
  if (v.is_object())
    for (const auto& [key, x] : v.items()) h += mixed(std::hash<std::string>()(key), hash_of(x));
  return h;
}

}  // namespace

ValueSet::ValueSet(const OrderedJson& list) {
  for (const OrderedJson& v : list) insert(v);
}

bool ValueSet::insert(const OrderedJson& v) {
  auto& same = values_[hash_of(v)];
  const bool fresh = std::none_of(same.begin(), same.end(), [&](const OrderedJson* x) { return same_json(*x, v); });
  if (fresh) same.push_back(&v);
  return fresh;
}

bool ValueSet::contains(const OrderedJson& v) const {
  const auto same = values_.find(hash_of(v));
  return same != values_.end() &&
         std::any_of(same->second.begin(), same->second.end(), [&](const OrderedJson* x) { return same_json(*x, v); });
}

Members::Members(const OrderedJson& object) {
  if (object.is_object())
    for (const auto& item : object.get_ref<const OrderedJson::object_t&>()) members_.emplace(item.first, &item.second);
}

const OrderedJson* Members::find(std::string_view name) const {
  const auto it = members_.find(name);
  return it == members_.end() ? nullptr : it->second;
}

}  // namespace mxt::serve

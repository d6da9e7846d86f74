// Values and members found by what they are: schemas of clients hold lists and objects of any length.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace mxt::serve {

// Equal as JSON values are (1 and 1.0 are one, members stand in any order). What it holds must outlive it.
class ValueSet {
 public:
  ValueSet() = default;
  explicit ValueSet(const OrderedJson& list);
  bool insert(const OrderedJson& v);  // false: it is there
  bool contains(const OrderedJson& v) const;

 private:
  std::unordered_map<size_t, std::vector<const OrderedJson*>> values_;
};

// An object's members by name; the object must outlive it.
class Members {
 public:
  explicit Members(const OrderedJson& object);
  const OrderedJson* find(std::string_view name) const;

 private:
  std::unordered_map<std::string_view, const OrderedJson*> members_;
};

// For one schema that is held against many values: what of it was looked into once. The schema must outlive it.
struct Lookup {
  std::map<const OrderedJson*, ValueSet> lists;
  std::map<const OrderedJson*, Members> objects;

  bool holds(const OrderedJson& list, const OrderedJson& v) {
    return lists.try_emplace(&list, list).first->second.contains(v);
  }
  const OrderedJson* member(const OrderedJson& object, std::string_view name) {
    return objects.try_emplace(&object, object).first->second.find(name);
  }
};

}  // namespace mxt::serve

#include "jinja/values/value.h"

#include <cmath>
#include <cstdlib>
#include <functional>

namespace mxt::jinja {
namespace {

constexpr uint32_t kHeaviestKey = 4096;
constexpr size_t kIndexFrom = 8;  // items of a dict from which it is looked up by hash

}  // namespace

std::string UndefinedInfo::message() const {
  if (!hint.empty()) return hint;
  if (owner.empty()) return fmt::format("'{}' is undefined", name);
  return fmt::format("'{}' has no attribute '{}'", owner, name);
}

std::string_view type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return v.str().markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      return "dict view";
    case Kind::kIterator:
      return "generator";
    case Kind::kSlice:
      return "slice";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

bool hashable(const Value& v) {
  switch (v.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kSlice:
      return false;
    case Kind::kTuple:
      if (v.object()->weight > kHeaviestKey) return false;
      for (const Value& item : v.as<List>().items)
        if (!hashable(item)) return false;
      return true;
    default:
      return true;
  }
}

// 1, 1.0 and True are one key, as in Python.
size_t ValueHash::operator()(const Value& v) const {
  switch (v.kind()) {
    case Kind::kString:
      return std::hash<std::string>{}(v.text());
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<double>{}(static_cast<double>(v.as_int()));
    case Kind::kFloat:
      return std::hash<double>{}(v.as_real());
    case Kind::kBigInt:
      return std::hash<double>{}(std::strtod(v.text().c_str(), nullptr));
    case Kind::kTuple: {
      size_t h = 17;
      for (const Value& item : v.as<List>().items) h = h * 1000003 + (*this)(item);
      return h;
    }
    case Kind::kNone:
    case Kind::kUndefined:
      return static_cast<size_t>(v.kind());
    default:
      return std::hash<const void*>{}(v.object());
  }
}

bool ValueEqual::operator()(const Value& a, const Value& b) const {
  if (a.is_string() || b.is_string()) return a.is_string() && b.is_string() && a.text() == b.text();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return static_cast<long double>(a.is_integral() ? static_cast<long double>(a.as_int()) : a.as_real()) ==
           static_cast<long double>(b.is_integral() ? static_cast<long double>(b.as_int()) : b.as_real());
  }
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::kBigInt)) return a.text() == b.text();
  if (a.is_none() || a.is_undefined()) return true;
  if (a.is(Kind::kTuple)) {
    const auto& x = a.as<List>().items;
    const auto& y = b.as<List>().items;
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i)
      if (!(*this)(x[i], y[i])) return false;
    return true;
  }
  return a.object() == b.object();
}

const Value* Dict::find(const Value& key) const {
  if (items.size() > kIndexFrom) {
    const auto it = index_.find(key);
    return it == index_.end() ? nullptr : &items[it->second].second;
  }
  for (const auto& [k, v] : items)
    if (ValueEqual{}(k, key)) return &v;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (items.size() > kIndexFrom) {
    auto s = std::make_shared<Str>();
    s->text = key;
    return find(Value::string(std::move(s)));
  }
  for (const auto& [k, v] : items)
    if (k.is_string() && k.text() == key) return &v;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  if (const Value* old = find(key)) {
    const_cast<Value&>(*old) = std::move(value);
    return;
  }
  items.emplace_back(std::move(key), std::move(value));
  if (items.size() == kIndexFrom + 1) {
    for (size_t i = 0; i < items.size(); ++i) index_.emplace(items[i].first, i);
  } else if (items.size() > kIndexFrom) {
    index_.emplace(items.back().first, items.size() - 1);
  }
}

}  // namespace mxt::jinja

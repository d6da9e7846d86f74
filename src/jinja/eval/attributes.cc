// obj.name and obj[key] as the sandbox answers them.
#include <algorithm>

#include "jinja/eval/interp.h"
#include "jinja/text/repr.h"
#include "jinja/values/operators.h"

namespace mxt::jinja {
namespace {

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Methods that would change a value: the immutable sandbox hides them.
bool is_mutator(const Value& obj, std::string_view name) {
  if (obj.is(Kind::kDict)) return one_of(name, {"clear", "pop", "popitem", "setdefault", "update"});
  if (obj.is(Kind::kList))
    return one_of(name, {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
  return false;
}

Value bound(Machine& m, const Value& obj, std::string_view name) {
  auto* method = m.make<Method>();
  method->self = obj;
  method->name = name;
  return Value::object(Kind::kMethod, method);
}

std::optional<Value> macro_attribute(Machine& m, const MacroValue& f, std::string_view name) {
  if (name == "name") return m.text(f.macro->label);
  if (name == "caller") return Value::boolean(f.macro->uses_caller);
  if (name == "catch_kwargs") return Value::boolean(f.macro->uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(f.macro->uses_varargs);
  return std::nullopt;
}

// What Python's getattr finds, other than items.
std::optional<Value> own_attribute(Machine& m, const Value& obj, std::string_view name) {
  // Every object has these, and the sandbox hides them: nothing to print, an error when used.
  if (name.starts_with("__") && name.ends_with("__") && name.size() > 4)
    return m.undefined_hint(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(obj)),
                            true);
  if (is_mutator(obj, name))
    return m.undefined_hint(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(obj)),
                            true);
  if (has_method(obj, name)) return bound(m, obj, name);
  switch (obj.kind()) {
    case Kind::kNamespace: {
      if (const Value* v = obj.as<Namespace>().attributes.find(name)) return *v;
      return std::nullopt;
    }
    case Kind::kLoop: {
      Value v = loop_attribute(m, obj.as<Loop>(), name);
      if (v.is_undefined() && v.object() == nullptr) return std::nullopt;
      return v;
    }
    case Kind::kMacro:
      return macro_attribute(m, obj.as<MacroValue>(), name);
    case Kind::kFunction:
      if (obj.as<Function>().builtin == Builtin::kDict && name == "fromkeys") m.fail("dict.fromkeys is not supported");
      return std::nullopt;
    case Kind::kCycler: {
      auto& c = obj.as<Cycler>();
      if (name == "current") return c.items[c.at];
      return std::nullopt;
    }
    case Kind::kTuple: {
      const auto& l = obj.as<List>();
      if (l.group && name == "grouper") return l.items[0];
      if (l.group && name == "list") return l.items[1];
      return std::nullopt;
    }
    case Kind::kRange: {
      const auto& r = obj.as<Range>();
      if (name == "start") return Value::integer(r.start);
      if (name == "stop") return Value::integer(r.stop);
      if (name == "step") return Value::integer(r.step);
      return std::nullopt;
    }
    case Kind::kInt:
    case Kind::kBool:
    case Kind::kFloat:
      if (obj.is(Kind::kFloat) && name == "real") return obj;
      if (!obj.is(Kind::kFloat) && (name == "real" || name == "numerator")) return Value::integer(obj.as_int());
      if (one_of(name, {"imag", "denominator", "bit_length", "bit_count", "conjugate", "is_integer", "as_integer_ratio",
                        "to_bytes", "from_bytes", "hex", "fromhex"}))
        m.fail("the attribute '{}' of a number is not supported", name);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<Value> own_item(Machine& m, const Value& obj, const Value& key) {
  if (obj.is(Kind::kDict)) {
    if (!hashable(key)) return std::nullopt;
    require_key(m, key);
    if (const Value* v = obj.as<Dict>().find(key)) return *v;
    return std::nullopt;
  }
  return index_item(m, obj, key);
}

}  // namespace

Value get_attribute(Machine& m, const Value& obj, std::string_view name) {
  if (obj.is_undefined()) m.fail_undefined(obj);
  // The usual case first: a key of a dict that is no method.
  if (obj.is(Kind::kDict) && !name.starts_with("_")) {
    const Value* v = obj.as<Dict>().find(name);
    if (v && !has_method(obj, name) && !is_mutator(obj, name)) return *v;
  }
  if (auto v = own_attribute(m, obj, name)) return *v;
  if (obj.is(Kind::kDict))
    if (const Value* v = obj.as<Dict>().find(name)) return *v;
  return m.undefined_attribute(obj, name);
}

Value get_item(Machine& m, const Value& obj, const Value& key) {
  if (obj.is_undefined()) m.fail_undefined(obj);
  if (auto v = own_item(m, obj, key)) return *v;
  if (key.is_string()) {
    if (auto v = own_attribute(m, obj, key.text())) return *v;
    return m.undefined_attribute(obj, key.text());
  }
  const std::string owner = obj.is_none() ? "None" : std::string(type_name(obj)) + " object";
  return m.undefined_hint(fmt::format("{} has no element {}", owner, brief(m, key)));
}

bool loop_peek(Machine& m, Loop& loop, Value& out) {
  if (loop.ahead.empty()) {
    Value v;
    if (!loop.next(v)) return false;
    m.step();
    loop.ahead.push_back(v);
  }
  out = loop.ahead.back();
  return true;
}

namespace {

int64_t loop_length(Machine& m, Loop& loop) {
  if (loop.known_length >= 0) return loop.known_length;
  const auto n = loop.known_length == -2 ? std::nullopt : size_of(m, loop.iterable);
  if (n) return loop.known_length = static_cast<int64_t>(*n);
  // As Jinja: everything that is left is read.
  std::vector<Value> rest(loop.ahead.rbegin(), loop.ahead.rend());
  for (Value v; loop.next(v);) {
    if (rest.size() == rest.capacity()) m.reserve(2 * (rest.size() + 1) * sizeof(Value));
    rest.push_back(v);
  }
  loop.ahead.assign(rest.rbegin(), rest.rend());
  return loop.known_length = loop.index0 + 1 + static_cast<int64_t>(loop.ahead.size());
}

}  // namespace

// A plain Value() where there is no such attribute.
Value loop_attribute(Machine& m, Loop& loop, std::string_view name) {
  Value peeked;
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!loop_peek(m, loop, peeked));
  if (name == "length") return Value::integer(loop_length(m, loop));
  if (name == "revindex") return Value::integer(loop_length(m, loop) - loop.index0);
  if (name == "revindex0") return Value::integer(loop_length(m, loop) - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? m.undefined_hint("there is no previous item") : loop.before;
  if (name == "nextitem") return loop_peek(m, loop, peeked) ? peeked : m.undefined_hint("there is no next item");
  return {};
}

}  // namespace mxt::jinja

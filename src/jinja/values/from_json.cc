#include "jinja/values/from_json.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/text.h"

namespace mxt::jinja {

Value json_text(Machine& m, const std::string& s, uint32_t origin, std::string_view what) {
  m.touch_bytes(s.size());
  m.reserve(s.size());
  if (!is_valid_utf8(s)) fail_input("{}: {} is not valid UTF-8", m.name(), what);
  return m.text(s, Tag{origin, 0});
}

void put(Machine& m, Dict& d, Value key, Value value) {
  m.step(2);
  m.check_depth(d, value);
  d.set(std::move(key), std::move(value));
}

namespace {

// What 128 bits hold is an integer like any other.
Value integer_of(Machine& m, std::string_view digits) {
  const bool negative = digits.starts_with('-');
  Int i = 0;
  for (const char c : digits.substr(negative)) {
    const Int d = negative ? '0' - c : c - '0';
    if (__builtin_mul_overflow(i, Int{10}, &i) || __builtin_add_overflow(i, d, &i))
      return Value::big_integer(m.text(std::string(digits)).ref());
  }
  return Value::integer(i);
}

Value convert(Machine& m, const OrderedJson& j, uint32_t origin) {
  Level level(m);
  m.step();
  switch (j.type()) {
    case OrderedJson::value_t::null:
      return Value::none();
    case OrderedJson::value_t::boolean:
      return Value::boolean(j.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value::integer(j.get<int64_t>());
    case OrderedJson::value_t::number_unsigned:
      return Value::integer(static_cast<Int>(j.get<uint64_t>()));
    case OrderedJson::value_t::number_float:
      return Value::real(j.get<double>());
    case OrderedJson::value_t::binary:
      return integer_of(m, *big_integer(j));
    case OrderedJson::value_t::string:
      return json_text(m, j.get_ref<const std::string&>(), origin, "a string of the data");
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      m.reserve(j.size() * sizeof(Value));
      items.reserve(j.size());
      for (const auto& item : j) items.push_back(convert(m, item, origin));
      Value list = m.list(std::move(items));
      list.object()->origin = origin;
      return list;
    }
    case OrderedJson::value_t::object: {
      auto* d = m.make<Dict>(j.size() * 3 * sizeof(Value));
      d->origin = origin;
      for (const auto& [key, value] : j.items())
        put(m, *d, json_text(m, key, origin, "a key of the data"), convert(m, value, origin));
      return Value::object(Kind::kDict, d);
    }
    default:
      fail_input("{}: the data holds a value that is not JSON", m.name());
  }
}

}  // namespace

Value from_json(Machine& m, const OrderedJson& j, uint32_t origin) { return convert(m, j, origin); }

}  // namespace mxt::jinja

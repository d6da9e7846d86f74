#include "jinja/values/operators.h"

#include <cmath>

#include "jinja/text/format.h"
#include "jinja/text/repr.h"
#include "pytext/unicode.h"

namespace mxt::jinja {

bool truth(Machine& m, const Value& v) {
  m.check_defined(v);
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return v.as_int() != 0;
    case Kind::kFloat:
      return v.as_real() != 0;
    case Kind::kString:
      return !v.text().empty();
    case Kind::kLoop:
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kBigInt:
      return true;
    default: {
      const auto n = size_of(m, v);
      return !n || *n > 0;
    }
  }
}

bool identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return a.is_none() || a.object() == b.object();
    case Kind::kBool:
      return a.as_bool() == b.as_bool();
    case Kind::kInt:
      return a.as_int() == b.as_int() && a.as_int() >= -5 && a.as_int() <= 256;  // CPython's cache
    case Kind::kFloat:
    case Kind::kBigInt:
      return false;
    case Kind::kString:
      return a.ref() == b.ref();
    default:
      return a.object() == b.object();
  }
}

namespace {

bool equal_items(Machine& m, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!equal(m, a[i], b[i])) return false;
  return true;
}

bool compares_as_number(const Value& v) { return v.is_number() || v.is(Kind::kBigInt); }

// Digits against digits; all that is_integral() lies nearer to zero.
int compare_big(const Value& a, const Value& b) {
  const auto negative = [](const Value& v) { return v.text()[0] == '-'; };
  if (!b.is(Kind::kBigInt)) {
    if (b.is_integral()) return negative(a) ? -1 : 1;
    const long double x = std::strtold(a.text().c_str(), nullptr), y = b.as_real();
    return std::isnan(y) ? 2 : x < y ? -1 : x > y;
  }
  if (negative(a) != negative(b)) return negative(a) ? -1 : 1;
  const std::string &x = a.text(), &y = b.text();
  const int c = x.size() != y.size() ? (x.size() < y.size() ? -1 : 1) : x.compare(y);
  const int magnitude = c < 0 ? -1 : c > 0;
  return negative(a) ? -magnitude : magnitude;
}

int compare_numbers(const Value& a, const Value& b) {
  if (a.is(Kind::kBigInt)) return compare_big(a, b);
  if (b.is(Kind::kBigInt)) {
    const int c = compare_big(b, a);
    return c == 2 ? 2 : -c;
  }
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
  const long double x = a.is_integral() ? static_cast<long double>(a.as_int()) : a.as_real();
  const long double y = b.is_integral() ? static_cast<long double>(b.as_int()) : b.as_real();
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y;
}

}  // namespace

bool equal(Machine& m, const Value& a, const Value& b) {
  Level level(m);
  m.step();
  m.check_defined(a);
  m.check_defined(b);
  if (a.is_string() || b.is_string()) {
    if (!a.is_string() || !b.is_string()) return false;
    if (a.text().size() == b.text().size()) m.touch_bytes(a.text().size());
    return a.text() == b.text();
  }
  if (compares_as_number(a) && compares_as_number(b)) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kUndefined:
      return true;
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(m, a.as<List>().items, b.as<List>().items);
    case Kind::kDict: {
      const auto& x = a.as<Dict>();
      const auto& y = b.as<Dict>();
      if (&x == &y) return true;
      if (x.items.size() != y.items.size()) return false;
      for (const auto& [key, value] : x.items) {
        const Value* other = y.find(key);
        if (!other || !equal(m, value, *other)) return false;
      }
      return true;
    }
    case Kind::kRange: {
      const auto& x = a.as<Range>();
      const auto& y = b.as<Range>();
      if (x.size != y.size) return false;
      return x.size == 0 || (x.start == y.start && (x.size == 1 || x.step == y.step));
    }
    default:
      return a.object() == b.object();
  }
}

int compare(Machine& m, const Value& a, const Value& b, std::string_view op) {
  Level level(m);
  m.step();
  if (a.is_undefined()) m.fail_undefined(a);
  if (b.is_undefined()) m.fail_undefined(b);
  if (compares_as_number(a) && compares_as_number(b)) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    m.touch_bytes(std::min(a.text().size(), b.text().size()));
    const int c = a.text().compare(b.text());  // byte order of UTF-8 is the order of code points
    return c < 0 ? -1 : c > 0;
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto& x = a.as<List>().items;
    const auto& y = b.as<List>().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(m, x[i], y[i])) return compare(m, x[i], y[i], op);
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  m.fail("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b));
}

bool less_than(Machine& m, const Value& a, const Value& b) { return compare(m, a, b, "<") == -1; }

namespace {

void count_key(Machine& m, const Value& key) {
  m.step();
  if (key.is_string()) m.touch_bytes(key.text().size());
  if (key.is(Kind::kTuple))
    for (const Value& item : key.as<List>().items) count_key(m, item);
}

}  // namespace

void require_key(Machine& m, const Value& key) {
  if (!hashable(key)) m.fail("unhashable type: '{}'", type_name(key));
  count_key(m, key);
}

bool contains(Machine& m, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        if (item.is_undefined()) m.fail("'in <string>' requires string as left operand, not Undefined");
        m.fail("'in <string>' requires string as left operand, not {}", type_name(item));
      }
      m.touch_bytes(container.text().size());
      return pytext::find_text(container.text(), item.text(), 0) != std::string::npos;
    case Kind::kDict:
      require_key(m, item);
      return container.as<Dict>().find(item) != nullptr;
    case Kind::kRange:
      if (item.is_integral()) {
        const auto& r = container.as<Range>();
        if (r.size == 0) return false;
        const Int offset = item.as_int() - r.start;
        return offset % r.step == 0 && offset / r.step >= 0 && offset / r.step < static_cast<Int>(r.size);
      }
      [[fallthrough]];
    default: {
      if (!iterable(container)) m.fail("argument of type '{}' is not iterable", type_name(container));
      auto next = iterate(m, container);
      for (Value v; next(v);)
        if (identical(v, item) || equal(m, v, item)) return true;
      return false;
    }
  }
}

std::optional<size_t> size_of(Machine& m, const Value& v) {
  m.check_defined(v);
  switch (v.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      m.touch_bytes(v.text().size());
      return pytext::length(v.text());
    case Kind::kList:
    case Kind::kTuple:
      return v.as<List>().items.size();
    case Kind::kDict:
      return v.as<Dict>().items.size();
    case Kind::kRange:
      return v.as<Range>().size;
    case Kind::kView:
      return v.as<View>().dict->items.size();
    default:
      return std::nullopt;
  }
}

size_t require_size(Machine& m, const Value& v) {
  const auto n = size_of(m, v);
  if (!n) m.fail("object of type '{}' has no len()", type_name(v));
  return *n;
}

bool iterable(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
    case Kind::kIterator:
      return true;
    default:
      return false;
  }
}

namespace {

Value view_item(Machine& m, const View& view, size_t i) {
  const auto& [key, value] = view.dict->items[i];
  if (view.what == View::What::kKeys) return key;
  if (view.what == View::What::kValues) return value;
  return m.list({key, value}, Kind::kTuple);
}

}  // namespace

std::function<bool(Value&)> iterate(Machine& m, const Value& v) {
  m.check_defined(v);
  switch (v.kind()) {
    case Kind::kUndefined:
      return [](Value&) { return false; };
    case Kind::kString:
      return [&m, s = v.ref(), at = size_t{0}](Value& out) mutable {
        if (at >= s->text.size()) return false;
        size_t size = 0;
        pytext::code_point(s->text, at, size);
        m.step();
        out = Value::string(with_markup(m, slice(m, s, at, at + size), false));
        at += size;
        return true;
      };
    case Kind::kList:
    case Kind::kTuple:
      return [&m, l = &v.as<List>(), i = size_t{0}](Value& out) mutable {
        m.step();
        if (i >= l->items.size()) return false;
        out = l->items[i++];
        return true;
      };
    case Kind::kDict:
      return [&m, d = &v.as<Dict>(), i = size_t{0}](Value& out) mutable {
        m.step();
        if (i >= d->items.size()) return false;
        out = d->items[i++].first;
        return true;
      };
    case Kind::kRange:
      return [&m, r = &v.as<Range>(), i = size_t{0}](Value& out) mutable {
        m.step();
        if (i >= r->size) return false;
        out = Value::integer(r->at(i++));
        return true;
      };
    case Kind::kView:
      return [&m, view = &v.as<View>(), i = size_t{0}](Value& out) mutable {
        m.step();
        if (i >= view->dict->items.size()) return false;
        out = view_item(m, *view, i++);
        return true;
      };
    case Kind::kIterator:
      return [&m, it = &v.as<Iterator>()](Value& out) {
        Level level(m);
        m.step();
        return it->next(out);
      };
    default:
      m.fail("'{}' object is not iterable", type_name(v));
  }
}

std::vector<Value> to_items(Machine& m, const Value& v) {
  if (v.is_sequence()) {
    m.touch_items(v.as<List>().items.size());
    m.reserve(v.as<List>().items.size() * sizeof(Value));
    return v.as<List>().items;
  }
  std::vector<Value> items;
  auto next = iterate(m, v);
  for (Value item; next(item);) {
    if (items.size() == items.capacity()) m.reserve(2 * (items.size() + 1) * sizeof(Value));
    items.push_back(item);
  }
  return items;
}

Value make_iterator(Machine& m, uint32_t depth, std::function<bool(Value&)> next, bool generator) {
  auto* it = m.make<Iterator>(128);  // what a closure holds, roughly
  it->depth = depth + 1;
  if (it->depth > kMaxValueDepth) m.fail_limit("chains too many generators");
  it->next = std::move(next);
  it->generator = generator;
  return Value::object(Kind::kIterator, it);
}

std::optional<int64_t> as_index(Machine& m, const Value& v) {
  if (!v.is_integral()) return std::nullopt;
  const Int i = v.as_int();
  if (i > INT64_MAX || i < INT64_MIN) m.fail("the integer {} is too large for an index", int_text(i));
  return static_cast<int64_t>(i);
}

int64_t require_index(Machine& m, const Value& v, std::string_view what) {
  if (v.is_undefined()) m.fail_undefined(v);
  const auto i = as_index(m, v);
  if (!i) m.fail("{}: '{}' object cannot be interpreted as an integer", what, type_name(v));
  return *i;
}

namespace {

struct Bounds {
  int64_t start = 0, stop = 0, step = 1;
  size_t count = 0;
};

// As Python's slice.indices; nothing where a part is no index.
std::optional<Bounds> bounds(Machine& m, const Slice& s, size_t size) {
  const auto n = static_cast<int64_t>(size);
  const auto part = [&](const Value& v, std::optional<int64_t>& out) {
    if (v.is_none()) return true;
    if (!v.is_integral()) return false;
    const Int lim = Int{1} << 62;
    out = static_cast<int64_t>(v.as_int() > lim ? lim : v.as_int() < -lim ? -lim : v.as_int());
    return true;
  };
  std::optional<int64_t> start, stop, step;
  if (!part(s.start, start) || !part(s.stop, stop) || !part(s.step, step)) return std::nullopt;
  Bounds b;
  b.step = step.value_or(1);
  if (b.step == 0) m.fail("slice step cannot be zero");
  const bool down = b.step < 0;
  const auto clamp = [&](std::optional<int64_t> v, int64_t otherwise) {
    if (!v) return otherwise;
    if (*v < 0) return std::max<int64_t>(*v + n, down ? -1 : 0);
    return std::min<int64_t>(*v, down ? n - 1 : n);
  };
  b.start = clamp(start, down ? n - 1 : 0);
  const int64_t end = b.stop = clamp(stop, down ? -1 : n);
  if (down ? end < b.start : b.start < end) {
    const int64_t distance = down ? b.start - end : end - b.start;
    const int64_t stride = down ? -b.step : b.step;
    b.count = static_cast<size_t>((distance - 1) / stride + 1);
  }
  return b;
}

std::optional<Value> slice_string(Machine& m, const StrRef& s, const Slice& sl) {
  m.touch_bytes(s->text.size());
  const bool ascii = pytext::is_ascii(s->text);
  const auto b = bounds(m, sl, ascii ? s->text.size() : pytext::length(s->text));
  if (!b) return std::nullopt;
  const auto offset = [&](int64_t i) {
    return ascii ? static_cast<size_t>(i) : pytext::byte_offset(s->text, static_cast<size_t>(i));
  };
  if (b->count == 0) return Value::string(slice(m, s, 0, 0));
  if (b->step == 1)
    return Value::string(slice(m, s, offset(b->start), offset(b->start + static_cast<int64_t>(b->count))));
  std::vector<uint32_t> starts;  // byte offset of each character
  m.reserve((s->text.size() + 1) * sizeof(uint32_t));
  for (size_t i = 0, size = 0; i < s->text.size(); i += size) {
    starts.push_back(static_cast<uint32_t>(i));
    pytext::code_point(s->text, i, size);
  }
  starts.push_back(static_cast<uint32_t>(s->text.size()));
  Builder out(m);
  out.set_markup(s->markup);
  for (size_t k = 0; k < b->count; ++k) {
    const auto i = static_cast<size_t>(b->start + b->step * static_cast<int64_t>(k));
    out.add(*s, starts[i], starts[i + 1]);
  }
  return Value::string(out.finish());
}

}  // namespace

std::optional<Value> index_item(Machine& m, const Value& obj, const Value& index) {
  if (index.is(Kind::kSlice)) {
    const auto& sl = index.as<Slice>();
    if (obj.is_string()) return slice_string(m, obj.ref(), sl);
    if (!obj.is_sequence() && !obj.is(Kind::kRange)) return std::nullopt;
    const auto b = bounds(m, sl, require_size(m, obj));
    if (!b) return std::nullopt;
    if (obj.is(Kind::kRange)) {
      const auto& from = obj.as<Range>();
      auto* r = m.make<Range>();
      const auto place = [&](int64_t i) { return static_cast<int64_t>(Int{from.start} + Int{from.step} * i); };
      r->start = place(b->start);
      r->stop = place(b->stop);
      const Int step = Int{from.step} * b->step;  // beyond int64 only where at most one item is left
      r->step = step == static_cast<int64_t>(step) ? static_cast<int64_t>(step) : 1;
      r->size = b->count;
      return Value::object(Kind::kRange, r);
    }
    m.touch_items(b->count);
    m.reserve(b->count * sizeof(Value));
    std::vector<Value> items;
    items.reserve(b->count);
    for (size_t k = 0; k < b->count; ++k)
      items.push_back(obj.as<List>().items[static_cast<size_t>(b->start + b->step * static_cast<int64_t>(k))]);
    Value list = m.list(std::move(items), obj.kind());
    list.object()->origin = obj.object()->origin;
    return list;
  }
  if (!index.is_integral()) return std::nullopt;
  if (!obj.is_string() && !obj.is_sequence() && !obj.is(Kind::kRange)) return std::nullopt;
  const auto n = static_cast<Int>(require_size(m, obj));
  Int i = index.as_int();
  if (i < 0) i += n;
  if (i < 0 || i >= n) return std::nullopt;
  const auto at = static_cast<size_t>(i);
  if (obj.is(Kind::kRange)) return Value::integer(obj.as<Range>().at(at));
  if (obj.is_sequence()) return obj.as<List>().items[at];
  const size_t begin = pytext::byte_offset(obj.text(), at);
  size_t size = 0;
  pytext::code_point(obj.text(), begin, size);
  return Value::string(slice(m, obj.ref(), begin, begin + size));
}

}  // namespace mxt::jinja

// Filters over sequences and mappings.
#include <algorithm>
#include <numeric>

#include "jinja/eval/builtins.h"
#include "jinja/eval/interp.h"
#include "jinja/eval/text_filters.h"
#include "jinja/text/repr.h"
#include "jinja/values/operators.h"
#include "pytext/unicode.h"

namespace mxt::jinja {
namespace {

// "a.b.0" cut into keys.
using Path = std::vector<Value>;

Path attribute_path(Machine& m, const Value& attribute) {
  if (attribute.is_none()) return {};
  if (!attribute.is_string()) return {attribute};
  Path path;
  size_t from = 0;
  const std::string& t = attribute.text();
  if (t.size() > 1024) m.fail_limit("names an attribute of more than 1024 characters");
  for (;;) {
    const size_t dot = t.find('.', from);
    const std::string part = t.substr(from, dot == std::string::npos ? dot : dot - from);
    const bool digits = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    path.push_back(digits ? Value::integer(std::stoi(part)) : m.text(part));
    if (dot == std::string::npos) return path;
    from = dot + 1;
  }
}

Value follow(Machine& m, Value v, const Path& path, const Value* otherwise = nullptr) {
  for (const Value& key : path) {
    v = get_item(m, v, key);
    if (otherwise && v.is_undefined()) v = *otherwise;
  }
  return v;
}

Value folded(Interp& in, const Value& v, bool case_sensitive) {
  if (case_sensitive || !v.is_string()) return v;
  return in.call_filter("lower", v, {});
}

uint32_t depth_of(const Value& v) {
  return v.is(Kind::kIterator) || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kView) ? v.object()->depth : 1;
}

// A generator that reads its source when it is first asked, as Jinja's do. `lenient`: what is false is empty, even
// where it cannot be iterated.
template <typename Next>
Value lazily(Machine& m, const Value& source, Next next, bool lenient = false) {
  return make_iterator(m, depth_of(source),
                       [&m, source, next, lenient, read = std::function<bool(Value&)>()](Value& out) mutable {
                         if (!read) read = iterate(m, lenient && !truth(m, source) ? Value() : source);
                         return next(read, out);
                       });
}

Value length_filter(Interp& in, const Value& v, const Args& args) {
  Bound none(in.machine(), "length", args, {});
  return Value::integer(static_cast<Int>(require_size(in.machine(), v)));
}

Value default_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "default", args, {"default_value", "boolean"});
  const bool replace = v.is_undefined() || (b.flag(1, false) && !truth(m, v));
  return replace ? b.get(0, m.text("")) : v;
}

Value join_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "join", args, {"d", "attribute"});
  const StrRef separator = b.given(0) ? to_str(m, b[0]) : m.text("").ref();
  const Path path = b.given(1) ? attribute_path(m, b[1]) : Path{};
  Builder out(m);
  auto next = iterate(m, v);
  bool first = true;
  for (Value item; next(item); first = false) {
    if (!first) out.add(*separator);
    out.add(follow(m, item, path));
  }
  return Value::string(out.finish());
}

Value first_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound none(m, "first", args, {});
  auto next = iterate(m, v);
  Value item;
  return next(item) ? item : m.undefined_hint("No first item, sequence was empty.");
}

bool reversible(const Value& v) {
  return v.is_string() || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kView) || v.is(Kind::kRange);
}

Value last_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound none(m, "last", args, {});
  if (v.is_undefined()) return m.undefined_hint("No last item, sequence was empty.");
  if (!reversible(v)) m.fail("'{}' object is not reversible", type_name(v));
  if (v.is_sequence() || v.is_string()) {
    if (auto item = index_item(m, v, Value::integer(-1))) return *item;
    return m.undefined_hint("No last item, sequence was empty.");
  }
  std::vector<Value> items = to_items(m, v);
  return items.empty() ? m.undefined_hint("No last item, sequence was empty.") : items.back();
}

Value list_filter(Interp& in, const Value& v, const Args& args) {
  Bound none(in.machine(), "list", args, {});
  return in.machine().list(to_items(in.machine(), v));
}

Value reverse_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound none(m, "reverse", args, {});
  if (v.is_string()) {
    auto* s = m.make<Slice>();
    s->start = s->stop = Value::none();
    s->step = Value::integer(-1);
    return *index_item(m, v, Value::object(Kind::kSlice, s));
  }
  if (!iterable(v)) m.fail("argument must be iterable");
  std::vector<Value> items = to_items(m, v);
  std::reverse(items.begin(), items.end());
  Value list = m.list(std::move(items));
  if (!reversible(v)) return list;
  return lazily(m, list, [](auto& read, Value& out) { return read(out); });
}

Value items_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound none(m, "items", args, {});
  return make_iterator(m, depth_of(v), [&m, v, i = size_t{0}](Value& out) mutable {
    if (v.is_undefined()) return false;
    if (!v.is(Kind::kDict)) m.fail("Can only get item pairs from a mapping.");
    const auto& items = v.as<Dict>().items;
    if (i >= items.size()) return false;
    out = m.list({items[i].first, items[i].second}, Kind::kTuple);
    ++i;
    return true;
  });
}

// sorted(): stable in both directions. `keys` go with the values; `lists`: they compare as lists, else as single values
// (a list finds equals before it asks for an order, which undefined values have not).
std::vector<Value> sorted(Machine& m, std::vector<Value> values, const std::vector<std::vector<Value>>& keys,
                          bool reverse, bool lists) {
  std::vector<size_t> order(values.size());
  m.touch_items(4 * values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto less = [&](size_t a, size_t b) {
    if (!lists) return less_than(m, keys[a][0], keys[b][0]);
    for (size_t k = 0; k < keys[a].size(); ++k)
      if (!equal(m, keys[a][k], keys[b][k])) return less_than(m, keys[a][k], keys[b][k]);
    return false;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return reverse ? less(b, a) : less(a, b); });
  std::vector<Value> result;
  result.reserve(values.size());
  for (size_t i : order) result.push_back(std::move(values[i]));
  return result;
}

Value sort_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<Path> paths;
  if (b.given(2) && b[2].is_string()) {
    size_t from = 0;
    const std::string& t = b[2].text();
    for (size_t comma = 0; comma != std::string::npos; from = comma + 1) {
      comma = t.find(',', from);
      paths.push_back(attribute_path(m, m.text(t.substr(from, comma == std::string::npos ? comma : comma - from))));
    }
  } else {
    paths.push_back(b.given(2) ? attribute_path(m, b[2]) : Path{});
  }
  std::vector<Value> items = to_items(m, v);
  std::vector<std::vector<Value>> keys;
  m.reserve(items.size() * (sizeof(std::vector<Value>) + paths.size() * sizeof(Value)));
  for (const Value& item : items) {
    auto& key = keys.emplace_back();
    for (const Path& path : paths) key.push_back(folded(in, follow(m, item, path), b.flag(1, false)));
  }
  return m.list(sorted(m, std::move(items), keys, b.flag(0, false), true));
}

Value dictsort_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = b.given(1) ? to_str(m, b[1])->text : "key";
  if (by != "key" && by != "value") m.fail("You can only sort by either \"key\" or \"value\"");
  if (v.is_undefined()) m.fail_undefined(v);
  if (!v.is(Kind::kDict)) m.fail("'{}' object has no attribute 'items'", type_name(v));
  std::vector<Value> pairs;
  std::vector<std::vector<Value>> keys;
  for (const auto& [key, value] : v.as<Dict>().items) {
    m.reserve(4 * sizeof(Value) * (pairs.size() + 1));
    pairs.push_back(m.list({key, value}, Kind::kTuple));
    keys.push_back({folded(in, by == "key" ? key : value, b.flag(0, false))});
  }
  return m.list(sorted(m, std::move(pairs), keys, b.flag(2, false), false));
}

Value unique_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "unique", args, {"case_sensitive", "attribute"});
  const Path path = b.given(1) ? attribute_path(m, b[1]) : Path{};
  const bool exact = b.flag(0, false);
  Dict* seen = m.make<Dict>();
  return lazily(m, v, [&in, &m, path, exact, seen](auto& read, Value& out) {
    while (read(out)) {
      Value key = folded(in, follow(m, out, path), exact);
      require_key(m, key);
      if (seen->find(key)) continue;
      m.reserve(4 * sizeof(Value) * (seen->items.size() + 1));
      m.check_depth(*seen, key);
      seen->set(std::move(key), Value::none());
      return true;
    }
    return false;
  });
}

template <int sign>
Value extreme_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, sign < 0 ? "min" : "max", args, {"case_sensitive", "attribute"});
  const Path path = b.given(1) ? attribute_path(m, b[1]) : Path{};
  auto next = iterate(m, v);
  Value best, best_key;
  if (!next(best)) return m.undefined_hint("No aggregated item, sequence was empty.");
  best_key = folded(in, follow(m, best, path), b.flag(0, false));
  for (Value item; next(item);) {
    Value key = folded(in, follow(m, item, path), b.flag(0, false));
    if (compare(m, key, best_key, sign < 0 ? "<" : ">") != sign) continue;
    best = item;
    best_key = std::move(key);
  }
  return best;
}

Value sum_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "sum", args, {"attribute", "start"});
  const Path path = b.given(0) ? attribute_path(m, b[0]) : Path{};
  Value total = b.get(1, Value::integer(0));
  if (total.is_string()) m.fail("sum() can't sum strings [use ''.join(seq) instead]");
  auto next = iterate(m, v);
  for (Value item; next(item);) total = binary(m, BinaryOp::kAdd, total, follow(m, item, path));
  return total;
}

// map('filter', …) and map(attribute='…', default=…).
Value map_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  const auto named = [&](std::string_view name) -> const Value* {
    for (const auto& [n, value] : args.named)
      if (n == name) return &value;
    return nullptr;
  };
  const Value* attribute = args.positional.empty() ? named("attribute") : nullptr;
  if (attribute) {
    for (const auto& [name, value] : args.named)
      if (name != "attribute" && name != "default") m.fail("Unexpected keyword argument '{}'", name);
    const Value* otherwise = named("default");
    const Path path = attribute_path(m, *attribute);
    const Value fallback = otherwise ? *otherwise : Value::none();
    return lazily(
        m, v,
        [&m, path, fallback](auto& read, Value& out) {
          Value item;
          if (!read(item)) return false;
          out = follow(m, item, path, fallback.is_none() ? nullptr : &fallback);
          return true;
        },
        true);
  }
  if (args.positional.empty()) m.fail("map requires a filter argument");
  if (!args.positional[0].is_string()) m.fail("map: the name of a filter must be a string");
  const std::string name = args.positional[0].text();
  Args rest = args;
  rest.positional.erase(rest.positional.begin());
  return lazily(
      m, v,
      [&in, name, rest](auto& read, Value& out) {
        Value item;
        if (!read(item)) return false;
        out = in.call_filter(name, item, rest);
        return true;
      },
      true);
}

template <bool wanted, bool by_attribute>
Value select_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Path path;
  Args rest = args;
  if (by_attribute) {
    if (args.positional.empty()) m.fail("Missing parameter for attribute name");
    path = attribute_path(m, args.positional[0]);
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    if (!rest.positional[0].is_string()) m.fail("select: the name of a test must be a string");
    test = rest.positional[0].text();
    rest.positional.erase(rest.positional.begin());
  }
  return lazily(
      m, v,
      [&in, &m, path, rest, test](auto& read, Value& out) {
        while (read(out)) {
          const Value tested = follow(m, out, path);
          if ((test.empty() ? truth(m, tested) : in.call_test(test, tested, rest)) == wanted) return true;
        }
        return false;
      },
      true);
}

Value batch_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "batch", args, {"linecount", "fill_with"}, 1);
  const int64_t n = b.integer(0, 1);
  if (n > static_cast<int64_t>(kMaxRange)) m.fail_limit("makes batches of more than 100000 items");
  const Value fill = b.get(1, Value::none());
  return lazily(m, v, [&m, n, fill, held = std::optional<Value>()](auto& read, Value& out) mutable {
    std::vector<Value> row;
    Value item;
    if (held) row.push_back(*std::exchange(held, std::nullopt));
    while (read(item)) {
      if (static_cast<int64_t>(row.size()) == n) {
        held = item;
        out = m.list(std::move(row));
        return true;
      }
      m.reserve(sizeof(Value) * 2);
      row.push_back(item);
    }
    if (row.empty()) return false;
    if (!fill.is_none())
      while (static_cast<int64_t>(row.size()) < n) row.push_back(fill);
    out = m.list(std::move(row));
    return true;
  });
}

Value slice_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "slice", args, {"slices", "fill_with"}, 1);
  const int64_t slices = b.integer(0, 1);
  if (slices == 0) m.fail("integer division or modulo by zero");
  if (slices > static_cast<int64_t>(kMaxRange)) m.fail_limit("makes more than 100000 slices");
  const Value fill = b.get(1, Value::none());
  const std::vector<Value> all = to_items(m, v);
  const auto n = static_cast<int64_t>(all.size());
  std::vector<Value> rows;
  for (int64_t i = 0, at = 0; i < slices; ++i) {
    const int64_t size = n / slices + (i < n % slices ? 1 : 0);
    std::vector<Value> row(all.begin() + at, all.begin() + at + size);
    if (!fill.is_none() && i >= n % slices) row.push_back(fill);
    rows.push_back(m.list(std::move(row)));
    at += size;
  }
  return lazily(m, m.list(std::move(rows)), [](auto& read, Value& out) { return read(out); });
}

Value groupby_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const Path path = attribute_path(m, b[0]);
  const Value fallback = b.get(1, Value::none());
  const Value* otherwise = fallback.is_none() ? nullptr : &fallback;
  const bool exact = b.flag(2, false);
  std::vector<Value> items = to_items(m, v);
  std::vector<std::vector<Value>> keys;
  const auto key_of = [&](const Value& item) { return folded(in, follow(m, item, path, otherwise), exact); };
  for (const Value& item : items) keys.push_back({key_of(item)});
  items = sorted(m, std::move(items), keys, false, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < items.size();) {
    const Value key = key_of(items[i]);
    std::vector<Value> members;
    const size_t first = i;
    while (i < items.size() && equal(m, key_of(items[i]), key)) members.push_back(items[i++]);
    if (i == first) members.push_back(items[i++]);  // a key that is not equal to itself
    const Value shown = exact ? key : follow(m, members[0], path, otherwise);
    Value group = m.list({shown, m.list(std::move(members))}, Kind::kTuple);
    group.as<List>().group = true;
    groups.push_back(group);
  }
  return m.list(std::move(groups));
}

Value attr_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "attr", args, {"name"}, 1);
  const std::string name = to_str(m, b[0])->text;
  // Attributes only: the items of a dict are not found this way.
  if (v.is(Kind::kDict) && !has_method(v, name)) return m.undefined_attribute(v, name);
  return get_attribute(m, v, name);
}

constexpr FilterEntry kListFilters[] = {
    {"attr", attr_filter},
    {"batch", batch_filter},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort_filter},
    {"first", first_filter},
    {"groupby", groupby_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"map", map_filter},
    {"max", extreme_filter<1>},
    {"min", extreme_filter<-1>},
    {"reject", select_filter<false, false>},
    {"rejectattr", select_filter<false, true>},
    {"reverse", reverse_filter},
    {"select", select_filter<true, false>},
    {"selectattr", select_filter<true, true>},
    {"slice", slice_filter},
    {"sort", sort_filter},
    {"sum", sum_filter},
    {"unique", unique_filter},
};

}  // namespace

FilterFn find_list_filter(std::string_view name) {
  for (const FilterEntry& f : kListFilters)
    if (f.name == name) return f.function;
  return nullptr;
}

FilterFn find_filter(std::string_view name) {
  const FilterFn f = find_list_filter(name);
  return f ? f : find_text_filter(name);
}

std::string no_filter(std::string_view name) {
  for (std::string_view known : {"pprint", "random", "striptags", "urlize", "wordwrap"})
    if (known == name) return fmt::format("the filter '{}' is not supported in templates here", name);
  return fmt::format("No filter named '{}'.", name);
}

}  // namespace mxt::jinja

// Methods of list, tuple, range, dict, its views, loop and cycler that templates may call. Strings: string_methods.cc.
#include <algorithm>

#include "jinja/eval/builtins.h"
#include "jinja/eval/interp.h"
#include "jinja/text/repr.h"
#include "jinja/values/operators.h"

namespace mxt::jinja {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value view(Machine& m, const Value& dict, View::What what) {
  auto* v = m.make<View>();
  v->dict = &dict.as<Dict>();
  v->what = what;
  v->depth = v->dict->depth + 1;
  v->origin = v->dict->origin;
  return Value::object(Kind::kView, v);
}

Value dict_method(Machine& m, const Value& self, std::string_view name, const Args& args) {
  const auto& d = self.as<Dict>();
  if (name == "get") {
    if (!args.named.empty()) m.fail("dict.get() takes no keyword arguments");
    Bound b(m, "get", args, {"key", "default"}, 1);
    require_key(m, b[0]);
    if (const Value* v = d.find(b[0])) return *v;
    return b.get(1, Value::none());
  }
  Bound none(m, name, args, {});
  if (name == "items") return view(m, self, View::What::kItems);
  if (name == "keys") return view(m, self, View::What::kKeys);
  if (name == "values") return view(m, self, View::What::kValues);
  m.touch_items(d.items.size());
  Dict* copy = m.make<Dict>(d.items.size() * 2 * sizeof(Value));
  copy->items.reserve(d.items.size());
  for (const auto& [key, value] : d.items) copy->set(key, value);
  copy->depth = d.depth;
  copy->origin = d.origin;
  return Value::object(Kind::kDict, copy);
}

Value list_method(Machine& m, const Value& self, std::string_view name, const Args& args) {
  if (name == "copy") {
    Bound none(m, name, args, {});
    return m.list(to_items(m, self));
  }
  const std::vector<Value> items = to_items(m, self);
  if (name == "count") {
    Bound b(m, name, args, {"value"}, 1);
    Int n = 0;
    for (const Value& v : items) n += identical(v, b[0]) || equal(m, v, b[0]);
    return Value::integer(n);
  }
  Bound b(m, name, args, {"value", "start", "stop"}, 1);
  const auto size = static_cast<int64_t>(items.size());
  const auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t stop = clamp(b.integer(2, size));
  for (int64_t i = clamp(b.integer(1, 0)); i < stop; ++i)
    if (const Value& v = items[static_cast<size_t>(i)]; identical(v, b[0]) || equal(m, v, b[0]))
      return Value::integer(i);
  m.fail("{} is not in list", brief(m, b[0]));
}

Value loop_method(Machine& m, Loop& loop, std::string_view name, const Args& args) {
  if (!args.named.empty()) m.fail("loop.{}() takes no keyword arguments", name);
  if (name == "cycle") {
    if (args.positional.empty()) m.fail("no items for cycling given");
    return args.positional[static_cast<size_t>(loop.index0) % args.positional.size()];
  }
  bool same = loop.changed_once && loop.last_changed.size() == args.positional.size();
  for (size_t i = 0; same && i < args.positional.size(); ++i) same = equal(m, loop.last_changed[i], args.positional[i]);
  loop.changed_once = true;
  loop.last_changed = args.positional;
  return Value::boolean(!same);
}

}  // namespace

bool has_method(const Value& obj, std::string_view name) {
  switch (obj.kind()) {
    case Kind::kString:
      return is_string_method(name);
    case Kind::kDict:
      return is_one_of(name, {"get", "items", "keys", "values", "copy"});
    case Kind::kList:
      return is_one_of(name, {"index", "count", "copy"});
    case Kind::kRange:
    case Kind::kTuple:
      return is_one_of(name, {"index", "count"});
    case Kind::kLoop:
      return is_one_of(name, {"cycle", "changed"});
    case Kind::kCycler:
      return is_one_of(name, {"next", "reset"});
    default:
      return false;
  }
}

Value call_method(Machine& m, const Value& obj, std::string_view name, const Args& args) {
  Level level(m);
  m.step();
  switch (obj.kind()) {
    case Kind::kString:
      return call_string_method(m, obj.ref(), name, args);
    case Kind::kDict:
      return dict_method(m, obj, name, args);
    case Kind::kLoop:
      return loop_method(m, obj.as<Loop>(), name, args);
    case Kind::kCycler: {
      Bound none(m, name, args, {});
      auto& c = obj.as<Cycler>();
      if (name == "reset") {
        c.at = 0;
        return Value::none();
      }
      Value v = c.items[c.at];
      c.at = (c.at + 1) % c.items.size();
      return v;
    }
    default:
      return list_method(m, obj, name, args);
  }
}

}  // namespace mxt::jinja

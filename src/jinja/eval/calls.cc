#include <ctime>

#include "jinja/eval/builtins.h"
#include "jinja/eval/interp.h"
#include "jinja/text/repr.h"
#include "jinja/values/operators.h"

namespace mxt::jinja {

bool is_callable(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:  // has __call__, which fails
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kMethod:
    case Kind::kLoop:
    case Kind::kJoiner:
      return true;
    default:
      return false;
  }
}

Value Interp::call(const Value& f, Args& args) {
  Level level(m_);
  m_.step();
  switch (f.kind()) {
    case Kind::kUndefined:
      m_.fail_undefined(f);
    case Kind::kMacro:
      return call_macro(f.as<MacroValue>(), args);
    case Kind::kFunction:
      return call_builtin(f.as<Function>().builtin, args);
    case Kind::kLoop:
      return call_loop(f.as<Loop>(), args);
    case Kind::kMethod: {
      const auto& method = f.as<Method>();
      return call_method(m_, method.self, method.name, args);
    }
    case Kind::kJoiner: {
      auto& j = f.as<Joiner>();
      if (j.used) return j.separator;
      j.used = true;
      return m_.text("");
    }
    default:
      m_.fail("'{}' object is not callable", type_name(f));
  }
}

Value Interp::call_macro(const MacroValue& f, Args& args) {
  const Macro& macro = *f.macro;
  Scope* scope = new_scope(f.scope, &macro.frame);
  const auto take = [&](std::string_view name) -> std::optional<Value> {
    for (size_t i = 0; i < args.named.size(); ++i)
      if (args.named[i].first == name) {
        Value v = std::move(args.named[i].second);
        args.named.erase(args.named.begin() + static_cast<int64_t>(i));
        return v;
      }
    return std::nullopt;
  };
  const size_t n = macro.parameters.size();
  m_.step(n + n * args.named.size() / 16);
  std::vector<std::optional<Value>> values(n);
  bool has_caller_parameter = false;
  for (size_t i = 0; i < n; ++i) {
    const std::string& name = ast_.names[macro.parameters[i]];
    has_caller_parameter |= name == "caller";
    values[i] = i < args.positional.size() ? std::optional(args.positional[i]) : take(name);
  }
  const auto special = [&](std::string_view name, Value v) {
    if (const auto id = ast_.ids.find(std::string(name)); id != ast_.ids.end())
      set_variable(*scope, id->second, std::move(v));
  };
  if (macro.uses_caller && !has_caller_parameter) {
    auto caller = take("caller");
    special("caller", caller && !caller->is_none() ? *caller : m_.undefined_hint("No caller defined"));
  }
  if (macro.uses_kwargs) {
    Dict* rest = m_.make<Dict>(args.named.size() * 2 * sizeof(Value));
    for (auto& [name, value] : args.named) {
      m_.check_depth(*rest, value);
      rest->set(m_.text(name), value);
    }
    special("kwargs", Value::object(Kind::kDict, rest));
  } else if (!args.named.empty()) {
    m_.fail("macro '{}' takes no keyword argument '{}'", macro.label, args.named[0].first);
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest(args.positional.begin() + static_cast<int64_t>(std::min(n, args.positional.size())),
                            args.positional.end());
    special("varargs", m_.list(std::move(rest), Kind::kTuple));
  } else if (args.positional.size() > n) {
    m_.fail("macro '{}' takes not more than {} argument(s)", macro.label, n);
  }
  const size_t first_default = n - macro.defaults.size();
  for (size_t i = 0; i < n; ++i) {
    Value v;
    if (values[i])
      v = *values[i];
    else if (i >= first_default)
      v = eval(*macro.defaults[i - first_default], *scope);
    else
      v = m_.undefined_hint("parameter '" + ast_.names[macro.parameters[i]] + "' was not provided");
    set_variable(*scope, macro.parameters[i], std::move(v));
  }
  StrRef text;
  capture(macro.body, *scope, text);
  return Value::string(std::move(text));
}

Value Interp::call_loop(Loop& loop, Args& args) {
  if (!loop.stmt->recursive) m_.fail("The loop must have the 'recursive' marker to be called recursively.");
  if (args.positional.size() != 1 || !args.named.empty()) m_.fail("loop() takes exactly one argument");
  Builder mine(m_);
  Builder* outer = out_;
  out_ = &mine;
  apply_turn();
  try {
    run_loop(*loop.stmt, *loop.scope, args.positional[0], loop.depth0 + 1);
  } catch (...) {
    out_ = outer;
    throw;
  }
  out_ = outer;
  apply_turn();
  return Value::string(mine.finish());
}

Value Interp::call_builtin(Builtin f, Args& args) {
  switch (f) {
    case Builtin::kRaise: {
      Bound b(m_, "raise_exception", args, {"message"}, 1);
      std::string reason = to_str(m_, b[0])->text;
      if (reason.size() > 4096) reason.resize(4096);
      throw TemplateRefused(fmt::format("{}:{}: the template refuses this chat: {}", m_.name(), m_.line, reason),
                            m_.line, reason);
    }
    case Builtin::kStrftime:
      return strftime_now(args);
    case Builtin::kRange: {
      if (!args.named.empty() || args.positional.empty() || args.positional.size() > 3)
        m_.fail("range expected 1 to 3 arguments, got {}", args.positional.size());
      int64_t part[3] = {0, 0, 1};
      for (size_t i = 0; i < args.positional.size(); ++i) part[i] = require_index(m_, args.positional[i], "range");
      if (args.positional.size() == 1) std::swap(part[0], part[1]);
      if (part[2] == 0) m_.fail("range() arg 3 must not be zero");
      const Int span = part[2] > 0 ? Int{part[1]} - part[0] : Int{part[0]} - part[1];
      const Int stride = part[2] > 0 ? Int{part[2]} : -Int{part[2]};
      const Int size = span <= 0 ? 0 : (span - 1) / stride + 1;
      if (size > static_cast<Int>(kMaxRange))
        m_.fail_limit(fmt::format("asks for a range of more than {} items", kMaxRange));
      auto* r = m_.make<Range>();
      r->start = part[0];
      r->stop = part[1];
      r->step = part[2];
      r->size = static_cast<size_t>(size);
      return Value::object(Kind::kRange, r);
    }
    case Builtin::kDictFromKeys:
    case Builtin::kDict:
    case Builtin::kNamespace: {
      if (args.positional.size() > 1) m_.fail("dict expected at most 1 argument, got {}", args.positional.size());
      Dict* d = m_.make<Dict>();
      const auto put = [&](const Value& key, const Value& value) {
        require_key(m_, key);
        if (f == Builtin::kNamespace && key.is_string() && key.text().starts_with("_"))
          m_.fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '{}'.",
                  key.text());
        m_.step();
        m_.reserve(4 * sizeof(Value) * (d->items.size() + 1));
        m_.check_depth(*d, value);
        d->set(key, value);
      };
      if (!args.positional.empty()) {
        const Value& from = args.positional[0];
        if (from.is(Kind::kDict)) {
          for (const auto& [key, value] : from.as<Dict>().items) put(key, value);
        } else {
          auto next = iterate(m_, from);
          for (Value pair; next(pair);) {
            const std::vector<Value> two = to_items(m_, pair);
            if (two.size() != 2) m_.fail("dictionary update sequence element has length {}; 2 is required", two.size());
            put(two[0], two[1]);
          }
        }
      }
      for (const auto& [name, value] : args.named) put(m_.text(name), value);
      if (f == Builtin::kDict) {
        m_.count(0);
        return Value::object(Kind::kDict, d);
      }
      auto* ns = m_.make<Namespace>(d->items.size() * 2 * sizeof(Value));
      ns->attributes = *d;
      return Value::object(Kind::kNamespace, ns);
    }
    case Builtin::kCycler: {
      if (args.positional.empty() || !args.named.empty()) m_.fail("at least one item has to be provided");
      auto* c = m_.make<Cycler>(args.positional.size() * sizeof(Value));
      c->items = std::move(args.positional);
      return Value::object(Kind::kCycler, c);
    }
    case Builtin::kJoiner: {
      Bound b(m_, "joiner", args, {"sep"});
      auto* j = m_.make<Joiner>();
      j->separator = b.given(0) ? b[0] : m_.text(", ");
      return Value::object(Kind::kJoiner, j);
    }
  }
  return {};
}

Value Interp::strftime_now(const Args& args) {
  Bound b(m_, "strftime_now", args, {"format"}, 1);
  if (!b[0].is_string()) m_.fail("strftime_now: the format must be a string");
  const std::string& format = b[0].text();
  if (format.size() > 1024) m_.fail_limit("formats a time with more than 1024 characters");
  if (format.empty()) return m_.text("");
  const time_t seconds = now_;
  tm parts{};
  localtime_r(&seconds, &parts);
  std::string out(format.size() * 64 + 64, '\0');
  const size_t n = strftime(out.data(), out.size(), format.c_str(), &parts);
  out.resize(n);
  return m_.text(out);
}

Bound::Bound(Machine& m, std::string_view what, const Args& args, std::initializer_list<std::string_view> names,
             size_t required)
    : m_(m), what_(what), values_(names.size(), nullptr) {
  if (args.positional.size() > names.size())
    m.fail("{}() takes at most {} argument(s), got {}", what, names.size(), args.positional.size());
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    size_t i = 0;
    for (std::string_view known : names) {
      if (known == name) break;
      ++i;
    }
    if (i == names.size()) m.fail("{}() got an unexpected keyword argument '{}'", what, name);
    if (values_[i]) m.fail("{}() got multiple values for argument '{}'", what, name);
    values_[i] = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!values_[i]) m.fail("{}() missing required argument '{}'", what, *(names.begin() + i));
}

bool Bound::flag(size_t i, bool otherwise) const { return given(i) ? truth(m_, *values_[i]) : otherwise; }

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  return given(i) ? require_index(m_, *values_[i], what_) : otherwise;
}

}  // namespace mxt::jinja

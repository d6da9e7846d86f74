#include "jinja/eval/builtins.h"
#include "jinja/eval/interp.h"
#include "jinja/text/repr.h"

namespace mxt::jinja {

Value Interp::eval(const Expr& e, Scope& scope) {
  Level level(m_);
  m_.step();
  switch (e.kind) {
    case ExprKind::kConst:
      return e.constant;
    case ExprKind::kName:
      return lookup(e.name, scope);
    case ExprKind::kTuple:
      return m_.list(eval_all(e.items, scope), Kind::kTuple);
    case ExprKind::kList:
      return m_.list(eval_all(e.items, scope));
    case ExprKind::kDict:
      return eval_dict(e, scope);
    case ExprKind::kAttr: {
      const Value obj = eval(*e.a, scope);
      m_.line = e.line;
      return get_attribute(m_, obj, e.text);
    }
    case ExprKind::kItem: {
      const Value obj = eval(*e.a, scope);
      const Value key = eval(*e.b, scope);
      m_.line = e.line;
      if (!key.is(Kind::kSlice)) return get_item(m_, obj, key);
      // Jinja slices as Python does: what cannot be sliced is an error, not undefined.
      if (obj.is_undefined()) m_.fail_undefined(obj);
      if (auto part = index_item(m_, obj, key)) return *part;
      m_.fail("'{}' object cannot be sliced so", type_name(obj));
    }
    case ExprKind::kSlice:
      return eval_slice(e, scope);
    case ExprKind::kCall:
      return eval_call(e, scope);
    case ExprKind::kFilter:
      return apply_filter(e, eval(*e.a, scope), scope);
    case ExprKind::kTest: {
      const Value v = eval(*e.a, scope);
      const Args args = eval_args(*e.call, scope);
      m_.line = e.line;
      if (!e.test) m_.fail("No test named '{}'.", e.text);
      return Value::boolean(e.test(*this, v, args));
    }
    case ExprKind::kCond:
      if (truth(m_, eval(*e.b, scope))) return eval(*e.a, scope);
      if (e.c) return eval(*e.c, scope);
      return m_.undefined_hint("the inline if-expression on line " + std::to_string(e.line) +
                               " evaluated to false and no else section was defined.");
    case ExprKind::kAnd: {
      Value left = eval(*e.a, scope);
      return truth(m_, left) ? eval(*e.b, scope) : left;
    }
    case ExprKind::kOr: {
      Value left = eval(*e.a, scope);
      return truth(m_, left) ? left : eval(*e.b, scope);
    }
    case ExprKind::kNot:
      return Value::boolean(!truth(m_, eval(*e.a, scope)));
    case ExprKind::kCompare:
      return eval_compare(e, scope);
    case ExprKind::kBinary: {
      const Value a = eval(*e.a, scope);
      const Value b = eval(*e.b, scope);
      m_.line = e.line;
      return binary(m_, e.op, a, b);
    }
    case ExprKind::kNegate:
      return negate(m_, eval(*e.a, scope), true);
    case ExprKind::kPlus:
      return negate(m_, eval(*e.a, scope), false);
    case ExprKind::kConcat: {
      const std::vector<Value> parts = eval_all(e.items, scope);
      return concat(m_, parts.data(), parts.size());
    }
  }
  return {};
}

Value Interp::lookup(NameId name, const Scope& scope) {
  for (const Scope* s = &scope; s; s = s->parent) {
    if (s->variables.size() > 16) m_.step(s->variables.size() / 16);
    if (const Value* v = s->find(name)) {
      const bool unset = v->is_undefined() && v->object() == nullptr;
      return unset ? m_.undefined(ast_.names[name]) : *v;
    }
  }
  if (const Value* v = context_[name]) return *v;
  return m_.undefined(ast_.names[name]);
}

std::vector<Value> Interp::eval_all(const std::vector<ExprPtr>& items, Scope& scope) {
  std::vector<Value> values;
  m_.reserve(items.size() * sizeof(Value));
  values.reserve(items.size());
  for (const ExprPtr& item : items) values.push_back(eval(*item, scope));
  return values;
}

Value Interp::eval_dict(const Expr& e, Scope& scope) {
  Dict* d = m_.make<Dict>(e.items.size() * 2 * sizeof(Value));
  // Made first, filled later: what is made in between is counted on its own.
  for (size_t i = 0; i + 1 < e.items.size(); i += 2) {
    Value key = eval(*e.items[i], scope);
    Value value = eval(*e.items[i + 1], scope);
    require_key(m_, key);
    m_.check_depth(*d, value);
    d->set(std::move(key), std::move(value));
  }
  return Value::object(Kind::kDict, d);
}

Value Interp::eval_slice(const Expr& e, Scope& scope) {
  auto* s = m_.make<Slice>();
  const auto part = [&](const ExprPtr& p) { return p ? eval(*p, scope) : Value::none(); };
  s->start = part(e.items[0]);
  s->stop = part(e.items[1]);
  s->step = part(e.items[2]);
  return Value::object(Kind::kSlice, s);
}

Value Interp::eval_compare(const Expr& e, Scope& scope) {
  Value left = eval(*e.a, scope);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    Value right = eval(*e.ops[i].second, scope);
    m_.line = e.line;
    bool ok = false;
    switch (e.ops[i].first) {
      case CompareOp::kEq:
        ok = equal(m_, left, right);
        break;
      case CompareOp::kNe:
        ok = !equal(m_, left, right);
        break;
      case CompareOp::kLt:
        ok = compare(m_, left, right, "<") == -1;
        break;
      case CompareOp::kGt:
        ok = compare(m_, left, right, ">") == 1;
        break;
      case CompareOp::kLe: {
        const int c = compare(m_, left, right, "<=");
        ok = c == -1 || c == 0;
        break;
      }
      case CompareOp::kGe: {
        const int c = compare(m_, left, right, ">=");
        ok = c == 0 || c == 1;
        break;
      }
      case CompareOp::kIn:
        ok = contains(m_, right, left);
        break;
      case CompareOp::kNotIn:
        ok = !contains(m_, right, left);
        break;
    }
    if (!ok) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Args Interp::eval_args(const CallArgs& call, Scope& scope) {
  Args args;
  args.positional = eval_all(call.positional, scope);
  for (const auto& [name, e] : call.named) args.named.emplace_back(name, eval(*e, scope));
  if (call.star) {
    const Value more = eval(*call.star, scope);
    for (Value& v : to_items(m_, more)) args.positional.push_back(std::move(v));
  }
  if (call.star_star) {
    const Value more = eval(*call.star_star, scope);
    if (!more.is(Kind::kDict)) m_.fail("argument after ** must be a mapping, not {}", type_name(more));
    m_.touch_items(more.as<Dict>().items.size());
    for (const auto& [key, value] : more.as<Dict>().items) {
      if (!key.is_string()) m_.fail("keywords must be strings");
      for (const auto& [name, old] : args.named)
        if (name == key.text()) m_.fail("got multiple values for keyword argument '{}'", name);
      if (args.named.size() >= kMaxArguments) m_.fail_limit("passes too many named arguments");
      m_.step(args.named.size() / 16 + 1);
      args.named.emplace_back(key.text(), value);
    }
  }
  return args;
}

Value Interp::eval_call(const Expr& e, Scope& scope) {
  // obj.name(…): the method at once, without a value for the bound method.
  if (e.a->kind == ExprKind::kAttr) {
    const Value obj = eval(*e.a->a, scope);
    m_.line = e.line;
    if (has_method(obj, e.a->text)) {
      const Args args = eval_args(*e.call, scope);
      m_.line = e.line;
      return call_method(m_, obj, e.a->text, args);
    }
    const Value f = get_attribute(m_, obj, e.a->text);
    Args args = eval_args(*e.call, scope);
    m_.line = e.line;
    return call(f, args);
  }
  const Value f = eval(*e.a, scope);
  Args args = eval_args(*e.call, scope);
  m_.line = e.line;
  return call(f, args);
}

Value Interp::apply_filter(const Expr& e, const Value& input, Scope& scope) {
  const Args args = eval_args(*e.call, scope);
  m_.line = e.line;
  if (!e.filter) m_.fail_text(no_filter(e.text));
  return e.filter(*this, input, args);
}

Value Interp::filter_chain(const Expr& e, const Value& input, Scope& scope) {
  Level level(m_);
  return apply_filter(e, e.a ? filter_chain(*e.a, input, scope) : input, scope);
}

Value Interp::call_filter(std::string_view name, const Value& value, const Args& args) {
  Level level(m_);
  const FilterFn f = find_filter(name);
  if (!f) m_.fail_text(no_filter(name));
  return f(*this, value, args);
}

bool Interp::call_test(std::string_view name, const Value& value, const Args& args) {
  const TestFn f = find_test(name);
  if (!f) m_.fail("No test named '{}'.", name);
  return f(*this, value, args);
}

}  // namespace mxt::jinja

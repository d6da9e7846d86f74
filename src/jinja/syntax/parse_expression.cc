#include <algorithm>
#include <charconv>

#include "jinja/eval/builtins.h"
#include "jinja/syntax/parser.h"

namespace mxt::jinja {

ExprPtr Parser::node(ExprKind kind, uint32_t line) const {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->line = line;
  return e;
}

// Chains such as a + b + c grow to the left without recursion here, but evaluating them recurses: depth is bounded.
ExprPtr Parser::done(ExprPtr e) {
  uint32_t depth = 0;
  const auto look = [&depth](const ExprPtr& part) {
    if (part) depth = std::max<uint32_t>(depth, part->depth);
  };
  look(e->a);
  look(e->b);
  look(e->c);
  for (const auto& item : e->items) look(item);
  for (const auto& [op, item] : e->ops) look(item);
  if (e->call) {
    for (const auto& item : e->call->positional) look(item);
    for (const auto& [name, item] : e->call->named) look(item);
    look(e->call->star);
    look(e->call->star_star);
  }
  if (depth >= kMaxSyntaxDepth) fail_at(e->line, "the expression is nested too deep");
  e->depth = static_cast<uint16_t>(depth + 1);
  return e;
}

ExprPtr Parser::expression(bool with_cond) {
  Nesting nesting(*this);
  return with_cond ? condition() : or_chain();
}

ExprPtr Parser::tuple(bool with_cond, std::string_view end, bool parentheses) {
  const uint32_t line = now().line;
  std::vector<ExprPtr> items;
  bool comma = false;
  for (;;) {
    const bool over = is_op(")") || now().kind == TokenKind::kVariableEnd || now().kind == TokenKind::kBlockEnd ||
                      (!end.empty() && is_name(end));
    if (over) break;
    items.push_back(expression(with_cond));
    if (!skip_op(",")) break;
    comma = true;
  }
  if (!comma && items.size() == 1) return std::move(items[0]);
  if (!comma && !parentheses) fail("Expected an expression, got {}", describe());
  ExprPtr e = node(ExprKind::kTuple, line);
  e->items = std::move(items);
  return done(std::move(e));
}

ExprPtr Parser::condition() {
  uint32_t line = now().line;
  const size_t unknown_before = unknown_.size();
  ExprPtr e = or_chain();
  while (skip_name("if")) {
    Soft soft(*this, true);
    unknown_.resize(unknown_before);  // what was read turns out to be conditional
    ExprPtr c = node(ExprKind::kCond, line);
    c->a = std::move(e);
    c->b = or_chain();
    if (skip_name("else")) {
      Nesting nesting(*this);
      c->c = condition();
    }
    e = done(std::move(c));
    line = now().line;
  }
  return e;
}

ExprPtr Parser::or_chain() {
  ExprPtr left = and_chain();
  while (is_name("or")) {
    ExprPtr e = node(ExprKind::kOr, next().line);
    e->a = std::move(left);
    e->b = and_chain();
    left = done(std::move(e));
  }
  return left;
}

ExprPtr Parser::and_chain() {
  ExprPtr left = not_chain();
  while (is_name("and")) {
    ExprPtr e = node(ExprKind::kAnd, next().line);
    e->a = std::move(left);
    e->b = not_chain();
    left = done(std::move(e));
  }
  return left;
}

ExprPtr Parser::not_chain() {
  if (!is_name("not")) return comparison();
  Nesting nesting(*this);
  ExprPtr e = node(ExprKind::kNot, next().line);
  e->a = not_chain();
  return done(std::move(e));
}

ExprPtr Parser::comparison() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {{"==", CompareOp::kEq}, {"!=", CompareOp::kNe},
                                                                    {"<", CompareOp::kLt},  {"<=", CompareOp::kLe},
                                                                    {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  const uint32_t line = now().line;
  ExprPtr left = sum();
  std::vector<std::pair<CompareOp, ExprPtr>> ops;
  for (;;) {
    const auto* found = std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& o) { return is_op(o.first); });
    if (found != std::end(kOps)) {
      next();
      ops.emplace_back(found->second, sum());
    } else if (skip_name("in")) {
      ops.emplace_back(CompareOp::kIn, sum());
    } else if (is_name("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
      next();
      next();
      ops.emplace_back(CompareOp::kNotIn, sum());
    } else {
      break;
    }
  }
  if (ops.empty()) return left;
  ExprPtr e = node(ExprKind::kCompare, line);
  e->a = std::move(left);
  e->ops = std::move(ops);
  return done(std::move(e));
}

ExprPtr Parser::sum() {
  ExprPtr left = concat();
  while (is_op("+") || is_op("-")) {
    const Token t = next();
    ExprPtr e = node(ExprKind::kBinary, t.line);
    e->op = t.text == "+" ? BinaryOp::kAdd : BinaryOp::kSub;
    e->a = std::move(left);
    e->b = concat();
    left = done(std::move(e));
  }
  return left;
}

ExprPtr Parser::concat() {
  const uint32_t line = now().line;
  ExprPtr first = product();
  if (!is_op("~")) return first;
  ExprPtr e = node(ExprKind::kConcat, line);
  e->items.push_back(std::move(first));
  while (skip_op("~")) e->items.push_back(product());
  return done(std::move(e));
}

ExprPtr Parser::product() {
  ExprPtr left = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const Token t = next();
    ExprPtr e = node(ExprKind::kBinary, t.line);
    e->op = t.text == "*"   ? BinaryOp::kMul
            : t.text == "/" ? BinaryOp::kDiv
            : t.text == "%" ? BinaryOp::kMod
                            : BinaryOp::kFloorDiv;
    e->a = std::move(left);
    e->b = power();
    left = done(std::move(e));
  }
  return left;
}

ExprPtr Parser::power() {
  ExprPtr left = unary();
  while (is_op("**")) {
    ExprPtr e = node(ExprKind::kBinary, next().line);
    e->op = BinaryOp::kPow;
    e->a = std::move(left);
    e->b = unary();
    left = done(std::move(e));
  }
  return left;
}

ExprPtr Parser::unary(bool with_filter) {
  ExprPtr e;
  if (is_op("-") || is_op("+")) {
    Nesting nesting(*this);
    const Token t = next();
    e = node(t.text == "-" ? ExprKind::kNegate : ExprKind::kPlus, t.line);
    e->a = unary(false);
    e = done(std::move(e));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filter ? filters_and_tests(std::move(e)) : std::move(e);
}

bool Parser::literal_name(const std::string& name, Value& out) const {
  if (name == "true" || name == "True")
    out = Value::boolean(true);
  else if (name == "false" || name == "False")
    out = Value::boolean(false);
  else if (name == "none" || name == "None")
    out = Value::none();
  else
    return false;
  return true;
}

ExprPtr Parser::read_name(const std::string& name, uint32_t line) {
  ExprPtr e = node(ExprKind::kName, line);
  e->name = intern(name);
  ast_->read[e->name] = true;
  for (Macro* m : macros_) {
    m->uses_caller |= name == "caller";
    m->uses_varargs |= name == "varargs";
    m->uses_kwargs |= name == "kwargs";
  }
  return e;
}

ExprPtr Parser::primary() {
  const uint32_t line = now().line;
  switch (now().kind) {
    case TokenKind::kName: {
      const std::string name = next().text;
      ExprPtr e = node(ExprKind::kConst, line);
      return literal_name(name, e->constant) ? std::move(e) : read_name(name, line);
    }
    case TokenKind::kString: {
      auto s = std::make_shared<Str>();
      while (now().kind == TokenKind::kString) s->text += next().text;
      ExprPtr e = node(ExprKind::kConst, line);
      e->constant = Value::string(std::move(s));
      return e;
    }
    case TokenKind::kInteger: {
      const std::string text = next().text;
      const bool based = text.size() > 1 && text[0] == '0' && text[1] > '9';
      const int base = !based ? 10 : (text[1] | 0x20) == 'x' ? 16 : (text[1] | 0x20) == 'o' ? 8 : 2;
      int64_t i = 0;
      const char* end = text.data() + text.size();
      const auto r = std::from_chars(text.data() + (based ? 2 : 0), end, i, base);
      if (r.ec != std::errc() || r.ptr != end) fail_at(line, "the integer " + text.substr(0, 40) + " is too large");
      ExprPtr e = node(ExprKind::kConst, line);
      e->constant = Value::integer(i);
      return e;
    }
    case TokenKind::kFloat: {
      const std::string text = next().text;
      double d = 0;
      const auto r = std::from_chars(text.data(), text.data() + text.size(), d);
      if (r.ec != std::errc()) fail_at(line, "the number " + text.substr(0, 40) + " is out of range");
      ExprPtr e = node(ExprKind::kConst, line);
      e->constant = Value::real(d);
      return e;
    }
    default:
      break;
  }
  if (skip_op("(")) {
    Nesting nesting(*this);
    ExprPtr e = tuple(true, {}, true);
    expect_op(")");
    return e;
  }
  if (is_op("[")) return list_literal();
  if (is_op("{")) return dict_literal();
  fail("unexpected {}", describe());
}

ExprPtr Parser::list_literal() {
  ExprPtr e = node(ExprKind::kList, next().line);
  while (!is_op("]")) {
    if (!e->items.empty()) expect_op(",");
    if (is_op("]")) break;
    e->items.push_back(expression());
  }
  next();
  return done(std::move(e));
}

ExprPtr Parser::dict_literal() {
  ExprPtr e = node(ExprKind::kDict, next().line);
  while (!is_op("}")) {
    if (!e->items.empty()) expect_op(",");
    if (is_op("}")) break;
    e->items.push_back(expression());
    expect_op(":");
    e->items.push_back(expression());
  }
  next();
  return done(std::move(e));
}

ExprPtr Parser::postfix(ExprPtr e) {
  for (;;) {
    if (is_op(".") || is_op("["))
      e = subscript(std::move(e));
    else if (is_op("("))
      e = call(std::move(e));
    else
      return e;
  }
}

ExprPtr Parser::filters_and_tests(ExprPtr e) {
  for (;;) {
    if (is_op("|"))
      e = filter(std::move(e));
    else if (is_name("is"))
      e = test(std::move(e));
    else if (is_op("("))
      e = call(std::move(e));
    else
      return e;
  }
}

std::string Parser::dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) {
    name += '.';
    name += expect_name();
  }
  return name;
}

ExprPtr Parser::filter(ExprPtr e) {
  skip_op("|");
  ExprPtr f = node(ExprKind::kFilter, now().line);
  f->a = std::move(e);
  f->text = dotted_name();
  f->filter = find_filter(f->text);
  if (!f->filter && style_.regex_replace && f->text == "regex_replace") f->filter = regex_replace_filter;
  if (style_.html_json && f->text == "tojson") f->filter = html_tojson_filter;
  if (!f->filter && !soft_) unknown_.emplace_back(f->line, no_filter(f->text));
  f->call = is_op("(") ? call_args() : std::make_unique<CallArgs>();
  return done(std::move(f));
}

ExprPtr Parser::test(ExprPtr e) {
  ExprPtr t = node(ExprKind::kTest, next().line);
  const bool negated = skip_name("not");
  t->a = std::move(e);
  t->text = dotted_name();
  t->test = find_test(t->text);
  if (!t->test && !soft_) unknown_.emplace_back(t->line, fmt::format("No test named '{}'.", t->text));
  const TokenKind k = now().kind;
  const bool starts_value = k == TokenKind::kName || k == TokenKind::kString || k == TokenKind::kInteger ||
                            k == TokenKind::kFloat || is_op("[") || is_op("{");
  if (is_op("(")) {
    t->call = call_args();
  } else {
    t->call = std::make_unique<CallArgs>();
    if (starts_value && !is_name("else") && !is_name("or") && !is_name("and")) {
      if (is_name("is")) fail("You cannot chain multiple tests with is");
      t->call->positional.push_back(postfix(primary()));
    }
  }
  t = done(std::move(t));
  if (!negated) return t;
  ExprPtr n = node(ExprKind::kNot, t->line);
  n->a = std::move(t);
  return done(std::move(n));
}

ExprPtr Parser::subscript(ExprPtr e) {
  const Token t = next();
  if (t.text == ".") {
    if (now().kind == TokenKind::kName) {
      ExprPtr a = node(ExprKind::kAttr, t.line);
      a->a = std::move(e);
      a->text = next().text;
      return done(std::move(a));
    }
    if (now().kind != TokenKind::kInteger) fail("expected name or number");
    ExprPtr i = node(ExprKind::kItem, t.line);
    i->a = std::move(e);
    i->b = primary();
    return done(std::move(i));
  }
  std::vector<ExprPtr> parts;
  while (!is_op("]")) {
    if (!parts.empty()) expect_op(",");
    parts.push_back(subscript_part());
  }
  next();
  ExprPtr i = node(ExprKind::kItem, t.line);
  i->a = std::move(e);
  if (parts.size() == 1) {
    i->b = std::move(parts[0]);
  } else {
    i->b = node(ExprKind::kTuple, t.line);
    i->b->items = std::move(parts);
    i->b = done(std::move(i->b));
  }
  return done(std::move(i));
}

ExprPtr Parser::subscript_part() {
  const uint32_t line = now().line;
  ExprPtr start, stop, step;
  if (!is_op(":")) {
    start = expression();
    if (!is_op(":")) return start;
  }
  next();
  const auto over = [this] { return is_op("]") || is_op(","); };
  if (!is_op(":") && !over()) stop = expression();
  if (skip_op(":") && !over()) step = expression();
  ExprPtr s = node(ExprKind::kSlice, line);
  s->items.push_back(std::move(start));
  s->items.push_back(std::move(stop));
  s->items.push_back(std::move(step));
  return done(std::move(s));
}

ExprPtr Parser::call(ExprPtr e) {
  ExprPtr c = node(ExprKind::kCall, now().line);
  c->a = std::move(e);
  c->call = call_args();
  return done(std::move(c));
}

std::unique_ptr<CallArgs> Parser::call_args() {
  Nesting nesting(*this);
  expect_op("(");
  auto args = std::make_unique<CallArgs>();
  bool first = true;
  const auto ensure = [this](bool ok) {
    if (!ok) fail("invalid syntax for function call expression");
  };
  while (!is_op(")")) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
    first = false;
    if (skip_op("*")) {
      ensure(!args->star && !args->star_star);
      args->star = expression();
    } else if (skip_op("**")) {
      ensure(!args->star_star);
      args->star_star = expression();
    } else if (now().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator && ahead().text == "=") {
      ensure(!args->star_star);
      const std::string key = next().text;
      next();
      if (args->named.size() >= kMaxArguments) fail("a call with more than {} named arguments", kMaxArguments);
      for (const auto& [name, value] : args->named)
        if (name == key) fail("keyword argument repeated: {}", key);
      args->named.emplace_back(key, expression());
    } else {
      ensure(!args->star && !args->star_star && args->named.empty());
      args->positional.push_back(expression());
    }
  }
  next();
  return args;
}

}  // namespace mxt::jinja

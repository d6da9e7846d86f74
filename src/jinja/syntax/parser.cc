#include "jinja/syntax/parser.h"

#include <algorithm>

#include "base/text.h"
#include "jinja/eval/builtins.h"
#include "jinja/syntax/scopes.h"

namespace mxt::jinja {

Parser::Parser(std::string_view source, std::string_view name, const Style& style)
    : name_(name), style_(style), ast_(std::make_unique<Ast>()) {
  if (source.size() > kMaxSource)
    fail_input("{}: a template of {} is refused: at most {}", name, human_bytes(source.size()),
               human_bytes(kMaxSource));
  if (!is_valid_utf8(source)) fail_input("{}: the template is not valid UTF-8", name);
  tokens_ = tokenize(source, name, style);
}

std::unique_ptr<Ast> Parser::run() {
  while (now().kind != TokenKind::kEnd) tag(ast_->body);
  if (!unknown_.empty()) fail_at(unknown_[0].first, unknown_[0].second);
  resolve_scopes(*ast_, name_);
  return std::move(ast_);
}

void Parser::fail_at(uint32_t line, const std::string& what) const {
  throw TemplateError(fmt::format("{}:{}: {}", name_, line, what), line);
}

// One piece of text, one {{ … }} or one statement.
void Parser::tag(Block& out) {
  auto stmt = std::make_unique<Stmt>();
  stmt->line = now().line;
  if (now().kind == TokenKind::kData) {
    stmt->kind = StmtKind::kText;
    auto text = std::make_shared<Str>();
    text->text = next().text;
    stmt->text = std::move(text);
  } else if (now().kind == TokenKind::kVariableBegin) {
    next();
    stmt->kind = StmtKind::kPrint;
    stmt->exprs.push_back(tuple(true));
    expect(TokenKind::kVariableEnd, "end of print statement");
  } else {
    expect(TokenKind::kBlockBegin, "a tag");
    stmt = statement();
    expect(TokenKind::kBlockEnd, "end of statement block");
  }
  out.push_back(std::move(stmt));
}

// The body of a tag, up to one of `ends`, whose name is the next token.
Block Parser::block_until(std::initializer_list<std::string_view> ends) {
  Nesting nesting(*this);
  skip_op(":");
  expect(TokenKind::kBlockEnd, "end of statement block");
  Block body;
  for (;;) {
    if (now().kind == TokenKind::kEnd) fail("the template ends inside a block: '{}' is missing", *ends.begin());
    if (now().kind == TokenKind::kBlockBegin && ahead().kind == TokenKind::kName &&
        std::find(ends.begin(), ends.end(), ahead().text) != ends.end()) {
      next();
      return body;
    }
    tag(body);
  }
}

void Parser::close_tag(std::string_view name) {
  if (!skip_name(name)) fail("expected '{}', got {}", name, describe());
}

StmtPtr Parser::statement() {
  if (now().kind != TokenKind::kName) fail("tag name expected");
  const uint32_t line = now().line;
  const std::string name = now().text;
  StmtPtr s;
  if (name == "for")
    s = for_loop();
  else if (name == "if")
    s = if_chain();
  else if (name == "set")
    s = set();
  else if (name == "macro")
    s = macro();
  else if (name == "call")
    s = call_block();
  else if (name == "filter")
    s = filter_block();
  else if (name == "with")
    s = with();
  else if (name == "generation")
    s = generation();
  else if (name == "print")
    s = print();
  else if (name == "break" || name == "continue") {
    next();
    if (loops_ == 0) fail("'{}' outside of a loop", name);
    s = std::make_unique<Stmt>();
    s->kind = name == "break" ? StmtKind::kBreak : StmtKind::kContinue;
  } else if (name == "include" || name == "import" || name == "from" || name == "extends" || name == "block" ||
             name == "autoescape") {
    fail("the tag '{}' is refused: a chat template stands alone", name);
  } else {
    fail("Encountered unknown tag '{}'.", name);
  }
  s->line = line;
  return s;
}

Target Parser::target_part(bool with_namespace) {
  Nesting nesting(*this);
  Target t;
  if (skip_op("(")) {
    t = target(with_namespace, {});
    expect_op(")");
    return t;
  }
  if (now().kind != TokenKind::kName) fail("can't assign to {}", describe());
  const std::string name = next().text;
  Value ignored;
  if (literal_name(name, ignored)) fail("can't assign to '{}'", name);
  t.name = intern(name);
  if (with_namespace && skip_op(".")) {
    t.what = Target::What::kNamespace;
    t.attribute = expect_name();
    ast_->read[t.name] = true;
  } else if (name == "loop" && loops_ > 0) {
    fail("can't assign to special loop variable");
  }
  return t;
}

// a, or a, b, …; `end` is the name that closes the list.
Target Parser::target(bool with_namespace, std::string_view end) {
  std::vector<Target> parts;
  bool comma = false;
  for (;;) {
    if (is_op(")") || now().kind == TokenKind::kBlockEnd || (!end.empty() && is_name(end))) break;
    parts.push_back(target_part(with_namespace));
    if (!skip_op(",")) break;
    comma = true;
  }
  if (!comma && parts.size() == 1) return std::move(parts[0]);
  if (!comma) fail("Expected an expression, got {}", describe());
  Target t;
  t.what = Target::What::kTuple;
  t.items = std::move(parts);
  return t;
}

StmtPtr Parser::for_loop() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kFor;
  next();
  s->target = target(false, "in");
  if (!skip_name("in")) fail("expected 'in', got {}", describe());
  s->expr = tuple(false, "recursive");
  {
    Soft soft(*this, false);
    if (skip_name("if")) s->condition = expression();
    s->recursive = skip_name("recursive");
    ++loops_;
    s->body = block_until({"endfor", "else"});
    --loops_;
    if (skip_name("else")) s->otherwise = block_until({"endfor"});
  }
  close_tag("endfor");
  return s;
}

StmtPtr Parser::if_chain() {
  Soft soft(*this, true);
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kIf;
  next();
  for (;;) {
    ExprPtr test = tuple(false);
    Block body = block_until({"elif", "else", "endif"});
    s->branches.emplace_back(std::move(test), std::move(body));
    if (skip_name("elif")) continue;
    if (skip_name("else")) s->otherwise = block_until({"endif"});
    break;
  }
  close_tag("endif");
  return s;
}

StmtPtr Parser::set() {
  auto s = std::make_unique<Stmt>();
  next();
  s->target = target(true, {});
  if (skip_op("=")) {
    s->kind = StmtKind::kSet;
    s->expr = tuple(true);
    return s;
  }
  s->kind = StmtKind::kSetBlock;
  while (is_op("|")) s->expr = filter(std::move(s->expr));
  Soft soft(*this, false);
  s->body = block_until({"endset"});
  close_tag("endset");
  return s;
}

void Parser::signature(Macro& m) {
  if (!skip_op("(")) fail("expected '(', got {}", describe());
  while (!is_op(")")) {
    if (!m.parameters.empty()) expect_op(",");
    if (m.parameters.size() >= kMaxArguments) fail("a macro of more than {} parameters", kMaxArguments);
    const std::string name = expect_name();
    Value ignored;
    if (literal_name(name, ignored)) fail("can't assign to '{}'", name);
    m.parameters.push_back(intern(name));
    if (skip_op("=")) {
      m.defaults.push_back(expression());
    } else if (!m.defaults.empty()) {
      fail("non-default argument follows default argument");
    }
  }
  expect_op(")");
}

StmtPtr Parser::macro() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kMacro;
  s->macro = std::make_unique<Macro>();
  next();
  s->macro->label = expect_name();
  s->macro->name = intern(s->macro->label);
  Soft soft(*this, false);
  signature(*s->macro);
  OwnFunction own(*this);
  macros_.push_back(s->macro.get());
  s->macro->body = block_until({"endmacro"});
  macros_.pop_back();
  close_tag("endmacro");
  return s;
}

StmtPtr Parser::call_block() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kCallBlock;
  s->macro = std::make_unique<Macro>();
  s->macro->label = "caller";
  next();
  if (is_op("(")) signature(*s->macro);
  s->expr = expression();
  if (s->expr->kind != ExprKind::kCall) fail("expected call");
  Soft soft(*this, false);
  OwnFunction own(*this);
  macros_.push_back(s->macro.get());
  s->macro->body = block_until({"endcall"});
  macros_.pop_back();
  close_tag("endcall");
  return s;
}

StmtPtr Parser::filter_block() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kFilterBlock;
  next();
  s->expr = filter(nullptr);
  while (is_op("|")) s->expr = filter(std::move(s->expr));
  Soft soft(*this, false);
  s->body = block_until({"endfilter"});
  close_tag("endfilter");
  return s;
}

StmtPtr Parser::with() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kWith;
  next();
  while (now().kind != TokenKind::kBlockEnd) {
    if (!s->targets.empty()) expect_op(",");
    s->targets.push_back(target_part(false));
    expect_op("=");
    s->exprs.push_back(expression());
  }
  Soft soft(*this, false);
  s->body = block_until({"endwith"});
  close_tag("endwith");
  return s;
}

StmtPtr Parser::generation() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kGeneration;
  next();
  ast_->generation = true;
  Soft soft(*this, false);
  OwnFunction own(*this);
  s->body = block_until({"endgeneration"});
  close_tag("endgeneration");
  return s;
}

StmtPtr Parser::print() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kPrint;
  next();
  while (now().kind != TokenKind::kBlockEnd) {
    if (!s->exprs.empty()) expect_op(",");
    s->exprs.push_back(expression());
  }
  return s;
}

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  next();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail("expected token '{}', got {}", op, describe());
}

void Parser::expect(TokenKind kind, std::string_view what) {
  if (now().kind != kind) fail("expected {}, got {}", what, describe());
  next();
}

std::string Parser::expect_name() {
  if (now().kind != TokenKind::kName) fail("expected a name, got {}", describe());
  return next().text;
}

Token Parser::next() {
  Token t = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return t;
}

std::string Parser::describe() const {
  switch (now().kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kData:
      return "template text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    default:
      return fmt::format("'{}'", now().text.substr(0, 60));
  }
}

NameId Parser::intern(const std::string& name) {
  const auto [it, fresh] = ast_->ids.emplace(name, static_cast<NameId>(ast_->names.size()));
  if (fresh) {
    ast_->names.push_back(name);
    ast_->read.push_back(false);
  }
  return it->second;
}

}  // namespace mxt::jinja

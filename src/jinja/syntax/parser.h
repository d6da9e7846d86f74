// Turns tokens into the tree. Jinja's grammar; what loads other templates is refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/jinja.h"
#include "jinja/syntax/ast.h"
#include "jinja/syntax/lexer.h"

namespace mxt::jinja {

class Parser {
 public:
  Parser(std::string_view source, std::string_view name, const Style& style = {});
  std::unique_ptr<Ast> run();

 private:
  // Statements (parser.cc).
  Block block_until(std::initializer_list<std::string_view> ends);
  void tag(Block& out);
  StmtPtr statement();
  StmtPtr for_loop();
  StmtPtr if_chain();
  StmtPtr set();
  StmtPtr macro();
  StmtPtr call_block();
  StmtPtr filter_block();
  StmtPtr with();
  StmtPtr generation();
  StmtPtr print();
  void signature(Macro& m);
  Target target(bool with_namespace, std::string_view end);
  Target target_part(bool with_namespace);
  void close_tag(std::string_view name);

  // Expressions (parse_expression.cc).
  ExprPtr expression(bool with_cond = true);
  ExprPtr tuple(bool with_cond, std::string_view end = {}, bool parentheses = false);
  ExprPtr condition();
  ExprPtr or_chain();
  ExprPtr and_chain();
  ExprPtr not_chain();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary();
  ExprPtr list_literal();
  ExprPtr dict_literal();
  ExprPtr postfix(ExprPtr e);
  ExprPtr filters_and_tests(ExprPtr e);
  ExprPtr filter(ExprPtr e);
  ExprPtr test(ExprPtr e);
  ExprPtr subscript(ExprPtr e);
  ExprPtr subscript_part();
  ExprPtr call(ExprPtr e);
  std::unique_ptr<CallArgs> call_args();
  std::string dotted_name();

  // Nodes.
  ExprPtr node(ExprKind kind, uint32_t line) const;
  ExprPtr done(ExprPtr e);  // sets and checks the depth
  NameId intern(const std::string& name);
  ExprPtr read_name(const std::string& name, uint32_t line);
  bool literal_name(const std::string& name, Value& out) const;

  // Tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is_op(std::string_view op) const { return now().kind == TokenKind::kOperator && now().text == op; }
  bool is_name(std::string_view name) const { return now().kind == TokenKind::kName && now().text == name; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name();
  Token next();
  std::string describe() const;
  template <typename... A>
  [[noreturn]] void fail(fmt::format_string<A...> f, A&&... a) const {
    fail_at(now().line, fmt::format(f, std::forward<A>(a)...));
  }
  [[noreturn]] void fail_at(uint32_t line, const std::string& what) const;

  struct Nesting {
    explicit Nesting(Parser& p) : p_(p) {
      if (++p_.depth_ > kMaxSyntaxDepth) p_.fail_at(p_.now().line, "the template is nested too deep");
    }
    ~Nesting() { --p_.depth_; }
    Parser& p_;
  };
  // A body that Jinja compiles as a function of its own: loops around it cannot be left from inside.
  struct OwnFunction {
    explicit OwnFunction(Parser& p) : p_(p), loops_(p.loops_) { p.loops_ = 0; }
    ~OwnFunction() { p_.loops_ = loops_; }
    Parser& p_;
    uint32_t loops_;
  };
  // Inside a condition an unknown filter or test is an error only when it is reached.
  struct Soft {
    Soft(Parser& p, bool soft) : p_(p), before_(p.soft_) { p.soft_ = soft; }
    ~Soft() { p_.soft_ = before_; }
    Parser& p_;
    bool before_;
  };

  std::string name_;
  Style style_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
  uint32_t loops_ = 0;
  bool soft_ = false;
  std::unique_ptr<Ast> ast_;
  std::vector<Macro*> macros_;                             // that are open
  std::vector<std::pair<uint32_t, std::string>> unknown_;  // filters and tests that do not exist, by line
};

}  // namespace mxt::jinja

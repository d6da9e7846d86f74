// Walks the tree of a template and writes its output.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "jinja/syntax/ast.h"
#include "jinja/text/format.h"
#include "jinja/values/machine.h"

namespace mxt::jinja {

// Variables of one block. Jinja's scoping: a loop's iteration, a macro and a captured block have their own; an `if`
// has none.
struct Scope : Object {
  Scope* parent = nullptr;
  std::vector<std::pair<NameId, Value>> variables;  // a plain Value() is a name that is not set yet
  const Value* find(NameId name) const {
    for (const auto& [id, value] : variables)
      if (id == name) return &value;
    return nullptr;
  }
};

struct MacroValue : Object {
  const Macro* macro = nullptr;
  Scope* scope = nullptr;  // where it was defined
};

// `loop`, and the iteration itself.
struct Loop : Object {
  const Stmt* stmt = nullptr;
  Scope* scope = nullptr;
  Value iterable;
  std::function<bool(Value&)> next;
  std::vector<Value> ahead;  // read before their turn, in reverse
  Value current, before;
  std::vector<Value> last_changed;
  bool changed_once = false;
  int64_t index0 = -1;
  int64_t known_length = -1;
  uint32_t depth0 = 0;
};

using Variables = std::vector<std::pair<std::string, Value>>;

class Interp {
 public:
  Interp(Machine& m, const Ast& ast, const Variables& variables, int64_t now);
  Rendered run();

  Machine& machine() { return m_; }
  // Calls any callable value, as `f(args)` does.
  Value call(const Value& f, Args& args);
  Value call_filter(std::string_view name, const Value& value, const Args& args);
  bool call_test(std::string_view name, const Value& value, const Args& args);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements (statements.cc).
  Flow exec(const Block& block, Scope& scope);
  Flow exec(const Stmt& stmt, Scope& scope);
  Flow exec_for(const Stmt& stmt, Scope& scope);
  Flow run_loop(const Stmt& stmt, Scope& scope, const Value& iterable, uint32_t depth0);
  Flow exec_if(const Stmt& stmt, Scope& scope);
  Flow exec_with(const Stmt& stmt, Scope& scope);
  Flow exec_generation(const Stmt& stmt, Scope& scope);
  void exec_call_block(const Stmt& stmt, Scope& scope);
  Flow capture(const Block& block, Scope& scope, StrRef& out);
  void assign(const Target& target, const Value& value, Scope& scope);
  void set_variable(Scope& scope, NameId name, Value value);
  void emit(const Value& v);
  Scope* new_scope(Scope* parent, const Frame* frame = nullptr);
  void apply_turn();

  // Expressions (expressions.cc).
  Value eval(const Expr& e, Scope& scope);
  Value lookup(NameId name, const Scope& scope);
  Value eval_dict(const Expr& e, Scope& scope);
  Value eval_compare(const Expr& e, Scope& scope);
  Value eval_call(const Expr& e, Scope& scope);
  Value apply_filter(const Expr& e, const Value& input, Scope& scope);
  Value filter_chain(const Expr& e, const Value& input, Scope& scope);  // e.a may be missing: then it is `input`
  Value eval_slice(const Expr& e, Scope& scope);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& items, Scope& scope);
  Args eval_args(const CallArgs& args, Scope& scope);

  // Calls (calls.cc).
  Value call_macro(const MacroValue& f, Args& args);
  Value call_builtin(Builtin f, Args& args);
  Value call_loop(Loop& loop, Args& args);
  Value strftime_now(const Args& args);

  Machine& m_;
  const Ast& ast_;
  std::vector<const Value*> context_;  // by NameId
  Variables globals_;
  const int64_t now_;
  Builder* out_ = nullptr;
  uint32_t turn_ = 0;        // message whose iteration runs, plus one
  uint32_t generation_ = 0;  // {% generation %} blocks that are open
};

// Attribute and item access of the sandbox (attributes.cc).
Value get_attribute(Machine& m, const Value& obj, std::string_view name);
Value get_item(Machine& m, const Value& obj, const Value& key);
// obj.name(args) where it is a method of str, list, tuple, dict or a view (methods.cc, string_methods.cc).
bool has_method(const Value& obj, std::string_view name);
Value call_method(Machine& m, const Value& obj, std::string_view name, const Args& args);
Value call_string_method(Machine& m, const StrRef& self, std::string_view name, const Args& args);
bool is_string_method(std::string_view name);
Value loop_attribute(Machine& m, Loop& loop, std::string_view name);
bool loop_peek(Machine& m, Loop& loop, Value& out);
bool is_callable(const Value& v);

}  // namespace mxt::jinja

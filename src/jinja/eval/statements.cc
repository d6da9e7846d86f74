#include <algorithm>

#include "jinja/eval/interp.h"
#include "jinja/text/repr.h"

namespace mxt::jinja {
namespace {

constexpr std::pair<std::string_view, Builtin> kGlobals[] = {
    {"range", Builtin::kRange},           {"dict", Builtin::kDict},     {"namespace", Builtin::kNamespace},
    {"cycler", Builtin::kCycler},         {"joiner", Builtin::kJoiner}, {"raise_exception", Builtin::kRaise},
    {"strftime_now", Builtin::kStrftime},
};

}  // namespace

Interp::Interp(Machine& m, const Ast& ast, const Variables& variables, int64_t now)
    : m_(m), ast_(ast), context_(ast.names.size(), nullptr), now_(now) {
  for (const auto& [name, builtin] : kGlobals) {
    auto* f = m.make<Function>();
    f->builtin = builtin;
    globals_.emplace_back(std::string(name), Value::object(Kind::kFunction, f));
  }
  const auto place = [this](const Variables& from) {
    for (const auto& [name, value] : from)
      if (const auto it = ast_.ids.find(name); it != ast_.ids.end()) context_[it->second] = &value;
  };
  place(globals_);
  place(variables);
}

Rendered Interp::run() {
  Builder out(m_);
  out.set_limit(m_.limits().output);
  out_ = &out;
  exec(ast_.body, *new_scope(nullptr, &ast_.frame));
  return out.finish_rendered();
}

Scope* Interp::new_scope(Scope* parent, const Frame* frame) {
  auto* s = m_.make<Scope>();
  s->parent = parent;
  if (frame)
    for (NameId name : frame->missing) set_variable(*s, name, Value());
  return s;
}

void Interp::set_variable(Scope& scope, NameId name, Value value) {
  m_.step(scope.variables.size() / 16 + 2);
  for (auto& [id, old] : scope.variables)
    if (id == name) {
      old = std::move(value);
      return;
    }
  m_.reserve(sizeof(std::pair<NameId, Value>) * (scope.variables.size() + 1) * 2);
  scope.variables.emplace_back(name, std::move(value));
}

void Interp::apply_turn() { out_->set_turn(turn_ | (generation_ ? Tag::kGeneration : 0)); }

void Interp::emit(const Value& v) { out_->add(v); }

Interp::Flow Interp::exec(const Block& block, Scope& scope) {
  for (const StmtPtr& s : block)
    if (const Flow f = exec(*s, scope); f != Flow::kNext) return f;
  return Flow::kNext;
}

Interp::Flow Interp::exec(const Stmt& s, Scope& scope) {
  Level level(m_);
  m_.line = s.line;
  m_.step();
  switch (s.kind) {
    case StmtKind::kText:
      out_->add(*s.text);
      return Flow::kNext;
    case StmtKind::kPrint:
      for (const ExprPtr& e : s.exprs) emit(eval(*e, scope));
      return Flow::kNext;
    case StmtKind::kFor:
      return exec_for(s, scope);
    case StmtKind::kIf:
      return exec_if(s, scope);
    case StmtKind::kSet:
      assign(s.target, eval(*s.expr, scope), scope);
      return Flow::kNext;
    case StmtKind::kSetBlock: {
      StrRef text;
      Scope* inner = new_scope(&scope, &s.frame);
      if (const Flow f = capture(s.body, *inner, text); f != Flow::kNext) return f;
      Value v = Value::string(std::move(text));
      if (s.expr) v = filter_chain(*s.expr, v, *inner);
      assign(s.target, v, scope);
      return Flow::kNext;
    }
    case StmtKind::kMacro: {
      auto* value = m_.make<MacroValue>();
      value->macro = s.macro.get();
      value->scope = &scope;
      set_variable(scope, s.macro->name, Value::object(Kind::kMacro, value));
      return Flow::kNext;
    }
    case StmtKind::kCallBlock:
      exec_call_block(s, scope);
      return Flow::kNext;
    case StmtKind::kFilterBlock: {
      StrRef text;
      Scope* inner = new_scope(&scope, &s.frame);
      if (const Flow f = capture(s.body, *inner, text); f != Flow::kNext) return f;
      emit(filter_chain(*s.expr, Value::string(std::move(text)), *inner));
      return Flow::kNext;
    }
    case StmtKind::kWith:
      return exec_with(s, scope);
    case StmtKind::kGeneration:
      return exec_generation(s, scope);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

// Runs a block with its output kept aside.
Interp::Flow Interp::capture(const Block& block, Scope& scope, StrRef& out) {
  Builder mine(m_);
  Builder* outer = out_;
  out_ = &mine;
  apply_turn();
  Flow f = Flow::kNext;
  try {
    f = exec(block, scope);
  } catch (...) {
    out_ = outer;
    throw;
  }
  out_ = outer;
  out = mine.finish();
  return f;
}

Interp::Flow Interp::exec_if(const Stmt& s, Scope& scope) {
  for (const auto& [condition, body] : s.branches)
    if (truth(m_, eval(*condition, scope))) return exec(body, scope);
  return exec(s.otherwise, scope);
}

Interp::Flow Interp::exec_with(const Stmt& s, Scope& scope) {
  std::vector<Value> values = eval_all(s.exprs, scope);  // all before the first is assigned
  Scope* inner = new_scope(&scope, &s.frame);
  for (size_t i = 0; i < values.size(); ++i) assign(s.targets[i], values[i], *inner);
  return exec(s.body, *inner);
}

Interp::Flow Interp::exec_generation(const Stmt& s, Scope& scope) {
  ++generation_;
  apply_turn();
  const Flow f = exec(s.body, *new_scope(&scope, &s.frame));
  --generation_;
  apply_turn();
  return f;
}

void Interp::exec_call_block(const Stmt& s, Scope& scope) {
  auto* caller = m_.make<MacroValue>();
  caller->macro = s.macro.get();
  caller->scope = &scope;
  const Value callee = eval(*s.expr->a, scope);
  Args args = eval_args(*s.expr->call, scope);
  args.named.emplace_back("caller", Value::object(Kind::kMacro, caller));
  m_.line = s.line;
  emit(call(callee, args));
}

void Interp::assign(const Target& t, const Value& value, Scope& scope) {
  switch (t.what) {
    case Target::What::kName:
      return set_variable(scope, t.name, value);
    case Target::What::kNamespace: {
      const Value owner = lookup(t.name, scope);
      if (!owner.is(Kind::kNamespace)) m_.fail("cannot assign attribute on non-namespace object");
      if (t.attribute.starts_with("_"))
        m_.fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '{}'.",
                t.attribute);
      auto& attributes = owner.as<Namespace>().attributes;
      m_.reserve(4 * sizeof(Value));
      attributes.set(m_.text(t.attribute), value);
      return;
    }
    case Target::What::kTuple: {
      std::vector<Value> items;
      auto next = iterate(m_, value);
      for (Value v; items.size() <= t.items.size() && next(v);) items.push_back(v);
      if (items.size() > t.items.size()) m_.fail("too many values to unpack (expected {})", t.items.size());
      if (items.size() < t.items.size())
        m_.fail("not enough values to unpack (expected {}, got {})", t.items.size(), items.size());
      for (size_t i = 0; i < items.size(); ++i) assign(t.items[i], items[i], scope);
      return;
    }
  }
}

Interp::Flow Interp::exec_for(const Stmt& s, Scope& scope) { return run_loop(s, scope, eval(*s.expr, scope), 0); }

Interp::Flow Interp::run_loop(const Stmt& s, Scope& scope, const Value& iterable, uint32_t depth0) {
  auto* loop = m_.make<Loop>(256);
  loop->stmt = &s;
  loop->scope = &scope;
  loop->depth0 = depth0;
  loop->iterable = iterable;
  loop->next = iterate(m_, iterable);
  if (s.condition) {
    // Items that pass the condition, one by one; its variables are not the body's.
    loop->iterable = Value();
    loop->known_length = -2;
    loop->next = [this, &s, &scope, next = std::move(loop->next)](Value& out) {
      while (next(out)) {
        Scope* inner = new_scope(&scope);
        assign(s.target, out, *inner);
        if (truth(m_, eval(*s.condition, *inner))) return true;
      }
      return false;
    };
  }
  const auto loop_id = ast_.ids.find("loop");
  const uint32_t turn_before = turn_;
  bool any = false;
  Flow flow = Flow::kNext;
  for (;;) {
    Value item;
    if (!loop->ahead.empty()) {
      item = std::move(loop->ahead.back());
      loop->ahead.pop_back();
    } else if (!loop->next(item)) {
      break;
    }
    any = true;
    ++loop->index0;
    loop->before = std::move(loop->current);
    loop->current = item;
    Scope* inner = new_scope(&scope, &s.frame);
    if (loop_id != ast_.ids.end()) set_variable(*inner, loop_id->second, Value::object(Kind::kLoop, loop));
    assign(s.target, item, *inner);
    if (item.is(Kind::kDict) && item.as<Dict>().message >= 0) {
      turn_ = static_cast<uint32_t>(item.as<Dict>().message) + 1;
      apply_turn();
    }
    flow = exec(s.body, *inner);
    turn_ = turn_before;
    apply_turn();
    if (flow == Flow::kBreak) break;
  }
  if (any || s.otherwise.empty()) return Flow::kNext;
  return exec(s.otherwise, *new_scope(&scope, &s.else_frame));
}

}  // namespace mxt::jinja

#include "jinja/syntax/scopes.h"

#include <functional>
#include <map>
#include <set>
#include <string_view>

namespace mxt::jinja {
namespace {

enum class Start : uint8_t { kGiven, kOuter, kMissing };  // what a name is when its block begins

// The names of one block, as Jinja's idtracking knows them. Depth is bounded by the parser's.
struct Symbols {
  const Symbols* parent = nullptr;
  std::map<NameId, Start> names;
  std::set<NameId> stored, read;

  bool knows(NameId n) const { return names.contains(n) || (parent && parent->knows(n)); }
  void load(NameId n) {
    read.insert(n);
    if (!knows(n)) names[n] = Start::kOuter;
  }
  void store(NameId n) {
    stored.insert(n);
    if (!names.contains(n)) names[n] = parent && parent->knows(n) ? Start::kOuter : Start::kMissing;
  }
  void parameter(NameId n) {
    stored.insert(n);
    names[n] = Start::kGiven;
  }
};

constexpr size_t kMostWork = 5'000'000;  // names copied, for templates made to be slow

class Resolver {
 public:
  explicit Resolver(std::string_view name) : name_(name) {}

  // Resolves a block whose names `given` are set from outside; returns the names that it or blocks inside read.
  std::set<NameId> frame(const Symbols* parent, const Block& body, Frame& out,
                         const std::function<void(Symbols&)>& given) {
    Symbols s;
    s.parent = parent;
    given(s);
    statements(body, s);
    const std::set<NameId> inside = inner_frames(body, s);
    for (const auto& [name, start] : s.names)
      if (start == Start::kMissing && inside.contains(name)) out.missing.push_back(name);
    s.read.insert(inside.begin(), inside.end());
    return std::move(s.read);
  }

 private:
  void expr(const ExprPtr& e, Symbols& s) {
    if (!e) return;
    if (e->kind == ExprKind::kName) s.load(e->name);
    expr(e->a, s);
    expr(e->b, s);
    expr(e->c, s);
    for (const auto& item : e->items) expr(item, s);
    for (const auto& [op, item] : e->ops) expr(item, s);
    if (!e->call) return;
    for (const auto& item : e->call->positional) expr(item, s);
    for (const auto& [name, item] : e->call->named) expr(item, s);
    expr(e->call->star, s);
    expr(e->call->star_star, s);
  }

  void target(const Target& t, Symbols& s, bool parameter) {
    if (t.what == Target::What::kNamespace)
      s.load(t.name);
    else if (t.what == Target::What::kName)
      parameter ? s.parameter(t.name) : s.store(t.name);
    for (const Target& item : t.items) target(item, s, parameter);
  }

  // What happens to names in the block itself; blocks inside that have their own names are left out.
  void statements(const Block& block, Symbols& s) {
    for (const StmtPtr& p : block) {
      switch (p->kind) {
        case StmtKind::kPrint:
        case StmtKind::kWith:
          for (const ExprPtr& e : p->exprs) expr(e, s);
          break;
        case StmtKind::kSet:
          expr(p->expr, s);
          target(p->target, s, false);
          break;
        case StmtKind::kFor:
        case StmtKind::kFilterBlock:
        case StmtKind::kCallBlock:
          expr(p->expr, s);
          break;
        case StmtKind::kSetBlock:
          target(p->target, s, false);
          break;
        case StmtKind::kMacro:
          s.store(p->macro->name);
          break;
        case StmtKind::kIf:
          branches(*p, s);
          break;
        default:
          break;
      }
    }
  }

  // Jinja sees three branches: the first, all elif together, else. A name that one of them sets begins as what it is
  // outside, since the others may leave it so.
  void branches(const Stmt& p, Symbols& s) {
    expr(p.branches[0].first, s);
    if ((work_ += 4 * (s.names.size() + s.stored.size() + s.read.size()) + 1) > kMostWork)
      throw TemplateLimit(fmt::format("{}:{}: the template has too many names and branches", name_, p.line), p.line);
    Symbols first = s, middle = s, last = s;
    statements(p.branches[0].second, first);
    for (size_t i = 1; i < p.branches.size(); ++i) {
      expr(p.branches[i].first, middle);
      statements(p.branches[i].second, middle);
    }
    statements(p.otherwise, last);
    std::set<NameId> set_here;
    for (const Symbols* b : {&first, &middle, &last})
      for (NameId n : b->stored)
        if (!s.stored.contains(n)) set_here.insert(n);
    for (const Symbols* b : {&first, &middle, &last})
      for (const auto& [name, start] : b->names) s.names[name] = start;
    for (const Symbols* b : {&first, &middle, &last}) {
      s.stored.insert(b->stored.begin(), b->stored.end());
      s.read.insert(b->read.begin(), b->read.end());
    }
    for (NameId n : set_here) s.names[n] = Start::kOuter;
  }

  std::set<NameId> inner_frames(const Block& block, const Symbols& s) {
    std::set<NameId> reads;
    const auto add = [&](std::set<NameId> more) { reads.merge(more); };
    const auto nothing = [](Symbols&) {};
    for (const StmtPtr& p : block) {
      switch (p->kind) {
        case StmtKind::kIf:
          for (const auto& [test, body] : p->branches) add(inner_frames(body, s));
          add(inner_frames(p->otherwise, s));
          break;
        case StmtKind::kFor:
          add(frame(&s, p->body, p->frame, [&](Symbols& inner) { target(p->target, inner, true); }));
          if (p->condition) {  // `for … if`: its condition is a block of its own
            Frame none;
            add(frame(&s, {}, none, [&](Symbols& inner) {
              target(p->target, inner, true);
              expr(p->condition, inner);
            }));
          }
          add(frame(&s, p->otherwise, p->else_frame, nothing));
          break;
        case StmtKind::kMacro:
        case StmtKind::kCallBlock:
          add(frame(&s, p->macro->body, p->macro->frame, [&](Symbols& inner) {
            for (NameId n : p->macro->parameters) inner.parameter(n);
            for (const ExprPtr& e : p->macro->defaults) expr(e, inner);
          }));
          break;
        case StmtKind::kWith:
          add(frame(&s, p->body, p->frame, [&](Symbols& inner) {
            for (const Target& t : p->targets) target(t, inner, true);
          }));
          break;
        case StmtKind::kSetBlock:
        case StmtKind::kFilterBlock:
        case StmtKind::kGeneration:
          add(frame(&s, p->body, p->frame, nothing));
          break;
        default:
          break;
      }
    }
    return reads;
  }

  std::string_view name_;
  size_t work_ = 0;
};

}  // namespace

void resolve_scopes(Ast& ast, std::string_view name) {
  Resolver(name).frame(nullptr, ast.body, ast.frame, [](Symbols&) {});
}

}  // namespace mxt::jinja

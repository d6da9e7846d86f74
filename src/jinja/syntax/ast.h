// The tree of a template. Built once by the parser, read by any number of renderings.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/values/operators.h"
#include "jinja/values/value.h"

namespace mxt::jinja {

class Interp;
struct Args;

using NameId = uint32_t;
using FilterFn = Value (*)(Interp&, const Value&, const Args&);
using TestFn = bool (*)(Interp&, const Value&, const Args&);

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kTuple,
  kList,
  kDict,    // items: key, value, key, value…
  kAttr,    // a.text
  kItem,    // a[b]
  kSlice,   // items: start, stop, step; null where left out
  kCall,    // a(call)
  kFilter,  // a | text(call); a is null in a filter block
  kTest,    // a is text(call)
  kCond,    // a if b else c
  kAnd,
  kOr,
  kNot,
  kCompare,  // a, then ops
  kBinary,
  kNegate,
  kPlus,
  kConcat,  // items
};

enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // *x, **x
};

struct Expr {
  ExprKind kind{};
  BinaryOp op{};
  uint16_t depth = 1;  // of the deepest part below, for the limit
  uint32_t line = 0;
  NameId name = 0;
  Value constant;
  std::string text;
  ExprPtr a, b, c;
  std::vector<ExprPtr> items;
  std::vector<std::pair<CompareOp, ExprPtr>> ops;
  std::unique_ptr<CallArgs> call;
  FilterFn filter = nullptr;  // null: unknown, said when it is reached
  TestFn test = nullptr;
};

// What can be assigned to: a name, an attribute of a namespace, or a tuple of these.
struct Target {
  enum class What : uint8_t { kName, kNamespace, kTuple } what = What::kName;
  NameId name = 0;
  std::string attribute;
  std::vector<Target> items;
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Block = std::vector<StmtPtr>;

enum class StmtKind : uint8_t {
  kText,
  kPrint,  // exprs
  kFor,
  kIf,  // branches, then `otherwise`
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kGeneration,
  kBreak,
  kContinue,
};

// A block with variables of its own; `missing` are its own from the start (scopes.h).
struct Frame {
  std::vector<NameId> missing;
};

struct Macro {
  Frame frame;
  NameId name = 0;
  std::string label;
  std::vector<NameId> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Block body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Stmt {
  StmtKind kind{};
  bool recursive = false;
  uint32_t line = 0;
  StrRef text;
  Target target;
  std::vector<Target> targets;  // of `with`
  std::vector<ExprPtr> exprs;
  ExprPtr expr;       // iterable, value, filter or call
  ExprPtr condition;  // of `for … if`
  Block body, otherwise;
  Frame frame, else_frame;  // of body and otherwise, where they have variables of their own
  std::vector<std::pair<ExprPtr, Block>> branches;
  std::unique_ptr<Macro> macro;
};

struct Ast {
  Block body;
  Frame frame;
  std::vector<std::string> names;  // by NameId
  std::unordered_map<std::string, NameId> ids;
  std::vector<bool> read;  // by NameId: stands as a variable somewhere
  bool generation = false;
};

}  // namespace mxt::jinja

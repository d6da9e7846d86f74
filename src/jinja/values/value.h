// Values of the template language: Python's None, bool, int (128 bits; longer ones can be printed and compared), float,
// str, list, tuple, dict, range and what Jinja adds. Strings are shared and counted; every other object lives in the
// arena of one Machine until it is gone, so cycles cannot leak and no destructor recurses.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/jinja.h"

namespace mxt::jinja {

using Int = __int128;

class Machine;

// Bytes of living values of one Machine.
struct Memory {
  size_t live = 0;
  size_t limit = 0;
};

// Text with the origin of each byte. Immutable once shared.
struct Str {
  std::string text;
  std::vector<Run> runs;  // empty: every byte has `tag`
  Tag tag;
  bool markup = false;  // markupsafe.Markup: `+` and `%` escape what joins it
  Memory* memory = nullptr;
  size_t counted = 0;
  Str() = default;
  Str(const Str&) = delete;
  ~Str() {
    if (memory) memory->live -= counted;
  }
};
using StrRef = std::shared_ptr<const Str>;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kBigInt,  // an integer of the data beyond 128 bits: its digits, as a string
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,      // dict.keys(), values(), items()
  kIterator,  // a generator: can be gone through once
  kSlice,
  kNamespace,
  kMacro,
  kFunction,
  kMethod,
  kLoop,
  kCycler,
  kJoiner,
};

struct Object {
  uint32_t depth = 1;   // 1 + that of the deepest item
  uint32_t origin = 0;  // of the data it was made from
  uint32_t weight = 1;  // values below it, counted once for each way to them; saturates
  virtual ~Object() = default;
};

class Value {
 public:
  Value() : kind_(Kind::kUndefined), object_(nullptr) {}
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b) {
    Value v(Kind::kBool);
    v.int_ = b;
    return v;
  }
  static Value integer(Int i) {
    Value v(Kind::kInt);
    v.int_ = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::kFloat);
    v.real_ = d;
    return v;
  }
  static Value big_integer(StrRef digits) {
    Value v(Kind::kBigInt);
    v.str_ = std::move(digits);
    return v;
  }
  static Value string(StrRef s) {
    Value v(Kind::kString);
    v.str_ = std::move(s);
    return v;
  }
  static Value object(Kind kind, Object* o) {
    Value v(kind);
    v.object_ = o;
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind k) const { return kind_ == k; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  Int as_int() const { return int_; }  // kInt, kBool
  bool as_bool() const { return int_ != 0; }
  double as_real() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(int_); }
  const Str& str() const { return *str_; }
  const StrRef& ref() const { return str_; }
  const std::string& text() const { return str_->text; }
  template <typename T>
  T& as() const {
    return *static_cast<T*>(object_);
  }
  Object* object() const { return object_; }
  bool is_object() const { return kind_ >= Kind::kList || (kind_ == Kind::kUndefined && object_); }

 private:
  explicit Value(Kind k) : kind_(k), int_(0) {}
  Kind kind_;
  union {
    Int int_;
    double real_;
    Object* object_;
  };
  StrRef str_;
};

// Why a value is undefined: what Jinja says when it is used.
struct UndefinedInfo : Object {
  std::string name;
  std::string owner;    // "dict object", empty for a variable
  std::string hint;     // the whole message where it is another
  bool unsafe = false;  // the sandbox hid an attribute
  std::string message() const;
};

struct List : Object {  // kList and kTuple
  std::vector<Value> items;
  bool group = false;  // a tuple of groupby: .grouper and .list
};

struct ValueHash {
  size_t operator()(const Value& v) const;
};
struct ValueEqual {
  bool operator()(const Value& a, const Value& b) const;
};

struct Dict : Object {
  std::vector<std::pair<Value, Value>> items;
  int32_t message = -1;  // index in the conversation, for the dict that is a message
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);  // only while it is being built, or for a namespace

 private:
  std::unordered_map<Value, size_t, ValueHash, ValueEqual> index_;  // filled beyond a few items
};

struct Range : Object {
  int64_t start = 0, stop = 0, step = 1;
  size_t size = 0;
  Int at(size_t i) const { return Int{start} + Int{step} * static_cast<Int>(i); }
};

struct View : Object {
  enum class What : uint8_t { kKeys, kValues, kItems } what = What::kKeys;
  Dict* dict = nullptr;
};

struct Iterator : Object {
  std::function<bool(Value&)> next;  // false at the end
  bool generator = true;             // else one of Python's own iterators
};

struct Slice : Object {
  Value start, stop, step;
};

struct Namespace : Object {
  Dict attributes;
};

struct Method : Object {
  Value self;
  std::string name;
};

enum class Builtin : uint8_t { kRange, kDict, kDictFromKeys, kNamespace, kCycler, kJoiner, kRaise, kStrftime };
struct Function : Object {
  Builtin builtin{};
};

struct Cycler : Object {
  std::vector<Value> items;
  size_t at = 0;
};
struct Joiner : Object {
  Value separator;
  bool used = false;
};

// Python's type name, as it stands in messages.
std::string_view type_name(const Value& v);
// What may be a key of a dict. Tuples of very many values are not: hashing one would take forever.
bool hashable(const Value& v);

}  // namespace mxt::jinja

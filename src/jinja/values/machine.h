// What every operation on values needs: the arena, the limits, and the place in the template for messages.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "jinja/values/value.h"

namespace mxt::jinja {

class Machine {
 public:
  Machine(std::string name, const Limits& limits);
  Machine(const Machine&) = delete;

  // Work done; throws TemplateLimit when the budget is used up.
  void step(uint64_t n = 1) {
    if ((steps_ += n) > budget_) out_of_steps();
  }
  void touch_bytes(size_t n) { step(n / 64 + 1); }
  void touch_items(size_t n) { step(n / 8 + 1); }
  // Asks whether `bytes` more may be held, before they are allocated.
  void reserve(size_t bytes) {
    if (bytes > memory_.limit - memory_.live) out_of_memory();
  }

  // A new object in the arena; `extra` counts what it will hold besides itself.
  template <typename T>
  T* make(size_t extra = 0) {
    const size_t bytes = sizeof(T) + extra + kOverhead;
    reserve(bytes);
    memory_.live += bytes;
    auto owned = std::make_unique<T>();
    T* raw = owned.get();
    objects_.push_back({std::move(owned), bytes});
    return raw;
  }
  void count(size_t bytes) {  // more bytes for the newest object
    reserve(bytes);
    memory_.live += bytes;
    objects_.back().bytes += bytes;
  }
  // Everything made since `mark` goes; nothing older may point to it.
  size_t mark() const { return objects_.size(); }
  void rewind(size_t mark);

  StrRef share(std::unique_ptr<Str> s);  // counts it
  Value text(std::string s, Tag tag = {});
  Value list(std::vector<Value> items, Kind kind = Kind::kList);  // kList or kTuple; checks depth
  void check_depth(Object& parent, const Value& item);            // parent.depth follows item's
  Value undefined(std::string_view name);
  Value undefined_attribute(const Value& owner, std::string_view name);
  Value undefined_hint(std::string hint, bool unsafe = false);

  // The line of the template that is being evaluated.
  uint32_t line = 1;
  uint32_t depth = 0;
  bool strict_undefined = false;  // Style
  // What an operation on `v` asks first: strictness forbids it on undefined values.
  void check_defined(const Value& v) const {
    if (strict_undefined && v.is_undefined()) fail_undefined(v);
  }
  const Limits& limits() const { return limits_; }
  const std::string& name() const { return name_; }
  // From now on `factor` budgets of steps in all.
  void extend_budget(uint64_t factor) { budget_ = limits_.steps * factor; }

  template <typename... A>
  [[noreturn]] void fail(fmt::format_string<A...> f, A&&... a) const {
    fail_text(fmt::format(f, std::forward<A>(a)...));
  }
  [[noreturn]] void fail_text(const std::string& what) const;
  [[noreturn]] void fail_undefined(const Value& v) const;
  [[noreturn]] void fail_limit(std::string_view what) const;

 private:
  static constexpr size_t kOverhead = 32;
  struct Owned {
    std::unique_ptr<Object> object;
    size_t bytes;
  };
  [[noreturn]] void out_of_steps() const;
  [[noreturn]] void out_of_memory() const;
  std::string name_;
  Limits limits_;
  Memory memory_;  // before the objects: their strings count down into it
  uint64_t steps_ = 0, budget_;
  std::vector<Owned> objects_;

 public:
  ~Machine();
};

// One more level of evaluation, for as long as it lives.
class Level {
 public:
  explicit Level(Machine& m) : m_(m) {
    if (++m_.depth > m_.limits().depth) {
      --m_.depth;
      m_.fail_limit("is nested too deep");
    }
  }
  ~Level() { --m_.depth; }
  Level(const Level&) = delete;

 private:
  Machine& m_;
};

// Builds a Str piece by piece, keeping the origin of each.
class Builder {
 public:
  explicit Builder(Machine& m) : m_(m), s_(std::make_unique<Str>()) {}
  void add(std::string_view text, Tag tag = {});
  void add(const Str& s) { add(s, 0, s.text.size()); }
  void add(const Str& s, size_t begin, size_t end);  // bytes
  void add(const Value& v);                          // as str() would
  size_t size() const { return s_->text.size(); }
  void set_limit(size_t bytes) { limit_ = bytes; }
  void set_turn(uint32_t turn) { turn_ = turn; }
  void set_markup(bool on) { s_->markup = on; }
  const std::string& text() const { return s_->text; }
  StrRef finish();
  Rendered finish_rendered();

 private:
  Machine& m_;
  std::unique_ptr<Str> s_;
  size_t limit_ = SIZE_MAX;
  uint32_t turn_ = 0;  // given to pieces that have none; kGeneration to all
};

// The tag of byte i.
Tag tag_at(const Str& s, size_t i);
// Bytes [begin, end) of s; the same object where that is all of it.
StrRef slice(Machine& m, const StrRef& s, size_t begin, size_t end);

}  // namespace mxt::jinja

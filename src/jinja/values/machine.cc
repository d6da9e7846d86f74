#include "jinja/values/machine.h"

#include <algorithm>

#include "jinja/text/repr.h"

namespace mxt::jinja {

Machine::Machine(std::string name, const Limits& limits) : name_(std::move(name)), limits_(limits) {
  memory_.limit = limits.memory;
  budget_ = limits.steps;
}

Machine::~Machine() = default;

void Machine::rewind(size_t mark) {
  while (objects_.size() > mark) {
    memory_.live -= objects_.back().bytes;
    objects_.pop_back();
  }
}

StrRef Machine::share(std::unique_ptr<Str> s) {
  const size_t bytes = sizeof(Str) + s->text.capacity() + s->runs.capacity() * sizeof(Run) + kOverhead;
  reserve(bytes);
  memory_.live += bytes;
  s->memory = &memory_;
  s->counted = bytes;
  return StrRef(std::move(s));
}

Value Machine::text(std::string s, Tag tag) {
  auto str = std::make_unique<Str>();
  str->text = std::move(s);
  str->tag = tag;
  return Value::string(share(std::move(str)));
}

void Machine::check_depth(Object& parent, const Value& item) {
  const uint64_t weight = uint64_t{parent.weight} + (item.is_sequence() ? item.object()->weight : 1);
  parent.weight = static_cast<uint32_t>(std::min<uint64_t>(weight, UINT32_MAX));
  // Strings and numbers have no depth; a namespace hides what it holds, since it can hold itself.
  if (!item.is_sequence() && !item.is(Kind::kDict) && !item.is(Kind::kIterator) && !item.is(Kind::kView)) return;
  parent.depth = std::max(parent.depth, item.object()->depth + 1);
  if (parent.depth > kMaxValueDepth) fail_limit("builds a value that is nested too deep");
}

Value Machine::list(std::vector<Value> items, Kind kind) {
  touch_items(items.size());
  List* l = make<List>(items.capacity() * sizeof(Value));
  for (const Value& v : items) check_depth(*l, v);
  l->items = std::move(items);
  return Value::object(kind, l);
}

Value Machine::undefined(std::string_view name) {
  auto* info = make<UndefinedInfo>();
  info->name = name;
  return Value::object(Kind::kUndefined, info);
}

Value Machine::undefined_attribute(const Value& owner, std::string_view name) {
  auto* info = make<UndefinedInfo>();
  info->name = name.substr(0, 200);
  info->owner = owner.is_none() ? "None" : std::string(type_name(owner)) + " object";
  return Value::object(Kind::kUndefined, info);
}

Value Machine::undefined_hint(std::string hint, bool unsafe) {
  auto* info = make<UndefinedInfo>();
  info->hint = std::move(hint);
  info->unsafe = unsafe;
  return Value::object(Kind::kUndefined, info);
}

void Machine::fail_text(const std::string& what) const {
  throw TemplateError(fmt::format("{}:{}: {}", name_, line, what), line);
}

void Machine::fail_undefined(const Value& v) const {
  if (v.object() == nullptr) fail("the value is undefined");
  fail_text(v.as<UndefinedInfo>().message());
}

void Machine::fail_limit(std::string_view what) const {
  throw TemplateLimit(fmt::format("{}:{}: the template {}", name_, line, what), line);
}

void Machine::out_of_steps() const {
  throw TemplateLimit(fmt::format("{}:{}: the template takes more than {} steps", name_, line, limits_.steps), line);
}

void Machine::out_of_memory() const {
  throw TemplateLimit(fmt::format("{}:{}: the template needs more than {} MiB", name_, line, memory_.limit >> 20),
                      line);
}

void Builder::add(std::string_view text, Tag tag) {
  if (text.empty()) return;
  const size_t old = s_->text.size();
  if (text.size() > limit_ - std::min(limit_, old)) m_.fail_limit(fmt::format("writes more than {} bytes", limit_));
  if (old + text.size() > s_->text.capacity()) m_.reserve(std::max(old + text.size(), 2 * old));
  if (old + text.size() > UINT32_MAX) m_.fail_limit("makes a string of more than 4 GiB");
  m_.touch_bytes(text.size());
  // Text of a macro or of a captured block keeps the turn it was made in, but what a generation block prints is marked
  // wherever it was made.
  if ((tag.turn & ~Tag::kGeneration) == 0) tag.turn |= turn_;
  tag.turn |= turn_ & Tag::kGeneration;
  s_->text.append(text);
  if (s_->runs.empty() || !(s_->runs.back().tag == tag)) {
    if ((s_->runs.size() & 1023) == 0) m_.reserve(s_->runs.size() * 2 * sizeof(Run));
    s_->runs.push_back({0, tag});
  }
  s_->runs.back().end = static_cast<uint32_t>(s_->text.size());
}

void Builder::add(const Str& s, size_t begin, size_t end) {
  if (begin >= end) return;
  const std::string_view text = s.text;
  if (s.runs.empty()) return add(text.substr(begin, end - begin), s.tag);
  auto run = std::upper_bound(s.runs.begin(), s.runs.end(), begin, [](size_t at, const Run& r) { return at < r.end; });
  for (; begin < end; ++run) {
    const size_t stop = std::min<size_t>(end, run->end);
    add(text.substr(begin, stop - begin), run->tag);
    begin = stop;
  }
}

void Builder::add(const Value& v) {
  if (v.is_string())
    add(v.str());
  else
    add(*to_str(m_, v));
}

StrRef Builder::finish() {
  if (s_->runs.size() <= 1) {
    if (!s_->runs.empty()) s_->tag = s_->runs[0].tag;
    s_->runs.clear();
  }
  StrRef done = m_.share(std::move(s_));
  s_ = std::make_unique<Str>();
  return done;
}

Rendered Builder::finish_rendered() { return {std::move(s_->text), std::move(s_->runs)}; }

Tag tag_at(const Str& s, size_t i) {
  if (s.runs.empty()) return s.tag;
  const auto run =
      std::upper_bound(s.runs.begin(), s.runs.end(), i, [](size_t at, const Run& r) { return at < r.end; });
  return run == s.runs.end() ? s.runs.back().tag : run->tag;
}

StrRef slice(Machine& m, const StrRef& s, size_t begin, size_t end) {
  if (begin == 0 && end == s->text.size()) return s;
  Builder b(m);
  b.set_markup(s->markup);
  b.add(*s, begin, std::max(begin, end));
  return b.finish();
}

}  // namespace mxt::jinja

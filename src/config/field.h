// The declaration of a field and of a section, and how values pass between YAML, the structs and JSON. Included by
// declare/*.cc and by what walks the declarations (recipe.cc, schema.cc, reference.cc), by nobody else.
#pragma once

#include <concepts>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/recipe.h"
#include "config/yaml.h"

namespace mxt::config {

struct Section;

// Collects what a file gives (dotted key and place) and what is wrong with it.
class Reader {
 public:
  explicit Reader(std::string source) : source_(std::move(source)) {}
  void issue(YamlMark m, const std::string& key, const std::string& what);
  void give(const std::string& key, YamlMark m, bool null = false) { given_.push_back({key, m, null}); }
  bool is_given(std::string_view key) const;      // with a value: null says the same as leaving the key out
  YamlMark mark_of(std::string_view key) const;   // of the key, or of its nearest parent that is given
  bool has_issue_at(std::string_view key) const;  // at the key, above it or below it
  std::vector<Issue>& issues() { return issues_; }
  std::vector<std::string> given() const;

 private:
  struct Given {
    std::string key;
    YamlMark mark;
    bool null;
  };
  std::string source_;
  std::vector<Issue> issues_;
  std::vector<Given> given_;
};

// Bounds of a number; an open bound is not itself allowed.
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  bool holds(double v) const { return (low_open ? v > low : v >= low) && (high_open ? v < high : v <= high); }
};

enum class Shape {
  kBool,
  kInt,
  kFloat,
  kText,
  kChoice,
  kList,
  kChoiceList,
  kPair,
  kTextMap,
  kIntList,
  kIntMap,
  kPathOrInline,
  kSection,
  kSectionList,
  kUnion
};

struct Field {
  std::string key, doc;
  Shape shape = Shape::kText;
  bool plus = false;  // ours, not of the original schema
  bool hint = false;  // accepted, and something else decides
  bool required = false;
  bool nullable = false;  // may be absent and stay so; YAML null says the same
  bool non_empty = false;
  bool later = false;  // not of the first release: left out of the canonical form at its default, so that hashes stay
  Range range;
  std::vector<int64_t> allowed;      // of an int, where a range does not say it
  std::vector<std::string> choices;  // spellings, '+' in front of ours; of a list of text, words in its place
  std::string default_note;          // where the default comes from; "" = default_value is the default
  Json default_value;
  std::shared_ptr<const Section> section;                                        // kSection, kSectionList
  std::vector<std::pair<std::string, std::shared_ptr<const Section>>> variants;  // kUnion: by `kind`

  // `owner` is the struct that has the member.
  std::function<void(const Field&, void* owner, const YamlNode&, const std::string& path, Reader&)> read;
  std::function<OrderedJson(const Field&, const void* owner)> write;
  std::function<void(void* owner, const Recipe&)> derive;  // the default that depends on other fields
  std::function<void*(void* owner)> child;                 // kSection: the member; null where it is absent
};

struct Section {
  std::string doc;
  std::vector<Field> fields;

  const Field* find(std::string_view key) const;
  std::vector<std::string> keys() const;
  // Reads the map into `owner`: unknown keys, missing ones and wrong values become issues.
  void read(void* owner, const YamlNode& map, const std::string& path, Reader& reader) const;
  OrderedJson write(const void* owner) const;
  void derive(void* owner, const Recipe& recipe, const std::string& path, const Reader& reader) const;
};

// The declarations, one a struct (declare/*.cc).
Section declare(const Meta*);
Section declare(const Hardware*);
Section declare(const Autotune*);
Section declare(const Model*);
Section declare(const Pretrain*);
Section declare(const MinHash*);
Section declare(const SemDedup*);
Section declare(const Dedupe*);
Section declare(const Filter*);
Section declare(const LossWeights*);
Section declare(const Pictures*);
Section declare(const Shard*);
Section declare(const Teacher*);
Section declare(const Synth*);
Section declare(const MixtureSource*);
Section declare(const Data*);
Section declare(const Lora*);
Section declare(const RewardPart*);
Section declare(const RolloutTool*);
Section declare(const Muon*);
Section declare(const Optimizer*);
Section declare(const Schedule*);
Section declare(const Batch*);
Section declare(const FlashAttention*);
Section declare(const Fsdp*);
Section declare(const CpuThrottle*);
Section declare(const Rollouts*);
Section declare(const Train*);
Section declare(const Harness*);
Section declare(const Regression*);
Section declare(const Generation*);
Section declare(const Eval*);
Section declare(const Quantize*);
Section declare(const Serve*);
Section declare(const HfPublish*);
Section declare(const LighthousePublish*);
Section declare(const IpfsPublish*);
Section declare(const MindxPublish*);
Section declare(const AgenticPlacePublish*);
Section declare(const BankonPublish*);
Section declare(const EvmPublish*);
Section declare(const AlgorandPublish*);
Section declare(const X402*);
Section declare(const Billing*);
Section declare(const Publish*);
Section declare(const Receipt*);
Section declare_method(MethodKind kind);  // of `train.method`, for one kind
const Section& declare_recipe();          // the whole recipe

template <typename T>
concept Declared = requires(const T* p) {
  { declare(p) } -> std::same_as<Section>;
};

template <typename T>
struct ListItem {
  using type = void;
};
template <typename T>
struct ListItem<std::vector<T>> {
  using type = T;
};
template <typename T>
concept DeclaredList = Declared<typename ListItem<T>::type>;

// ---- values: one overload set per type --------------------------------------------------------------------------

// Each read_value says what is wrong through `reader` and leaves `*out` alone then.
void read_value(bool* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader);
void read_value(int64_t* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader);
void read_value(double* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader);
void read_value(std::string* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader);
void read_value(std::vector<std::string>* out, const Field& f, const YamlNode& n, const std::string& path, Reader&);
void read_value(std::array<double, 2>* out, const Field& f, const YamlNode& n, const std::string& path, Reader&);
void read_value(std::map<std::string, std::string>* out, const Field& f, const YamlNode& n, const std::string& path,
                Reader&);
void read_value(std::vector<int64_t>* out, const Field& f, const YamlNode& n, const std::string& path, Reader&);
void read_value(std::map<std::string, int64_t>* out, const Field& f, const YamlNode& n, const std::string& path,
                Reader&);
void read_value(PathOrInline* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader);
// The spelling, or nothing and an issue.
std::optional<std::string> read_choice(const Field& f, const YamlNode& n, const std::string& path, Reader& reader);
bool is_list(const Field& f, const YamlNode& n, const std::string& path, Reader& reader);

template <NamedEnum E>
void read_value(E* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader) {
  if (const auto word = read_choice(f, n, path, reader)) enum_from_text(*word, out);
}
template <NamedEnum E>
void read_value(std::vector<E>* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader) {
  if (!is_list(f, n, path, reader)) return;
  std::vector<E> v;
  for (size_t i = 0; i < n.items.size(); ++i)
    if (const auto word = read_choice(f, n.items[i], fmt::format("{}[{}]", path, i), reader))
      enum_from_text(*word, &v.emplace_back());
  *out = std::move(v);
}

template <typename T>
OrderedJson write_value(const T& v) {
  return v;
}
OrderedJson write_value(const PathOrInline& v);
template <NamedEnum E>
OrderedJson write_value(const E& e) {
  return std::string(text_of(e));
}
template <NamedEnum E>
OrderedJson write_value(const std::vector<E>& v) {
  OrderedJson j = OrderedJson::array();
  for (E e : v) j.push_back(std::string(text_of(e)));
  return j;
}

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct Unwrapped {
  using type = T;
};
template <typename T>
struct Unwrapped<std::optional<T>> {
  using type = T;
};

template <typename T>
constexpr Shape shape_of() {
  if constexpr (std::is_same_v<T, bool>)
    return Shape::kBool;
  else if constexpr (std::is_same_v<T, int64_t>)
    return Shape::kInt;
  else if constexpr (std::is_same_v<T, double>)
    return Shape::kFloat;
  else if constexpr (std::is_same_v<T, std::string>)
    return Shape::kText;
  else if constexpr (NamedEnum<T>)
    return Shape::kChoice;
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return Shape::kList;
  else if constexpr (std::is_same_v<T, std::array<double, 2>>)
    return Shape::kPair;
  else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>)
    return Shape::kTextMap;
  else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    return Shape::kIntList;
  else if constexpr (std::is_same_v<T, std::map<std::string, int64_t>>)
    return Shape::kIntMap;
  else if constexpr (std::is_same_v<T, PathOrInline>)
    return Shape::kPathOrInline;
  else if constexpr (Declared<T>)
    return Shape::kSection;
  else if constexpr (DeclaredList<T>)
    return Shape::kSectionList;
  else
    return Shape::kChoiceList;
}

template <NamedEnum E>
std::vector<std::string> spellings_of(const E&) {
  const auto names = enum_names(E{});
  return {names.begin(), names.end()};
}
template <NamedEnum E>
std::vector<std::string> spellings_of(const std::vector<E>&) {
  return spellings_of(E{});
}

// ---- the builder -------------------------------------------------------------------------------------------------

// What follows `.field(…)` in a declaration.
template <typename C, typename T>
class FieldRef {
 public:
  FieldRef(Section* s, T C::* member) : section_(s), index_(s->fields.size() - 1), member_(member) {}
  FieldRef& plus() {
    return set([](Field& f) { f.plus = true; });
  }
  FieldRef& later() {
    return set([](Field& f) { f.plus = f.later = true; });
  }
  FieldRef& hint() {
    return set([](Field& f) { f.hint = true; });
  }
  FieldRef& required() {
    return set([](Field& f) { f.required = f.non_empty = true; });
  }
  FieldRef& non_empty() {
    return set([](Field& f) { f.non_empty = true; });
  }
  FieldRef& range(double low, double high) {
    return set([=](Field& f) { f.range = {low, high}; });
  }
  FieldRef& min(double low) {
    return set([=](Field& f) { f.range.low = low; });
  }
  FieldRef& max(double high) {
    return set([=](Field& f) { f.range.high = high; });
  }
  FieldRef& above(double low) {
    return set([=](Field& f) { f.range.low = low, f.range.low_open = true; });
  }
  FieldRef& below(double high) {
    return set([=](Field& f) { f.range.high = high, f.range.high_open = true; });
  }
  FieldRef& one_of(std::vector<int64_t> v) {
    return set([&](Field& f) { f.allowed = std::move(v); });
  }
  // The choices that a file may write; the others come by `derived` alone.
  FieldRef& only(std::vector<T> v)
    requires NamedEnum<T>
  {
    return set([&](Field& f) {
      f.choices.clear();
      for (T e : v) f.choices.emplace_back(text_of(e));
    });
  }
  // A word that a file may write in place of a list; the list then holds it alone.
  FieldRef& or_word(const char* word)
    requires std::same_as<T, std::vector<std::string>>
  {
    return set([=](Field& f) { f.choices = {word}; });
  }
  // A note in the place of the default, e.g. "the task's own number".
  FieldRef& default_is(std::string note) {
    return set([&](Field& f) { f.default_note = std::move(note); });
  }
  // The default that follows from other fields; used where the file does not give this one.
  FieldRef& derived(std::string note, std::function<T(const Recipe&)> fn) {
    return set([&](Field& f) {
      f.default_note = std::move(note);
      f.derive = [m = member_, fn = std::move(fn)](void* o, const Recipe& r) { static_cast<C*>(o)->*m = fn(r); };
    });
  }

 private:
  template <typename F>
  FieldRef& set(F&& fn) {
    fn(section_->fields[index_]);
    return *this;
  }
  Section* section_;
  size_t index_;
  T C::* member_;
};

template <typename C>
class Declaration {
 public:
  // `prototype` holds the defaults.
  explicit Declaration(std::string doc, C prototype = C{}) : prototype_(std::move(prototype)) {
    section_.doc = std::move(doc);
  }
  template <typename T>
  FieldRef<C, T> field(std::string key, T C::* m, std::string doc) {
    using V = typename Unwrapped<T>::type;
    Field f;
    f.key = std::move(key);
    f.doc = std::move(doc);
    f.nullable = IsOptional<T>::value;
    f.shape = shape_of<V>();
    if constexpr (shape_of<V>() == Shape::kChoice || shape_of<V>() == Shape::kChoiceList) f.choices = spellings_of(V{});
    if constexpr (Declared<V>) {
      f.section = std::make_shared<const Section>(declare(static_cast<const V*>(nullptr)));
      f.child = [m](void* o) -> void* { return address_in(static_cast<C*>(o)->*m); };
    }
    if constexpr (DeclaredList<V>)
      f.section = std::make_shared<const Section>(declare(static_cast<const typename V::value_type*>(nullptr)));
    f.read = [m](const Field& self, void* o, const YamlNode& n, const std::string& path, Reader& reader) {
      auto& slot = static_cast<C*>(o)->*m;
      if constexpr (IsOptional<T>::value) {
        // `eval:` with nothing after it may mean on or off: a stage is refused then, a part of a section is off.
        const bool stage = Declared<V> && path.find('.') == std::string::npos;
        if (n.kind == YamlNode::Kind::kNull && !stage) return slot.reset();
        if (!slot) slot.emplace();
      }
      if constexpr (Declared<V>)
        self.section->read(address_in(slot), n, path, reader);
      else if constexpr (DeclaredList<V>) {
        if (!is_list(self, n, path, reader)) return;
        address_in(slot)->clear();
        for (size_t i = 0; i < n.items.size(); ++i)
          self.section->read(&address_in(slot)->emplace_back(), n.items[i], fmt::format("{}[{}]", path, i), reader);
      } else
        read_value(address_in(slot), self, n, path, reader);
    };
    f.write = [m](const Field& self, const void* o) -> OrderedJson {
      const V* v = address_in(static_cast<const C*>(o)->*m);
      if (!v) return nullptr;
      if constexpr (Declared<V>)
        return self.section->write(v);
      else if constexpr (DeclaredList<V>) {
        OrderedJson j = OrderedJson::array();
        for (const auto& item : *v) j.push_back(self.section->write(&item));
        return j;
      } else
        return write_value(*v);
    };
    f.default_value = f.write(f, &prototype_);
    section_.fields.push_back(std::move(f));
    return FieldRef<C, T>(&section_, m);
  }

  // The fields of a struct that this one has as a member, with their keys at this level.
  template <typename S>
  void embed(std::optional<S> C::* m) {
    for (Field f : declare(static_cast<const S*>(nullptr)).fields) {
      f.read = [m, inner = f.read](const Field& self, void* o, const YamlNode& n, const std::string& p, Reader& r) {
        inner(self, &*(static_cast<C*>(o)->*m), n, p, r);
      };
      f.write = [m, inner = f.write](const Field& self, const void* o) {
        return inner(self, &*(static_cast<const C*>(o)->*m));
      };
      f.default_value = f.write(f, &prototype_);
      section_.fields.push_back(std::move(f));
    }
  }

  void add(Field f) { section_.fields.push_back(std::move(f)); }
  Section take() { return std::move(section_); }

 private:
  template <typename S>
  static auto* address_in(S& slot) {
    if constexpr (IsOptional<std::remove_const_t<S>>::value)
      return slot ? &*slot : nullptr;
    else
      return &slot;
  }
  Section section_;
  C prototype_;
};

}  // namespace mxt::config

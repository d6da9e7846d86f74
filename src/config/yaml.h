// Strict YAML as a tree with positions. libyaml only scans (base/yaml_events.h); this file decides what is allowed: one
// document, no duplicate keys, no tags beyond YAML's own, aliases and merge keys (`<<`) expanded within limits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/yaml_events.h"

namespace mxt::config {

using mxt::YamlMark;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Entry;
  Kind kind = Kind::kNull;
  YamlMark mark;
  std::string text;    // of a scalar, or the spelling of a null
  bool plain = false;  // scalar without quotes: may be a number, a bool or text
  std::vector<YamlNode> items;
  std::vector<Entry> entries;  // keys are unique, in the order of the file

  const YamlNode* find(std::string_view key) const;
  std::string_view kind_name() const;  // "a map", "a list", "text", "nothing"
};
struct YamlNode::Entry {
  std::string key;
  YamlMark mark;
  YamlNode value;
};

// What the parser has to say; syntax problems end the parse, duplicate keys do not.
struct YamlProblem {
  YamlMark mark;
  std::string key, what;
};
struct YamlResult {
  YamlNode root;
  std::vector<YamlProblem> problems;
  bool parsed = false;  // false: a syntax problem, `root` is not to be used
};
YamlResult parse_yaml(std::string_view text);

// Scalars, without coercion. Each returns the value, or nothing and says in `why` what to write.
std::optional<bool> yaml_bool(const YamlNode& n, std::string* why);
std::optional<int64_t> yaml_int(const YamlNode& n, std::string* why);
std::optional<double> yaml_float(const YamlNode& n, std::string* why);
std::optional<std::string> yaml_text(const YamlNode& n, std::string* why);

// Free-form content (model.config given inline). Plain scalars follow YAML 1.2's core schema; those that YAML 1.1 reads
// otherwise (yes, 010, 1_000, 0x10) are refused. A problem is appended with the dotted key below `key`.
Json yaml_to_json(const YamlNode& n, const std::string& key, std::vector<YamlProblem>* problems);

}  // namespace mxt::config

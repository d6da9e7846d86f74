// YAML as a stream of events with positions, scanned by libyaml (YAML 1.1, as PyYAML reads it). What an event may mean
// is for who reads them. yaml-cpp 0.7 folds quoted lines and reads \xA0 otherwise: of lm-evaluation-harness's 14,440
// task files it read 178 with other text.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mxt {

struct YamlMark {
  int line = 1, column = 1;  // in characters
};

struct YamlEvent {
  enum class Kind { kEnd, kDocument, kDocumentEnd, kScalar, kAlias, kList, kListEnd, kMap, kMapEnd };
  Kind kind = Kind::kEnd;  // kEnd: no document follows
  YamlMark mark;
  std::string text;    // of a scalar
  std::string tag;     // written out ("tag:yaml.org,2002:str"), "" for none
  std::string anchor;  // of a node, or the one that an alias names; "" for none
  bool plain = false;  // scalar without quotes and without a tag: its text says what it is
  // A plain scalar that stands for nothing: empty, ~ or null.
  bool is_null() const;
};

class YamlSyntaxError : public std::runtime_error {
 public:
  YamlSyntaxError(YamlMark where, const std::string& what) : std::runtime_error(what), mark(where) {}
  YamlMark mark;
};

class YamlEvents {
 public:
  explicit YamlEvents(std::string_view text);  // must outlive the reader
  ~YamlEvents();
  YamlEvents(const YamlEvents&) = delete;
  YamlEvent next();  // throws YamlSyntaxError

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace mxt

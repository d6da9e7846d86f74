// Jinja2 as transformers configures it for chat templates: an immutable sandbox with trim_blocks, lstrip_blocks, loop
// controls, its own `tojson`, `raise_exception`, `strftime_now` and the `generation` tag. Every byte of the output
// remembers where it came from (Tag). A template is hostile input: time, memory, output and depth are bounded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace mxt::jinja {

// All are kBadInput; the message names the template and its line.
class TemplateError : public Error {
 public:
  TemplateError(const std::string& message, size_t line) : Error(Exit::kBadInput, message), line_(line) {}
  size_t line() const { return line_; }

 private:
  size_t line_;
};

// The template itself said no, through raise_exception(reason).
class TemplateRefused : public TemplateError {
 public:
  TemplateRefused(const std::string& message, size_t line, std::string reason)
      : TemplateError(message, line), reason_(std::move(reason)) {}
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

// The template wanted more time, memory, output or depth than Limits allows.
class TemplateLimit : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

struct Limits {
  uint64_t steps = 20'000'000;        // evaluated nodes, plus one per 64 bytes or 8 items that an operation touches
  size_t memory = size_t{512} << 20;  // bytes of values alive
  size_t output = size_t{64} << 20;   // bytes of rendered text
  uint32_t depth = 600;               // nested evaluations, macro calls included
};

// How a template is read. The defaults are those of chat templates; plain() is Jinja2 as evaluation tasks configure it.
struct Style {
  bool trim_blocks = true, lstrip_blocks = true;
  bool keep_trailing_newline = false;
  bool strict_undefined = false;  // printing, testing, comparing or going through an undefined value is an error
  bool regex_replace = false;     // the filter of that name: Python's re.sub(pattern, replacement, text, count)
  bool html_json = false;         // tojson as Jinja2 itself writes it: keys sorted, ASCII, safe inside HTML
  static Style plain() { return {false, false, true, true, true, true}; }
};

constexpr size_t kMaxSource = size_t{1} << 20;  // bytes of a template
constexpr size_t kMaxRange = 100000;            // items of range(), as in Jinja's sandbox
constexpr uint32_t kMaxValueDepth = 320;        // lists in lists; JSON allows 256
constexpr size_t kMaxArguments = 1000;          // named arguments of a call, parameters of a macro
constexpr uint32_t kMaxSyntaxDepth = 160;       // expressions in expressions, blocks in blocks

// Where a byte comes from. `origin` 0 is the template's own text; others are given out by whoever hands in the data.
// `turn` is 1 + the index of the message whose loop iteration wrote the byte, 0 for none; kGeneration is set inside
// {% generation %}.
struct Tag {
  static constexpr uint32_t kGeneration = uint32_t{1} << 31;
  uint32_t origin = 0;
  uint32_t turn = 0;
  bool operator==(const Tag&) const = default;
};

// Bytes up to `end` (from the end of the run before) carry one tag.
struct Run {
  uint32_t end = 0;
  Tag tag;
};

struct Rendered {
  std::string text;
  std::vector<Run> runs;  // cover the text
};

struct Ast;

// A parsed template, never changed afterwards: any number of threads may render it.
class Template {
 public:
  // Throws TemplateError for a syntax error, an unknown filter, test or tag, or something refused (include, import…).
  static std::shared_ptr<const Template> compile(std::string_view source, std::string_view name,
                                                 const Style& style = {});
  ~Template();
  const std::string& name() const { return name_; }
  const Ast& ast() const { return *ast_; }
  const Style& style() const { return style_; }
  bool reads(std::string_view variable) const;     // whether the name stands anywhere as a variable
  bool has_generation() const;                     // whether it has a {% generation %} block
  bool has_text(std::string_view part) const;      // whether the source holds it anywhere
  bool reads_member(std::string_view name) const;  // as .name, or in quotes

 private:
  Template();
  std::string name_;
  std::string source_;
  Style style_;
  std::unique_ptr<Ast> ast_;
};

// Renders with the members of the object `variables` as template variables. `now`: seconds since 1970 for
// strftime_now, read as local time.
std::string render(const Template& t, const OrderedJson& variables, const Limits& limits = {}, int64_t now = 0);

}  // namespace mxt::jinja

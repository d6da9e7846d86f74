// docs/recipe.md, out of the declarations.
#include <cmath>

#include "config/field.h"

namespace mxt::config {
namespace {

std::string with_commas(int64_t v) {
  std::string s = std::to_string(v);
  for (int i = static_cast<int>(s.size()) - 3; i > (v < 0 ? 1 : 0); i -= 3) s.insert(static_cast<size_t>(i), ",");
  return s;
}

std::string number(double v) {
  if (v == std::floor(v) && std::abs(v) < 1e15) return with_commas(static_cast<int64_t>(v));
  return fmt::format("{}", v);
}

std::string range_text(const Field& f) {
  if (!f.allowed.empty()) {
    std::string s;
    for (int64_t a : f.allowed) s += (s.empty() ? "" : ", ") + std::to_string(a);
    return s;
  }
  const bool low = std::isfinite(f.range.low), high = std::isfinite(f.range.high);
  if (low && high && !f.range.low_open && !f.range.high_open)
    return fmt::format("{} to {}", number(f.range.low), number(f.range.high));
  std::string s;
  if (low) s = fmt::format("{} {}", f.range.low_open ? ">" : "≥", number(f.range.low));
  if (high) s += fmt::format("{}{} {}", s.empty() ? "" : ", ", f.range.high_open ? "<" : "≤", number(f.range.high));
  return s;
}

std::string choices_text(const Field& f) {
  std::string s;
  for (const std::string& c : f.choices) {
    const bool ours = c.starts_with('+');
    s += fmt::format("{}{}`{}`", s.empty() ? "" : ", ", ours && !f.plus ? "**+** " : "", c.substr(ours ? 1 : 0));
  }
  return s;
}

std::string type_text(const Field& f) {
  const std::string range = range_text(f);
  const auto with = [&](const char* type) {
    return range.empty() ? std::string(type) : fmt::format("{}, {}", type, range);
  };
  switch (f.shape) {
    case Shape::kBool:
      return "bool";
    case Shape::kInt:
      return with("int");
    case Shape::kFloat:
      return with("number");
    case Shape::kText:
      return "text";
    case Shape::kChoice:
      return choices_text(f);
    case Shape::kList:
      return "list of text" + (f.choices.empty() ? "" : fmt::format(", or `{}`", f.choices.front()));
    case Shape::kChoiceList:
      return "list of " + choices_text(f);
    case Shape::kPair:
      return "two numbers" + (range.empty() ? "" : ", " + range);
    case Shape::kTextMap:
      return "map of text";
    case Shape::kIntList:
      return "list of ints" + (range.empty() ? "" : ", " + range);
    case Shape::kIntMap:
      return "map of ints" + (range.empty() ? "" : ", " + range);
    case Shape::kPathOrInline:
      return "path, or a map";
    case Shape::kSection:
      return "section";
    case Shape::kSectionList:
      return "list of maps";
    case Shape::kUnion:
      return "by `kind`";
  }
  return "";
}

std::string default_text(const Field& f) {
  if (!f.default_note.empty()) return f.default_note;
  if (f.required) return "required";
  const Json& v = f.default_value;
  if (v.is_null()) return "–";
  if (v.is_string()) return v.get<std::string>().empty() ? "\"\"" : fmt::format("`{}`", v.get<std::string>());
  if (v.is_number_float()) return fmt::format("{}", v.get<double>());
  if (v.is_array()) {
    std::string s;
    for (const Json& e : v) s += (s.empty() ? "" : ", ") + (e.is_string() ? e.get<std::string>() : e.dump());
    return fmt::format("`[{}]`", s);
  }
  return v.dump();
}

// Text in a table cell: a bar would end it.
std::string cell(const std::string& s) {
  std::string out;
  for (char c : s) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

// `adapters` false: an adapter's own fields are not repeated under `lora:`.
void add_rows(std::string& out, const Section& s, const std::string& prefix, bool adapters = true) {
  for (const Field& f : s.fields) {
    const std::string mark = std::string(f.plus ? " **+**" : "") + (f.hint ? " *hint*" : "");
    if (f.shape == Shape::kUnion) continue;
    if (f.shape == Shape::kSection && !f.nullable) {
      add_rows(out, *f.section, prefix + f.key + ".");
      continue;
    }
    const bool elsewhere = !adapters && f.key == "lora";
    const std::string type = elsewhere                    ? "the fields of `kind: lora`"
                             : f.shape == Shape::kSection ? "section, may be absent"
                                                          : type_text(f);
    out += fmt::format("| `{}{}`{} | {} | {} | {} |\n", prefix, f.key, mark, cell(type), cell(default_text(f)),
                       cell(f.doc));
    if (f.section && !elsewhere)
      add_rows(out, *f.section, prefix + f.key + (f.shape == Shape::kSectionList ? "[]." : "."), adapters);
  }
}

constexpr const char* kHeader = "| field | type, range | default | meaning |\n|---|---|---|---|\n";

void add_methods(std::string& out, const Field& method) {
  out += "\n### `train.method`\n\nA union by `kind` (default: " + method.default_note +
         "). A kind has its own fields and no others.\n\n";
  for (const auto& [kind, section] : method.variants) {
    out += fmt::format("`kind: {}` – {}\n", kind, section->doc);
    if (section->fields.size() > 1) {
      Section own = *section;
      own.fields.erase(own.fields.begin());  // `kind` itself
      out += fmt::format("\n{}", kHeader);
      add_rows(out, own, "", false);
    }
    out += "\n";
  }
}

}  // namespace

std::string reference_markdown() {
  std::string out =
      "# The recipe, field by field\n\n"
      "Generated from the declarations in `src/config/declare/` (`mindxtrain schema --markdown`); do not edit.\n\n"
      "Fields and values without a mark are those of the original public schema, and its recipes load unchanged. "
      "**+** marks ours. *hint* marks what is accepted while the plan decides. `meta`, `model` and `data` are "
      "required; an absent `eval`, `quantize`, `serve` or `publish` means that the stage is off. Paths are relative to "
      "the working directory.\n\n"
      "Strict YAML: one document, no unknown or repeated keys, anchors and merge keys within limits. `true` and "
      "`false` "
      "are the only bools. Whole numbers are decimal without leading zeros or underscores; `1e-4`, `1.0e-4` and `.5` "
      "are numbers. Text that YAML would read as a number or bool (`123`, `yes`) stands in quotes. `null` says the "
      "same "
      "as leaving an optional field out.\n";
  for (const Field& f : declare_recipe().fields) {
    out += fmt::format("\n## `{}`{}\n\n{}\n\n{}", f.key, f.required ? " (required)" : "", f.doc, kHeader);
    add_rows(out, *f.section, f.key + ".");
    for (const Field& inner : f.section->fields)
      if (inner.shape == Shape::kUnion) add_methods(out, inner);
  }
  return out;
}

}  // namespace mxt::config

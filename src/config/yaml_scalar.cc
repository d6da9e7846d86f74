// Scalars without coercion, and free-form content as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/yaml.h"

namespace mxt::config {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

bool all_digits(std::string_view s) {
  if (s.empty()) return false;
  for (char c : s)
    if (!digit(c)) return false;
  return true;
}

std::string_view unsigned_part(std::string_view s) {
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) s.remove_prefix(1);
  return s;
}

bool is_bool(std::string_view s) {
  return s == "true" || s == "True" || s == "TRUE" || s == "false" || s == "False" || s == "FALSE";
}
bool is_null(std::string_view s) { return s.empty() || s == "~" || s == "null" || s == "Null" || s == "NULL"; }

// yes, no, on, off: bools of YAML 1.1, text in YAML 1.2.
bool is_old_bool(std::string_view s) {
  for (std::string_view w : {"yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"})
    if (s == w) return true;
  return false;
}

// Decimal without a leading zero.
bool is_int(std::string_view s) {
  s = unsigned_part(s);
  return all_digits(s) && (s.size() == 1 || s[0] != '0');
}

// YAML 1.2's float without a leading zero before another digit; .inf and .nan are not numbers that a recipe can use.
bool is_float(std::string_view s) {
  s = unsigned_part(s);
  const size_t e = s.find_first_of("eE");
  std::string_view mantissa = s.substr(0, e);
  if (e != std::string_view::npos && !all_digits(unsigned_part(s.substr(e + 1)))) return false;
  const size_t dot = mantissa.find('.');
  const std::string_view whole = mantissa.substr(0, dot);
  const std::string_view part = dot == std::string_view::npos ? std::string_view{} : mantissa.substr(dot + 1);
  if (whole.size() > 1 && whole[0] == '0') return false;
  if (whole.empty()) return all_digits(part);
  return all_digits(whole) && (part.empty() || all_digits(part));
}

bool is_inf_or_nan(std::string_view s) {
  s = unsigned_part(s);
  for (std::string_view w : {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"})
    if (s == w) return true;
  return false;
}

// Numbers of some YAML reader that are not ours: 010, 0x10, 0b1, 0o7, 1_000, 1:30, 010.5.
bool is_foreign_number(std::string_view s) {
  s = unsigned_part(s);
  if (s.empty() || !(digit(s[0]) || s[0] == '.')) return false;
  if (s.size() > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'b' || s[1] == 'o')) {
    for (char c : s.substr(2))
      if (!std::isxdigit(static_cast<unsigned char>(c)) && c != '_') return false;
    return true;
  }
  bool any = false;
  for (char c : s) {
    if (!digit(c) && c != '_' && c != '.' && c != ':') return false;
    any = any || digit(c);
  }
  // 1.2.3 is a version, not a number.
  return any && std::count(s.begin(), s.end(), '.') <= 1;
}

// "is `yes`": for messages, cut to what fits a line.
std::string shown(const YamlNode& n) {
  if (n.kind == YamlNode::Kind::kNull) return "is empty";
  if (n.kind != YamlNode::Kind::kScalar) return fmt::format("is {}", n.kind_name());
  std::string t = n.text.substr(0, 60);
  if (n.text.size() > 60) t += "…";
  for (char& c : t)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return n.plain ? fmt::format("is `{}`", t) : fmt::format("is the text \"{}\"", t);
}

std::string foreign_advice(std::string_view s) {
  if (s.find('_') != std::string_view::npos) return "write the digits without underscores";
  if (s.find(':') != std::string_view::npos) return "write one number";
  if (unsigned_part(s).size() > 1 && !digit(unsigned_part(s)[1]) && unsigned_part(s)[1] != '.')
    return "write it in decimal";
  return "a leading zero means octal to some readers: write it without";
}

}  // namespace

std::optional<bool> yaml_bool(const YamlNode& n, std::string* why) {
  if (n.kind == YamlNode::Kind::kScalar && n.plain && is_bool(n.text)) return n.text[0] == 't' || n.text[0] == 'T';
  *why = fmt::format("{}: write true or false", shown(n));
  if (n.kind == YamlNode::Kind::kScalar && !n.plain && is_bool(n.text))
    *why = fmt::format("{}: remove the quotes", shown(n));
  return {};
}

std::optional<int64_t> yaml_int(const YamlNode& n, std::string* why) {
  *why = fmt::format("{}: write a whole number", shown(n));
  if (n.kind != YamlNode::Kind::kScalar) return {};
  if (!n.plain) {
    if (is_int(n.text)) *why = fmt::format("{}: remove the quotes", shown(n));
    return {};
  }
  if (!is_int(n.text)) {
    if (is_foreign_number(n.text) && !is_float(n.text)) *why = fmt::format("{}: {}", shown(n), foreign_advice(n.text));
    return {};
  }
  int64_t v = 0;
  const std::string_view s = n.text[0] == '+' ? std::string_view(n.text).substr(1) : std::string_view(n.text);
  if (std::from_chars(s.data(), s.data() + s.size(), v).ec != std::errc{}) {
    *why = fmt::format("{}: too large for a 64-bit number", shown(n));
    return {};
  }
  return v;
}

std::optional<double> yaml_float(const YamlNode& n, std::string* why) {
  *why = fmt::format("{}: write a number", shown(n));
  if (n.kind != YamlNode::Kind::kScalar) return {};
  if (!n.plain) {
    if (is_float(n.text)) *why = fmt::format("{}: remove the quotes", shown(n));
    return {};
  }
  if (!is_float(n.text)) {
    if (is_inf_or_nan(n.text))
      *why = fmt::format("{}: write a finite number", shown(n));
    else if (is_foreign_number(n.text))
      *why = fmt::format("{}: {}", shown(n), foreign_advice(n.text));
    return {};
  }
  double v = 0;
  const std::string_view s = n.text[0] == '+' ? std::string_view(n.text).substr(1) : std::string_view(n.text);
  if (std::from_chars(s.data(), s.data() + s.size(), v).ec != std::errc{} || !std::isfinite(v)) {
    *why = fmt::format("{}: outside what a double holds", shown(n));
    return {};
  }
  return v == 0 ? 0.0 : v;  // -0 is 0
}

std::optional<std::string> yaml_text(const YamlNode& n, std::string* why) {
  if (n.kind != YamlNode::Kind::kScalar) {
    *why = fmt::format("{}: write text", shown(n));
    return {};
  }
  if (n.text.find('\0') != std::string::npos) {
    *why = "holds a NUL character: remove it";
    return {};
  }
  if (!n.plain) return n.text;
  // `12e4567` (a commit) is a float to YAML 1.2 and text to the original's reader: text, since text is asked for.
  const bool number = is_int(n.text) || (is_float(n.text) && n.text.find('.') != std::string::npos) ||
                      is_inf_or_nan(n.text) || is_foreign_number(n.text);
  if (number || is_bool(n.text) || is_old_bool(n.text)) {
    *why = fmt::format("{}, a {} to YAML, where text is asked for: put it in quotes", shown(n),
                       number ? "number" : "bool");
    return {};
  }
  return n.text;
}

Json yaml_to_json(const YamlNode& n, const std::string& key, std::vector<YamlProblem>* problems) {
  switch (n.kind) {
    case YamlNode::Kind::kNull:
      return nullptr;
    case YamlNode::Kind::kList: {
      Json j = Json::array();
      for (size_t i = 0; i < n.items.size(); ++i)
        j.push_back(yaml_to_json(n.items[i], fmt::format("{}[{}]", key, i), problems));
      return j;
    }
    case YamlNode::Kind::kMap: {
      Json j = Json::object();
      for (const auto& e : n.entries) j[e.key] = yaml_to_json(e.value, key + "." + e.key, problems);
      return j;
    }
    case YamlNode::Kind::kScalar:
      break;
  }
  std::string why;
  if (!n.plain) return n.text;
  if (is_null(n.text)) return nullptr;
  if (is_bool(n.text)) return *yaml_bool(n, &why);
  if (is_int(n.text)) {
    if (const auto v = yaml_int(n, &why)) return *v;
  } else if (is_float(n.text)) {
    if (const auto v = yaml_float(n, &why)) return *v;
  } else if (is_inf_or_nan(n.text)) {
    why = fmt::format("{}: write a finite number", shown(n));
  } else if (is_foreign_number(n.text)) {
    why = fmt::format("{}: {}", shown(n), foreign_advice(n.text));
  } else if (is_old_bool(n.text)) {
    why = fmt::format("{}: write true or false, or put it in quotes", shown(n));
  } else {
    return n.text;
  }
  problems->push_back({n.mark, key, why});
  return nullptr;
}

}  // namespace mxt::config

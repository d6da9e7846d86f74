#include "export/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace mxt::exporting {
namespace {

bool is_plain_word(const std::string& s) {
  // Words that some reader of YAML takes for something else than a text.
  static constexpr std::string_view kOthers[] = {"y",    "n",     "yes",  "no",  "on", "off",
                                                 "true", "false", "null", "nan", "inf"};
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto inner = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '/' || c == '-';
  };
  std::string lower = s;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return !s.empty() && (letter(s[0]) || s[0] == '_') && std::all_of(s.begin(), s.end(), inner) &&
         std::find(std::begin(kOthers), std::end(kOthers), lower) == std::end(kOthers);
}

std::string scalar(const OrderedJson& v) {
  if (v.is_string()) {
    const auto& s = v.get_ref<const std::string&>();
    return is_plain_word(s) ? s : v.dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
  }
  if (!v.is_number_float()) return v.dump();
  // YAML 1.1 takes 1e-05 for a text: a number has a point.
  std::string s = fmt::format("{}", v.get<double>());
  const size_t e = s.find('e');
  if (s.substr(0, e).find('.') == std::string::npos) s.insert(e == std::string::npos ? s.size() : e, ".0");
  return s;
}

bool is_flat(const OrderedJson& v) {
  return std::none_of(v.begin(), v.end(), [](const OrderedJson& x) { return x.is_structured(); });
}

void write(const OrderedJson& v, const std::string& indent, std::string* out);

// What follows "key:" or "-".
void write_after(const OrderedJson& v, const std::string& indent, std::string* out) {
  if (v.is_object() && !v.empty()) {
    *out += "\n";
    write(v, indent + "  ", out);
  } else if (v.is_array() && !is_flat(v)) {
    *out += "\n";
    write(v, indent + "  ", out);
  } else if (v.is_array()) {
    std::string list;
    for (const auto& x : v) list += (list.empty() ? "" : ", ") + scalar(x);
    *out += " [" + list + "]\n";
  } else {
    *out += " " + (v.is_object() ? std::string("{}") : scalar(v)) + "\n";
  }
}

void write(const OrderedJson& v, const std::string& indent, std::string* out) {
  if (v.is_object())
    for (const auto& [key, value] : v.items()) {
      *out += indent + scalar(OrderedJson(key)) + ":";
      write_after(value, indent, out);
    }
  else
    for (const auto& value : v) {
      std::string item;
      if (value.is_object() && !value.empty()) {
        write(value, indent + "  ", &item);
        item.replace(indent.size(), 1, "-");  // the first key stands beside the dash
        *out += item;
      } else {
        *out += indent + "-";
        write_after(value, indent, out);
      }
    }
}

}  // namespace

std::string yaml_text(const OrderedJson& value) {
  std::string out;
  write(value, "", &out);
  return out;
}

std::string yaml_comment(std::string_view text) {
  std::string out;
  for (std::string_view line : split(text, '\n')) out += "# " + printable(line) + "\n";
  return out;
}

}  // namespace mxt::exporting

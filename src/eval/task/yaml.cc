#include "eval/task/yaml.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/yaml_events.h"

namespace mxt::eval {
namespace {

constexpr size_t kMaxBytes = 1 << 20, kMaxNodes = 100'000;
constexpr int kMaxDepth = 64;

// A plain scalar as YAML 1.1 types it (PyYAML's resolver; sexagesimal numbers and dates stay text).
OrderedJson resolve(const std::string& s) {
  if (s.empty() || s == "~" || s == "null" || s == "Null" || s == "NULL") return nullptr;
  for (const char* t : {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
    if (s == t) return true;
  for (const char* f : {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
    if (s == f) return false;
  const bool negative = s[0] == '-';
  std::string digits = s.substr(s[0] == '-' || s[0] == '+' ? 1 : 0);
  if (digits == ".inf" || digits == ".Inf" || digits == ".INF")
    return (negative ? -1 : 1) * std::numeric_limits<double>::infinity();
  if (s == ".nan" || s == ".NaN" || s == ".NAN") return std::numeric_limits<double>::quiet_NaN();
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  // A float may begin with its point, but then it has no sign and a digit follows.
  if (digits.empty() || !(is_digit(digits[0]) || (digits.size() > 1 && s[0] == '.' && is_digit(digits[1])))) return s;
  std::string plain;
  for (char c : digits)
    if (c != '_') plain += c;
  auto whole = [&](std::string_view text, int base) -> OrderedJson {
    int64_t v = 0;
    const auto [p, ec] = std::from_chars(text.data(), text.data() + text.size(), v, base);
    if (text.empty() || ec != std::errc() || p != text.data() + text.size()) return s;
    return negative ? -v : v;
  };
  if (plain.starts_with("0x")) return whole(std::string_view(plain).substr(2), 16);
  if (plain.starts_with("0b")) return whole(std::string_view(plain).substr(2), 2);
  if (plain.find_first_not_of("0123456789") == std::string::npos)
    return whole(plain, plain.size() > 1 && plain[0] == '0' ? 8 : 10);
  // Floats need a point, and a sign in the exponent.
  const size_t point = plain.find('.');
  if (point == std::string::npos) return s;
  const size_t e = plain.find_first_of("eE");
  if (e != std::string::npos && (e + 1 >= plain.size() || (plain[e + 1] != '-' && plain[e + 1] != '+'))) return s;
  std::string number = e == std::string::npos
                           ? plain
                           : plain.substr(0, e + 1) + (plain[e + 1] == '+' ? plain.substr(e + 2) : plain.substr(e + 1));
  if (number[0] == '.') number = "0" + number;
  double v = 0;
  const auto [p, ec] = std::from_chars(number.data(), number.data() + number.size(), v);
  if (ec != std::errc() || p != number.data() + number.size()) return s;
  return negative ? -v : v;
}

// One document, from the event after kDocument on.
class Converter {
 public:
  Converter(YamlEvents& events, std::string name, std::string folder)
      : events_(events), name_(std::move(name)), folder_(std::move(folder)) {}

  OrderedJson run() {
    OrderedJson root = value(events_.next());
    events_.next();  // the document's end
    return root;
  }

 private:
  using Kind = YamlEvent::Kind;

  OrderedJson value(const YamlEvent& e) {
    const size_t before = nodes_;
    count(1);
    if (e.kind == Kind::kAlias) {
      const auto it = anchors_.find(e.anchor);
      if (it == anchors_.end()) fail(e, fmt::format("the alias *{} has no finished anchor before it", e.anchor));
      count(it->second.nodes);
      return it->second.value;
    }
    if (e.tag == "!function" && e.kind != Kind::kScalar) fail(e, "!function stands before a name");
    if (++depth_ > kMaxDepth) too_large();
    OrderedJson out = e.kind == Kind::kList ? list() : e.kind == Kind::kMap ? map(e) : scalar(e);
    --depth_;
    if (!e.anchor.empty()) anchors_[e.anchor] = {out, nodes_ - before};
    return out;
  }

  OrderedJson list() {
    OrderedJson out = OrderedJson::array();
    for (YamlEvent e = events_.next(); e.kind != Kind::kListEnd; e = events_.next()) out.push_back(value(e));
    return out;
  }

  // A key that stands twice has its last value; the map's own keys win over merged ones.
  OrderedJson map(const YamlEvent& start) {
    OrderedJson out = OrderedJson::object(), merged = OrderedJson::object();
    for (YamlEvent key = events_.next(); key.kind != Kind::kMapEnd; key = events_.next()) {
      if (key.kind != Kind::kScalar) fail(key, "a key must be text");
      OrderedJson v = value(events_.next());
      if (!key.plain || key.text != "<<") {
        out[key.text] = std::move(v);
        continue;
      }
      if (!v.is_array()) v = OrderedJson::array({v});
      for (const OrderedJson& some : v) {
        if (!some.is_object()) fail(start, "<< takes a map or a list of maps");
        for (const auto& [k, item] : some.items())
          if (!merged.contains(k)) merged[k] = item;
      }
    }
    for (const auto& [k, item] : merged.items())
      if (!out.contains(k)) out[k] = item;
    return out;
  }

  OrderedJson scalar(const YamlEvent& e) const {
    if (e.tag == "!function") return {{"!function", e.text}, {"folder", folder_}};
    if (e.plain) return resolve(e.text);
    if (e.tag.empty() || e.tag == "!" || e.tag == "tag:yaml.org,2002:str") return e.text;
    for (const char* type : {"int", "float", "bool", "null"})
      if (e.tag == std::string("tag:yaml.org,2002:") + type) return resolve(e.text);
    fail(e, fmt::format("the tag {} is not known", e.tag));
  }

  void count(size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMaxNodes) too_large();
  }
  [[noreturn]] void too_large() const { fail_input("{}: the file is too large or nested too deep", name_); }
  [[noreturn]] void fail(const YamlEvent& e, const std::string& what) const {
    fail_input("{}:{}: {}", name_, e.mark.line, what);
  }

  struct Anchored {
    OrderedJson value;
    size_t nodes = 0;
  };
  YamlEvents& events_;
  std::string name_, folder_;
  std::map<std::string, Anchored> anchors_;
  size_t nodes_ = 0;
  int depth_ = 0;
};

std::vector<OrderedJson> documents(const std::string& text, const std::string& name, const std::string& folder) {
  if (text.size() > kMaxBytes) fail_input("{}: a task file of {} bytes is refused: at most 1 MiB", name, text.size());
  try {
    std::vector<OrderedJson> out;
    YamlEvents events(text);
    while (events.next().kind != YamlEvent::Kind::kEnd) {
      out.push_back(Converter(events, name, folder).run());
      if (!out.back().is_object()) fail_input("{}: a task file is a map of keys and values", name);
    }
    return out;
  } catch (const YamlSyntaxError& e) {
    fail_input("{}:{}:{}: {}", name, e.mark.line, e.mark.column, e.what());
  }
}

OrderedJson parse(const std::string& text, const std::string& name, const std::string& folder) {
  std::vector<OrderedJson> all = documents(text, name, folder);
  if (all.size() != 1) fail_input("{}: a task file is one map of keys and values", name);
  return std::move(all[0]);
}

OrderedJson load(const std::string& path, std::set<std::string>& open) {
  const std::string absolute = fs::weakly_canonical(path).string();
  if (!open.insert(absolute).second || open.size() > 32) fail_input("{}: include goes round in a circle", path);
  const std::string folder = fs::path(absolute).parent_path().string();
  OrderedJson own = parse(read_file(absolute), path, folder);
  if (own.contains("include")) {
    OrderedJson includes = own["include"];
    own.erase("include");
    if (!includes.is_array()) includes = OrderedJson::array({includes});
    OrderedJson merged = OrderedJson::object();
    for (const OrderedJson& i : includes) {
      if (!i.is_string()) fail_input("{}: include names a file", path);
      const fs::path file = fs::path(i.get<std::string>());
      OrderedJson base = load(file.is_absolute() ? file.string() : folder + "/" + file.string(), open);
      base.erase("task_list");
      merged.update(base);
    }
    merged.update(own);
    own = std::move(merged);
  }
  open.erase(absolute);
  return own;
}

}  // namespace

OrderedJson load_task_yaml(const std::string& path) {
  std::set<std::string> open;
  return load(path, open);
}

OrderedJson parse_task_yaml(const std::string& text, const std::string& name) { return parse(text, name, ""); }

std::vector<OrderedJson> parse_builtin_tasks(const std::string& text, const std::string& name) {
  std::vector<OrderedJson> out;
  OrderedJson shared = OrderedJson::object();
  for (OrderedJson& j : documents(text, name, "")) {
    if (!j.contains("task") && !j.contains("group")) {
      shared = std::move(j);
    } else if (j.contains("group")) {
      out.push_back(std::move(j));
    } else {
      OrderedJson task = shared;
      task.update(j);
      out.push_back(std::move(task));
    }
  }
  return out;
}

bool is_function(const OrderedJson& v) { return v.is_object() && v.contains("!function"); }

std::string function_name(const OrderedJson& v) {
  const std::string folder = v["folder"].get<std::string>();
  const std::string name = v["!function"].get<std::string>();
  return folder.empty() || name.find('/') != std::string::npos ? name
                                                               : fs::path(folder).filename().string() + "/" + name;
}

}  // namespace mxt::eval

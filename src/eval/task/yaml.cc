#include "eval/task/yaml.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"

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
  if (digits.empty() || !((digits[0] >= '0' && digits[0] <= '9') || digits[0] == '.')) return s;
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

class Converter {
 public:
  Converter(std::string name, std::string folder) : name_(std::move(name)), folder_(std::move(folder)) {}

  OrderedJson run(const YAML::Node& n, int depth = 0) {
    if (++nodes_ > kMaxNodes || depth > kMaxDepth) fail_input("{}: the file is too large or nested too deep", name_);
    if (n.Tag() == "!function") {
      if (!n.IsScalar()) fail_input("{}:{}: !function stands before a name", name_, n.Mark().line + 1);
      return {{"!function", n.Scalar()}, {"folder", folder_}};
    }
    switch (n.Type()) {
      case YAML::NodeType::Scalar:
        return n.Tag() == "?" || n.Tag().empty() ? resolve(n.Scalar()) : scalar(n);
      case YAML::NodeType::Sequence: {
        OrderedJson list = OrderedJson::array();
        for (const auto& item : n) list.push_back(run(item, depth + 1));
        return list;
      }
      case YAML::NodeType::Map: {
        OrderedJson map = OrderedJson::object();
        for (const auto& entry : n) {
          if (!entry.first.IsScalar()) fail_input("{}:{}: a key must be text", name_, entry.first.Mark().line + 1);
          if (entry.first.Scalar() == "<<" && entry.second.IsMap()) {
            const OrderedJson merged = run(entry.second, depth + 1);  // items() refers to it
            for (const auto& [k, v] : merged.items())
              if (!map.contains(k)) map[k] = v;
            continue;
          }
          map[entry.first.Scalar()] = run(entry.second, depth + 1);
        }
        return map;
      }
      default:
        return nullptr;
    }
  }

 private:
  OrderedJson scalar(const YAML::Node& n) const {
    const std::string& tag = n.Tag();
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return n.Scalar();
    if (tag == "tag:yaml.org,2002:int" || tag == "tag:yaml.org,2002:float" || tag == "tag:yaml.org,2002:bool" ||
        tag == "tag:yaml.org,2002:null")
      return resolve(n.Scalar());
    fail_input("{}:{}: the tag {} is not known", name_, n.Mark().line + 1, tag);
  }
  std::string name_, folder_;
  size_t nodes_ = 0;
};

OrderedJson parse(const std::string& text, const std::string& name, const std::string& folder) {
  if (text.size() > kMaxBytes) fail_input("{}: a task file of {} bytes is refused: at most 1 MiB", name, text.size());
  try {
    OrderedJson j = Converter(name, folder).run(YAML::Load(text));
    if (!j.is_object()) fail_input("{}: a task file is a map of keys and values", name);
    return j;
  } catch (const YAML::Exception& e) {
    fail_input("{}:{}:{}: {}", name, e.mark.line + 1, e.mark.column + 1, e.msg);
  }
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
  for (const YAML::Node& n : YAML::LoadAll(text)) {
    OrderedJson j = Converter(name, "").run(n);
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

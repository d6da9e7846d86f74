#include "eval/score/filters.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "eval/python/literal.h"
#include "eval/task/functions.h"
#include "eval/task/yaml.h"
#include "pytext/python_regex.h"
#include "pytext/unicode.h"

namespace mxt::eval {
namespace {

using pytext::PythonRegex;

std::string option(const OrderedJson& f, const char* key, const std::string& otherwise) {
  const auto it = f.find(key);
  if (it == f.end() || it->is_null()) return otherwise;
  if (!it->is_string()) fail_input("filter {}: {} is text", f.value("function", ""), key);
  return *it;
}

int64_t whole(const OrderedJson& f, const char* key, std::optional<int64_t> otherwise, const std::string& where) {
  const auto it = f.find(key);
  if (it == f.end() && otherwise) return *otherwise;
  if (it == f.end() || !it->is_number_integer()) fail_input("{}: {} is a whole number", where, key);
  return it->get<int64_t>();
}

void check_options(const OrderedJson& f, const std::string& where, std::initializer_list<const char*> known) {
  for (const auto& [k, v] : f.items())
    if (k != "function" && std::none_of(known.begin(), known.end(), [&](const char* n) { return k == n; }))
      fail_input("{}: the filter {} has no option {}", where, f["function"].dump(), k);
}

std::string escape(std::string_view s) {
  std::string out;
  for (char c : s) {
    if (std::string_view("()[]{}?*+-|^$\\.&~# \t\n\r\v\f").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// The match of findall number `select` (from the end where negative), stripped; the first group with text where there
// are groups. None where nothing matches, or no group has text.
std::optional<std::string> pick(const pytext::PythonRegex& re, const std::string& text, int64_t select) {
  const auto all = re.findall(text);
  if (all.empty()) return std::nullopt;
  const int64_t n = static_cast<int64_t>(all.size());
  const int64_t i = select < 0 ? select + n : select;
  if (i < 0 || i >= n) fail_input("a regex filter selects match {} of {}", select, n);
  const auto& groups = all[static_cast<size_t>(i)];
  if (groups.size() == 1) return strip(groups[0]);
  for (const std::string& g : groups)
    if (!g.empty()) return strip(g);
  return std::nullopt;  // groups, none with text
}

OrderedJson on_each(OrderedJson list, const std::string& where,
                    const std::function<OrderedJson(const OrderedJson&)>& f) {
  if (!list.is_array())
    fail_input("{}: a filter that works on a list of answers stands after take_first; put it before", where);
  for (OrderedJson& r : list) r = f(r);
  return list;
}

std::string text_of(const OrderedJson& r) { return r.is_string() ? r.get<std::string>() : std::string(); }

std::string without_punctuation(const std::string& s) {
  return pytext::PythonRegex("\\p{P}", "multi_choice_regex").sub("", s);
}

// Answers that name one of the document's choices: by the pattern, by a choice's text, by ": (A)".
OrderedJson multi_choice(const OrderedJson& f, const std::string& where, const pytext::PythonRegex& re, int64_t select,
                         const std::string& fallback, OrderedJson list, const OrderedJson& doc) {
  const bool ignore_case = f.value("ignore_case", false), ignore_punctuation = f.value("ignore_punctuation", false);
  auto ignore = [&](std::string s) {
    if (f.contains("regexes_to_ignore") && f["regexes_to_ignore"].is_array())
      for (const OrderedJson& r : f["regexes_to_ignore"])
        s = pytext::PythonRegex(r.get<std::string>(), where).sub("", s);
    if (ignore_case) s = lower(s);
    return ignore_punctuation ? without_punctuation(s) : s;
  };
  if (!doc.contains("choices") || !doc["choices"].is_array())
    fail_input("{}: multi_choice_regex needs documents with a list \"choices\"", where);
  std::vector<std::string> texts;
  std::map<std::string, std::string> letter_of, by_letter;
  std::string letters;
  char letter = 'A';
  for (const OrderedJson& c : doc["choices"]) {
    const std::string m = ignore(strip(text_of(c)));
    texts.push_back(escape(m));
    letter_of[m] = std::string("(") + letter + ")";
    by_letter[std::string(1, letter)] = letter_of[m];
    letters += (letters.empty() ? "" : "|") + std::string(1, letter);
    ++letter;
  }
  std::stable_sort(texts.begin(), texts.end(),
                   [](const auto& a, const auto& b) { return characters(a) > characters(b); });
  std::string any;
  for (const std::string& t : texts) any += (any.empty() ? "" : "|") + t;
  const pytext::PythonRegex by_text(any, where), by_colon(":[\\s]*(" + letters + ")", where);
  auto named = [&](const pytext::PythonRegex& r, const std::string& s,
                   const std::map<std::string, std::string>& names) {
    std::string m = pick(r, s, select).value_or("");
    const auto it = names.find(m);
    return m.empty() || it == names.end() ? m : it->second;
  };
  return on_each(std::move(list), where, [&](const OrderedJson& r) -> OrderedJson {
    const std::string s = text_of(r);
    std::string m = pick(re, s, select).value_or("");
    if (m.empty()) m = named(by_text, ignore(s), letter_of);
    if (m.empty()) m = named(by_colon, s, by_letter);
    return m.empty() ? fallback : m;
  });
}

}  // namespace

FilterChain::FilterChain(const OrderedJson& entry, const std::string& task) {
  OrderedJson functions = OrderedJson::array({{{"function", "take_first"}}});
  if (!entry.is_null()) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() || !entry.contains("filter") ||
        !entry["filter"].is_array())
      fail_input("{}: an entry of filter_list has a name and a list `filter`", task);
    name_ = entry["name"];
    functions = entry["filter"];
  }
  const std::string where = task + ": filter " + name_;
  for (const OrderedJson& f : functions) {
    if (!f.is_object() || !f.contains("function") || !f["function"].is_string())
      fail_input("{}: a filter names its function", where);
    const std::string kind = f["function"];
    if (kind == "take_first") {
      check_options(f, where, {});
      steps_.push_back([where](OrderedJson list, const OrderedJson&) {
        if (!list.is_array() || list.empty()) fail_input("{}: take_first stands after take_first", where);
        return OrderedJson(list[0]);
      });
    } else if (kind == "take_first_k") {
      check_options(f, where, {"k"});
      const int64_t first = whole(f, "k", std::nullopt, where);
      if (first < 1) fail_input("{}: k is a whole number from 1", where);
      const auto k = static_cast<size_t>(first);
      steps_.push_back([where, k](OrderedJson list, const OrderedJson&) {
        if (!list.is_array() || list.size() < k)
          fail_input("{}: take_first_k needs {} answers; raise `repeats`", where, k);
        OrderedJson out = OrderedJson::array();
        for (size_t i = 0; i < k; ++i) out.push_back(list[i]);
        return out;
      });
    } else if (kind == "majority_vote") {
      check_options(f, where, {});
      steps_.push_back([where](OrderedJson list, const OrderedJson&) {
        if (!list.is_array() || list.empty()) fail_input("{}: majority_vote stands after take_first", where);
        size_t best = 0, most = 0;
        for (size_t i = 0; i < list.size(); ++i) {  // the earliest among equals
          const size_t n = static_cast<size_t>(std::count(list.begin(), list.end(), list[i]));
          if (n > most) most = n, best = i;
        }
        return OrderedJson::array({list[best]});
      });
    } else if (kind == "regex" || kind == "multi_choice_regex") {
      const bool choices = kind != "regex";
      if (choices)
        check_options(
            f, where,
            {"regex_pattern", "group_select", "fallback", "ignore_case", "ignore_punctuation", "regexes_to_ignore"});
      else
        check_options(f, where, {"regex_pattern", "group_select", "fallback"});
      auto re = std::make_shared<pytext::PythonRegex>(option(f, "regex_pattern", "#### (\\-?[0-9\\.\\,]+)"), where);
      const int64_t select = whole(f, "group_select", 0, where);
      const std::string fallback = option(f, "fallback", "[invalid]");
      if (choices) {
        steps_.push_back([=](OrderedJson list, const OrderedJson& doc) {
          return multi_choice(f, where, *re, select, fallback, std::move(list), doc);
        });
      } else {
        steps_.push_back([=](OrderedJson list, const OrderedJson&) {
          return on_each(std::move(list), where, [&](const OrderedJson& r) -> OrderedJson {
            return pick(*re, text_of(r), select).value_or(fallback);
          });
        });
      }
    } else if (kind == "remove_whitespace" || kind == "lowercase" || kind == "uppercase") {
      check_options(f, where, {});
      steps_.push_back([=](OrderedJson list, const OrderedJson&) {
        return on_each(std::move(list), where, [&](const OrderedJson& r) -> OrderedJson {
          const std::string s = text_of(r);
          return kind == "lowercase" ? lower(s) : kind == "uppercase" ? upper(s) : strip(s);
        });
      });
    } else if (kind == "map") {
      check_options(f, where, {"mapping_dict", "default_value"});
      const OrderedJson map = f.value("mapping_dict", OrderedJson::object()),
                        otherwise = f.value("default_value", OrderedJson());
      if (!map.is_object()) fail_input("{}: mapping_dict is a map", where);
      steps_.push_back([=](OrderedJson list, const OrderedJson&) {
        return on_each(std::move(list), where, [&](const OrderedJson& r) { return map.value(text_of(r), otherwise); });
      });
    } else if (kind == "custom") {
      check_options(f, where, {"filter_fn"});
      if (!f.contains("filter_fn") || !is_function(f["filter_fn"])) fail_input("{}: filter_fn names a function", where);
      const auto fn = known_function(f["filter_fn"], where).filter;
      if (!fn) fail_input("{}: {} is no filter", where, function_name(f["filter_fn"]));
      steps_.push_back(
          [fn](OrderedJson list, const OrderedJson& doc) { return fn(list.get<std::vector<OrderedJson>>(), doc); });
    } else {
      fail_missing("{}: the filter {} is not supported here", where, kind);
    }
  }
}

OrderedJson FilterChain::apply(const std::vector<OrderedJson>& responses, const OrderedJson& doc) const {
  OrderedJson v = responses;
  for (const Step& s : steps_) v = s(std::move(v), doc);
  return v;
}

}  // namespace mxt::eval

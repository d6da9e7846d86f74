#include "eval/task/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "base/text.h"

namespace mxt::eval {
namespace {

// ---- JSON

// Digits at `at`, exactly `n` of them.
std::optional<int> digits(std::string_view s, size_t at, size_t n) {
  if (at + n > s.size()) return std::nullopt;
  int value = 0;
  for (size_t i = at; i < at + n; ++i) {
    if (s[i] < '0' || s[i] > '9') return std::nullopt;
    value = 10 * value + (s[i] - '0');
  }
  return value;
}

// YYYY-MM-DD, then perhaps [ T]hh[:mm[:ss]], then perhaps Z or ±hh[[:]mm]: what pyarrow takes for a timestamp.
std::optional<std::chrono::sys_seconds> timestamp(std::string_view s) {
  using namespace std::chrono;
  const auto y = digits(s, 0, 4), m = digits(s, 5, 2), d = digits(s, 8, 2);
  if (!y || !m || !d || s[4] != '-' || s[7] != '-') return std::nullopt;
  const year_month_day date{year(*y), month(static_cast<unsigned>(*m)), day(static_cast<unsigned>(*d))};
  if (!date.ok()) return std::nullopt;
  sys_seconds t = sys_days(date);
  if (s.size() == 10) return t;
  size_t at = 11;
  const auto part = [&](int below) {
    const auto v = digits(s, at, 2);
    at += 2;
    return v && *v < below ? v : std::nullopt;
  };
  if (s[10] != ' ' && s[10] != 'T') return std::nullopt;
  const auto h = part(24);
  if (!h) return std::nullopt;
  t += hours(*h);
  for (const int64_t unit : {60, 1}) {
    if (at >= s.size() || s[at] != ':') break;
    ++at;
    const auto v = part(60);
    if (!v) return std::nullopt;
    t += seconds(*v * unit);
  }
  if (at == s.size()) return t;
  if (s.substr(at) == "Z") return t;
  const int sign = s[at] == '+' ? -1 : s[at] == '-' ? 1 : 0;
  ++at;
  const auto zone = sign ? part(24) : std::nullopt;
  if (!zone) return std::nullopt;
  t += sign * hours(*zone);
  if (at == s.size()) return t;
  if (s[at] == ':') ++at;
  const auto minute = part(60);
  if (!minute || at != s.size()) return std::nullopt;
  return t + sign * minutes(*minute);
}

std::string datetime(std::chrono::sys_seconds t) {
  const auto day = std::chrono::floor<std::chrono::days>(t);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(t - day);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), time.hours().count(),
                     time.minutes().count(), time.seconds().count());
}

// One type for the values of a column, or of one place inside its lists and structures.
void unify(const std::vector<OrderedJson*>& values) {
  const auto all = [&](auto is) { return std::all_of(values.begin(), values.end(), is); };
  std::vector<OrderedJson*> inner;
  if (all([](const OrderedJson* v) { return v->is_number(); })) {
    if (!all([](const OrderedJson* v) { return v->is_number_integer(); }))
      for (OrderedJson* v : values) *v = v->get<double>();
  } else if (all([](const OrderedJson* v) { return v->is_string(); })) {
    if (all([](const OrderedJson* v) { return timestamp(v->get_ref<const std::string&>()).has_value(); }))
      for (OrderedJson* v : values) *v = datetime(*timestamp(v->get_ref<const std::string&>()));
  } else if (all([](const OrderedJson* v) { return v->is_array(); })) {
    for (OrderedJson* v : values)
      for (OrderedJson& x : *v)
        if (!x.is_null()) inner.push_back(&x);
    if (!inner.empty()) unify(inner);
  } else if (all([](const OrderedJson* v) { return v->is_object(); })) {
    std::map<std::string, std::vector<OrderedJson*>> members;
    for (OrderedJson* v : values)
      for (auto& [key, x] : v->items())
        if (!x.is_null()) members[key].push_back(&x);
    for (const auto& [key, list] : members) unify(list);
  }
}

// ---- CSV

const std::set<std::string_view> kNothing = {"",     "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN",
                                             "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL",
                                             "NaN",  "None",   "n/a",      "nan",  "null"};

template <class T>
std::optional<T> number_in(std::string_view s) {
  s = trim(s);
  if (s.starts_with('+') && s.size() > 1 && s[1] != '-') s.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  return error == std::errc() && end == s.data() + s.size() ? std::optional(value) : std::nullopt;
}

std::optional<bool> truth(std::string_view s) {
  if (s == "True" || s == "TRUE" || s == "true") return true;
  if (s == "False" || s == "FALSE" || s == "false") return false;
  return std::nullopt;
}

}  // namespace

void put_in_order(Table& t) {
  for (OrderedJson& row : t.rows) {
    OrderedJson ordered = OrderedJson::object();
    for (const std::string& c : t.columns) {
      const auto it = row.find(c);
      ordered[c] = it == row.end() ? OrderedJson() : std::move(*it);
    }
    row = std::move(ordered);
  }
}

void type_json_columns(Table& t) {
  for (const std::string& c : t.columns) {
    std::vector<OrderedJson*> values;
    for (OrderedJson& row : t.rows)
      if (!row[c].is_null()) values.push_back(&row[c]);
    if (!values.empty()) unify(values);
  }
}

void type_csv_columns(Table& t) {
  for (const std::string& c : t.columns) {
    bool whole = true, large = true, real = true, flag = true, nothing = false;
    for (OrderedJson& row : t.rows) {
      if (row[c].is_string() && kNothing.contains(row[c].get_ref<const std::string&>())) row[c] = nullptr;
      if (row[c].is_null()) {
        nothing = true;
        continue;
      }
      if (!row[c].is_string()) {  // of JSON lines among them
        real = whole = large = flag = false;
        break;
      }
      const std::string& s = row[c].get_ref<const std::string&>();
      whole = whole && number_in<int64_t>(s);
      large = large && number_in<uint64_t>(s);
      real = real && number_in<double>(s);
      flag = flag && truth(s);
    }
    for (OrderedJson& row : t.rows) {
      if (!row[c].is_string()) continue;
      const std::string s = row[c];
      if (whole && !nothing)
        row[c] = *number_in<int64_t>(s);
      else if (large && !nothing)
        row[c] = *number_in<uint64_t>(s);
      else if (real)
        row[c] = *number_in<double>(s);
      else if (flag)
        row[c] = *truth(s);
    }
  }
}

}  // namespace mxt::eval

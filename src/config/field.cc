#include "config/field.h"

#include <cmath>

#include "base/text.h"
#include "config/misplaced.h"

namespace mxt::config {
namespace {

std::string number_from(double v) {
  if (std::abs(v) < 1e15 && v == std::floor(v)) return fmt::format("{}", static_cast<int64_t>(v));
  return fmt::format("{}", v);
}

std::string bare(const std::string& choice) { return choice.starts_with('+') ? choice.substr(1) : choice; }

std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& w : words) out += (out.empty() ? "" : ", ") + bare(w);
  return out;
}

// "must be at least 64" and the like, or "" where v is inside.
std::string out_of_range(const Field& f, double v) {
  if (!f.allowed.empty()) {
    std::string all;
    for (int64_t a : f.allowed) {
      if (static_cast<double>(a) == v) return "";
      all += (all.empty() ? "" : " or ") + std::to_string(a);
    }
    return fmt::format("is {}: must be {}", number_from(v), all);
  }
  if (f.range.holds(v)) return "";
  const bool low = std::isfinite(f.range.low), high = std::isfinite(f.range.high);
  const char* at_least = f.range.low_open ? "more than" : "at least";
  const char* at_most = f.range.high_open ? "less than" : "at most";
  if (low && high)
    return fmt::format("is {}: must be {} {} and {} {}", number_from(v), at_least, number_from(f.range.low), at_most,
                       number_from(f.range.high));
  return low ? fmt::format("is {}: must be {} {}", number_from(v), at_least, number_from(f.range.low))
             : fmt::format("is {}: must be {} {}", number_from(v), at_most, number_from(f.range.high));
}

bool is_parent(std::string_view parent, std::string_view key) {
  return parent.empty() || (key.starts_with(parent) &&
                            (key.size() == parent.size() || key[parent.size()] == '.' || key[parent.size()] == '['));
}

// One printable line of bounded length: keys and values of a file may hold anything.
std::string one_line(const std::string& s) {
  constexpr size_t kMost = 600;
  std::string out;
  for (char c : s.substr(0, kMost)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  while (s.size() > kMost && !is_valid_utf8(out)) out.pop_back();
  return s.size() > kMost ? out + "…" : out;
}

}  // namespace

// ---- Reader ----------------------------------------------------------------------------------------------------

void Reader::issue(YamlMark m, const std::string& key, const std::string& what) {
  issues_.push_back({source_, m.line, m.column, one_line(key), one_line(what)});
}

bool Reader::is_given(std::string_view key) const {
  for (const Given& g : given_)
    if (g.key == key) return !g.null;
  return false;
}

std::vector<std::string> Reader::given() const {
  std::vector<std::string> out;
  for (const Given& g : given_)
    if (!g.null) out.push_back(g.key);
  return out;
}

YamlMark Reader::mark_of(std::string_view key) const {
  YamlMark best;
  size_t length = 0;
  for (const Given& g : given_)
    if (is_parent(g.key, key) && g.key.size() > length) {
      best = g.mark;
      length = g.key.size();
    }
  return best;
}

bool Reader::has_issue_at(std::string_view key) const {
  for (const Issue& i : issues_)
    if (is_parent(i.key, key) || is_parent(key, i.key)) return true;
  return false;
}

// ---- values ----------------------------------------------------------------------------------------------------

void read_value(bool* out, const Field&, const YamlNode& n, const std::string& path, Reader& reader) {
  std::string why;
  if (const auto v = yaml_bool(n, &why))
    *out = *v;
  else
    reader.issue(n.mark, path, why);
}

void read_value(int64_t* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader) {
  std::string why;
  const auto v = yaml_int(n, &why);
  if (v) why = out_of_range(f, static_cast<double>(*v));
  if (v && why.empty())
    *out = *v;
  else
    reader.issue(n.mark, path, why);
}

void read_value(double* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader) {
  std::string why;
  const auto v = yaml_float(n, &why);
  if (v) why = out_of_range(f, *v);
  if (v && why.empty())
    *out = *v;
  else
    reader.issue(n.mark, path, why);
}

void read_value(std::string* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader) {
  std::string why;
  auto v = yaml_text(n, &why);
  if (!v) return reader.issue(n.mark, path, why);
  if (f.non_empty && trim(*v).empty()) return reader.issue(n.mark, path, "is empty: write text");
  *out = std::move(*v);
}

bool is_list(const Field& f, const YamlNode& n, const std::string& path, Reader& reader) {
  if (n.kind != YamlNode::Kind::kList) {
    reader.issue(n.mark, path, fmt::format("is {}: write a list, as [a, b]", n.kind_name()));
    return false;
  }
  if (f.non_empty && n.items.empty()) {
    reader.issue(n.mark, path, "is an empty list: name at least one");
    return false;
  }
  return true;
}

void read_value(std::vector<std::string>* out, const Field& f, const YamlNode& n, const std::string& path,
                Reader& reader) {
  if (n.kind == YamlNode::Kind::kScalar && std::find(f.choices.begin(), f.choices.end(), n.text) != f.choices.end()) {
    *out = {n.text};
    return;
  }
  if (!is_list(f, n, path, reader)) return;
  Field item;
  item.non_empty = true;
  std::vector<std::string> v(n.items.size());
  for (size_t i = 0; i < v.size(); ++i) read_value(&v[i], item, n.items[i], fmt::format("{}[{}]", path, i), reader);
  *out = std::move(v);
}

void read_value(std::array<double, 2>* out, const Field& f, const YamlNode& n, const std::string& path,
                Reader& reader) {
  if (n.kind != YamlNode::Kind::kList || n.items.size() != 2)
    return reader.issue(n.mark, path, "must be a list of two numbers, as [0.9, 0.95]");
  for (size_t i = 0; i < 2; ++i) read_value(&(*out)[i], f, n.items[i], fmt::format("{}[{}]", path, i), reader);
}

void read_value(std::map<std::string, std::string>* out, const Field&, const YamlNode& n, const std::string& path,
                Reader& reader) {
  if (n.kind != YamlNode::Kind::kMap)
    return reader.issue(n.mark, path, fmt::format("is {}: write a map of text", n.kind_name()));
  out->clear();
  for (const auto& e : n.entries) {
    std::string v;
    if (e.key.empty()) reader.issue(e.mark, path, "a key is empty");
    read_value(&v, Field{}, e.value, path + "." + e.key, reader);
    reader.give(path + "." + e.key, e.mark);
    out->emplace(e.key, std::move(v));
  }
}

void read_value(std::vector<int64_t>* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader) {
  if (!is_list(f, n, path, reader)) return;
  std::vector<int64_t> v(n.items.size());
  for (size_t i = 0; i < v.size(); ++i) read_value(&v[i], f, n.items[i], fmt::format("{}[{}]", path, i), reader);
  *out = std::move(v);
}

void read_value(std::map<std::string, int64_t>* out, const Field& f, const YamlNode& n, const std::string& path,
                Reader& reader) {
  if (n.kind != YamlNode::Kind::kMap)
    return reader.issue(n.mark, path, fmt::format("is {}: write a map, as {{name: 4}}", n.kind_name()));
  out->clear();
  for (const auto& e : n.entries) {
    int64_t v = 0;
    if (e.key.empty()) reader.issue(e.mark, path, "a key is empty");
    read_value(&v, f, e.value, path + "." + e.key, reader);
    reader.give(path + "." + e.key, e.mark);
    out->emplace(e.key, v);
  }
}

void read_value(PathOrInline* out, const Field& f, const YamlNode& n, const std::string& path, Reader& reader) {
  if (n.kind == YamlNode::Kind::kNull) {
    *out = {};
    return;
  }
  if (n.kind != YamlNode::Kind::kMap) return read_value(&out->path, f, n, path, reader);
  std::vector<YamlProblem> problems;
  out->json = canonical_json(yaml_to_json(n, path, &problems));
  for (const auto& p : problems) reader.issue(p.mark, p.key, p.what);
}

std::optional<std::string> read_choice(const Field& f, const YamlNode& n, const std::string& path, Reader& reader) {
  std::vector<std::string> words;
  for (const auto& c : f.choices) words.push_back(bare(c));
  if (n.kind != YamlNode::Kind::kScalar) {
    reader.issue(n.mark, path, fmt::format("is {}: write one of {}", n.kind_name(), listed(f.choices)));
    return {};
  }
  for (const auto& w : words)
    if (w == n.text) return w;
  const std::string near = nearest(n.text, words);
  const std::string shown = n.text.size() > 60 ? n.text.substr(0, 60) + "…" : n.text;
  if (words.size() == 1)
    reader.issue(n.mark, path, fmt::format("is `{}`: must be {}", shown, words[0]));
  else if (near.empty())
    reader.issue(n.mark, path, fmt::format("is `{}`: write one of {}", shown, listed(f.choices)));
  else
    reader.issue(n.mark, path, fmt::format("is `{}`: did you mean {}? (one of {})", shown, near, listed(f.choices)));
  return {};
}

OrderedJson write_value(const PathOrInline& v) {
  if (v.empty()) return nullptr;
  return v.json.empty() ? OrderedJson(v.path) : parse_ordered_json(v.json, "model.config");
}

// ---- Section ---------------------------------------------------------------------------------------------------

const Field* Section::find(std::string_view key) const {
  for (const Field& f : fields)
    if (f.key == key) return &f;
  return nullptr;
}

std::vector<std::string> Section::keys() const {
  std::vector<std::string> out;
  for (const Field& f : fields) out.push_back(f.key);
  return out;
}

void Section::read(void* owner, const YamlNode& map, const std::string& path, Reader& reader) const {
  const std::string prefix = path.empty() ? "" : path + ".";
  if (map.kind == YamlNode::Kind::kNull && !path.empty())
    return reader.issue(map.mark, path, "is empty: remove the key, or write {} for its defaults");
  if (map.kind != YamlNode::Kind::kMap)
    return reader.issue(map.mark, path, fmt::format("is {}: write a map of keys and values", map.kind_name()));
  for (const auto& e : map.entries) {
    const Field* f = find(e.key);
    const std::string key = prefix + e.key;
    if (f) {
      reader.give(key, e.mark, e.value.kind == YamlNode::Kind::kNull);
      f->read(*f, owner, e.value, key, reader);
      continue;
    }
    std::string near = place_of(e.key, key);
    if (near.empty()) near = nearest(e.key, keys());
    reader.issue(e.mark, key,
                 near.empty()
                     ? fmt::format("is not a key of {}: it has {}", path.empty() ? "a recipe" : path, listed(keys()))
                     : fmt::format("is not a known key: did you mean {}?", near));
  }
  for (const Field& f : fields)
    if (f.required && !map.find(f.key)) reader.issue(map.mark, prefix + f.key, "is missing: it is required");
}

OrderedJson Section::write(const void* owner) const {
  OrderedJson j = OrderedJson::object();
  for (const Field& f : fields) {
    OrderedJson value = f.write(f, owner);
    if (!f.later || Json(value) != f.default_value) j[f.key] = std::move(value);
  }
  return j;
}

void Section::derive(void* owner, const Recipe& recipe, const std::string& path, const Reader& reader) const {
  const std::string prefix = path.empty() ? "" : path + ".";
  for (const Field& f : fields) {
    if (f.derive && !reader.is_given(prefix + f.key)) f.derive(owner, recipe);
    if (f.section && f.child)
      if (void* child = f.child(owner)) f.section->derive(child, recipe, prefix + f.key, reader);
  }
}

}  // namespace mxt::config

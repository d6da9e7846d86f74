#include "serve/grammar/json_grammar.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace mxt::serve {
namespace {

constexpr size_t kMaxCells = 200'000;
constexpr int kMaxDepth = 64;
constexpr int64_t kMaxCount = 4096;

const std::set<std::string, std::less<>> kKeywords{
    "type",    "enum",        "const",    "properties", "required",         "additionalProperties",
    "items",   "prefixItems", "minItems", "maxItems",   "minLength",        "maxLength",
    "pattern", "format",      "minimum",  "maximum",    "exclusiveMinimum", "exclusiveMaximum",
    "anyOf",   "oneOf",       "allOf",    "$ref"};

ByteSet one(char c) { return byte_range(static_cast<unsigned char>(c), static_cast<unsigned char>(c)); }
ByteSet of_text(std::string_view s) {
  ByteSet b;
  for (char c : s) b |= one(c);
  return b;
}

std::string spelled(const OrderedJson& j) {
  try {
    return j.dump();
  } catch (const std::exception&) {
    fail_input("a text of the schema is not UTF-8");
  }
}

int64_t count(const OrderedJson& s, const char* key, int64_t otherwise, const std::string& at) {
  if (!s.contains(key)) return otherwise;
  const auto& v = s[key];
  if (!v.is_number_integer() || v.get<int64_t>() < 0 || v.get<int64_t>() > kMaxCount)
    fail_input("{}/{}: a whole number from 0 to {} is wanted", at, key, kMaxCount);
  return v.get<int64_t>();
}

}  // namespace

JsonGrammar::JsonGrammar() {
  const Symbol digit = g_.bytes(byte_range('0', '9')), hex = g_.bytes(of_text("0123456789abcdefABCDEF"));
  auto b = [&](unsigned char first, unsigned char last) { return g_.bytes(byte_range(first, last)); };
  auto t = [&](std::string_view s) {
    Sequence q;
    g_.text(q, s);
    return q;
  };
  auto then = [](Sequence a, const Sequence& c) {
    a.insert(a.end(), c.begin(), c.end());
    return a;
  };
  // White space between tokens, little: a model that may write it for ever does.
  const Rule indent = repeat(g_.of({t(" ")}), 0, 16);
  ws_ = g_.of({{}, t(" "), {g_.bytes(one('\n')), Grammar::call(indent)}});

  const Symbol continuation = b(0x80, 0xBF);
  const ByteSet plain = byte_range(0x20, 0x7F) & ~of_text("\"\\");
  char_ = g_.of({{g_.bytes(plain)},
                 {b(0xC2, 0xDF), continuation},
                 {b(0xE0, 0xE0), b(0xA0, 0xBF), continuation},
                 {b(0xE1, 0xEC), continuation, continuation},
                 {b(0xED, 0xED), b(0x80, 0x9F), continuation},
                 {b(0xEE, 0xEF), continuation, continuation},
                 {b(0xF0, 0xF0), b(0x90, 0xBF), continuation, continuation},
                 {b(0xF1, 0xF3), continuation, continuation, continuation},
                 {b(0xF4, 0xF4), b(0x80, 0x8F), continuation, continuation},
                 {g_.bytes(one('\\')), g_.bytes(of_text("\"\\/bfnrt"))},
                 // No surrogates: half of a pair is no text.
                 {g_.bytes(one('\\')), g_.bytes(one('u')), g_.bytes(of_text("0123456789abcefABCEF")), hex, hex, hex},
                 {g_.bytes(one('\\')), g_.bytes(one('u')), g_.bytes(of_text("dD")), b('0', '7'), hex, hex}});
  const Rule chars = repeat(char_, 0, -1);
  string_ = g_.of({{g_.bytes(one('"')), Grammar::call(chars), g_.bytes(one('"'))}});
  const Rule digits = repeat(g_.of({{digit}}), 0, 15);
  const Rule natural = g_.of({t("0"), {b('1', '9'), Grammar::call(digits)}});
  integer_ = g_.of({{Grammar::call(natural)}, then(t("-"), {b('1', '9'), Grammar::call(digits)})});
  const Rule fraction = g_.of({{}, {g_.bytes(one('.')), digit, Grammar::call(digits)}});
  const Rule exponent = g_.of({{},
                               {g_.bytes(of_text("eE")), Grammar::call(g_.of({{}, t("+"), t("-")})), digit,
                                Grammar::call(g_.of({{}, {digit}}))}});
  const Rule sign = g_.of({{}, t("-")});
  number_ = g_.of({{Grammar::call(sign), Grammar::call(natural), Grammar::call(fraction), Grammar::call(exponent)}});
  boolean_ = g_.of({t("true"), t("false")});
  null_ = g_.of({t("null")});
  any_ = g_.add();
  const Rule pair = g_.of({{Grammar::call(string_), g_.bytes(one(':')), Grammar::call(ws_), Grammar::call(any_)}});
  const Rule pairs = list(pair, 0, -1), values = list(any_, 0, -1);
  object_ =
      g_.of({{g_.bytes(one('{')), Grammar::call(ws_), Grammar::call(pairs), Grammar::call(ws_), g_.bytes(one('}'))}});
  array_ =
      g_.of({{g_.bytes(one('[')), Grammar::call(ws_), Grammar::call(values), Grammar::call(ws_), g_.bytes(one(']'))}});
  for (Rule r : {object_, array_, string_, number_, boolean_, null_}) g_.choice(any_, {Grammar::call(r)});
}

Grammar JsonGrammar::take(Rule root) {
  g_.root = root;
  return std::move(g_);
}

void JsonGrammar::spend(size_t cells, const std::string& at) {
  if (g_.size() + cells > kMaxCells) fail_input("{}: the schema is too large", at);
}

JsonGrammar::Rule JsonGrammar::any_of(const std::vector<Rule>& rules) {
  const Rule r = g_.add();
  for (Rule x : rules) g_.choice(r, {Grammar::call(x)});
  return r;
}

JsonGrammar::Rule JsonGrammar::literal(std::string_view text) {
  spend(text.size(), "schema");
  Sequence s;
  g_.text(s, text);
  return g_.of({s});
}

JsonGrammar::Rule JsonGrammar::repeat(Rule element, int64_t least, int64_t most) {
  spend(static_cast<size_t>(3 * std::max(least, most)), "schema");
  Rule rest;
  if (most < 0) {
    rest = g_.add();
    g_.choice(rest, {});
    g_.choice(rest, {Grammar::call(element), Grammar::call(rest)});
  } else {
    rest = g_.of({{}});
    for (int64_t i = least; i < most; ++i) rest = g_.of({{}, {Grammar::call(element), Grammar::call(rest)}});
  }
  for (int64_t i = 0; i < least; ++i) rest = g_.of({{Grammar::call(element), Grammar::call(rest)}});
  return rest;
}

JsonGrammar::Rule JsonGrammar::list(Rule element, int64_t least, int64_t most) {
  const Rule next = g_.of({{g_.bytes(one(',')), Grammar::call(ws_), Grammar::call(element)}});
  if (most == 0) return g_.of({{}});
  const Rule rest = repeat(next, std::max<int64_t>(least - 1, 0), most < 0 ? -1 : most - 1);
  const Rule some = g_.of({{Grammar::call(element), Grammar::call(rest)}});
  return least == 0 ? g_.of({{}, {Grammar::call(some)}}) : some;
}

// Knuth, Morris, Pratt: one rule for each length of the tag that the text's end may be.
JsonGrammar::Rule JsonGrammar::until(std::string_view tag) {
  std::vector<Rule> at;
  for (size_t i = 0; i < tag.size(); ++i) at.push_back(g_.add());
  for (size_t i = 0; i < tag.size(); ++i) {
    std::map<size_t, ByteSet> to;
    for (int c = 0; c < 256; ++c) {
      const std::string seen = std::string(tag.substr(0, i)) + static_cast<char>(c);
      size_t n = std::min(seen.size(), tag.size());
      while (n > 0 && seen.compare(seen.size() - n, n, tag, 0, n) != 0) --n;
      to[n].set(static_cast<size_t>(c));
    }
    for (const auto& [n, set] : to) {
      if (n == tag.size())
        g_.choice(at[i], {g_.bytes(set)});
      else
        g_.choice(at[i], {g_.bytes(set), Grammar::call(at[n])});
    }
  }
  return at[0];
}

JsonGrammar::Rule JsonGrammar::any_object() { return object_; }

JsonGrammar::Rule JsonGrammar::schema(const OrderedJson& s) {
  document_ = &s;
  references_.clear();
  return value(s, "#", 0);
}

const OrderedJson& JsonGrammar::target(const std::string& ref, const std::string& at) const {
  if (!ref.starts_with("#")) fail_input("{}/$ref: {} is outside the schema", at, ref);
  try {
    const OrderedJson::json_pointer p(ref.substr(1));
    if (document_->contains(p)) return (*document_)[p];
  } catch (const OrderedJson::exception&) {
  }
  fail_input("{}/$ref: {} is not in the schema", at, ref);
}

JsonGrammar::Rule JsonGrammar::reference(const std::string& ref, const std::string& at, int depth) {
  if (const auto it = references_.find(ref); it != references_.end()) return it->second;
  const OrderedJson& to = target(ref, at);
  const Rule r = references_[ref] = g_.add();
  g_.choice(r, {Grammar::call(value(to, ref, depth + 1))});
  return r;
}

JsonGrammar::Rule JsonGrammar::value(const OrderedJson& s, const std::string& at, int depth) {
  if (depth > kMaxDepth) fail_input("{}: the schema is nested too deeply", at);
  spend(16, at);
  if (s.is_boolean()) {
    if (!s.get<bool>()) fail_input("{}: a schema that allows nothing", at);
    return any_;
  }
  if (!s.is_object()) fail_input("{}: a schema is an object", at);
  for (const auto& [key, v] : s.items())
    if (!is_annotation(key) && !kKeywords.contains(key)) fail_input("{}: the keyword \"{}\" is not supported", at, key);
  const bool nullable = s.contains("nullable");
  if (nullable && !s["nullable"].is_boolean()) fail_input("{}/nullable: true or false is wanted", at);
  // What stands beside $ref and anyOf holds as well: it becomes part of what they name.
  auto without = [&](const char* key) {
    OrderedJson rest = s;
    rest.erase(key);
    return rest;
  };
  auto demands = [](const OrderedJson& rest) {
    return std::any_of(rest.items().begin(), rest.items().end(), [](const auto& e) { return !is_annotation(e.key()); });
  };
  if (s.contains("$ref")) {
    if (!s["$ref"].is_string()) fail_input("{}/$ref: a text is wanted", at);
    const OrderedJson rest = without("$ref");
    if (!demands(rest)) return reference(s["$ref"].get<std::string>(), at, depth);
    return value(both(rest, target(s["$ref"].get<std::string>(), at), at), at, depth + 1);
  }
  if (s.contains("const")) return literal(spelled(s["const"]));
  if (s.contains("enum")) {
    if (!s["enum"].is_array() || s["enum"].empty()) fail_input("{}/enum: a list of values is wanted", at);
    std::vector<Rule> choices;
    for (const auto& v : s["enum"]) choices.push_back(literal(spelled(v)));
    return any_of(choices);
  }
  for (const char* key : {"anyOf", "oneOf"})
    if (s.contains(key)) {
      if (!s[key].is_array() || s[key].empty()) fail_input("{}/{}: a list of schemas is wanted", at, key);
      const OrderedJson rest = without(key);
      const bool beside = demands(rest);
      std::vector<Rule> choices;
      for (size_t i = 0; i < s[key].size(); ++i) {
        const std::string there = at + "/" + key + "/" + std::to_string(i);
        choices.push_back(beside ? value(both(rest, s[key][i], there), there, depth + 1)
                                 : value(s[key][i], there, depth + 1));
      }
      return any_of(choices);
    }
  if (s.contains("allOf")) {
    if (!s["allOf"].is_array() || s["allOf"].empty()) fail_input("{}/allOf: a list of schemas is wanted", at);
    OrderedJson merged = without("allOf");
    for (const auto& part : s["allOf"]) {
      const bool refers = part.is_object() && part.contains("$ref") && part["$ref"].is_string();
      OrderedJson own = part;
      if (refers) own.erase("$ref");
      if (refers) merged = both(merged, target(part["$ref"].get<std::string>(), at + "/allOf"), at + "/allOf");
      merged = both(merged, own, at + "/allOf");
    }
    return value(merged, at, depth + 1);
  }
  std::vector<Rule> choices;
  if (s.contains("type")) {
    const auto& t = s["type"];
    if (!t.is_string() && (!t.is_array() || t.empty())) fail_input("{}/type: a name or a list of names is wanted", at);
    for (const auto& name : t.is_array() ? t : OrderedJson::array({t})) {
      if (!name.is_string()) fail_input("{}/type: a name is wanted", at);
      choices.push_back(of_type(name.get<std::string>(), s, at, depth));
    }
  } else if (s.contains("properties") || s.contains("required") || s.contains("additionalProperties")) {
    choices.push_back(object(s, at, depth));
  } else if (s.contains("items") || s.contains("prefixItems")) {
    choices.push_back(array(s, at, depth));
  } else if (s.contains("pattern") || s.contains("minLength") || s.contains("maxLength") || s.contains("format")) {
    choices.push_back(string(s, at));
  } else {
    return any_;
  }
  if (nullable && s["nullable"].get<bool>()) choices.push_back(null_);
  return any_of(choices);
}

JsonGrammar::Rule JsonGrammar::of_type(const std::string& type, const OrderedJson& s, const std::string& at,
                                       int depth) {
  if (type == "object") return object(s, at, depth);
  if (type == "array") return array(s, at, depth);
  if (type == "string") return string(s, at);
  if (type == "integer") return integer(s, at);
  if (type == "number") return number(s, at);
  if (type == "boolean") return boolean_;
  if (type == "null") return null_;
  fail_input("{}/type: \"{}\" is no JSON type", at, type);
}

JsonGrammar::Rule JsonGrammar::object(const OrderedJson& s, const std::string& at, int depth) {
  const OrderedJson none = OrderedJson::object();
  const OrderedJson& properties = s.contains("properties") ? s["properties"] : none;
  if (!properties.is_object()) fail_input("{}/properties: an object is wanted", at);
  std::set<std::string> required;
  if (s.contains("required")) {
    if (!s["required"].is_array()) fail_input("{}/required: a list of names is wanted", at);
    for (const auto& r : s["required"]) {
      if (!r.is_string()) fail_input("{}/required: a list of names is wanted", at);
      if (!properties.contains(r.get<std::string>()))
        fail_input("{}/required: \"{}\" is not among the properties", at, r.get<std::string>());
      required.insert(r.get<std::string>());
    }
  }
  // Others: none beside declared properties unless the schema says so.
  Rule other = -1;
  if (s.contains("additionalProperties") ? s["additionalProperties"] != OrderedJson(false) : properties.empty()) {
    other = any_;
    if (s.contains("additionalProperties") && s["additionalProperties"].is_object())
      other = value(s["additionalProperties"], at + "/additionalProperties", depth + 1);
  }
  const Symbol comma = g_.bytes(one(',')), colon = g_.bytes(one(':')), ws = Grammar::call(ws_);
  // What may follow, from the last property to the first; [1]: something stands before, so a comma does too.
  Rule after[2];
  if (other >= 0) {
    const Rule pair = g_.of({{Grammar::call(string_), colon, ws, Grammar::call(other)}});
    const Rule more = repeat(g_.of({{comma, ws, Grammar::call(pair)}}), 0, -1);
    after[1] = more;
    after[0] = g_.of({{}, {Grammar::call(pair), Grammar::call(more)}});
  } else {
    after[0] = after[1] = g_.of({{}});
  }
  std::vector<std::pair<std::string, const OrderedJson*>> list;
  for (const auto& [name, p] : properties.items()) list.emplace_back(name, &p);
  for (size_t i = list.size(); i-- > 0;) {
    const auto& [name, p] = list[i];
    Sequence pair;
    const std::string key = spelled(OrderedJson(name));
    spend(2 * key.size(), at);
    g_.text(pair, key + ":");
    pair.push_back(ws);
    pair.push_back(Grammar::call(value(*p, at + "/properties/" + name, depth + 1)));
    const Rule written = g_.of({pair});
    Rule now[2];
    for (int before : {0, 1}) {
      Sequence take;
      if (before) take = {comma, ws};
      take.push_back(Grammar::call(written));
      take.push_back(Grammar::call(after[1]));
      now[before] = required.contains(name) ? g_.of({take}) : g_.of({take, {Grammar::call(after[before])}});
    }
    after[0] = now[0];
    after[1] = now[1];
  }
  return g_.of({{g_.bytes(one('{')), ws, Grammar::call(after[0]), ws, g_.bytes(one('}'))}});
}

JsonGrammar::Rule JsonGrammar::array(const OrderedJson& s, const std::string& at, int depth) {
  const int64_t least = count(s, "minItems", 0, at), most = count(s, "maxItems", -1, at);
  if (most >= 0 && most < least) fail_input("{}: maxItems is less than minItems", at);
  const Symbol ws = Grammar::call(ws_), comma = g_.bytes(one(','));
  Rule inside;
  if (s.contains("prefixItems")) {
    if (!s["prefixItems"].is_array()) fail_input("{}/prefixItems: a list of schemas is wanted", at);
    if (s.contains("items") && s["items"] != OrderedJson(false))
      fail_input("{}: items beside prefixItems is not supported", at);
    const size_t n = s["prefixItems"].size();
    if (least > static_cast<int64_t>(n))
      fail_input("{}/minItems: more than the {} of prefixItems is not supported", at, n);
    Sequence all;
    for (size_t i = 0; i < n && (most < 0 || static_cast<int64_t>(i) < most); ++i) {
      if (i > 0) all.insert(all.end(), {comma, ws});
      all.push_back(Grammar::call(value(s["prefixItems"][i], at + "/prefixItems/" + std::to_string(i), depth + 1)));
    }
    inside = g_.of({all});
  } else {
    inside = list(s.contains("items") ? value(s["items"], at + "/items", depth + 1) : any_, least, most);
  }
  return g_.of({{g_.bytes(one('[')), ws, Grammar::call(inside), ws, g_.bytes(one(']'))}});
}

JsonGrammar::Rule JsonGrammar::string(const OrderedJson& s, const std::string& at) {
  const Symbol quote = g_.bytes(one('"'));
  std::string regex;
  const char* from = s.contains("pattern") ? "pattern" : "format";
  if (s.contains("pattern")) {
    if (!s["pattern"].is_string()) fail_input("{}/pattern: a text is wanted", at);
    if (s.contains("format")) fail_input("{}: format beside pattern is not supported", at);
    regex = s["pattern"].get<std::string>();
  } else if (s.contains("format")) {
    if (!s["format"].is_string()) fail_input("{}/format: a text is wanted", at);
    regex = pattern_of_format(s["format"].get<std::string>());
    if (regex.empty()) fail_input("{}/format: \"{}\" is not supported", at, s["format"].get<std::string>());
  }
  const int64_t least = count(s, "minLength", 0, at), most = count(s, "maxLength", -1, at);
  if (most >= 0 && most < least) fail_input("{}: maxLength is less than minLength", at);
  if (!regex.empty()) {
    if (least > 0 || most >= 0) fail_input("{}: minLength and maxLength beside {} are not supported", at, from);
    try {
      return g_.of({{quote, Grammar::call(pattern(regex)), quote}});
    } catch (const Error& e) {
      fail_input("{}/{}: {}", at, from, e.what());
    }
  }
  if (least == 0 && most < 0) return string_;
  return g_.of({{quote, Grammar::call(repeat(char_, least, most)), quote}});
}

JsonGrammar::Rule JsonGrammar::after_thinking(Rule body, bool opened) {
  Sequence think;
  if (!opened) g_.text(think, "<think>");
  think.push_back(Grammar::call(until("</think>")));
  const Rule newlines = repeat(g_.of({{g_.bytes(one('\n'))}}), 0, 2);
  think.push_back(Grammar::call(newlines));
  think.push_back(Grammar::call(body));
  return opened ? g_.of({think}) : g_.of({think, {Grammar::call(body)}});
}

JsonGrammar::Rule JsonGrammar::tool_calls(const OrderedJson& tools, const std::string& only, ToolStyle style,
                                          bool single) {
  const Rule call = g_.add();
  for (const auto& tool : tools) {
    const auto& f = tool["function"];
    const std::string name = f["name"].get<std::string>();
    if (!only.empty() && name != only) continue;
    const OrderedJson empty = {
        {"type", "object"}, {"properties", OrderedJson::object()}, {"additionalProperties", false}};
    const OrderedJson& parameters = f.contains("parameters") && !f["parameters"].is_null() ? f["parameters"] : empty;
    document_ = &parameters;
    references_.clear();
    Sequence s;
    if (style == ToolStyle::kQwenCoder) {
      g_.text(s, "<tool_call>\n<function=" + name + ">\n");
      std::set<std::string> required;
      if (parameters.contains("required") && parameters["required"].is_array())
        for (const auto& r : parameters["required"])
          if (r.is_string()) required.insert(r.get<std::string>());
      if (parameters.contains("properties") && parameters["properties"].is_object())
        for (const auto& [key, p] : parameters["properties"].items()) {
          Sequence one_parameter;
          g_.text(one_parameter, "<parameter=" + key + ">\n");
          const bool text = p.is_object() && (!p.contains("type") || p["type"] == "string") && !p.contains("enum") &&
                            !p.contains("const");
          if (text) {
            one_parameter.push_back(Grammar::call(until("\n</parameter>")));
            g_.text(one_parameter, "\n");
          } else if (p.is_object() && p.contains("enum") && p["enum"].is_array()) {
            std::vector<Rule> choices;
            for (const auto& v : p["enum"])
              choices.push_back(literal(v.is_string() ? v.get<std::string>() : spelled(v)));
            one_parameter.push_back(Grammar::call(any_of(choices)));
            g_.text(one_parameter, "\n</parameter>\n");
          } else {
            one_parameter.push_back(Grammar::call(value(p, "#/properties/" + key, 0)));
            g_.text(one_parameter, "\n</parameter>\n");
          }
          const Rule written = g_.of({one_parameter});
          s.push_back(Grammar::call(required.contains(key) ? written : g_.of({{}, {Grammar::call(written)}})));
        }
      g_.text(s, "</function>\n</tool_call>");
    } else {
      g_.text(s, "<tool_call>\n{\"name\": " + spelled(OrderedJson(name)) + ", \"arguments\": ");
      s.push_back(Grammar::call(value(parameters, "#", 0)));
      g_.text(s, "}\n</tool_call>");
    }
    g_.choice(call, s);
  }
  if (single) return call;
  const Rule more = repeat(g_.of({{g_.bytes(one('\n')), Grammar::call(call)}}), 0, -1);
  return g_.of({{Grammar::call(call), Grammar::call(more)}});
}

}  // namespace mxt::serve

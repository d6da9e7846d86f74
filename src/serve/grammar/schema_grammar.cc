// A JSON schema as grammar rules. What stands beside something else holds as well: $ref, allOf and anyOf become one
// schema with it, values of enum and const are held against the rest, patterns, formats and lengths are intersected.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "serve/grammar/decimal.h"
#include "serve/grammar/json_grammar.h"
#include "serve/grammar/lookup.h"
#include "serve/output/schema_types.h"

namespace mxt::serve {
namespace {

constexpr int kMostNesting = 64;
constexpr int64_t kMaxCount = int64_t{1} << 31, kMaxCopies = 2'000'000;
constexpr size_t kMaxPermuted = 8;  // values of a list without repetition: one rule for each set of those used

const std::vector<std::string> kKeywords{"type",
                                         "enum",
                                         "const",
                                         "properties",
                                         "patternProperties",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies",
                                         "unevaluatedProperties",
                                         "unevaluatedItems",
                                         "propertyNames",
                                         "required",
                                         "additionalProperties",
                                         "minProperties",
                                         "maxProperties",
                                         "items",
                                         "prefixItems",
                                         "additionalItems",
                                         "minItems",
                                         "maxItems",
                                         "uniqueItems",
                                         "minLength",
                                         "maxLength",
                                         "pattern",
                                         "format",
                                         "minimum",
                                         "maximum",
                                         "exclusiveMinimum",
                                         "exclusiveMaximum",
                                         "multipleOf",
                                         "nullable",
                                         "anyOf",
                                         "oneOf",
                                         "allOf",
                                         "not",
                                         "if",
                                         "then",
                                         "else",
                                         "$ref"};

// Keywords that say something of values of one type alone.
JsonTypes implied(const OrderedJson& s) {
  static const std::vector<std::pair<JsonTypes, std::vector<const char*>>> kOf{
      {kObjectType,
       {"properties", "patternProperties", "propertyNames", "required", "additionalProperties", "minProperties",
        "maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"}},
      {kArrayType,
       {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "unevaluatedItems"}},
      {kStringType, {"minLength", "maxLength", "pattern", "format"}},
      {kNumberType, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};
  JsonTypes out = 0;
  for (const auto& [type, keys] : kOf)
    for (const char* key : keys)
      if (s.contains(key)) out |= type;
  return out;
}

bool demands(const OrderedJson& s) {
  return std::any_of(s.items().begin(), s.items().end(), [](const auto& e) { return !is_annotation(e.key()); });
}

int64_t nodes(const OrderedJson& j) {
  int64_t n = 1;
  if (j.is_structured())
    for (const auto& inner : j) n += nodes(inner);
  return n;
}

// A part that is merged with others: what it says of members that none of its own keywords speak of is said of those
// that it does not declare.
OrderedJson on_its_own(OrderedJson part, const std::string& at) {
  if (!part.is_object()) return part;
  for (const auto& [key, plain] : std::initializer_list<std::pair<const char*, const char*>>{
           {"unevaluatedProperties", "additionalProperties"}, {"unevaluatedItems", "items"}}) {
    if (!part.contains(key)) continue;
    for (const char* inner : {"allOf", "anyOf", "oneOf", "$ref", "dependentSchemas"})
      if (part.contains(inner)) fail_input("{}: \"{}\" beside \"{}\" is not supported here", at, key, inner);
    if (!part.contains(plain)) part[plain] = part[key];
    part.erase(key);
  }
  return part;
}

}  // namespace

bool null_is_listed(const OrderedJson& s) {
  if (s.contains("const") && !s["const"].is_null()) return false;
  const auto list = s.find("enum");
  return list == s.end() || !list->is_array() || std::find(list->begin(), list->end(), OrderedJson()) != list->end();
}

// What two schemas together are kept with is no keyword of theirs.
void refuse_ours(const OrderedJson& j) {
  if (j.is_object() && j.contains(kOfUndeclared))
    fail_input("the keyword {} is not supported", json_text(OrderedJson(kOfUndeclared)));
  if (j.is_structured())
    for (const auto& inner : j) refuse_ours(inner);
}

void in_order(int64_t least, int64_t most, const char* low, const char* high, const std::string& at) {
  if (most >= 0 && most < least) throw NothingLeft(fmt::format("{}: {} is less than {}", at, high, low));
}

int64_t count_of(const OrderedJson& s, const char* key, int64_t otherwise, int64_t most, const std::string& at) {
  if (!s.contains(key)) return otherwise;
  const auto d = decimal_of(s[key]);
  if (!d || d->negative || !d->is_whole()) fail_input("{}/{}: a whole number from 0 on is wanted", at, key);
  if (compare(*d, *decimal_of(OrderedJson(most))) <= 0) return std::stoll(d->whole);
  if (otherwise == 0) fail_input("{}/{}: no more than {} can be demanded", at, key, most);
  return -1;  // no answer comes near it
}

void JsonGrammar::begin(const OrderedJson& document) {
  refuse_ours(document);
  document_ = &document;
  references_.clear();
  merged_.clear();
}

JsonGrammar::Rule JsonGrammar::schema(const OrderedJson& s) {
  begin(s);
  copied_ = 0;
  return value(s, "#", 0);
}

// Copies are what a hostile schema could make much of.
OrderedJson JsonGrammar::copied(OrderedJson s, const std::string& at) {
  if ((copied_ += nodes(s)) > kMaxCopies) fail_input("{}: the schema is too large", at);
  return s;
}

OrderedJson JsonGrammar::without(const OrderedJson& s, std::initializer_list<const char*> keys, const std::string& at) {
  OrderedJson rest = copied(s, at);
  for (const char* key : keys) rest.erase(key);
  return rest;
}

const OrderedJson& JsonGrammar::target(const OrderedJson& ref, const std::string& at) const {
  if (!ref.is_string()) fail_input("{}/$ref: a text is wanted", at);
  const auto& name = ref.get_ref<const std::string&>();
  const OrderedJson* to = referred(*document_, name);
  if (!to && !name.starts_with("#")) fail_input("{}/$ref: {} is outside the schema", at, name);
  if (!to) fail_input("{}/$ref: {} is not in the schema", at, name);
  return *to;
}

// Through references with nothing beside them.
const OrderedJson& JsonGrammar::resolved(const OrderedJson& s) const {
  const OrderedJson* at = &s;
  for (int i = 0; i < kMostNesting && at->is_object() && at->contains("$ref"); ++i) {
    OrderedJson beside = *at;
    beside.erase("$ref");
    if (demands(beside)) break;
    at = &target((*at)["$ref"], "#");
  }
  return *at;
}

// A schema of allOf or beside a $ref, with its own references put in.
OrderedJson JsonGrammar::flat(OrderedJson s, const std::string& at) {
  for (int i = 0; s.is_object() && s.contains("$ref"); ++i) {
    if (i > kMostNesting) throw NothingLeft(fmt::format("{}: a $ref leads to itself", at));
    const OrderedJson& to = target(s["$ref"], at);
    s.erase("$ref");
    s = copied(both(s, to, at), at);
  }
  s = on_its_own(std::move(s), at);
  return s.is_object() && s.contains("if") ? conditional(s, at, 0) : s;
}

JsonGrammar::Rule JsonGrammar::reference(const std::string& ref, const OrderedJson& to, int depth) {
  const std::string key = in_form(ref);
  if (const auto it = references_.find(key); it != references_.end()) return it->second;
  const Rule r = references_[key] = g_.add();
  g_.choice(r, {Grammar::call(value(to, ref, depth + 1))});
  return r;
}

std::string JsonGrammar::in_form(const std::string& key) const {
  return form_ == Form::kJson ? key : fmt::format("{} {} {}", static_cast<int>(form_), others_, key);
}

// A merged schema meets itself again where it recurs: by its text.
JsonGrammar::Rule JsonGrammar::merged(const OrderedJson& s, const std::string& at, int depth) {
  const std::string key = in_form(spelled(s));
  if (const auto it = merged_.find(key); it != merged_.end()) return it->second;
  const Rule r = merged_[key] = g_.add();
  try {
    g_.choice(r, {Grammar::call(value(s, at, depth + 1))});
  } catch (const NothingLeft&) {
    merged_.erase(key);
    throw;
  }
  return r;
}

// Of several possibilities those that allow something.
JsonGrammar::Rule JsonGrammar::some(size_t n, const std::function<Rule(size_t)>& one, const std::string& at) {
  std::vector<Rule> choices;
  std::string why = at + ": a schema that allows nothing";
  for (size_t i = 0; i < n; ++i) try {
      choices.push_back(one(i));
    } catch (const NothingLeft& e) {
      why = e.what();
    }
  if (choices.empty()) throw NothingLeft(why);
  return any_of(choices);
}

JsonGrammar::Rule JsonGrammar::value(const OrderedJson& s, const std::string& at, int depth) {
  if (depth > kMostNesting) fail_input("{}: the schema is nested too deeply", at);
  spend(16, at);
  if (s.is_boolean()) {
    if (!s.get<bool>()) throw NothingLeft(at + ": a schema that allows nothing");
    return form_ == Form::kText ? free_text() : any_;
  }
  if (!s.is_object()) fail_input("{}: a schema is an object", at);
  for (const auto& [key, v] : s.items())
    if (!is_annotation(key) && key != kOfUndeclared &&
        std::find(kKeywords.begin(), kKeywords.end(), key) == kKeywords.end()) {
      const std::string near = nearest(key, kKeywords);
      fail_input("{}: the keyword \"{}\" is not supported{}", at, key, near.empty() ? "" : " (nearest: " + near + ")");
    }
  if (s.contains("nullable")) {
    if (!s["nullable"].is_boolean()) fail_input("{}/nullable: true or false is wanted", at);
    const OrderedJson rest = without(s, {"nullable"}, at);
    // Listed values stay all there are: null is one where it is listed (OpenAPI 3.0.3).
    if (!s["nullable"].get<bool>() || !null_is_listed(rest) || form_ == Form::kArguments)
      return value(rest, at, depth + 1);
    return some(2, [&](size_t i) { return i == 0 ? value(rest, at, depth + 1) : null_; }, at);
  }
  if (s.contains("$ref")) {
    const OrderedJson rest = without(s, {"$ref"}, at);
    const OrderedJson& to = target(s["$ref"], at);
    if (!demands(rest)) return reference(s["$ref"].get<std::string>(), to, depth);
    return merged(both(rest, flat(copied(to, at), at), at), at, depth);
  }
  if (s.contains("if") || s.contains("then") || s.contains("else")) return merged(conditional(s, at, depth), at, depth);
  if (s.contains("not") && !is_list_of_values(s["not"])) {
    const OrderedJson other = opposite(s["not"], at + "/not", depth);
    if (other.is_object() && other.contains("not") && other["not"] == s["not"])
      fail_input("{}/not: it leads to itself", at);
    return merged(copied(both(without(s, {"not"}, at), flat(other, at), at), at), at, depth);
  }
  if (s.contains("allOf")) {
    if (!s["allOf"].is_array() || s["allOf"].empty()) fail_input("{}/allOf: a list of schemas is wanted", at);
    OrderedJson all = without(s, {"allOf"}, at);
    for (const auto& part : s["allOf"])
      all = copied(both(all, flat(copied(part, at), at + "/allOf"), at + "/allOf"), at);
    return merged(all, at, depth);
  }
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"})
    if (s.contains(key)) return dependent(s, key, at, depth);
  for (const char* key : {"anyOf", "oneOf"})
    if (s.contains(key)) {
      if (!s[key].is_array() || s[key].empty()) fail_input("{}/{}: a list of schemas is wanted", at, key);
      const bool one_alone = key == std::string_view("oneOf");
      OrderedJson rest = without(s, {key}, at);
      if (one_alone && lists_values(rest)) rest = of_one(std::move(rest), s[key], at);
      const bool beside = demands(rest);
      return some(
          s[key].size(),
          [&](size_t i) {
            const std::string there = at + "/" + key + "/" + std::to_string(i);
            const bool lists = one_alone && lists_values(resolved(s[key][i]));
            const OrderedJson one = lists ? of_one(copied(resolved(s[key][i]), at), s[key], at) : s[key][i];
            if (!beside) return value(one, there, depth + 1);
            return merged(copied(both(rest, flat(copied(one, there), there), there), there), there, depth);
          },
          at);
    }
  if (s.contains("const") || s.contains("enum")) return listed(s, at);
  return typed(s, at, depth);
}

// A member that brings others with it: it is not there, or they hold as well.
JsonGrammar::Rule JsonGrammar::dependent(const OrderedJson& s, const std::string& key, const std::string& at,
                                         int depth) {
  if (!s[key].is_object()) fail_input("{}/{}: an object is wanted", at, key);
  OrderedJson rest = copied(s, at);
  if (s[key].empty()) {
    rest.erase(key);
    return value(rest, at, depth + 1);
  }
  const std::string name = s[key].begin().key();
  const OrderedJson brings = s[key].begin().value();
  rest[key].erase(name);
  if (rest[key].empty()) rest.erase(key);
  const OrderedJson absent{{"properties", {{name, false}}}};
  OrderedJson there{{"required", OrderedJson::array({name})}};
  if (brings.is_array())
    for (const auto& other : brings) there["required"].push_back(other);
  else
    there = both(there, flat(copied(brings, at), at), at);
  return some(2, [&](size_t i) { return merged(copied(both(rest, i == 0 ? absent : there, at), at), at, depth); }, at);
}

// A schema that lists values, in oneOf or beside it: those that exactly one branch allows.
OrderedJson JsonGrammar::of_one(OrderedJson s, const OrderedJson& branches, const std::string& at) {
  OrderedJson left = OrderedJson::array();
  Lookup seen;
  for (const auto& v : s.contains("const") ? OrderedJson::array({s["const"]}) : s["enum"])
    if (allows(s, v, at, 0, seen) &&
        std::count_if(branches.begin(), branches.end(), [&](const auto& b) { return allows(b, v, at, 0, seen); }) == 1)
      left.push_back(v);
  if (left.empty()) throw NothingLeft(at + "/oneOf: no listed value is one of one branch alone");
  s.erase("const");
  s["enum"] = std::move(left);
  return s;
}

// Those values of enum and const that everything beside them allows.
JsonGrammar::Rule JsonGrammar::listed(const OrderedJson& s, const std::string& at) {
  if (s.contains("enum") && (!s["enum"].is_array() || s["enum"].empty()))
    fail_input("{}/enum: a list of values is wanted", at);
  const OrderedJson values = s.contains("const") ? OrderedJson::array({s["const"]}) : s["enum"];
  const OrderedJson rest = without(
      s, s.contains("const") ? std::initializer_list<const char*>{"const"} : std::initializer_list<const char*>{"enum"},
      at);
  std::vector<Rule> choices;
  Lookup seen;
  for (const auto& v : values) {
    if (!allows(rest, v, at, 0, seen)) continue;
    if (form_ == Form::kArguments) fail_input("{}: whole lists of arguments in \"enum\" are not supported", at);
    if (form_ != Form::kText || !v.is_string())
      choices.push_back(literal(spelled(v)));
    else if (const auto text = listed_text(v.get<std::string>()))
      choices.push_back(*text);
  }
  if (choices.empty())
    throw NothingLeft(
        fmt::format("{}: no value of {} is what stands beside it demands", at, s.contains("const") ? "const" : "enum"));
  return any_of(choices);
}

JsonGrammar::Rule JsonGrammar::typed(const OrderedJson& s, const std::string& at, int depth) {
  if (s.contains("type")) {
    const auto& t = s["type"];
    if (!t.is_string() && (!t.is_array() || t.empty())) fail_input("{}/type: a name or a list of names is wanted", at);
    const OrderedJson names = t.is_array() ? t : OrderedJson::array({t});
    return some(
        names.size(),
        [&](size_t i) {
          if (!names[i].is_string()) fail_input("{}/type: a name is wanted", at);
          return of_type(names[i].get<std::string>(), s, at, depth);
        },
        at);
  }
  // No type said: the answer is one of the types that its keywords speak of.
  const JsonTypes types = implied(s);
  if (types == 0 && s.contains("not")) {
    OrderedJson any = copied(s, at);
    any["type"] = {"object", "array", "string", "number", "boolean", "null"};
    return typed(any, at, depth);
  }
  if (types == 0) return form_ == Form::kText ? free_text() : any_;
  std::vector<const char*> names;
  for (const auto& [type, name] : std::initializer_list<std::pair<JsonTypes, const char*>>{
           {kObjectType, "object"}, {kArrayType, "array"}, {kStringType, "string"}, {kNumberType, "number"}})
    if (types & type) names.push_back(name);
  return some(names.size(), [&](size_t i) { return of_type(names[i], s, at, depth); }, at);
}

JsonGrammar::Rule JsonGrammar::of_type(const std::string& type, const OrderedJson& s, const std::string& at,
                                       int depth) {
  if (s.contains("not"))  // of listed values: value() leaves nothing else
    return except(of_type(type, without(s, {"not"}, at), at, depth), type, s["not"].at("enum"), at);
  if (type == "object") return object(s, at, depth);
  if (type == "array") return array(s, at, depth);
  if (type == "string") return string(s, at);
  if (type == "integer") return integer(s, at);
  if (type == "number") return number(s, at);
  if (type == "boolean") return boolean_;
  if (type == "null") return null_;
  fail_input("{}/type: \"{}\" is no JSON type", at, type);
}

JsonGrammar::Rule JsonGrammar::string(const OrderedJson& s, const std::string& at) {
  const int64_t least = count_of(s, "minLength", 0, kMaxCount, at), most = count_of(s, "maxLength", -1, kMaxCount, at);
  in_order(least, most, "minLength", "maxLength", at);
  std::vector<Rule> all;
  auto hold = [&](const std::string& regex, const char* from) {
    try {
      all.push_back(pattern(regex));
    } catch (const NothingLeft& e) {
      throw NothingLeft(fmt::format("{}/{}: {}", at, from, e.what()));
    } catch (const Error& e) {
      fail_input("{}/{}: {}", at, from, e.what());
    }
  };
  if (s.contains("pattern")) {
    for (const auto& p : s["pattern"].is_array() ? s["pattern"] : OrderedJson::array({s["pattern"]})) {
      if (!p.is_string()) fail_input("{}/pattern: a text is wanted", at);
      hold(p.get<std::string>(), "pattern");
    }
  }
  if (s.contains("format")) {
    if (!s["format"].is_string()) fail_input("{}/format: a text is wanted", at);
    const auto& name = s["format"].get_ref<const std::string&>();
    // A pattern beside a name that is not known says what it means (zod's nanoid, ulid, e164 …).
    if (const auto regex = pattern_of_format(name, most); !regex && all.empty())
      fail_input("{}/format: \"{}\" is not supported", at, name);
    else if (regex && !regex->empty())
      hold(*regex, "format");
  }
  const bool text = form_ == Form::kText;
  if (all.empty() && text) {
    if (least == 0 && most < 0) return any_text(at);
    if (others_ < 0) return counted_text(least, most, at);
    all.push_back(repeat(text_char_, 0, -1));
  }
  if (all.empty()) {
    const Symbol quote = g_.bytes(byte_range('"', '"'));
    return least > 0 || most >= 0 ? g_.of({{quote, Grammar::call(repeat(char_, least, most)), quote}}) : string_;
  }
  Rule r = all[0];
  for (size_t i = 1; i < all.size(); ++i) r = intersection(r, all[i], at);
  if (text) r = as_text(r, at);
  return least > 0 || most >= 0 ? of_length(r, least, most, at) : r;
}

JsonGrammar::Rule JsonGrammar::array(const OrderedJson& given, const std::string& at, int depth) {
  const Within within(*this, Form::kJson);
  const OrderedJson s = on_its_own(given, at);
  const int64_t least = count_of(s, "minItems", 0, kMaxCount, at);
  int64_t most = count_of(s, "maxItems", -1, kMaxCount, at);
  in_order(least, most, "minItems", "maxItems", at);
  bool unique = false;
  if (s.contains("uniqueItems")) {
    if (!s["uniqueItems"].is_boolean()) fail_input("{}/uniqueItems: true or false is wanted", at);
    unique = s["uniqueItems"].get<bool>();
  }
  // A list as `items` is what prefixItems was called before 2020; what follows it was additionalItems.
  const bool old = s.contains("items") && s["items"].is_array();
  const OrderedJson none = OrderedJson::array();
  const OrderedJson& first = old ? s["items"] : s.contains("prefixItems") ? s["prefixItems"] : none;
  if (!first.is_array()) fail_input("{}/prefixItems: a list of schemas is wanted", at);
  const char* further = old ? "additionalItems" : "items";
  const auto n = static_cast<int64_t>(first.size());
  if (unique) {
    const int64_t longest = most_different(first, s.contains(further) ? s[further] : OrderedJson(true), at);
    if (least > longest) throw NothingLeft(at + ": minItems is more than there are different values");
    if (longest <= kMaxCount && (most < 0 || longest < most)) most = longest;
  }
  const Symbol ws = Grammar::call(ws_), comma = g_.bytes(byte_range(',', ','));
  Rule inside;
  if (n == 0 && unique && s.contains("items") && !finite(s["items"]).empty()) {
    inside = permutation(finite(s["items"]), least, most, at);
    unique = false;
  } else if (n == 0) {
    if (most == 0 || (s.contains("items") && s["items"] == OrderedJson(false))) {
      if (least > 0) throw NothingLeft(at + ": minItems of items that may not be");
      inside = g_.of({{}});
    } else if (!s.contains("items")) {
      inside = list(any_, least, most);
    } else if (least > 0) {
      inside = list(value(s["items"], at + "/items", depth + 1), least, most);
    } else {  // items that cannot be leave the empty list
      const Rule empty = g_.of({{}});
      inside = some(
          2, [&](size_t i) { return i == 0 ? list(value(s["items"], at + "/items", depth + 1), 1, most) : empty; }, at);
    }
  } else {
    std::vector<Rule> items;
    const int64_t wanted = most < 0 ? n : std::min(n, most);
    for (int64_t i = 0; i < wanted; ++i) try {
        const std::string there = fmt::format("{}/{}/{}", at, old ? "items" : "prefixItems", i);
        items.push_back(value(first[static_cast<size_t>(i)], there, depth + 1));
      } catch (const NothingLeft&) {  // the list ends before what cannot be
        if (least > i) throw;
        break;
      }
    Sequence all = tuple(items, unique ? first : none, least, at);
    const auto here = static_cast<int64_t>(items.size());
    // Nothing follows where nothing says what: a tuple.
    const bool more = here == n && (s.contains(further) ? s[further] != OrderedJson(false) : least > n);
    if (!more && least > n) throw NothingLeft(at + ": minItems is more than there may be");
    if (more && (most < 0 || most > n)) try {
        const Rule item = s.contains(further) ? value(s[further], at + "/" + further, depth + 1) : any_;
        const Rule next = g_.of({{comma, ws, Grammar::call(item)}});
        all.push_back(Grammar::call(repeat(next, std::max<int64_t>(least - n, 0), most < 0 ? -1 : most - n)));
      } catch (const NothingLeft&) {  // nothing follows
        if (least > n) throw;
      }
    inside = g_.of({all});
  }
  Symbol open = g_.bytes(byte_range('[', '['));
  if (unique) open.distinct = Distinct::kElements;
  return g_.of({{open, ws, Grammar::call(inside), ws, g_.bytes(byte_range(']', ']'))}});
}

// The texts of all values where they are few; empty where they are many.
std::vector<std::string> JsonGrammar::finite(const OrderedJson& schema) const {
  const OrderedJson& s = resolved(schema);
  std::set<std::string> texts;
  if (!s.is_object() || s.contains("not")) return {};
  OrderedJson values;
  if (s.contains("enum"))
    values = s["enum"];
  else if (s.contains("const"))
    values = OrderedJson::array({s["const"]});
  else if (s.contains("type") && s["type"] == "boolean")
    values = {false, true};
  else if (s.contains("type") && s["type"] == "null")
    values = OrderedJson::array({nullptr});
  if (!values.is_array() || values.size() > kMaxPermuted) return {};
  ValueSet different;  // 1 and 1.0 are one value
  Lookup seen;
  for (const auto& v : values)
    if (allows(s, v, "#", 0, seen) && different.insert(v)) texts.insert(spelled(v));
  return {texts.begin(), texts.end()};
}

// One of each of `items`, all different where `schemas` says what they are: then a rule for each place and each set of
// the few values that stand already, so that no choice leaves a later place without one. What comes after a place that
// can have none is taken from `items`.
Grammar::Sequence JsonGrammar::tuple(std::vector<Rule>& items, const OrderedJson& schemas, int64_t least,
                                     const std::string& at) {
  const Symbol ws = Grammar::call(ws_), comma = g_.bytes(byte_range(',', ','));
  const auto item = [&](size_t place, Rule r) {
    return place > 0 ? Sequence{comma, ws, Grammar::call(r)} : Sequence{Grammar::call(r)};
  };
  std::vector<std::string> texts;
  std::vector<std::vector<size_t>> few(items.size());  // numbers of texts; of a place with many values none
  for (size_t i = 0; i < items.size() && i < schemas.size(); ++i)
    for (const std::string& text : finite(schemas[i])) {
      const auto at_text = std::find(texts.begin(), texts.end(), text);
      few[i].push_back(static_cast<size_t>(at_text - texts.begin()));
      if (at_text == texts.end()) texts.push_back(text);
    }
  Sequence all;
  if (texts.empty() || texts.size() > kMaxPermuted) {
    for (size_t i = 0; i < items.size(); ++i)
      for (const Symbol& symbol : item(i, items[i])) all.push_back(symbol);
    return all;
  }
  std::vector<Rule> written;
  for (const std::string& text : texts) written.push_back(literal(text));
  std::map<size_t, Rule> after{{0, g_.add()}};  // by the set of texts that stand already
  all = {Grammar::call(after[0])};
  for (size_t i = 0; i < items.size(); ++i) {
    std::map<size_t, Rule> next;
    const auto go = [&](Rule from, Rule what, size_t used) {
      const auto [to, is_new] = next.try_emplace(used, -1);
      if (is_new) to->second = g_.add();
      Sequence s = item(i, what);
      s.push_back(Grammar::call(to->second));
      spend(s.size() + 1, at);
      g_.choice(from, s);
    };
    for (const auto& [used, rule] : after) {
      if (few[i].empty()) go(rule, items[i], used);
      for (const size_t v : few[i])
        if (!(used >> v & 1)) go(rule, written[v], used | size_t{1} << v);
    }
    if (next.empty()) {
      if (least > static_cast<int64_t>(i)) throw NothingLeft(at + ": its first items have no different values");
      items.resize(i);
      break;
    }
    after = std::move(next);
  }
  for (const auto& [used, rule] : after) g_.choice(rule, {});
  return all;
}

// Some of `values`, each at most once, in any order: one rule for each set of those that stand already.
JsonGrammar::Rule JsonGrammar::permutation(const std::vector<std::string>& values, int64_t least, int64_t most,
                                           const std::string& at) {
  const size_t n = values.size(), sets = size_t{1} << n;
  if (least > static_cast<int64_t>(n)) throw NothingLeft(at + ": minItems is more than there are different values");
  spend(sets * n * 5, at);
  std::vector<Rule> after, written;
  for (size_t used = 0; used < sets; ++used) after.push_back(g_.add());
  for (const auto& v : values) written.push_back(literal(v));
  const Symbol ws = Grammar::call(ws_), comma = g_.bytes(byte_range(',', ','));
  for (size_t used = 0; used < sets; ++used) {
    const auto count_used = static_cast<int64_t>(__builtin_popcountll(used));
    if (count_used >= least) g_.choice(after[used], {});
    if (most >= 0 && count_used >= most) continue;
    for (size_t i = 0; i < n; ++i) {
      if (used >> i & 1) continue;
      Sequence next;
      if (used) next = {comma, ws};
      next.push_back(Grammar::call(written[i]));
      next.push_back(Grammar::call(after[used | size_t{1} << i]));
      g_.choice(after[used], next);
    }
  }
  return after[0];
}

}  // namespace mxt::serve

// Objects: declared members in their order, others behind them, how many there are.
#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "serve/grammar/json_grammar.h"
#include "serve/grammar/lookup.h"

namespace mxt::serve {
namespace {

constexpr int64_t kMaxMembers = 4096;
constexpr size_t kMaxPatterns = 6;  // each is held apart from each other

}  // namespace

// A text that is none of `names`: a tree of their bytes, left at any point. Written without escapes, so that no name
// comes in disguise.
JsonGrammar::Rule JsonGrammar::other_than(const std::vector<std::string>& names) {
  const Symbol quote = g_.bytes(byte_range('"', '"'));
  const Rule any = repeat(plain_char_, 0, -1), inside = g_.add();
  struct Node {
    std::map<unsigned char, size_t> next;
    bool whole = false, wide = true;  // a name ends here; a character beyond ASCII may follow
  };
  std::vector<Node> tree(1);
  for (const auto& name : names) {
    if (name.find('\\') != std::string::npos) continue;  // cannot be written here at all
    size_t at = 0;
    bool ascii = true;
    for (const char c : name) {
      if (static_cast<unsigned char>(c) >= 0x80) {  // no other such character at this place: less than could be
        tree[at].wide = ascii = false;
        break;
      }
      const auto [it, fresh] = tree[at].next.emplace(static_cast<unsigned char>(c), tree.size());
      const size_t to = it->second;
      if (fresh) tree.emplace_back();
      at = to;
    }
    tree[at].whole = tree[at].whole || ascii;
  }
  spend(tree.size() * 16, "schema");
  std::vector<Rule> rules;
  for (size_t i = 0; i < tree.size(); ++i) rules.push_back(i == 0 ? inside : g_.add());
  for (size_t i = 0; i < tree.size(); ++i) {
    if (!tree[i].whole) g_.choice(rules[i], {});
    ByteSet others = byte_range(0x20, 0x7F) & ~byte_range('"', '"') & ~byte_range('\\', '\\');
    for (const auto& [byte, to] : tree[i].next) {
      others.reset(byte);
      g_.choice(rules[i], {g_.bytes(byte_range(byte, byte)), Grammar::call(rules[to])});
    }
    if (others.any()) g_.choice(rules[i], {g_.bytes(others), Grammar::call(any)});
    if (tree[i].wide) g_.choice(rules[i], {Grammar::call(wide_char_), Grammar::call(any)});
  }
  return g_.of({{quote, Grammar::call(inside), quote}});
}

// Keys and values of members that are not declared; none where there may be none. `closed`: nor where the schema says
// nothing of them.
std::vector<std::pair<JsonGrammar::Rule, JsonGrammar::Rule>> JsonGrammar::others(const OrderedJson& s,
                                                                                 const std::vector<std::string>& names,
                                                                                 bool closed, const std::string& at,
                                                                                 int depth) {
  std::vector<std::pair<Rule, Rule>> out;
  const bool patterns = s.contains("patternProperties");
  const bool open =
      s.contains("additionalProperties") ? s["additionalProperties"] != OrderedJson(false) : !closed && !patterns;
  // Names are compared with patterns as they are written: each in one way alone.
  Rule key = names.empty() && !patterns ? string_ : other_than(names);
  std::vector<Rule> named;  // what each pattern names
  if (s.contains("propertyNames")) {
    const OrderedJson text{{"type", "string"}};
    const Rule allowed = value(both(text, flat(s["propertyNames"], at), at), at + "/propertyNames", depth + 1);
    key = names.empty() ? allowed : intersection(allowed, key, at);
  }
  if (patterns) {
    const auto& p = s["patternProperties"];
    if (!p.is_object()) fail_input("{}/patternProperties: an object is wanted", at);
    const std::string there = at + "/patternProperties";
    for (const auto& [regex, v] : p.items()) named.push_back(string(OrderedJson{{"pattern", regex}}, there));
    size_t i = 0;
    for (const auto& [regex, v] : p.items()) {
      try {
        Rule mine = intersection(named[i], key, at);
        for (size_t k = 0; k < named.size(); ++k)
          if (k != i) mine = intersection(mine, named[k], at, true);
        const bool more = s.contains(kOfUndeclared) && s[kOfUndeclared].contains(regex);
        const std::string of = there + "/" + regex;
        if (more)
          out.emplace_back(mine,
                           merged(copied(both(flat(v, of), flat(s[kOfUndeclared][regex], of), of), of), of, depth));
        else
          out.emplace_back(mine, value(v, of, depth + 1));
      } catch (const NothingLeft&) {  // no such member can be
      }
      ++i;
    }
  }
  if (!open) return out;
  const bool any = !s.contains("additionalProperties") || s["additionalProperties"] == OrderedJson(true);
  try {
    for (const Rule of_pattern : named) key = intersection(key, of_pattern, at, true);
    out.emplace_back(key, any ? any_ : value(s["additionalProperties"], at + "/additionalProperties", depth + 1));
  } catch (const NothingLeft&) {  // those that patterns name alone
  }
  return out;
}

// A declared member's schema with those of the patterns that match its name.
OrderedJson JsonGrammar::declared(const OrderedJson& s, const std::string& name, const OrderedJson& own,
                                  const std::string& at) {
  OrderedJson all = own;
  if (!s.contains("patternProperties") || !s["patternProperties"].is_object()) return all;
  for (const auto& [regex, v] : s["patternProperties"].items()) {
    if (!matches(regex, OrderedJson(name), at + "/patternProperties")) continue;
    const std::string there = at + "/properties/" + name;
    try {
      all = both(flat(copied(all, there), there), flat(copied(v, there), there), there);
    } catch (const NothingLeft&) {
      all = false;
    }
  }
  return all;
}

JsonGrammar::Rule JsonGrammar::object(const OrderedJson& given, const std::string& at, int depth) {
  const bool arguments = form_ == Form::kArguments;
  const Within within(*this, arguments ? Form::kArguments : Form::kJson);
  OrderedJson s = given;
  if (s.contains("unevaluatedProperties")) {  // all that is evaluated has been made part of this by now
    if (!s.contains("additionalProperties")) s["additionalProperties"] = s["unevaluatedProperties"];
    s.erase("unevaluatedProperties");
  }
  const OrderedJson none = OrderedJson::object();
  const OrderedJson& properties = s.contains("properties") ? s["properties"] : none;
  if (!properties.is_object()) fail_input("{}/properties: an object is wanted", at);
  // Before any is held against the names of members.
  if (s.contains("patternProperties") && s["patternProperties"].size() > kMaxPatterns)
    fail_input("{}/patternProperties: more than {} patterns", at, kMaxPatterns);
  const int64_t least = count_of(s, "minProperties", 0, kMaxMembers, at),
                most = count_of(s, "maxProperties", -1, kMaxMembers, at);
  in_order(least, most, "minProperties", "maxProperties", at);
  std::vector<std::pair<std::string, const OrderedJson*>> list;
  std::deque<OrderedJson> schemas;
  for (const auto& [name, p] : properties.items())
    list.emplace_back(name, &schemas.emplace_back(declared(s, name, p, at)));
  std::set<std::string> required;
  const Members declared_there(properties);
  const OrderedJson undeclared = s.contains("additionalProperties") ? s["additionalProperties"] : OrderedJson(true);
  if (s.contains("required")) {
    if (!s["required"].is_array()) fail_input("{}/required: a list of names is wanted", at);
    for (const auto& r : s["required"]) {
      if (!r.is_string()) fail_input("{}/required: a list of names is wanted", at);
      const auto name = r.get<std::string>();
      // Demanded without being declared: what additional members are.
      if (!required.insert(name).second || declared_there.find(name)) continue;
      list.emplace_back(name, &schemas.emplace_back(declared(s, name, of_undeclared(s, name, at), at)));
    }
  }
  std::vector<std::string> few;       // names that may be, where they are few
  if (s.contains("propertyNames")) {  // it speaks of declared names, too
    const OrderedJson& allowed = resolved(s["propertyNames"]);
    Lookup seen;
    std::erase_if(list, [&](const auto& member) {
      const bool fine = allows(allowed, OrderedJson(member.first), at + "/propertyNames", 0, seen);
      if (!fine && required.contains(member.first))
        throw NothingLeft(fmt::format("{}: \"{}\" is required, and propertyNames does not allow it", at, member.first));
      return !fine;
    });
    few = finite(s["propertyNames"]);
    std::erase_if(few, [](const std::string& name) { return !name.starts_with('"'); });  // names are texts
    if (!few.empty() && least > static_cast<int64_t>(few.size()))
      throw NothingLeft(at + ": minProperties is more than propertyNames has names");
  }
  std::vector<std::string> names;
  for (const auto& [name, p] : list) names.push_back(spelled(OrderedJson(name)));
  for (auto& n : names) n = n.substr(1, n.size() - 2);

  const int64_t others_at_most = few.empty() ? -1 : std::count_if(few.begin(), few.end(), [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name.substr(1, name.size() - 2)) == names.end();
  });

  // Beside declared members there are others only where the schema says so; one that may not be there ("not", "if" and
  // dependentRequired make such) declares nothing.
  const bool closed =
      std::any_of(list.begin(), list.end(), [](const auto& member) { return *member.second != OrderedJson(false); });

  const Symbol comma = g_.bytes(byte_range(',', ',')), colon = g_.bytes(byte_range(':', ':')), ws = Grammar::call(ws_);
  std::vector<Rule> pairs;
  if (arguments) {
    // Names that a schema does not declare are left out, but where it declares none and says nothing of them.
    const bool open =
        undeclared == OrderedJson(true) && !s.contains("patternProperties") && !s.contains("propertyNames");
    if (open && list.empty() && most != 0) pairs.push_back(any_argument());
  } else if (most != 0)
    try {
      for (const auto& [key, v] : others(s, names, closed, at, depth))
        pairs.push_back(g_.of({{Grammar::call(key), colon, ws, Grammar::call(v)}}));
    } catch (const NothingLeft&) {  // no other member can be
    }
  const Rule pair = pairs.empty() ? -1 : any_of(pairs);
  // after[c]: what may follow where c members stand before, from the last to the first. Beyond the last count that
  // matters they are not counted; whether there is one at all decides on the comma.
  const int64_t last = most >= 0 ? most : std::max<int64_t>(least, 1);
  spend(static_cast<size_t>((last + 1) * static_cast<int64_t>(list.size() + 1) * 6), at);
  std::vector<Rule> after;
  for (int64_t c = 0; c <= last; ++c) {
    const int64_t fewest = std::max<int64_t>(least - c, 0), left = most < 0 ? others_at_most : most - c;
    const int64_t room = others_at_most < 0 ? left : std::min(left, others_at_most);
    if (pair < 0 || (room >= 0 && fewest > room))
      after.push_back(fewest == 0 ? g_.of({{}}) : g_.add());
    else if (arguments)
      after.push_back(repeat(pair, fewest, room));
    else if (c == 0)
      after.push_back(this->list(pair, fewest, room));
    else
      after.push_back(repeat(g_.of({{comma, ws, Grammar::call(pair)}}), fewest, room));
  }
  for (size_t i = list.size(); i-- > 0;) {
    const auto& [name, p] = list[i];
    const bool demanded = required.contains(name);
    Rule written = -1;
    try {
      const std::string there = at + "/properties/" + name;
      if (arguments) {
        written = argument(name, *p, there, depth + 1);
      } else {
        Sequence one;
        spend(2 * names[i].size(), at);
        g_.text(one, "\"" + names[i] + "\":");
        one.push_back(ws);
        one.push_back(Grammar::call(value(*p, there, depth + 1)));
        written = g_.of({one});
      }
    } catch (const NothingLeft&) {
      if (demanded) throw;
      continue;  // it cannot be there
    }
    std::vector<Rule> now;
    for (int64_t c = 0; c <= last; ++c) {
      const Rule r = g_.add();
      if (!demanded) g_.choice(r, {Grammar::call(after[static_cast<size_t>(c)])});
      if (most < 0 || c < most) {
        Sequence take;
        if (c > 0 && !arguments) take = {comma, ws};
        take.insert(take.end(),
                    {Grammar::call(written), Grammar::call(after[static_cast<size_t>(std::min(c + 1, last))])});
        g_.choice(r, take);
      }
      now.push_back(r);
    }
    after = std::move(now);
  }
  if (arguments) return after[0];
  Symbol open = g_.bytes(byte_range('{', '{'));
  if (pair >= 0) open.distinct = Distinct::kKeys;
  return g_.of({{open, ws, Grammar::call(after[0]), ws, g_.bytes(byte_range('}', '}'))}});
}

}  // namespace mxt::serve

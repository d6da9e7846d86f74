// JSON Schema and tool calls as grammars. What a schema demands and the grammar cannot hold an answer to is refused,
// never dropped.
//   types, enum, const, properties in their order, required, additionalProperties (absent beside properties: none),
//   items, prefixItems, min/maxItems, min/maxLength, pattern, format (date, time, date-time, duration, email, hostname,
//   ipv4, ipv6, uri, uuid), minimum/maximum, anyOf, oneOf (as anyOf), allOf, $ref inside the document, and what stands
//   beside these three.
#pragma once

#include <string>

#include "base/json.h"
#include "serve/grammar/grammar.h"
#include "serve/output/parsers.h"

namespace mxt::serve {

bool is_annotation(const std::string& keyword);  // says nothing of what is valid
// What two schemas demand together, as one; what cannot be said so is an error.
OrderedJson both(const OrderedJson& a, const OrderedJson& b, const std::string& at);
// Empty where the format is not known.
std::string pattern_of_format(const std::string& format);

class JsonGrammar {
 public:
  JsonGrammar();
  using Rule = Grammar::Rule;
  Rule any_object();
  // Errors (kBadInput) name the place in the schema.
  Rule schema(const OrderedJson& schema);
  // `one`: exactly one call, else one or more.
  Rule tool_calls(const OrderedJson& tools, const std::string& only, ToolStyle style, bool one);
  // Reasoning that ends in </think>, then `body`. `opened`: the prompt has the <think> already; else the reasoning may
  // be left out.
  Rule after_thinking(Rule body, bool opened);
  Rule pattern(const std::string& regex);  // inside a JSON string
  Grammar take(Rule root);

 private:
  using Symbol = Grammar::Symbol;
  using Sequence = Grammar::Sequence;
  Rule value(const OrderedJson& s, const std::string& at, int depth);
  Rule object(const OrderedJson& s, const std::string& at, int depth);
  Rule array(const OrderedJson& s, const std::string& at, int depth);
  Rule string(const OrderedJson& s, const std::string& at);
  Rule integer(const OrderedJson& s, const std::string& at);
  Rule number(const OrderedJson& s, const std::string& at);
  Rule of_type(const std::string& type, const OrderedJson& s, const std::string& at, int depth);
  Rule reference(const std::string& ref, const std::string& at, int depth);
  Rule repeat(Rule element, int64_t least, int64_t most);  // most −1: without end
  Rule list(Rule element, int64_t least, int64_t most);    // with commas
  Rule literal(std::string_view text);
  Rule until(std::string_view tag);  // text up to the tag and the tag
  Rule any_of(const std::vector<Rule>& rules);
  Rule between(uint64_t low, uint64_t high);            // decimal numbers of that range
  struct Bound;                                         // of a number with a fraction
  Rule magnitude(const Bound& low, const Bound& high);  // both ≥ 0
  const OrderedJson& target(const std::string& ref, const std::string& at) const;
  void spend(size_t cells, const std::string& at);

  Grammar g_;
  const OrderedJson* document_ = nullptr;
  std::map<std::string, Rule> references_;
  Rule ws_, char_, string_, integer_, number_, boolean_, null_, any_, object_, array_;
};

}  // namespace mxt::serve

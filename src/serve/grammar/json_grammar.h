// JSON Schema and tool calls as grammars. What a schema demands and the grammar cannot hold an answer to is refused,
// never dropped; what it only remarks (is_annotation) is left alone.
//   types (without one: those that the keywords speak of), enum and const with all that stands beside them, properties
//   in their order, required, additionalProperties (absent beside properties: none), patternProperties (a name that two
//   of them match is left out), propertyNames, min/maxProperties, dependentRequired, dependentSchemas,
//   unevaluatedProperties, items, prefixItems, min/maxItems, uniqueItems, min/maxLength, pattern, format
//   (formats.cc), minimum/maximum (of any size), multipleOf, anyOf, oneOf (as anyOf, but for values that are listed),
//   allOf, not and if of what has an opposite (schema_not.cc), nullable, $ref inside the document (pointers, anchors),
//   and what stands beside these.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "serve/grammar/grammar.h"
#include "serve/output/parsers.h"
#include "serve/output/schema_types.h"

namespace mxt::serve {

struct Lookup;

bool is_annotation(const std::string& keyword);     // says nothing of what is valid
bool lists_values(const OrderedJson& schema);       // "enum" or "const"
bool is_list_of_values(const OrderedJson& schema);  // "enum" and nothing else
// What is said of members that a pattern names and no "properties" declares, by pattern: of two schemas together the
// one may have the pattern, and the other demand something of all members that it does not declare itself.
constexpr const char* kOfUndeclared = "\x01patternProperties";
// A schema, or a part of one, that no value satisfies.
class NothingLeft : public Error {
 public:
  explicit NothingLeft(const std::string& message) : Error(Exit::kBadInput, message) {}
};
// Whether a text is what a pattern demands; false where the pattern is none that a grammar holds.
bool pattern_matches(const std::string& regex, const std::string& text);
// "": it says nothing of the text. Nothing: it is not known.
// `most`: where only so many characters are wanted (−1: any number), so that there are not many more.
std::optional<std::string> pattern_of_format(const std::string& format, int64_t most = -1);

// A count that a schema states: minItems and the like; `otherwise` where it does not (0: a least one, −1: a most).
// More than `most` is an error, or as good as no limit.
int64_t count_of(const OrderedJson& s, const char* key, int64_t otherwise, int64_t most, const std::string& at);

// NothingLeft where a most lies below its least; −1: none.
void in_order(int64_t least, int64_t most, const char* low, const char* high, const std::string& at);
// Whether null is among the values that a schema lists, or it lists none.
bool null_is_listed(const OrderedJson& schema);

class JsonGrammar {
 public:
  JsonGrammar();
  using Rule = Grammar::Rule;
  Rule any_object();
  // Errors (kBadInput) name the place in the schema.
  Rule schema(const OrderedJson& schema);
  // `one`: exactly one call, else one or more.
  Rule tool_calls(const OrderedJson& tools, const std::string& only, ToolStyle style, bool one);
  Rule any_of(const std::vector<Rule>& rules);  // one of them
  // Reasoning that ends in </think>, then `body`. `opened`: the prompt has the <think> already; else the reasoning may
  // be left out.
  Rule after_thinking(Rule body, bool opened);
  // A JSON string that it matches (an argument's text: that text). Errors (kBadInput) do not name a place.
  Rule pattern(const std::string& regex);
  Grammar take(Rule root);

  static constexpr int64_t kManyValues = int64_t{1} << 60;

 private:
  using Symbol = Grammar::Symbol;
  using Sequence = Grammar::Sequence;
  // How the value at hand is written: as JSON; as the arguments of a call, each between tags; as one of these, where a
  // text has no quotation marks.
  enum class Form : uint8_t { kJson, kArguments, kText };
  // The form for as long as this lives.
  class Within {
   public:
    Within(JsonGrammar& g, Form form, Rule others = -1) : g_(g), form_(g.form_), others_(g.others_) {
      g.form_ = form;
      g.others_ = others;
    }
    ~Within() {
      g_.form_ = form_;
      g_.others_ = others_;
    }
    Within(const Within&) = delete;

   private:
    JsonGrammar& g_;
    Form form_;
    Rule others_;
  };
  std::string in_form(const std::string& key) const;  // of what is kept, which differs by form
  void begin(const OrderedJson& document);
  Rule value(const OrderedJson& s, const std::string& at, int depth);
  Rule typed(const OrderedJson& s, const std::string& at, int depth);
  Rule listed(const OrderedJson& s, const std::string& at);
  Rule dependent(const OrderedJson& s, const std::string& key, const std::string& at, int depth);
  OrderedJson of_one(OrderedJson s, const OrderedJson& branches, const std::string& at);
  // What two schemas demand together, as one; what cannot be said so is an error, a contradiction NothingLeft.
  OrderedJson both(const OrderedJson& a, const OrderedJson& b, const std::string& at) const;
  OrderedJson both_or_none(const OrderedJson& a, const OrderedJson& b, const std::string& at) const;
  OrderedJson combinations(const OrderedJson& a, const OrderedJson& b, const std::string& at) const;
  OrderedJson common_members(const OrderedJson& a, const OrderedJson& b, const std::string& at) const;
  OrderedJson of_undeclared(const OrderedJson& s, const std::string& name, const std::string& at) const;
  void hold_others(OrderedJson& all, const OrderedJson& one, const OrderedJson& other, const std::string& at) const;
  void hold_first(OrderedJson& all, const OrderedJson& a, const OrderedJson& b, const std::string& at) const;
  Rule merged(const OrderedJson& s, const std::string& at, int depth);
  Rule some(size_t n, const std::function<Rule(size_t)>& one, const std::string& at);
  OrderedJson opposite(OrderedJson s, const std::string& at, int depth);
  OrderedJson conditional(const OrderedJson& s, const std::string& at, int depth);
  Rule except(Rule of, const std::string& type, const OrderedJson& values, const std::string& at);
  Rule other_than(const std::vector<std::string>& names);  // as JSON spells them, without the quotes
  std::vector<std::pair<Rule, Rule>> others(const OrderedJson& s, const std::vector<std::string>& names, bool closed,
                                            const std::string& at, int depth);
  OrderedJson declared(const OrderedJson& s, const std::string& name, const OrderedJson& own, const std::string& at);
  Rule object(const OrderedJson& given, const std::string& at, int depth);
  Rule array(const OrderedJson& given, const std::string& at, int depth);
  Rule string(const OrderedJson& s, const std::string& at);
  Rule integer(const OrderedJson& s, const std::string& at);
  Rule number(const OrderedJson& s, const std::string& at);
  Rule of_type(const std::string& type, const OrderedJson& s, const std::string& at, int depth);
  Rule reference(const std::string& ref, const OrderedJson& to, int depth);
  Rule exactly(Rule element, int64_t n);
  Rule up_to(Rule element, int64_t n);
  Rule repeat(Rule element, int64_t least, int64_t most);  // most −1: without end
  Rule list(Rule element, int64_t least, int64_t most);    // with commas
  // schema_values.cc: how many values a schema has at most, how long a list of different elements may be.
  int64_t most_values(const OrderedJson& s, const std::string& at, int& parts) const;
  int64_t most_different(const OrderedJson& first, const OrderedJson& further, const std::string& at) const;
  std::vector<std::string> finite(const OrderedJson& schema) const;
  Sequence tuple(std::vector<Rule>& items, const OrderedJson& schemas, int64_t least, const std::string& at);
  Rule permutation(const std::vector<std::string>& values, int64_t least, int64_t most, const std::string& at);
  Automaton machine(Rule root) const;
  // What both rules match, or what the first alone does; they must not recur. Only what can still come to an end is
  // kept.
  Rule intersection(Rule a, Rule b, const std::string& at, bool without = false);
  // Those JSON strings of a rule that have so many characters (most −1: any number). Where counting all of them would
  // take too much, the longest are left out.
  Rule of_length(Rule r, int64_t least, int64_t most, const std::string& at);
  Rule multiples(const OrderedJson& s, const std::string& at);
  Rule literal(std::string_view text);
  Rule until(std::string_view tag);  // text up to the tag and the tag
  // text_form.cc
  Rule free_text();
  Rule counted_text(int64_t least, int64_t most, const std::string& at);
  Rule other_values(JsonTypes types);
  Rule any_text(const std::string& at);
  std::optional<Rule> listed_text(const std::string& text);
  Rule as_text(Rule r, const std::string& at);
  Rule argument(const std::string& name, const OrderedJson& written, const std::string& at, int depth);
  Rule any_argument();
  Rule digits(size_t k);                                          // decimal ones
  Rule between(const std::string& low, const std::string& high);  // integers ≥ 0
  struct Bound;                                                   // of a number with a fraction
  Rule magnitude(const Bound& low, const Bound& high);            // both ≥ 0
  const OrderedJson& target(const OrderedJson& ref, const std::string& at) const;
  const OrderedJson& resolved(const OrderedJson& s) const;
  OrderedJson flat(OrderedJson s, const std::string& at);
  OrderedJson copied(OrderedJson s, const std::string& at);
  OrderedJson without(const OrderedJson& s, std::initializer_list<const char*> keys, const std::string& at);
  // Whether a value is as the schema demands. `seen` is of this schema.
  bool allows(const OrderedJson& s, const OrderedJson& v, const std::string& at, int depth, Lookup& seen) const;
  bool matches(const std::string& regex, const OrderedJson& text, const std::string& at) const;
  bool named_by_pattern(const OrderedJson& s, const std::string& name,
                        const std::string& at) const;  // of its patternProperties
  static std::string spelled(const OrderedJson& j);
  void spend(size_t cells, const std::string& at);

  Grammar g_;
  Form form_ = Form::kJson;
  Rule others_ = -1;  // of kText: texts that are read as a value of another type
  // Once they are wanted: free_text(), other_values(), any_text() beside other values, and what reads those.
  Rule free_text_ = -1;
  std::map<JsonTypes, Rule> other_values_;
  std::map<Rule, Rule> any_text_;
  std::map<Rule, std::shared_ptr<Automaton>> other_machines_;
  const OrderedJson* document_ = nullptr;
  std::map<std::string, Rule> references_, merged_;
  std::map<std::tuple<Rule, int64_t, bool>, Rule> counted_;  // element, how many, exactly so many
  std::vector<Rule> digits_;
  int conditions_ = 0;                                                  // "if" within "if" at the moment
  int64_t copied_ = 0;                                                  // nodes of schemas
  mutable std::map<std::string, std::shared_ptr<Automaton>> patterns_;  // of allows()
  Rule ws_, wide_char_, plain_char_, text_char_, char_, string_, integer_, number_, boolean_, null_, any_, object_,
      array_;
};

}  // namespace mxt::serve

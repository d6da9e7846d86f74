// Whether texts are values of a schema, as the grammar that is made of it sees them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "serve/grammar/json_grammar.h"

namespace mxt::serve {

inline std::shared_ptr<const TokenBytes> bytes() {
  std::vector<std::string> b;
  for (int i = 0; i < 256; ++i) b.emplace_back(1, static_cast<char>(i));
  for (const char* s : {"{\"", "\": ", "\"}", "true", "false", "null", "12", "\", \"", "name", "<tool_call>", ""})
    b.emplace_back(s);
  return std::make_shared<TokenBytes>(b);
}

inline Automaton of(const std::string& schema) {
  JsonGrammar g;
  const OrderedJson j = parse_ordered_json(schema, "schema");
  const auto root = g.schema(j);
  return {g.take(root), bytes()};
}

inline void yes(const std::string& schema, const std::vector<std::string>& texts) {
  Automaton a = of(schema);
  for (const auto& t : texts) EXPECT_TRUE(a.matches(t)) << schema << "  " << t;
}
inline void no(const std::string& schema, const std::vector<std::string>& texts) {
  Automaton a = of(schema);
  for (const auto& t : texts) EXPECT_FALSE(a.matches(t)) << schema << "  " << t;
}

}  // namespace mxt::serve

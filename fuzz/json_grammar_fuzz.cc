// Hostile schemas: compiling ends soon, in a grammar or in a typed error; what the grammar takes is JSON; every state's
// tokens can go on.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "serve/grammar/json_grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mxt;
  using namespace mxt::serve;
  static const auto tokens = [] {
    std::vector<std::string> b;
    for (int i = 0; i < 256; ++i) b.emplace_back(1, static_cast<char>(i));
    for (const char* s : {"{\"", "\": ", "\"}", "true", "null", "123", "\", \"", "}}", "a\\"}) b.emplace_back(s);
    return std::make_shared<const TokenBytes>(b);
  }();
  try {
    const OrderedJson schema = parse_ordered_json({reinterpret_cast<const char*>(data), size}, "schema");
    JsonGrammar g;
    const auto root = g.schema(schema);
    Automaton a(g.take(root), tokens);
    // A walk that the input chooses.
    Automaton::State s = a.start();
    std::string text;
    for (size_t step = 0; s != Automaton::kDead && step < 64; ++step) {
      const auto& mask = a.tokens(s);
      std::vector<int32_t> ids;
      for (int32_t id = 0; id < static_cast<int32_t>(tokens->vocab()); ++id)
        if ((mask[static_cast<size_t>(id) / 64] >> (id % 64)) & 1) ids.push_back(id);
      if (ids.empty()) {
        if (!a.accepts(s) && step > 0 && text.size() < 150) break;  // deeper than a grammar may nest
        break;
      }
      const int32_t id = ids[data[(step * 7) % size] % ids.size()];
      for (char c : tokens->of(id)) s = a.next(s, static_cast<unsigned char>(c));
      if (s == Automaton::kDead) std::abort();
      text += tokens->of(id);
    }
    if (s != Automaton::kDead && a.accepts(s) && OrderedJson::parse(text, nullptr, false).is_discarded()) std::abort();
  } catch (const Error&) {
  }
  return 0;
}

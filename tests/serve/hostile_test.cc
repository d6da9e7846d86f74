// Whole requests × sampling options × grammars × tokenizers: each is answered, none ends the server. The fuzzer of the
// same kind (fuzz/serve_whole_fuzz.cc) looks further.
#include <gtest/gtest.h>

#include <random>

#include "serve/hostile_server.h"

namespace mxt::serve {
namespace {

TinyTokenizer kind(int i) {
  TinyTokenizer t;
  if (i % 2 == 1) t.special_end = false;
  if (i >= 2) t.merged = {"{ \"", "\" :", "} }", "\" }", "1 2", "\" ,", "] }", "n u", "\" \""};
  return t;
}
std::string folder(int i) { return testing::TempDir() + "/hostile_model_" + std::to_string(i); }

Any chat() { return {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 60}}; }

TEST(Hostile, MinTokensBesideAGrammar) {
  for (int k = 0; k < 4; ++k) {
    HostileServer s(folder(k), kind(k));
    for (const char* schema :
         {"{}", R"({"type":"object"})", R"({"const":1})", R"({"enum":["a","b"]})", R"({"type":"boolean"})",
          R"({"type":"string","maxLength":2})", R"({"type":"array","maxItems":0})"})
      for (const int least : {1, 2, 5, 50})
        for (const bool ignore : {false, true}) {
          Any r = chat();
          r["response_format"] = {{"type", "json_schema"},
                                  {"json_schema", {{"name", "x"}, {"schema", Any::parse(schema)}}}};
          r["min_tokens"] = least;
          r["ignore_eos"] = ignore;
          r["logit_bias"] = {{"257", 100}};
          EXPECT_EQ(s.ask(r, true), "") << r.dump();
        }
    Any object = chat();
    object["response_format"] = {{"type", "json_object"}};
    object["min_tokens"] = 40;
    EXPECT_EQ(s.ask(object, true), "");
  }
}

TEST(Hostile, AVocabularyThatCannotGoOnIsThatRequestsError) {
  HostileServer s(folder(0), kind(0));
  Any r = chat();
  r["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", {{"const", "ab"}}}}}};
  r["stop_token_ids"] = {34};  // a quote: held back, nothing else may begin a text
  r["min_tokens"] = 5;
  EXPECT_EQ(s.ask(r, true), "");
  EXPECT_EQ(s.ask(chat(), true), "");
}

TEST(Hostile, AnyRequestIsAnswered) {
  std::mt19937 random(20261126);
  for (int k = 0; k < 4; ++k) {
    HostileServer s(folder(k), kind(k), k == 2 ? ToolStyle::kQwenCoder : ToolStyle::kHermes);
    for (int i = 0; i < 60; ++i) {
      std::vector<uint8_t> bytes(400);
      for (auto& b : bytes) b = static_cast<uint8_t>(random());
      Choices c(bytes.data(), bytes.size());
      const bool as_chat = c.often();
      const Any r = any_request(c, as_chat);
      EXPECT_EQ(s.ask(r, as_chat), "") << r.dump(-1, ' ', false, Any::error_handler_t::replace);
    }
  }
}

}  // namespace
}  // namespace mxt::serve

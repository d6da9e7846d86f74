#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "tokenizer/split/regex.h"
#include "tokenizer/tokenizer.h"

namespace mxt::tokenizer {
namespace {

std::string with_model(const std::string& model, const std::string& rest = "") {
  return R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,"decoder":null)" + rest +
         ",\"model\":" + model + "}";
}
std::string with_part(const std::string& part) {
  return "{" + part + R"(,"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})";
}
// The message of the refusal; "" where the file is taken.
std::string refusal(const std::string& json, Exit code = Exit::kBadInput) {
  try {
    Tokenizer::from_json(json, "t.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "";
}

TEST(BadTokenizerJson, IsRefusedWithFileAndReason) {
  const std::pair<std::string, const char*> kCases[] = {
      {"", "t.json"},
      {"[]", "model"},
      {"{}", "model"},
      {with_model(R"({"type":"BPE","vocab":{},"merges":[]})"), "vocab"},
      {with_model(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"), "-1"},
      {with_model(R"({"type":"BPE","vocab":{"a":4294967295},"merges":[]})"), "4294967295"},
      {with_model(R"({"type":"BPE","vocab":{"a":9223372036854775807},"merges":[]})"), "id"},
      {with_model(R"({"type":"BPE","vocab":{"a":0.5},"merges":[]})"), "0.5"},
      {with_model(R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"), "both"},
      {with_model(R"({"type":"BPE","vocab":{"a":0,"a":1},"merges":[]})"), "twice"},
      {with_model(R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]})"), "\"ab\""},
      {with_model(R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["a c"]})"), "\"c\""},
      {with_model(R"({"type":"BPE","vocab":{"a":0},"merges":["a a a"]})"), "merge 0"},
      {with_model(R"({"type":"BPE","vocab":{"a":0},"merges":[1]})"), "merge 0"},
      {with_model(R"({"type":"BPE","vocab":{"a":0},"merges":[[1,2]]})"), "t.json"},
      {with_model(R"({"type":"BPE","vocab":{"a":0},"merges":{}})"), "merges"},
      {with_model(R"({"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]})"), "dropout"},
      {with_model(R"({"type":"BPE","unk_token":"<u>","vocab":{"a":0},"merges":[]})"), "<u>"},
      {with_model(R"({"type":"WordPiece","unk_token":"[UNK]","vocab":{"a":0}})"), "[UNK]"},
      {with_part(R"("normalizer":{"type":"Replace","pattern":{"String":""},"content":"x"})"), "empty"},
      {with_part(R"("normalizer":{})"), "t.json"},
      {with_part(R"("normalizer":{"type":"Nfx"})"), "Nfx"},
      {with_part(R"("decoder":{"type":"ByteLevels"})"), "ByteLevels"},
      {with_model(R"({"type":"Bpe","vocab":{},"merges":[]})"), "Bpe"},
      {with_part(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"a*"},"behavior":"Isolated","invert":false})"),
       "empty"},
      {with_part(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated","invert":false})"),
       "pattern"},
      {with_part(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"Sideways","invert":false})"),
       "Sideways"},
      {with_part(R"("added_tokens":[{"id":1,"content":"a"}])"), "gives it 0"},
      {with_part(R"("added_tokens":[{"id":0,"content":"b"}])"), "gives it 1"},
      {with_part(R"("added_tokens":[{"id":1,"content":"b"},{"id":1,"content":"c"}])"), "gives it 2"},
      {with_part(R"("added_tokens":[{"id":1,"content":"b"},{"id":2,"content":"b"}])"), "twice"},
      {with_part(R"("added_tokens":[{"id":7,"content":"b"}])"), "Hugging Face gives it 1"},
      {with_part(R"("added_tokens":[{"id":1}])"), "content"},
      {with_part(R"("added_tokens":[{"id":2000000000,"content":"b"}])"), "2000000000"},
  };
  for (const auto& [json, part] : kCases) {
    const std::string why = refusal(json);
    EXPECT_NE(why.find(part), std::string::npos) << json << "\n→ " << why;
    EXPECT_NE(why.find("t.json"), std::string::npos) << json << "\n→ " << why;
  }
}

// Files that are as tokenizers writes them, and want what is not here.
TEST(BadTokenizerJson, WhatIsNotBuiltInIsMissing) {
  const std::pair<std::string, const char*> kCases[] = {
      {with_model(R"({"type":"Unigram","vocab":[]})"), "Unigram"},
      {with_model(R"({"type":"BPE","end_of_word_suffix":"</w>","vocab":{"a":0},"merges":[]})"), "end_of_word_suffix"},
      {with_part(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":""})"), "Precompiled"},
      {with_part(R"("pre_tokenizer":{"type":"UnicodeScripts"})"), "UnicodeScripts"},
      {with_part(
           R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a&&b]"},"behavior":"Isolated","invert":false})"),
       "&&"},
      {with_part(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})"),
       "ByteLevel"},
      {with_part(R"("decoder":{"type":"CTC"})"), "CTC"},
      {with_model(R"({"type":"WordLevel","unk_token":"u","vocab":{"u":0}})"), "WordLevel"},
      {with_part(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Nmt"}]})"), "Nmt"},
      {with_part(R"("normalizer":{"type":"Replace","pattern":{"Regex":"\\h"},"content":"x"})"), "\\h"},
      {with_part(R"("decoder":{"type":"Replace","pattern":{"Regex":"a"},"content":"x"})"), "Replace"},
  };
  for (const auto& [json, part] : kCases) {
    const std::string why = refusal(json, Exit::kMissing);
    EXPECT_NE(why.find(part), std::string::npos) << json << "\n→ " << why;
    EXPECT_NE(why.find("not built in"), std::string::npos) << why;
  }
}

TEST(BadTokenizerJson, DeepNestingIsRefused) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += R"({"type":"Sequence","normalizers":[)";
  EXPECT_NE(refusal(with_part("\"normalizer\":" + deep)), "");
}

TEST(SplitPattern, WhatReadsDifferentlyElsewhereIsRefused) {
  for (const char* p :
       {R"(^)", R"($)", R"(\Z)", R"(\h+)", R"([[:alpha:]])", R"([a[bc]])", R"(a{1,3}+)", R"((a)\1)", R"((?<n>a))",
        R"(\X)", R"([\S])", R"(\p{Nope})", "a\\", "[a", R"((*COMMIT)a)", R"(\x80)", R"(a{,3})"})
    EXPECT_THROW(Regex(p, "t"), Error) << p;
}

// As tokenizers 0.23 splits: a mark or a joined ‿ is of the word, U+200D is not.
TEST(SplitPattern, WordBoundariesAreOnigurumas) {
  const auto matches = [](const char* pattern) {
    const Regex regex(pattern, "t");
    const std::string_view text = "foo foobar_foo, é\u0301foo 12a 12 ｆoo日本 a-a‿b a\u200db e\u0301a";
    std::string all;
    for (size_t at = 0, b, e; regex.find(text, at, b, e); at = e) all += std::string(text.substr(b, e - b)) + "|";
    return all;
  };
  EXPECT_EQ(matches(R"(\b[0-9]+\b)"), "12|");
  EXPECT_EQ(matches(R"(\b\w)"), "f|f|é|1|1|ｆ|a|a|a|b|e|");
  EXPECT_EQ(matches(R"(a\b)"), "a|a|a|a|");
  EXPECT_EQ(matches(R"(\bfoo\b|\w+)"), "foo|foobar_foo|é\u0301foo|12a|12|ｆoo日本|a|a‿b|a|b|e\u0301a|");
  EXPECT_EQ(matches(R"(\B\w+)"), "oo|oobar_foo|\u0301foo|2a|2|oo日本|‿b|\u0301a|");
}

TEST(SplitPattern, ARunawayPatternEndsInAnErrorOrInTime) {
  const Regex regex(R"((?:a+)+b)", "t");
  const std::string text(100000, 'a');
  size_t b, e;
  try {
    EXPECT_FALSE(regex.find(text, 0, b, e));
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("gave up"), std::string::npos);
  }
}

}  // namespace
}  // namespace mxt::tokenizer

#include "eval/score/ifeval.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "eval/score/language.h"

namespace mxt::eval {
namespace {

bool ok(const char* id, const OrderedJson& kwargs, const char* answer) {
  return follows_instruction(id, kwargs, "", answer);
}

TEST(IfEval, ChecksEachInstruction) {
  EXPECT_TRUE(ok("keywords:existence", {{"keywords", {"Sun", "moon"}}}, "The sun and the MOON."));
  EXPECT_FALSE(ok("keywords:existence", {{"keywords", {"sun", "mars"}}}, "The sun."));
  EXPECT_TRUE(ok("keywords:frequency", {{"keyword", "a"}, {"frequency", 2}, {"relation", "at least"}}, "a b a"));
  EXPECT_FALSE(ok("keywords:frequency", {{"keyword", "a"}, {"frequency", 2}, {"relation", "less than"}}, "a b a"));
  EXPECT_FALSE(ok("keywords:forbidden_words", {{"forbidden_words", {"cat"}}}, "A Cat."));
  EXPECT_TRUE(ok("keywords:forbidden_words", {{"forbidden_words", {"cat"}}}, "Concatenate."));
  EXPECT_TRUE(
      ok("keywords:letter_frequency", {{"letter", "E"}, {"let_frequency", 3}, {"let_relation", "at least"}}, "eEe"));
  EXPECT_TRUE(ok("length_constraints:number_sentences", {{"num_sentences", 3}, {"relation", "at least"}},
                 "One. Two, e.g. this! Dr. Who? Yes."));
  EXPECT_FALSE(ok("length_constraints:number_sentences", {{"num_sentences", 2}, {"relation", "at least"}},
                  "Mr. Smith is 3.5 years old."));
  EXPECT_TRUE(ok("length_constraints:number_paragraphs", {{"num_paragraphs", 2}}, "a\n***\nb"));
  EXPECT_FALSE(ok("length_constraints:number_paragraphs", {{"num_paragraphs", 2}}, "a\n***\n***\nb"));
  EXPECT_TRUE(ok("length_constraints:number_words", {{"num_words", 4}, {"relation", "less than"}}, "one two three"));
  EXPECT_TRUE(ok("length_constraints:nth_paragraph_first_word",
                 {{"num_paragraphs", 2}, {"nth_paragraph", 2}, {"first_word", "Then"}}, "First.\n\n\"Then\", more."));
  EXPECT_TRUE(ok("detectable_content:number_placeholders", {{"num_placeholders", 2}}, "[name] and [address]"));
  EXPECT_TRUE(ok("detectable_content:postscript", {{"postscript_marker", "P.S."}}, "text\nP. S. more"));
  EXPECT_TRUE(ok("detectable_format:number_bullet_lists", {{"num_bullets", 2}}, "* a\n- b\n"));
  EXPECT_TRUE(ok("detectable_format:constrained_response", OrderedJson::object(), " My answer is no. "));
  EXPECT_TRUE(ok("detectable_format:number_highlighted_sections", {{"num_highlights", 2}}, "*a* and **b**"));
  EXPECT_TRUE(ok("detectable_format:multiple_sections", {{"section_spliter", "Section"}, {"num_sections", 2}},
                 "Section 1\na\nSection 2\nb"));
  EXPECT_TRUE(ok("detectable_format:json_format", OrderedJson::object(), "```json\n{\"a\": [1]}\n```"));
  EXPECT_FALSE(ok("detectable_format:json_format", OrderedJson::object(), "{a: 1}"));
  EXPECT_TRUE(ok("detectable_format:title", OrderedJson::object(), "<<A title>>\nx"));
  EXPECT_FALSE(ok("detectable_format:title", OrderedJson::object(), "<< >>"));
  EXPECT_TRUE(ok("combination:two_responses", OrderedJson::object(), "a\n******\nb"));
  EXPECT_FALSE(ok("combination:two_responses", OrderedJson::object(), "a\n******\na"));
  EXPECT_TRUE(ok("combination:repeat_prompt", {{"prompt_to_repeat", "Say it."}}, "say it. Yes."));
  EXPECT_TRUE(ok("startend:end_checker", {{"end_phrase", "The End."}}, "All.\n\"the end.\""));
  EXPECT_TRUE(ok("startend:quotation", OrderedJson::object(), " \"quoted\" "));
  EXPECT_TRUE(ok("change_case:english_capital", OrderedJson::object(), "ALL IS LOUD AND CLEAR HERE"));
  EXPECT_FALSE(ok("change_case:english_lowercase", OrderedJson::object(), "Not all of it is low"));
  EXPECT_TRUE(ok("change_case:capital_word_frequency", {{"capital_frequency", 2}, {"capital_relation", "at least"}},
                 "NASA and the U.S. agree"));
  EXPECT_FALSE(ok("punctuation:no_comma", OrderedJson::object(), "a, b"));
  EXPECT_FALSE(ok("punctuation:no_comma", OrderedJson::object(), "   "));  // nothing was answered
  EXPECT_THROW(ok("no:such", OrderedJson::object(), "x"), Error);
}

TEST(IfEval, LooseForgivesFrameAndAsterisks) {
  const OrderedJson doc = {{"prompt", "p"},
                           {"instruction_id_list", {"punctuation:no_comma", "startend:quotation"}},
                           {"kwargs", {OrderedJson::object(), OrderedJson::object()}}};
  const DocMetrics m = ifeval_results(doc, {"Sure, here it is:\n\"**fine**\""});
  EXPECT_EQ(m[0].second, false);
  EXPECT_EQ(m[1].second, OrderedJson::array({false, false}));
  EXPECT_EQ(m[2].second, true);
  EXPECT_EQ(ifeval_instruction_accuracy({m[1].second, m[3].second}), 0.5);
}

TEST(IfEval, TellsLanguages) {
  EXPECT_EQ(detect_language("The house is on the hill and it was there before."), "en");
  EXPECT_EQ(detect_language("La maison est dans la rue et les enfants sont là."), "fr");
  EXPECT_EQ(detect_language("Der Hund ist nicht in dem Haus, das wir sehen."), "de");
  EXPECT_EQ(detect_language("यह घर बहुत बड़ा है और मैं यहाँ हूँ"), "hi");
  EXPECT_EQ(detect_language("このいえはおおきいです"), "ja");
  EXPECT_EQ(detect_language("Это не мой дом, но я его вижу"), "ru");
  EXPECT_EQ(detect_language("1234 !"), "");
}

}  // namespace
}  // namespace mxt::eval

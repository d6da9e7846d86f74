#include "data/encode/encode.h"

#include "data/dataset.h"
#include "data/encode/mask.h"
#include "helpers.h"
#include "toy_coder.h"

namespace mxt::data {
namespace {

using testing::error_of;
using testing::ToyEncoder;

constexpr int32_t kNo = kNoTarget, kStart = ToyEncoder::kStart, kEnd = ToyEncoder::kEnd;
constexpr int32_t kAssistant = 258, kUser = 260, kHello = 261, kWorld = 262, kTwoPlus = 264, kIsFour = 265;

Example example(const std::string& json) {
  Record r;
  r.text = json;
  r.path = std::make_shared<const std::string>("d.jsonl");
  r.line = 7;
  return read_example(r, find_layout(r, {}));
}

Document encode(const std::string& json, EncodeRules rules = {}, const ToyEncoder& coder = {}) {
  return encode_example(example(json), coder, rules, "d.jsonl:7");
}

using Ids = std::vector<int32_t>;

TEST(Mask, ATokenIsTrainedWhenItBeginsInsideASpan) {
  const Ids ids = {1, 2, 3, 4, 5};
  const std::vector<ByteSpan> offsets = {{0, 2}, {2, 5}, {5, 6}, {6, 9}, {9, 10}};
  const auto labels = [&](std::vector<ByteSpan> spans) { return mask_labels(ids, offsets, spans); };
  EXPECT_EQ(labels({{2, 6}}), (Ids{kNo, 2, 3, kNo, kNo}));
  EXPECT_EQ(labels({{3, 7}}), (Ids{kNo, kNo, 3, 4, kNo}));  // begins before: not; reaches over the end: yes
  EXPECT_EQ(labels({{0, 1}, {6, 7}, {9, 10}}), (Ids{1, kNo, kNo, 4, 5}));
  EXPECT_EQ(labels({{3, 4}}), (Ids{kNo, kNo, kNo, kNo, kNo}));  // inside one token: none begins there
  EXPECT_EQ(labels({}), (Ids{kNo, kNo, kNo, kNo, kNo}));
}

TEST(Mask, TrainedTokensKnowTheirPartOfACall) {
  using tokenizer::CallPart;
  Ids labels = {1, kNo, 3, 4, 5, 6};
  const std::vector<ByteSpan> offsets = {{0, 2}, {2, 3}, {3, 5}, {5, 8}, {8, 9}, {9, 12}};
  const std::vector<tokenizer::CallSpan> calls = {
      {{2, 4}, CallPart::kStructure}, {{4, 5}, CallPart::kName}, {{5, 9}, CallPart::kArguments}};
  mark_parts(offsets, calls, labels);
  const auto part = [](CallPart p) { return static_cast<int32_t>(p) << kPartShift; };
  EXPECT_EQ(labels, (Ids{1, kNo, 3 | part(CallPart::kStructure), 4 | part(CallPart::kArguments),
                         5 | part(CallPart::kArguments), 6}));
  EXPECT_EQ(part_of(labels[3]), 3u);
  EXPECT_EQ(target_of(labels[3]), 4);
  EXPECT_EQ(part_of(kNo), 0u);
  EXPECT_EQ(target_of(kNo), kNo);
}

TEST(Encode, OnlyTheAnswerAndItsEndTokenAreTrainedNotTheNewlineAfterIt) {
  const Document d =
      encode(R"({"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"hello world"}]})");
  //                <|im_start|>  user  \n   hello  <|im_end|>  \n   <|im_start|> assistant  \n    hello   world
  //                <|im_end|> \n
  EXPECT_EQ(d.ids,
            (Ids{kStart, kUser, '\n', kHello, kEnd, '\n', kStart, kAssistant, '\n', kHello, kWorld, kEnd, '\n'}));
  EXPECT_EQ(d.labels, (Ids{kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kHello, kWorld, kEnd, kNo}));
  EXPECT_EQ(count_targets(d), 3);
}

TEST(Encode, OfAPromptAndCompletionInMessagesTheCompletionsAssistantTurnsAreTrained) {
  const auto trained = [](const char* json) {
    std::string s;
    for (int32_t l : encode(json).labels)
      if (l != kNo) s += ToyEncoder().token_bytes(l);
    return s;
  };
  EXPECT_EQ(
      trained(
          R"({"prompt":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],
                        "completion":[{"role":"assistant","content":"{d}"},{"role":"tool","content":"e"},
                                      {"role":"assistant","content":[{"type":"text","text":"f"},{"type":"text","text":"g"}]}]})"),
      "{d}<|im_end|>fg<|im_end|>");
  EXPECT_EQ(trained(R"({"prompt":[{"role":"assistant","content":"b"}],"completion":[{"role":"user","content":"d"}]})"),
            "");
  // The same text as the conversation in one list.
  EXPECT_EQ(
      encode(R"({"prompt":[{"role":"user","content":"a"}],"completion":[{"role":"assistant","content":"d"}]})").ids,
      encode(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"d"}]})").ids);
}

TEST(Encode, EveryAssistantTurnIsTrained) {
  const Document d = encode(
      R"({"messages":[{"role":"assistant","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}]})");
  Ids trained;
  for (int32_t l : d.labels)
    if (l != kNo) trained.push_back(l);
  EXPECT_EQ(trained, (Ids{'a', kEnd, 'c', kEnd}));
}

TEST(Encode, ANewlineThatJoinsTheHeadersIsNotTrained) {
  const Document d = encode(R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"\nhi"}]})");
  const Ids tail(d.labels.end() - 5, d.labels.end());
  EXPECT_EQ(tail, (Ids{kNo, 'h', 'i', kEnd, kNo}));  // "\n\n" begins in the header
}

TEST(Encode, ControlTokensInMessagesAreOrdinaryText) {
  const Document d =
      encode(R"({"messages":[{"role":"user","content":"<|im_end|>"},{"role":"assistant","content":"a"}]})");
  EXPECT_EQ(std::count(d.ids.begin(), d.ids.end(), kEnd), 2);
  EXPECT_EQ(ToyEncoder().decode(d.ids), "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
}

TEST(Encode, TrainOnAllTakesEveryTokenOfAChat) {
  EXPECT_TRUE(encode(R"({"question":"x","answer":"y"})", {.train_all = true}).labels.empty());
}

TEST(Encode, CompletionsAreEncodedWithTheirPromptAndEnded) {
  const Document d = encode(R"({"prompt":"2+2","completion":"=4"})");
  EXPECT_EQ(d.ids, (Ids{kTwoPlus, '2', kIsFour, kEnd}));
  EXPECT_EQ(d.labels, (Ids{kNo, kNo, kIsFour, kEnd}));
  const Document joined = encode(R"({"prompt":"2+2=","completion":"4"})");
  EXPECT_EQ(joined.ids, (Ids{kTwoPlus, '2', kIsFour, kEnd}));
  EXPECT_EQ(joined.labels, (Ids{kNo, kNo, kIsFour, kEnd}));  // the joining token holds the answer's beginning
}

TEST(Encode, ATokenThatJoinsPromptAndCompletionIsSaid) {
  const auto said = [](const char* row, const EncodeRules& rules = {}) {
    ::testing::internal::CaptureStderr();
    const Document d = encode(row, rules);
    EXPECT_EQ(d.ids.back(), kEnd);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said(R"({"prompt":"2+2=","completion":"4"})").find("it is trained as a whole"), std::string::npos);
  EXPECT_NE(said(R"({"prompt":"=","completion":"4"})").find("which nothing predicts, so not trained"),
            std::string::npos);
  EXPECT_EQ(said(R"({"prompt":"2+2","completion":"=4"})"), "");
  EXPECT_EQ(said(R"({"prompt":"","completion":"=4"})"), "");
  EXPECT_EQ(said(R"({"prompt":"2+2=","completion":"4"})", {.train_all = true}), "");
}

// "2+" and "=4" are tokens, and "+=" is none: only the first answer's beginning is joined to the prompt.
TEST(Encode, APairsAnswersBeginTogetherOrEachAlone) {
  const Example e = example(R"({"prompt":"1 2","chosen":"+=4","rejected":"x"})");
  const Document together = encode_answers(e, ToyEncoder(), {}, "d.jsonl:7");
  EXPECT_EQ(together.ids[together.second + 2], '2');
  EXPECT_EQ(together.labels[together.second + 2], '2');
  EncodeRules rules;
  rules.alone = true;
  const Document alone = encode_answers(e, ToyEncoder(), rules, "d.jsonl:7");
  EXPECT_EQ(alone.ids, together.ids);
  EXPECT_EQ(alone.labels[alone.second + 2], kNo);
  EXPECT_EQ(alone.labels[alone.second + 3], 'x');
  EXPECT_EQ(alone.labels[2], alone.ids[2]);  // the joined token
}

TEST(Encode, TextIsAllTrainedAndEnded) {
  const Document d = encode(R"({"text":"hello"})");
  EXPECT_EQ(d.ids, (Ids{kHello, kEnd}));
  EXPECT_TRUE(d.labels.empty());
  EXPECT_EQ(count_targets(d), 1);
  EXPECT_EQ(encode(R"({"text":"hello"})", {.end_text = false}).ids, (Ids{kHello}));
  EXPECT_EQ(encode(R"({"text":"hello<|im_end|>"})").ids, (Ids{kHello, kEnd}));  // spelled out: not doubled
  ToyEncoder bare;
  bare.end = -1;
  EXPECT_EQ(encode(R"({"text":"hello"})", {}, bare).ids, (Ids{kHello}));
}

TEST(Encode, TextsAndPromptsBeginAsTheTokenizerLetsThem) {
  ToyEncoder coder;
  coder.before = {kStart};
  const Document text = encode(R"({"text":"hello"})", {}, coder);
  EXPECT_EQ(text.ids, (Ids{kStart, kHello, kEnd}));
  EXPECT_TRUE(text.labels.empty());
  const Document answer = encode(R"({"prompt":"2+","completion":"=4"})", {}, coder);
  EXPECT_EQ(answer.ids, (Ids{kStart, kTwoPlus, kIsFour, kEnd}));
  EXPECT_EQ(answer.labels, (Ids{kNo, kNo, kIsFour, kEnd}));
  EXPECT_EQ(encode(R"({"text":"<|im_start|>hello"})", {}, coder).ids, text.ids);                   // spelt out already
  EXPECT_EQ(encode(R"({"text":"hello"})", {false, false, true}, coder).ids, (Ids{kHello, kEnd}));  // a later piece
  coder.chat = true;
  EXPECT_EQ(encode(R"({"messages":[{"role":"user","content":"hello"}]})", {}, coder).ids,
            encode(R"({"messages":[{"role":"user","content":"hello"}]})").ids);
}

TEST(Encode, FinishedTokensKeepTheirLabelsAndAreCheckedAgainstTheVocabulary) {
  const Document d = encode(R"({"input_ids":[5,6,7],"labels":[5,-100,9]})");
  EXPECT_EQ(d.ids, (Ids{5, 6, 7}));
  EXPECT_EQ(d.labels, (Ids{5, kNo, 9}));
  EXPECT_EQ(count_targets(d), 1);  // nothing predicts the first token
  EXPECT_HAS(error_of([] { encode(R"({"input_ids":[5,267],"labels":[5,5]})"); }), "d.jsonl:7: input_ids[1] is 267");
  EXPECT_HAS(error_of([] { encode(R"({"input_ids":[5,6],"labels":[5,400]})"); }), "labels[1] is 400");
}

TEST(Encode, ChatsNeedATemplateThatTakesThem) {
  ToyEncoder bare, strict;
  bare.chat = false;
  strict.refuse = true;
  EXPECT_HAS(error_of([&] { encode(R"({"question":"x","answer":"y"})", {}, bare); }), "no chat template");
  EXPECT_HAS(error_of([&] { encode(R"({"question":"x","answer":"y"})", {}, strict); }),
             "d.jsonl:7: toy template: refused");
  EXPECT_EQ(encode(R"({"prompt":"x","completion":"y"})", {}, bare).ids, (Ids{'x', 'y', kEnd}));
}

TEST(Encode, CutKeepsTheBeginning) {
  Document d{{1, 2, 3}, {kNo, 2, 3}};
  EXPECT_FALSE(cut(d, 3));
  EXPECT_TRUE(cut(d, 2));
  EXPECT_EQ(d.ids, (Ids{1, 2}));
  EXPECT_EQ(d.labels, (Ids{kNo, 2}));
}

}  // namespace
}  // namespace mxt::data

// The real tokenizer behind the interface, with vocabularies made here.
#include "data/coder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/encode/encode.h"
#include "helpers.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mxt::data {
namespace {

using testing::error_of;

constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

std::unique_ptr<SampleEncoder> characters_with_chat() {
  return make_coder({tokenizer::Tokenizer::characters("\n<>_| abcdefghijklmnopqrstuvwxyz"),
                     tokenizer::ChatTemplate::compile(kChatMl, "chatml", {{"eos_token", "<|im_end|>"}}), kChatMl});
}

TEST(SampleEncoder, MasksAChatThroughTheRealTemplate) {
  const auto coder = characters_with_chat();
  Record r;
  r.text = R"({"question":"two plus two","answer":"four"})";
  r.path = std::make_shared<const std::string>("row");
  const Document d = encode_example(read_example(r, find_layout(r, {})), *coder, {}, "row");
  std::string all, trained;
  for (size_t t = 0; t < d.ids.size(); ++t) {
    all += coder->token_bytes(d.ids[t]);
    if (d.labels[t] != -100) trained += coder->token_bytes(d.labels[t]);
  }
  EXPECT_EQ(all, "<|im_start|>user\ntwo plus two<|im_end|>\n<|im_start|>assistant\nfour<|im_end|>\n");
  EXPECT_EQ(trained, "four<|im_end|>");
}

// What a row leaves out of the loss is neither trained by the way nor trained on one side alone.
TEST(SampleEncoder, APairJudgesWholeAnswers) {
  const auto coder = characters_with_chat();
  const auto encode = [&](const std::string& chosen, const std::string& rejected) {
    Record r;
    r.text = R"({"prompt":[{"role":"user","content":"q"}],"chosen":[)" + chosen + R"(],"rejected":[)" + rejected + "]}";
    r.path = std::make_shared<const std::string>("row");
    return encode_answers(read_example(r, find_layout(r, {})), *coder, {}, "row");
  };
  const std::string no = R"({"role":"assistant","content":"no"})";
  const std::string yes = R"({"role":"assistant","content":"yo")";
  const Document d = encode(yes + "}", no);
  EXPECT_EQ(std::count_if(d.labels.begin(), d.labels.end(), [](int32_t l) { return l != -100; }),
            2 * (2 + static_cast<int>(std::string("<|im_end|>").size())));
  EXPECT_HAS(error_of([&] { encode(yes + R"(,"loss":false},{"role":"user","content":"and"},)" + yes + "}", no); }),
             "\"chosen\" begins with turns that are not trained on");
  EXPECT_HAS(error_of([&] { encode(yes + R"(,"weight":0})", no); }), "nothing of \"chosen\" is trained on");
  EXPECT_HAS(error_of([&] { encode(no, yes + R"(,"loss":false})"); }), "nothing of \"rejected\" is trained on");
}

TEST(SampleEncoder, ContentsThatATemplateLeavesOutAreSaid) {
  constexpr const char* kKnown =
      "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.role + '\\n' }}"
      "{% if m.content != 'gone' and not m.tool_calls %}{{ m.content }}{% endif %}"
      "{% for c in m.tool_calls or [] %}{{ c.function.name ~ c.function.arguments }}{% endfor %}{{ '_' + '\\n' }}"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'assistant\\n' }}{% endif %}";
  const auto coder = make_coder({tokenizer::Tokenizer::characters("\n<>_| abcdefghijklmnopqrstuvwxyz{}\":,'"),
                                 tokenizer::ChatTemplate::compile(kKnown, "known", {{"eos_token", "_"}}), kKnown});
  const auto left_out = [&](const std::string& first, const std::string& answer = R"("content":"y")") -> std::string {
    const OrderedJson messages = parse_ordered_json(
        "[" + first + R"({"role":"user","content":"x"},{"role":"assistant",)" + answer + "}]", "messages");
    const auto notes = coder->render(messages, nullptr, 0).notes;
    return notes.empty() ? "" : notes[0].text;
  };
  EXPECT_EQ(left_out(""), "");
  EXPECT_EQ(left_out(R"({"role":"system","content":" \n"},)"), "");  // nothing is lost
  EXPECT_EQ(left_out(R"({"role":"system","content":"be kind"},)"),
            "the template leaves out the content of messages[0] (role \"system\")");
  const std::string call = R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":"b"}}}])";
  EXPECT_EQ(left_out("", R"("content":"let me look",)" + call),
            "the template leaves out the content of messages[1] (role \"assistant\")");
  EXPECT_EQ(left_out("", R"("content":"",)" + call), "");
  EXPECT_HAS(error_of([&] { left_out("", R"("content":"gone")"); }), "an empty answer would be trained");
}

// Trained tokens of a conversation under a template that says itself, or does not say, what is trained.
TEST(SampleEncoder, TurnsThatAreNotToBeTrainedAreContext) {
  constexpr const char* kMarked =
      "{% for m in messages %}{{ m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '_' "
      "}}{% endgeneration %}{% else %}{{ m.content + '_' }}{% endif %}{{ '\n' }}{% endfor %}";
  constexpr const char* kPlain =
      "{% for m in messages %}{{ m.role + '\n' + m.content + '_\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}";
  for (const char* source : {kMarked, kPlain}) {
    const auto coder = make_coder({tokenizer::Tokenizer::characters("\n_ abcdefghijklmnopqrstuvwxyz"),
                                   tokenizer::ChatTemplate::compile(source, "t", {{"eos_token", "_"}}), source});
    const auto trained = [&](const std::string& first, const std::string& second) {
      const OrderedJson messages =
          parse_ordered_json(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b")" + first +
                                 R"(},{"role":"user","content":"c"},{"role":"assistant","content":"d")" + second + "}]",
                             "messages");
      const RenderedChat chat = coder->render(messages, nullptr, 0);
      EXPECT_EQ(chat.text, "user\na_\nassistant\nb_\nuser\nc_\nassistant\nd_\n");
      EXPECT_TRUE(chat.notes.empty());
      std::string all;
      for (const ByteSpan& s : chat.assistant) all += chat.text.substr(s.begin, s.end - s.begin);
      return all;
    };
    EXPECT_EQ(trained("", ""), "b_d_") << source;
    for (const char* off :
         {R"(,"loss":false)", R"(,"train":0)", R"(,"training":false)", R"(,"trainable":false)", R"(,"loss_mask":0)",
          R"(,"weight":0)", R"(,"loss_scale":0.0)", R"(,"masked":true)", R"(,"train_on":false)"}) {
      EXPECT_EQ(trained(off, ""), "d_") << off;
      EXPECT_EQ(trained("", off), "b_") << off;
      EXPECT_EQ(trained(off, off), "") << off;
    }
    EXPECT_EQ(trained(R"(,"weight":1)", R"(,"loss":true)"), "b_d_");
  }
}

TEST(SampleEncoder, MembersThatNoTemplateReadsAreNamed) {
  constexpr const char* kTemplate =
      "{% for m in messages %}{{ m.role + '\n' + m.content }}{% if m.name is defined %}{{ m.name }}{% endif %}{{ "
      "'_\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}";
  const auto coder = make_coder({tokenizer::Tokenizer::characters("\n_ abcdefghijklmnopqrstuvwxyz"),
                                 tokenizer::ChatTemplate::compile(kTemplate, "t", {{"eos_token", "_"}}), kTemplate});
  const auto notes = [&](const std::string& user, const std::string& answer) {
    const OrderedJson messages = parse_ordered_json(
        R"([{"role":"user","content":"a")" + user + R"(},{"role":"assistant","content":"b")" + answer + "}]", "m");
    std::string all;
    for (const auto& n : coder->render(messages, nullptr, 0).notes) all += n.text + "|";
    return all;
  };
  EXPECT_EQ(notes("", ""), "");
  EXPECT_EQ(notes(R"(,"name":"eve")", ""), "");
  EXPECT_EQ(notes(R"(,"role_name":"eve")", ""),
            "the template does not read \"role_name\" of messages[0] (role \"user\"): it is not used|");
  EXPECT_EQ(notes("", R"(,"score":3)"),
            "the template does not read \"score\" of messages[1] (role \"assistant\"): it is not used|");
  EXPECT_EQ(notes("", R"(,"reasoning_content":"hm")"),
            "the template does not read \"reasoning_content\" of messages[1] (role \"assistant\"): it is not used|");
  EXPECT_EQ(notes(R"(,"tags":[],"note":"")", R"(,"refusal":null)"), "");
  // "No" is said of something, too.
  EXPECT_EQ(notes("", R"(,"learn":false)"),
            "the template does not read \"learn\" of messages[1] (role \"assistant\"): it is not used|");
  EXPECT_EQ(notes(R"(,"loss":true)", ""),
            "messages[0] (role \"user\") asks to be trained on, but only what the assistant says is|");
}

TEST(SampleEncoder, TheFirstOfManyAlikeIsNamedAndTheOthersAreCounted) {
  const auto coder = characters_with_chat();
  ::testing::internal::CaptureStderr();
  for (int line = 1; line <= 5; ++line)
    warn_row(*coder, "member x", "\"x\" is not used", fmt::format("d.jsonl:{}", line));
  warn_row(*coder, "member y", "\"y\" is not used", "d.jsonl:6");
  coder->say_more();
  coder->say_more();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_HAS(said, "d.jsonl:1: \"x\" is not used, here and perhaps in other rows");
  EXPECT_HAS(said, "data: 4 more like d.jsonl:1: \"x\" is not used\n");
  EXPECT_EQ(said.find("more like"), said.rfind("more like")) << said;
}

TEST(SampleEncoder, TemplatesThatDropToolsAreRefusedWithTheRow) {
  const auto coder = characters_with_chat();
  Record r;
  r.text = R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],"tools":[{"name":"f"}]})";
  r.path = std::make_shared<const std::string>("row.jsonl");
  r.line = 4;
  const std::string e = error_of([&] { encode_example(read_example(r, find_layout(r, {})), *coder, {}, r.where()); });
  EXPECT_HAS(e, "row.jsonl:4: ");
  EXPECT_HAS(e, "tools");
}

TEST(SampleEncoder, WithoutATokenizerOnlyFinishedTokensCanBePrepared) {
  const auto coder = make_coder({nullptr, nullptr, "", 100});
  EXPECT_EQ(coder->vocab_size(), 100);
  EXPECT_EQ(coder->eos(), -1);
  EXPECT_HAS(error_of([&] { coder->encode("x", {}, nullptr); }), "no tokenizer");
}

TEST(SampleEncoder, DigestTellsVocabulariesApart) {
  const auto a = make_coder({tokenizer::Tokenizer::characters("ab"), nullptr, ""});
  const auto b = make_coder({tokenizer::Tokenizer::characters("abc"), nullptr, ""});
  EXPECT_EQ(a->digest(), a->digest());
  EXPECT_NE(a->digest(), b->digest());
}

}  // namespace
}  // namespace mxt::data

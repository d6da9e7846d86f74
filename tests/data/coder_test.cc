// The real tokenizer behind the interface, with vocabularies made here.
#include "data/coder.h"

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

std::unique_ptr<Coder> characters_with_chat() {
  return make_coder({tokenizer::Tokenizer::characters("\n<>_| abcdefghijklmnopqrstuvwxyz"),
                     tokenizer::ChatTemplate::compile(kChatMl, "chatml", {{"eos_token", "<|im_end|>"}}), kChatMl});
}

TEST(Coder, MasksAChatThroughTheRealTemplate) {
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

TEST(Coder, ContentsThatATemplateLeavesOutAreSaid) {
  constexpr const char* kKnown =
      "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.role + '\\n' }}"
      "{% if m.content != 'gone' and not m.tool_calls %}{{ m.content }}{% endif %}"
      "{% for c in m.tool_calls or [] %}{{ c.function.name ~ c.function.arguments }}{% endfor %}{{ '_' + '\\n' }}"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'assistant\\n' }}{% endif %}";
  const auto coder = make_coder({tokenizer::Tokenizer::characters("\n<>_| abcdefghijklmnopqrstuvwxyz{}\":,'"),
                                 tokenizer::ChatTemplate::compile(kKnown, "known", {{"eos_token", "_"}}), kKnown});
  const auto left_out = [&](const std::string& first, const std::string& answer = R"("content":"y")") {
    const OrderedJson messages = parse_ordered_json(
        "[" + first + R"({"role":"user","content":"x"},{"role":"assistant",)" + answer + "}]", "messages");
    return coder->render(messages, nullptr, 0).left_out;
  };
  EXPECT_EQ(left_out(""), "");
  EXPECT_EQ(left_out(R"({"role":"system","content":" \n"},)"), "");  // nothing is lost
  EXPECT_EQ(left_out(R"({"role":"system","content":"be kind"},)"), "messages[0] (role \"system\")");
  const std::string call = R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":"b"}}}])";
  EXPECT_EQ(left_out("", R"("content":"let me look",)" + call), "messages[1] (role \"assistant\")");
  EXPECT_EQ(left_out("", R"("content":"",)" + call), "");
  EXPECT_HAS(error_of([&] { left_out("", R"("content":"gone")"); }), "an empty answer would be trained");
}

TEST(Coder, TemplatesThatDropToolsAreRefusedWithTheRow) {
  const auto coder = characters_with_chat();
  Record r;
  r.text = R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],"tools":[{"name":"f"}]})";
  r.path = std::make_shared<const std::string>("row.jsonl");
  r.line = 4;
  const std::string e = error_of([&] { encode_example(read_example(r, find_layout(r, {})), *coder, {}, r.where()); });
  EXPECT_HAS(e, "row.jsonl:4: ");
  EXPECT_HAS(e, "tools");
}

TEST(Coder, WithoutATokenizerOnlyFinishedTokensCanBePrepared) {
  const auto coder = make_coder({nullptr, nullptr, "", 100});
  EXPECT_EQ(coder->vocab_size(), 100);
  EXPECT_EQ(coder->eos(), -1);
  EXPECT_HAS(error_of([&] { coder->encode("x", {}, nullptr); }), "no tokenizer");
}

TEST(Coder, DigestTellsVocabulariesApart) {
  const auto a = make_coder({tokenizer::Tokenizer::characters("ab"), nullptr, ""});
  const auto b = make_coder({tokenizer::Tokenizer::characters("abc"), nullptr, ""});
  EXPECT_EQ(a->digest(), a->digest());
  EXPECT_NE(a->digest(), b->digest());
}

}  // namespace
}  // namespace mxt::data

// One conversation, whoever renders it: rows of training, prompts of samples, evaluation, /tokenize and chat
// completions have the same tokens, over templates and spellings; and so have plain texts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "data/coder.h"
#include "data/encode/encode.h"
#include "eval/exact_match.h"
#include "eval/lm/language_model.h"
#include "folders.h"
#include "serve/hostile_server.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mxt::serve {
namespace {

using Ids = std::vector<int32_t>;
const std::string kGolden = std::string(kSourceDir) + "/tests/golden/tokenizer_chat/";

OrderedJson parsed(std::string_view text) { return parse_ordered_json(text, "test"); }

data::Record row_of(const OrderedJson& row) {
  data::Record r;
  r.text = row.dump();
  r.path = std::make_shared<const std::string>("rows.jsonl");
  r.line = 1;
  return r;
}

// All who render one model's chats.
class Paths {
 public:
  Paths(const std::string& name, const std::string& source, const std::map<std::string, std::string>& special)
      : tok_(tokenizer::Tokenizer::from_folder(folder())),
        chat_(tokenizer::ChatTemplate::compile(source, name, special, {"<s>", "</s>"})),
        coder_(data::make_coder({tok_, chat_, source})),
        scheduler_(model(), {.batch = 2}) {
    ServedModel s;
    s.model = &model();
    s.scheduler = &scheduler_;
    s.tok = tok_;
    s.chat_source = source;
    s.chat = chat_;
    s.stop = {257};
    s.names = {{"tiny", -1}};
    op_ = std::make_unique<Operator>(std::move(s), OperatorSettings{});
  }
  static const std::string& folder() {
    static const std::string f = make_tiny_model(testing::TempDir() + "/same_text_model");
    return f;
  }

  // As rows of training are prepared; nothing where the row is refused.
  std::optional<Ids> trained(const data::Example& e, bool whole) {
    try {
      return data::encode_example(e, *coder_, {.train_all = whole}, "row").ids;
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  // The prompt of an answer to be sampled (rollouts), with the header that asks for it.
  std::optional<Ids> sampled(const OrderedJson& messages, const OrderedJson* tools) {
    try {
      const data::RenderedChat r = coder_->render_prompt(messages, tools);
      return coder_->encode(r.text, r.plain, nullptr);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  std::optional<Ids> evaluated(const OrderedJson& messages) {
    try {
      return eval::encode_prompt(*tok_, *chat_, messages);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  std::optional<Ids> tokenized(OrderedJson body) {
    const auto reply = asked("/tokenize", std::move(body));
    if (reply.first != 200) return std::nullopt;
    return reply.second["tokens"].get<Ids>();
  }
  // Tokens of a chat completion's prompt, as it counts them; −1 where it is refused.
  int64_t completed(OrderedJson body) {
    body["max_tokens"] = 1;
    const auto reply = asked("/v1/chat/completions", std::move(body));
    return reply.first == 200 ? reply.second["usage"]["prompt_tokens"].get<int64_t>() : -1;
  }
  std::pair<int, OrderedJson> asked(const std::string& path, const OrderedJson& body) {
    HttpRequest http;
    http.method = "POST";
    http.path = path;
    http.body = body.dump();
    const auto reply = std::make_shared<Collected>();
    op_->handle(http, reply);
    for (int i = 0; i < 100 && !reply->done; ++i) scheduler_.step();
    EXPECT_TRUE(reply->done);
    return {reply->status, parsed(reply->body)};
  }
  const tokenizer::Tokenizer& tok() const { return *tok_; }

 private:
  static infer::Model& model() {
    static infer::Model m(folder(), "", DType::kF32, 512, kernels::cpu_ops());
    return m;
  }
  std::shared_ptr<const tokenizer::Tokenizer> tok_;
  std::shared_ptr<const tokenizer::ChatTemplate> chat_;
  std::unique_ptr<data::SampleEncoder> coder_;
  infer::Scheduler scheduler_;
  std::unique_ptr<Operator> op_;
};

// Rows beside those of the goldens: other shapes, and texts that look like control tokens.
std::vector<OrderedJson> more_rows() {
  std::vector<OrderedJson> rows;
  for (
      const char* row : {
          R"({"conversations":[{"from":"human","value":"Hi </s>"},{"from":"gpt","value":"Yes"}]})",
          R"({"conversations":[{"from":"system","value":"Be brief"},{"from":"user","value":"a"},{"from":"bot","value":"b"}]})",
          R"({"conversations":[{"from":"human","value":"w?"},{"from":"function_call","value":"{\"name\":\"get_weather\",\"arguments\":{\"city\":\"x\"}}"},{"from":"observation","value":"12"},{"from":"model","value":"12 it is"}],"tools":"[{\"name\":\"get_weather\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}]"})",
          R"({"instruction":"Add","input":"1 2","output":"3","history":[["a","b"]]})",
          R"({"question":"<s>2+2?","answer":"<|im_end|>4"})",
          R"({"messages":[{"role":"user","content":[{"type":"text","text":"He"},{"type":"text","text":"llo"}],"name":null},{"role":"assistant","content":"x","reasoning_content":"hm"}]})",
          R"({"messages":[{"role":"user","content":"pay"},{"role":"assistant","content":null,"tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"pay","arguments":"{\"wei\": 123456789012345678901234567890, \"id\": 36893488147419103232}"}}]},{"role":"tool","tool_call_id":"abcdefghi","content":"{\"n\": 100000000000000000000}"},{"role":"assistant","content":"paid"}],"tools":[]})",
          R"({"prompt":[{"role":"user","content":"a"}],"completion":[{"role":"assistant","content":"b"}]})",
      })
    rows.push_back(parsed(row));
  return rows;
}

class SameText : public testing::TestWithParam<const char*> {};

TEST_P(SameText, AllWhoRenderAChatGiveItTheSameTokens) {
  const OrderedJson g = parsed(read_file(kGolden + "shapes.json"));
  const std::string name = GetParam();
  const std::map<std::string, std::string> special =
      g["templates"].contains(name)
          ? g["templates"][name]["special_tokens"].get<std::map<std::string, std::string>>()
          : std::map<std::string, std::string>{{"bos_token", "<|im_start|>"}, {"eos_token", "<|im_end|>"}};
  std::string source = read_file(kGolden + "templates/" + name + ".jinja");
  // Rows of training see a fixed day (data/coder.h), all others today.
  if (const std::string today = "strftime_now(\"%d %b %Y\")"; source.find(today) != std::string::npos)
    source.replace(source.find(today), today.size(), "'1 May 2025'");
  Paths paths(name, source, special);
  std::vector<OrderedJson> rows = more_rows();
  for (const OrderedJson& row : g["rows"]) rows.push_back(row);
  size_t same = 0, refused = 0, counted = 0;
  for (const OrderedJson& row : rows) {
    SCOPED_TRACE(row.dump());
    const data::Record record = row_of(row);
    const data::Example e = data::read_example(record, data::find_layout(record, {}));
    // A client sends the row as it stands, or (shapes that no API has) the messages that were read from it.
    const bool openai = row.contains("messages");
    OrderedJson body;
    body["messages"] = openai ? row["messages"] : *e.messages;
    if (e.tools) body["tools"] = openai ? row["tools"] : *e.tools;
    const OrderedJson messages = body["messages"];

    const auto all = paths.trained(e, true), masked = paths.trained(e, false);
    body["add_generation_prompt"] = false;
    const auto served = paths.tokenized(body);
    body["add_generation_prompt"] = true;
    const auto prompt = paths.tokenized(body);
    if (all && masked) {
      EXPECT_EQ(*all, *masked);  // what is trained of it changes nothing of it
    }
    if (all) {
      ASSERT_TRUE(served) << "trained, and refused by the server";
      EXPECT_EQ(*served, *all);
      ++same;
    } else if (!served) {
      ++refused;
    }
    EXPECT_EQ(paths.sampled(messages, e.tools.get()), prompt);
    if (!e.tools) {
      EXPECT_EQ(paths.evaluated(messages), prompt);
    }
    if (prompt && prompt->size() < 500) {
      EXPECT_EQ(paths.completed(body), static_cast<int64_t>(prompt->size()));
      ++counted;
    }
  }
  EXPECT_GE(same, 6u);  // those without tools, where the template has no place for them
  EXPECT_GT(counted, 5u);
  EXPECT_LT(refused, rows.size());
}

INSTANTIATE_TEST_SUITE_P(Templates, SameText,
                         testing::Values("qwen3", "smollm2", "header_blocks", "bracketed", "joined", "itemized", "bare",
                                         "parts", "marked", "by_index"));

// A tokenizer that begins texts, one that does not, and texts that spell the beginning out.
TEST(SameText, TextsBeginAlikeForAll) {
  const std::string plain = Paths::folder(), begins = testing::TempDir() + "/same_text_begins";
  make_tiny_model(begins);
  OrderedJson t = parsed(read_file(begins + "/tokenizer.json"));
  t["post_processor"] = parsed(
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[256],"tokens":["<s>"]}}})");
  write_file_atomic(begins + "/tokenizer.json", t.dump());
  for (const std::string& folder : {plain, begins}) {
    const auto tok = tokenizer::Tokenizer::from_folder(folder);
    infer::Model model(folder, "", DType::kF32, 64, kernels::cpu_ops());
    infer::Scheduler scheduler(model, {.batch = 2});
    ServedModel s;
    s.model = &model;
    s.scheduler = &scheduler;
    s.tok = tok;
    s.stop = {257};
    s.names = {{"tiny", -1}};
    Operator op(std::move(s), {});
    const auto coder = data::make_coder({tok, nullptr, ""});
    eval::ModelChoice choice;
    choice.path = folder;
    choice.type = DType::kF32;
    choice.tokenizer = tok;
    choice.ops = &kernels::cpu_ops();
    const eval::LanguageModel lm(choice, nullptr);
    choice.rendered = true;
    eval::LanguageModel chats(choice, nullptr);
    const auto asked = [&](const std::string& path, const OrderedJson& body) {
      HttpRequest http;
      http.method = "POST";
      http.path = path;
      http.body = body.dump();
      const auto reply = std::make_shared<Collected>();
      op.handle(http, reply);
      for (int i = 0; i < 100 && !reply->done; ++i) scheduler.step();
      EXPECT_EQ(reply->status, 200) << reply->body;
      return parsed(reply->body);
    };
    for (const char* text : {"Once upon", "<s>Once", "a</s>b", " ", "héllo <s>"}) {
      SCOPED_TRACE(folder + ": " + text);
      const data::Record record = row_of({{"text", text}});
      const Ids trained = data::encode_example(data::read_example(record, data::find_layout(record, {})), *coder,
                                               {.end_text = false}, "row")
                              .ids;
      EXPECT_EQ(asked("/tokenize", {{"prompt", text}})["tokens"].get<Ids>(), trained);
      EXPECT_EQ(lm.encode(text), trained);
      EXPECT_EQ(chats.encode(text), tok->encode(text)) << "as rows that a template renders are trained";
      // Of a prompt with its completion the beginning, too.
      const data::Record pair = row_of({{"prompt", text}, {"completion", "Z"}});
      Ids both = data::encode_example(data::read_example(pair, data::find_layout(pair, {})), *coder, {}, "row").ids;
      ASSERT_GE(both.size(), trained.size());
      both.resize(trained.size());
      EXPECT_EQ(both, trained);
      // The completion's prompt is what is counted and echoed; without special tokens it is the text's alone.
      const OrderedJson c =
          asked("/v1/completions", {{"prompt", text}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 0}});
      EXPECT_EQ(c["usage"]["prompt_tokens"], trained.size());
      EXPECT_TRUE(c["choices"][0]["text"].get<std::string>().starts_with(text));
      const OrderedJson bare =
          asked("/v1/completions", {{"prompt", text}, {"max_tokens", 1}, {"add_special_tokens", false}});
      EXPECT_EQ(bare["usage"]["prompt_tokens"], tok->encode(text).size());
      EXPECT_EQ(asked("/v1/embeddings", {{"input", text}})["usage"]["prompt_tokens"], trained.size());
    }
    if (tok->template_prefix().empty()) continue;
    // A text's perplexity is that of the text behind one BOS, whether it brings that along or not.
    fs::remove(folder + "/requests.jsonl");
    eval::RequestCache cache(folder + "/requests.jsonl");
    std::vector<eval::Request> rolling(2);
    for (eval::Request& r : rolling) r.type = eval::OutputType::kRolling;
    rolling[0].continuation = "Once upon", rolling[1].continuation = "<s>Once upon";
    EXPECT_TRUE(chats.run({&rolling[0], &rolling[1]}, 1, cache));
    EXPECT_EQ(rolling[0].responses, rolling[1].responses);
  }
}

}  // namespace
}  // namespace mxt::serve

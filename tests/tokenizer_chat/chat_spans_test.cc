// What of a chat is trained on, what is plain text, and what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "folders.h"
#include "tokenizer/chat/chat_template.h"

namespace mxt::tokenizer {
namespace {

const std::string kTemplates = std::string(kSourceDir) + "/tests/golden/tokenizer_chat/templates/";

std::shared_ptr<const ChatTemplate> load(const std::string& name, const std::string& eos,
                                         const std::vector<std::string>& control = {}) {
  return ChatTemplate::compile(read_file(kTemplates + name + ".jinja"), name,
                               {{"bos_token", "<s>"}, {"eos_token", eos}}, control);
}
std::shared_ptr<const ChatTemplate> qwen3() { return load("qwen3", "<|im_end|>"); }

struct Request {
  std::string messages, tools = "null", kwargs = "{}";
  bool add_generation_prompt = false;
  size_t trained_from = 0;
};

RenderedChat render(const ChatTemplate& t, const Request& r) {
  const OrderedJson messages = parse_ordered_json(r.messages, "messages");
  const OrderedJson tools = parse_ordered_json(r.tools, "tools"), kwargs = parse_ordered_json(r.kwargs, "kwargs");
  ChatInput in;
  in.messages = &messages;
  in.tools = &tools;
  in.kwargs = &kwargs;
  in.add_generation_prompt = r.add_generation_prompt;
  in.now = 0;
  in.trained_from = r.trained_from;
  return t.render(in);
}

using Texts = std::vector<std::string>;
Texts cut(const RenderedChat& c, const std::vector<Span>& spans) {
  Texts out;
  for (const Span& s : spans) out.push_back(c.text.substr(s.begin, s.end - s.begin));
  return out;
}
Texts trained(const ChatTemplate& t, const Request& r) {
  const RenderedChat c = render(t, r);
  return cut(c, c.assistant);
}

const char* kTool = R"([{"type":"function","function":{"name":"f","parameters":{}}}])";
const std::string kUser = R"({"role":"user","content":"Hi"})";
const std::string kAnswer = R"({"role":"assistant","content":"Yo"})";
const std::string kReasons = R"({"role":"assistant","content":"Yo","reasoning_content":"hm"})";
const std::string kCalls = R"({"role":"assistant","content":"Wait.","tool_calls":[{"id":"abcdefghi","type":"function",)"
                           R"("function":{"name":"f","arguments":{"x":1}}}]})";
const std::string kResult = R"({"role":"tool","content":"ok","tool_call_id":"abcdefghi"})";
std::string list(std::initializer_list<std::string> parts) {
  std::string s = "[";
  for (const auto& p : parts) s += (s.size() > 1 ? "," : "") + p;
  return s + "]";
}

TEST(TrainedSpans, Qwen3FromAfterTheHeaderThroughTheEndToken) {
  EXPECT_EQ(trained(*qwen3(), {list({kUser, kAnswer, kUser, kAnswer})}),
            (Texts{"Yo<|im_end|>", "<think>\n\n</think>\n\nYo<|im_end|>"}));
  EXPECT_EQ(trained(*qwen3(), {list({kUser})}), Texts{});
}

TEST(TrainedSpans, Qwen3ThinkTextCountsUnlessItIsThePrompts) {
  const std::string off = R"({"enable_thinking":false})";
  EXPECT_EQ(trained(*qwen3(), {list({kUser, kReasons})}), Texts{"<think>\nhm\n</think>\n\nYo<|im_end|>"});
  EXPECT_EQ(trained(*qwen3(), {list({kUser, kAnswer}), "null", off}), Texts{"Yo<|im_end|>"});
  // Answers of the past have no think block: their header is the prompt's beginning.
  EXPECT_EQ(trained(*qwen3(), {list({kUser, kAnswer, kUser, kAnswer}), "null", off}),
            (Texts{"Yo<|im_end|>", "Yo<|im_end|>"}));
  EXPECT_EQ(trained(*qwen3(), {list({kUser, R"({"role":"assistant","content":"<b>"})", kUser, kAnswer}), "null", off}),
            (Texts{"<b><|im_end|>", "Yo<|im_end|>"}));
  EXPECT_EQ(trained(*qwen3(), {list({kUser, kReasons}), "null", off}), Texts{"<think>\nhm\n</think>\n\nYo<|im_end|>"});
}

TEST(TrainedSpans, Qwen3ToolCallsAndTurnsWithoutContent) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>";
  EXPECT_EQ(trained(*qwen3(), {list({kUser, kCalls, kResult, kAnswer}), kTool}),
            (Texts{"Wait.\n" + call, "<think>\n\n</think>\n\nYo<|im_end|>"}));
  EXPECT_EQ(trained(*qwen3(), {list({kUser, R"({"role":"assistant","content":""})", kUser})}), Texts{"<|im_end|>"});
  EXPECT_EQ(trained(*qwen3(), {list({kAnswer, kUser, kAnswer, kAnswer})}).size(), 3u);
}

TEST(TrainedSpans, DefaultSystemPromptBeforeAFirstAnswerIsNotTrained) {
  EXPECT_EQ(trained(*load("smollm2", "<|im_end|>"), {list({kAnswer, kUser, kAnswer})}),
            (Texts{"Yo<|im_end|>", "Yo<|im_end|>"}));
}

TEST(TrainedSpans, WithoutAGenerationPromptTheTurnItself) {
  const auto t = load("bracketed", "</s>");
  EXPECT_EQ(trained(*t, {list({kUser, kAnswer, kUser, kAnswer})}), (Texts{"Yo</s>", "Yo</s>"}));
  EXPECT_EQ(trained(*t, {list({kUser, kCalls, kResult, kAnswer}), kTool}),
            (Texts{R"([CALLS][{"name": "f", "arguments": {"x": 1}, "id": "abcdefghi"}]</s>)", "Yo</s>"}));
}

TEST(TrainedSpans, OtherEndTokensMustBeKnown) {
  const Request r{
      list({kUser, R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"x":"1"}}}]})"}), "null",
      R"({"builtin":["f"],"date":"d"})"};
  EXPECT_THROW(trained(*load("header_blocks", "<|end|>"), r), TurnNotLocated);
  EXPECT_EQ(trained(*load("header_blocks", "<|end|>", {"<|more|>"}), r), Texts{R"(<|python|>f.call(x="1")<|more|>)"});
}

TEST(TrainedSpans, TemplatesOwnMarksWin) {
  EXPECT_EQ(trained(*load("marked", "<|stop|>"), {list({kUser, kAnswer, kUser, kAnswer})}),
            (Texts{"Yo<|stop|>", "Yo<|stop|>"}));
  // What a block prints is marked also where a macro or a captured block made it before.
  const auto macro = ChatTemplate::compile(
      "{% macro say(c) %}{{ c }}{% endmacro %}{% for m in messages %}{% set said = say(m.content) %}"
      "{% set twice %}[{{ said }}]{% endset %}{{ '<' + m.role + '>' }}"
      "{% if m.role == 'assistant' %}{% generation %}{{ said + twice + '</s>' }}{% endgeneration %}"
      "{% else %}{{ said }}{% endif %}{% endfor %}",
      "macro", {{"eos_token", "</s>"}});
  EXPECT_EQ(trained(*macro, {list({kUser, kAnswer, kUser, kAnswer})}), (Texts{"Yo[Yo]</s>", "Yo[Yo]</s>"}));
  EXPECT_EQ(trained(*macro, {.messages = list({kUser, kAnswer, kUser, kAnswer}), .trained_from = 2}),
            Texts{"Yo[Yo]</s>"});
}

TEST(TrainedSpans, ChatsWithToolsHaveATemplateOfTheirOwn) {
  const auto plain = load("marked", "<|stop|>");
  const auto both = plain->with_tools(ChatTemplate::compile(
      "{{ tools | length }}{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor "
      "%}</s>"
      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}{{ tools | tojson }}",
      "tools", {{"eos_token", "</s>"}}));
  const std::string chat = list({kUser, kAnswer});
  EXPECT_EQ(trained(*both, {chat}), Texts{"Yo<|stop|>"});
  EXPECT_EQ(trained(*both, {chat, kTool}), Texts{"Yo</s>"});
  EXPECT_EQ(trained(*both, {chat, "[]"}), Texts{"Yo</s>"});  // as transformers: there are tools, none of them
}

TEST(TrainedSpans, TurnsOfThePromptAreContext) {
  const std::string chat = list({kUser, kAnswer, kUser, kReasons, kUser, kCalls});
  const Texts all = trained(*qwen3(), {chat});
  ASSERT_EQ(all.size(), 3u);
  for (size_t from = 0; from <= 6; ++from)
    EXPECT_EQ(trained(*qwen3(), {.messages = chat, .trained_from = from}),
              Texts(all.begin() + static_cast<ptrdiff_t>(from / 2), all.end()));
  const auto marked = load("marked", "<|stop|>");
  EXPECT_EQ(trained(*marked, {.messages = list({kUser, kAnswer, kUser, kReasons}), .trained_from = 2}),
            Texts{"Yo<|stop|>"});
  EXPECT_EQ(trained(*marked, {.messages = list({kUser, kAnswer, kUser}), .trained_from = 2}), Texts{});
  // Marked outside a loop: whose turn that is cannot be told.
  const auto loose =
      ChatTemplate::compile("{{ messages[0].content }}{% generation %}{{ messages[1].content }}</s>{% endgeneration %}",
                            "loose", {{"eos_token", "</s>"}});
  EXPECT_EQ(trained(*loose, {list({kUser, kAnswer})}), Texts{"Yo</s>"});
  EXPECT_THROW(trained(*loose, {.messages = list({kUser, kAnswer}), .trained_from = 1}), TurnNotLocated);
}

TEST(TrainedSpans, TemplateThatGoesOverIndices) {
  const auto t = load("by_index", "<|stop|>");
  EXPECT_EQ(trained(*t, {list({kUser, kAnswer, kUser, kReasons})}),
            (Texts{"Yo<|stop|>", "hm\n</think>\n\nYo<|stop|>"}));
}

TEST(TrainedSpans, RefusesRatherThanGuesses) {
  const auto twice = ChatTemplate::compile(
      "{% for m in messages %}{{ m.content }}</s>{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}",
      "twice", {{"eos_token", "</s>"}});
  EXPECT_THROW(trained(*twice, {list({kUser, kAnswer})}), TurnNotLocated);
  const auto endless =
      ChatTemplate::compile("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "endless", {});
  EXPECT_THROW(trained(*endless, {list({kUser, kAnswer})}), TurnNotLocated);
  const auto silent =
      ChatTemplate::compile("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", "silent", {});
  EXPECT_THROW(trained(*silent, {list({kUser, kAnswer})}), TurnNotLocated);
}

TEST(TrainedSpans, CapturedAndTransformedTextKeepsItsTurn) {
  const auto t = ChatTemplate::compile(
      "{% macro say(m) %}<|{{ m.role }}|>{{ m.content | trim | replace('o', '0') }}<|end|>\n{% endmacro %}"
      "{% set body %}{% for m in messages %}{{ say(m) }}{% endfor %}{% endset %}{{ body | trim }}"
      "{% if add_generation_prompt %}\n<|assistant|>{% endif %}",
      "captured", {{"eos_token", "<|end|>"}});
  EXPECT_EQ(trained(*t, {list({kUser, kAnswer})}), Texts{"Y0<|end|>"});
}

TEST(PlainSpans, MessageTextIsPlainAndTheTemplatesIsNot) {
  const RenderedChat c = render(*qwen3(), {list({R"({"role":"user","content":"<|im_end|> x"})", kReasons}), kTool});
  const Texts plain = cut(c, c.plain);
  EXPECT_EQ(plain, (Texts{R"({"type": "function", "function": {"name": "f", "parameters": {}}})", "<|im_end|> x", "hm",
                          "Yo"}));
}

TEST(PlainSpans, ControlTokenJoinedFromPiecesTouchesPlainText) {
  const auto t = ChatTemplate::compile("{% for m in messages %}<|{{ m.role }}|>[{{ m.content }}]</s>{% endfor %}",
                                       "join", {{"eos_token", "</s>"}});
  const RenderedChat c = render(*t, {R"([{"role":"user","content":"INST"},{"role":"evil|>","content":"x"}])"});
  EXPECT_EQ(cut(c, c.plain), (Texts{"INST", "evil|>", "x"}));  // the known role `user` is the template's
}

TEST(DroppedFields, ToolsAndToolCallsThatATemplateIgnores) {
  const auto smol = load("smollm2", "<|im_end|>");
  EXPECT_THROW(trained(*smol, {list({kUser, kAnswer}), kTool}), FieldDropped);
  EXPECT_THROW(trained(*smol, {list({kUser, kCalls})}), FieldDropped);
  EXPECT_NO_THROW(trained(*smol, {list({kUser, kAnswer}), "[]"}));
  const auto first = ChatTemplate::compile(
      "{{ tools[0] | tojson }}{% for m in messages %}{{ m.content }}{{ m.tool_calls[0].function.name if m.tool_calls "
      "}}</s>"
      "{% endfor %}",
      "first", {{"eos_token", "</s>"}});
  const std::string two = R"([{"name":"f"},{"name":"g"}])";
  EXPECT_THROW(trained(*first, {list({kUser}), two}), FieldDropped);
  EXPECT_THROW(trained(*first, {list({kUser, kCalls}), R"([{"name":"f"}])"}), FieldDropped);  // the arguments
}

TEST(Kwargs, CannotReplaceWhatTheTemplateStandsOn) {
  for (const char* kwargs :
       {R"({"messages":[]})", R"({"tools":[]})", R"({"add_generation_prompt":true})", R"({"raise_exception":1})",
        R"({"eos_token":"x"})", R"({"_x":1})", R"({"a b":1})", R"({"namespace":1})", R"({"chat_template":"x"})", "[1]"})
    EXPECT_THROW(render(*qwen3(), {list({kUser}), "null", kwargs}), Error) << kwargs;
}

TEST(Refusal, CarriesTheTemplatesReasonAndLine) {
  try {
    render(*load("bracketed", "</s>"), {list({kAnswer})});
    FAIL();
  } catch (const jinja::TemplateRefused& e) {
    EXPECT_EQ(e.reason(), "Roles must alternate user/assistant/user/assistant/…");
    EXPECT_NE(std::string(e.what()).find("bracketed:"), std::string::npos);
    EXPECT_GT(e.line(), 10u);
  }
}

// Names of unread members, with their messages, and messages whose reasoning is left out.
std::string unread(const ChatTemplate& t, const std::string& messages, const std::string& tools = "null") {
  const RenderedChat c = render(t, {messages, tools});
  std::string all;
  for (const auto& [name, i] : c.unread) all += fmt::format("{}@{} ", name, i);
  for (const size_t i : c.left_out_thoughts) all += fmt::format("thought@{} ", i);
  return all;
}

// As Qwen 2.5's: it names the members of functions and tools, and of who speaks the role alone.
const char* const kCalling =
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content }}{% for c in m.tool_calls %}{{ '<tool_call>{\"name\": \"' + "
    "c.function.name + '\", \"arguments\": ' + (c.function.arguments | tojson) + '}</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
std::shared_ptr<const ChatTemplate> calling() {
  return ChatTemplate::compile(kCalling, "calling", {{"eos_token", "<|im_end|>"}});
}

// A template that reads function.name and tool.arguments reads no name of who speaks.
TEST(UnreadMembers, AreFoundByWhatTheTemplateDoes) {
  const auto with = [](const char* role, const std::string& member) {
    return R"({"role":")" + std::string(role) + R"(","content":"x",)" + member + "}";
  };
  for (const auto& t : {qwen3(), calling()}) {
    for (const char* member : {"name", "function", "arguments", "type", "tool_call_id"})
      EXPECT_EQ(unread(*t, list({with("user", fmt::format("\"{}\":\"bob\"", member)), kAnswer})),
                fmt::format("{}@0 ", member));
    EXPECT_EQ(unread(*t, list({kUser, with("assistant", R"("name":"bob")")})), "name@1 ");
    EXPECT_EQ(unread(*t, list({with("user", R"("name":"")"), kAnswer})), "");
    // Whose result it is.
    EXPECT_EQ(
        unread(*t, list({kUser, kCalls, with("tool", R"("name":"f","tool_call_id":"abcdefghi")"), kAnswer}), kTool),
        "");
  }
  const auto reads = [](const std::string& source) {
    return ChatTemplate::compile(
        "{% for m in messages %}{{ m.role }}: " + source +
            "{{ m.content }}_\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
        "t", {{"eos_token", "_"}});
  };
  const auto by_name = [&](const std::string& t, const std::string& member) {
    return unread(*reads(t), list({with("user", member), kAnswer}));
  };
  EXPECT_EQ(by_name("{{ m.name }}", R"("name":"bob")"), "");
  EXPECT_EQ(by_name("{% if m.name is defined %}!{% endif %}", R"("name":"bob")"), "");
  EXPECT_EQ(by_name("{% if m.name == 'eve' %}!{% endif %}", R"("name":"bob")"), "name@0 ");  // nothing comes of it
  EXPECT_EQ(by_name("{% if m.shout %}!{% endif %}", R"("shout":false)"), "");
  EXPECT_EQ(by_name("{% if m.role == 'assistant' %}{{ m.name }}{% endif %}", R"("name":"bob")"), "name@0 ");
  EXPECT_EQ(by_name("{{ m | tojson }}", R"("score":3)"), "");
}

TEST(UnreadMembers, OfCallsToo) {
  const auto call = [](const std::string& in_call, const std::string& in_function) {
    return R"({"role":"assistant","content":"","tool_calls":[{"id":"abcdefghi","type":"function","index":0,"function":)"
           R"({"name":"f","arguments":{"x":1})" +
           in_function + "}" + in_call + "}]}";
  };
  const auto t = calling();
  EXPECT_EQ(unread(*t, list({kUser, call("", "")}), kTool), "");
  EXPECT_EQ(unread(*t, list({kUser, call(R"(,"thoughts":"hm")", "")}), kTool), "tool_calls.thoughts@1 ");
  EXPECT_EQ(unread(*t, list({kUser, call("", R"(,"thoughts":"hm","description":"d")")}), kTool),
            "tool_calls.function.thoughts@1 tool_calls.function.description@1 ");
  const auto all = ChatTemplate::compile(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}_\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}",
      "all", {{"eos_token", "_"}});
  EXPECT_EQ(unread(*all, list({kUser, call(R"(,"thoughts":"hm")", "")})), "");
  // Calls without an envelope: what stood outside of the function is said, or printed, all the same.
  const std::string bare =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}{{ c.name ~ ' ' ~ (c.arguments | "
      "tojson) }}{{ SIGNED }}{% endfor %}_\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";
  const auto with = [&](const std::string& read) {
    std::string source = bare;
    return ChatTemplate::compile(source.replace(source.find("SIGNED"), 6, read), "bare", {{"eos_token", "_"}});
  };
  EXPECT_EQ(unread(*with("''"), list({kUser, call("", "")})), "");
  EXPECT_EQ(unread(*with("''"), list({kUser, call(R"(,"thoughts":"hm","weight":0)", R"(,"strict":true)")})),
            "tool_calls.strict@1 tool_calls.thoughts@1 tool_calls.weight@1 ");
  EXPECT_EQ(unread(*with("c.thoughts"), list({kUser, call(R"(,"thoughts":"hm")", "")})), "");
}

TEST(LeftOutThoughts, ThoseOfEarlierTurnsThatAreTrained) {
  const std::string in_text = R"({"role":"assistant","content":"<think>\nhm\n</think>\n\nYo"})";
  for (const std::string& reasons : {kReasons, in_text}) {
    EXPECT_EQ(unread(*qwen3(), list({kUser, reasons})), "");
    EXPECT_EQ(unread(*qwen3(), list({kUser, reasons, kUser, reasons})), "thought@1 ");
    EXPECT_EQ(unread(*qwen3(), list({kUser, reasons, kUser, reasons, kUser, kAnswer})), "thought@1 thought@3 ");
    const std::string context = reasons.substr(0, reasons.size() - 1) + R"(,"loss":false})";
    EXPECT_EQ(unread(*qwen3(), list({kUser, context, kUser, reasons})), "");
  }
  // What a template does not know at all is no thought to it.
  EXPECT_EQ(unread(*calling(), list({kUser, kReasons, kUser, kAnswer})), "reasoning_content@1 ");
  EXPECT_EQ(unread(*calling(), list({kUser, in_text, kUser, kAnswer})), "");
}

}  // namespace
}  // namespace mxt::tokenizer

// POST /v1/chat/completions.
#include <cmath>
#include <set>

#include "base/error.h"
#include "serve/generation.h"
#include "serve/grammar/json_grammar.h"
#include "tokenizer/chat/input/conversation.h"

namespace mxt::serve {
namespace {

class Chat final : public Generation {
 public:
  struct Plan {
    ParserSettings parser;
    OrderedJson tools;
    bool logprobs = false, one_call = false;
  };
  Chat(OperatorState& s, std::shared_ptr<Reply> reply, TicketPtr ticket, CommonFields common, std::string model,
       Plan plan)
      : Generation(s, std::move(reply), std::move(ticket), std::move(common), std::move(model)),
        plan_(std::move(plan)),
        id_("chatcmpl-" + random_hex(24)) {
    per_prompt_ = static_cast<size_t>(common_.n);
    tags_ = plan_.parser.tools != ToolStyle::kNone || plan_.parser.reasoning != ReasoningStyle::kNone;
    plan_.parser.tool_list = plan_.tools.is_null() ? nullptr : &plan_.tools;
    for (size_t i = 0; i < per_prompt_; ++i) {
      plan_.parser.id_prefix = "call_" + random_hex(16);
      outputs_.push_back({make_parser(plan_.parser), {}, {}, {}, OrderedJson::array(), false, false});
    }
  }

 private:
  struct Output {
    std::unique_ptr<OutputParser> parser;
    std::string content, reasoning;
    OrderedJson calls = OrderedJson::array(), logprobs = OrderedJson::array();
    bool greeted, called;
    bool cut = false;  // a stop text came inside a call
  };

  OrderedJson describe(const infer::NewToken& t) const {
    auto one = [&](int32_t id, float logprob) {
      const std::string bytes = s_.served.tok->token_bytes(id);
      OrderedJson list = OrderedJson::array();
      for (char c : bytes) list.push_back(static_cast<unsigned char>(c));
      return OrderedJson{{"token", token_text(id)},
                         {"logprob", std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0},
                         {"bytes", std::move(list)}};
    };
    OrderedJson j = one(t.id, t.logprob), top = OrderedJson::array();
    for (const auto& l : t.likely) top.push_back(one(l.id, l.logprob));
    j["top_logprobs"] = std::move(top);
    return j;
  }
  OrderedJson frame(const char* object) const {
    return {
        {"id", id_}, {"object", object}, {"created", created_}, {"model", model_}, {"choices", OrderedJson::array()}};
  }
  void send(const Choice& c, Output& o, OrderedJson delta) {
    OrderedJson j = frame("chat.completion.chunk");
    OrderedJson one{{"index", c.index}, {"delta", std::move(delta)}};
    one["logprobs"] = o.logprobs.empty() ? OrderedJson(nullptr)
                                         : OrderedJson{{"content", std::move(o.logprobs)}, {"refusal", nullptr}};
    o.logprobs = OrderedJson::array();
    one["finish_reason"] = c.done ? OrderedJson(reason(c, o)) : OrderedJson(nullptr);
    j["choices"].push_back(std::move(one));
    put_usage(j);
    write_event(j);
  }
  std::string reason(const Choice& c, const Output& o) const {
    return o.called && !o.cut && c.reason == "stop" ? "tool_calls" : c.reason;
  }

  // What the parser made of new text; false where a second call begins and one was wanted.
  bool take(const Choice& c, Output& o, const Deltas& deltas) {
    if (common_.stream && !o.greeted) {
      o.greeted = true;
      OrderedJson held = std::move(o.logprobs);
      o.logprobs = OrderedJson::array();
      Choice open = c;
      open.done = false;
      send(open, o, {{"role", "assistant"}, {"content", ""}});
      o.logprobs = std::move(held);
    }
    for (const Delta& d : deltas) {
      OrderedJson delta = OrderedJson::object();
      const bool tool = d.kind == Delta::Kind::kToolBegin || d.kind == Delta::Kind::kToolArguments;
      if (tool && plan_.one_call && d.index > 0) return false;
      switch (d.kind) {
        case Delta::Kind::kContent:
          o.content += d.text;
          delta["content"] = d.text;
          break;
        case Delta::Kind::kReasoning:
          o.reasoning += d.text;
          delta["reasoning"] = delta["reasoning_content"] = d.text;
          break;
        case Delta::Kind::kNoReasoning:
          o.reasoning.clear();
          continue;
        case Delta::Kind::kToolBegin:
          o.called = true;
          o.calls.push_back({{"id", d.id}, {"type", "function"}, {"function", {{"name", d.name}, {"arguments", ""}}}});
          delta["tool_calls"] = OrderedJson::array({{{"index", d.index},
                                                     {"id", d.id},
                                                     {"type", "function"},
                                                     {"function", {{"name", d.name}, {"arguments", ""}}}}});
          break;
        case Delta::Kind::kToolArguments: {
          auto& arguments = o.calls.back()["function"]["arguments"];
          arguments = arguments.get<std::string>() + d.text;
          delta["tool_calls"] = OrderedJson::array({{{"index", d.index}, {"function", {{"arguments", d.text}}}}});
          break;
        }
      }
      if (common_.stream) {
        Choice open = c;
        open.done = false;
        send(open, o, std::move(delta));
      }
    }
    return true;
  }

  void on_token(Choice& c, const infer::NewToken& t) override {
    if (plan_.logprobs) outputs_[c.index].logprobs.push_back(describe(t));
  }
  bool on_text(Choice& c, const std::string& text) override {
    Output& o = outputs_[c.index];
    Deltas deltas;
    o.parser->push(text, deltas);
    return take(c, o, deltas);
  }
  void on_end(Choice& c, const std::string& text) override {
    Output& o = outputs_[c.index];
    Deltas deltas;
    o.parser->push(text, deltas);
    o.cut = c.text.stopped() && o.parser->in_call();
    o.parser->finish(deltas, c.reason == "stop");
    take(c, o, deltas);
    if (common_.stream) {
      send(c, o, OrderedJson::object());
      return;
    }
    OrderedJson message{{"role", "assistant"},
                        {"content", o.content.empty() && o.called ? OrderedJson(nullptr) : OrderedJson(o.content)},
                        {"refusal", nullptr}};
    if (!o.reasoning.empty()) message["reasoning"] = message["reasoning_content"] = o.reasoning;
    if (o.called) message["tool_calls"] = std::move(o.calls);
    OrderedJson one{{"index", c.index}, {"message", std::move(message)}};
    one["logprobs"] =
        plan_.logprobs ? OrderedJson{{"content", std::move(o.logprobs)}, {"refusal", nullptr}} : OrderedJson(nullptr);
    one["finish_reason"] = reason(c, o);
    finished_[c.index] = std::move(one);
  }
  OrderedJson body() override {
    OrderedJson j = frame("chat.completion");
    for (auto& [i, c] : finished_) j["choices"].push_back(std::move(c));
    return j;
  }
  OrderedJson last_chunk() override { return frame("chat.completion.chunk"); }

  Plan plan_;
  std::string id_;
  std::vector<Output> outputs_;
  std::map<size_t, OrderedJson> finished_;
};

enum class ToolChoice { kNone, kAuto, kRequired };

// The tool that {"type": "function", "function": {"name": …}} names, with or without its envelope, as tools may be.
std::string named_tool(const OrderedJson& choice, const OrderedJson& tools, const std::string& param) {
  const OrderedJson named = tokenizer::with_envelope(choice);
  const auto path = OrderedJson::json_pointer("/function/name");
  if (!named.is_object() || !named.contains(path) || !named[path].is_string())
    refuse(param, "{} must be {}{{\"type\":\"function\",\"function\":{{\"name\":…}}}}", param,
           param == "tool_choice" ? "none, auto, required, {\"type\":\"allowed_tools\",…} or " : "");
  const auto name = named[path].get<std::string>();
  for (const auto& t : tools)
    if (t[path] == name) return name;
  refuse(param, "{} names {}, which is not among the tools", param, name);
}

// {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}: the model is offered those alone.
ToolChoice read_allowed_tools(const OrderedJson& choice, OrderedJson& tools) {
  const Fields f(choice, "tool_choice.");
  f.only({"type", "allowed_tools"});
  const OrderedJson* v = f.get("allowed_tools");
  if (!v || !v->is_object())
    refuse("tool_choice.allowed_tools", "tool_choice.allowed_tools must be {{\"mode\":…,\"tools\":[…]}}");
  const Fields inside(*v, "tool_choice.allowed_tools.");
  inside.only({"mode", "tools"});
  const std::string mode = inside.text("mode");
  if (mode != "auto" && mode != "required")
    refuse(inside.path("mode"), "{} must be auto or required", inside.path("mode"));
  const OrderedJson* list = inside.get("tools");
  if (!list || !list->is_array() || list->empty())
    refuse(inside.path("tools"), "{} must be a list of at least one tool", inside.path("tools"));
  std::set<std::string> names;
  for (size_t i = 0; i < list->size(); ++i)
    names.insert(named_tool((*list)[i], tools, fmt::format("{}[{}]", inside.path("tools"), i)));
  OrderedJson allowed = OrderedJson::array();
  for (auto& t : tools)
    if (names.contains(t["function"]["name"].get<std::string>())) allowed.push_back(std::move(t));
  tools = std::move(allowed);
  return mode == "auto" ? ToolChoice::kAuto : ToolChoice::kRequired;
}

// Takes out of `tools` what the request does not allow; `only` is the one function that must be called, if any.
ToolChoice read_tool_choice(const Fields& f, OrderedJson& tools, std::string& only) {
  const OrderedJson* v = f.get("tool_choice");
  if (!v) return tools.is_null() ? ToolChoice::kNone : ToolChoice::kAuto;
  if (v->is_string()) {
    const auto& t = v->get_ref<const std::string&>();
    if (t == "none") return ToolChoice::kNone;
    if (t != "auto" && t != "required")
      refuse("tool_choice", "tool_choice must be none, auto, required, allowed tools or a function");
    if (tools.is_null()) {
      if (t == "auto") return ToolChoice::kNone;
      refuse("tool_choice", "tool_choice is required, but there are no tools");
    }
    return t == "auto" ? ToolChoice::kAuto : ToolChoice::kRequired;
  }
  if (v->is_object() && v->contains("type") && (*v)["type"] == "allowed_tools") return read_allowed_tools(*v, tools);
  only = named_tool(*v, tools, "tool_choice");
  return ToolChoice::kRequired;
}

// What the answer is held to; null where it is free.
std::shared_ptr<Automaton> answer_grammar(OperatorState& s, const Fields& f, const ChatPrompt& p, ToolChoice choice,
                                          const std::string& only, bool one_call) {
  const OrderedJson* format = f.get("response_format");
  std::string type = "text";
  OrderedJson schema;
  if (format) {
    if (!format->is_object()) refuse("response_format", "response_format must be an object");
    const Fields inside(*format, "response_format.");
    inside.only({"type", "json_schema"});
    type = inside.text("type");
    if (type == "json_schema") {
      const OrderedJson* j = inside.get("json_schema");
      if (!j || !j->is_object()) refuse("response_format.json_schema", "response_format.json_schema is missing");
      const Fields spec(*j, "response_format.json_schema.");
      spec.only({"name", "description", "schema", "strict"});
      spec.text("name");
      spec.text("description");
      spec.flag("strict", false);
      if (!spec.has("schema"))
        refuse("response_format.json_schema.schema", "response_format.json_schema.schema is missing");
      schema = *spec.get("schema");
    } else if (type != "text" && type != "json_object") {
      refuse("response_format.type", "response_format.type must be text, json_object or json_schema");
    }
  }
  if (choice == ToolChoice::kRequired && type != "text")
    refuse("response_format", "response_format and a required tool call exclude each other");
  const bool think = p.thinking && s.settings.reasoning == ReasoningStyle::kThinkTags;
  auto compile = [&](auto&& body, const std::string& source, const char* param) {
    try {
      const auto plain = s.grammar(source, [&] {
        JsonGrammar g;
        const auto root = body(g);
        return g.take(root);
      });
      if (!think) return plain;
      return s.grammar(source + (p.thinking_opened ? " after thinking" : " thinking"), [&] {
        JsonGrammar g;
        const auto inner = body(g);
        return g.take(g.after_thinking(inner, p.thinking_opened));
      });
    } catch (const Error& e) {
      refuse(param, "{}: {}", param, e.what());
    } catch (const OrderedJson::exception&) {  // a value of another type than its keyword has
      refuse(param, "{}: this is no JSON schema", param);
    }
  };
  if (choice == ToolChoice::kRequired) {
    const ToolStyle style = s.settings.tools;
    if (style == ToolStyle::kNone) refuse("tool_choice", "this server has no tool-call parser");
    return compile([&](JsonGrammar& g) { return g.tool_calls(p.tools, only, style, one_call || !only.empty()); },
                   fmt::format("tools {} {} {} {}", static_cast<int>(style), only, one_call, dump(p.tools)), "tools");
  }
  if (type == "text") return nullptr;
  // Where the model may call tools the answer is as the schema says, or calls.
  const bool may_call = choice == ToolChoice::kAuto && s.settings.tools != ToolStyle::kNone;
  const auto body = [&](JsonGrammar& g) {
    const auto said = type == "json_object" ? g.any_object() : g.schema(schema);
    if (!may_call) return said;
    try {
      return g.any_of({said, g.tool_calls(p.tools, "", s.settings.tools, one_call)});
    } catch (const Error& e) {
      refuse("tools", "tools: {}", e.what());
    }
  };
  std::string source = type == "json_object" ? "object" : "schema " + dump(schema);
  if (may_call)
    source += fmt::format(" or tools {} {} {}", static_cast<int>(s.settings.tools), one_call, dump(p.tools));
  return compile(body, source, "response_format");
}

}  // namespace

void chat_completions(OperatorState& s, const HttpRequest& http, std::shared_ptr<Reply> reply, TicketPtr ticket,
                      int key) {
  const OrderedJson body = parse_body(http.body);
  const Fields f(body);
  if (f.has("chat_template")) refuse("chat_template", "a request's own chat template is not accepted");
  f.only({"messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls",
          "response_format", "chat_template_kwargs", "reasoning_effort", "store", "metadata", "service_tier",
          "safety_identifier", "prompt_cache_key", "modalities", "add_generation_prompt", "continue_final_message"},
         kCommonNames);
  // Taken from clients and without effect here: checked all the same, so that a mistake does not wait for another
  // server.
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key", "service_tier"}) f.text(name);
  f.flag("store", false);
  if (const OrderedJson* m = f.get("metadata")) {
    if (!m->is_object()) refuse("metadata", "metadata must be an object of texts");
    for (const auto& [key, value] : m->items())
      if (!value.is_string()) refuse("metadata", "metadata must be an object of texts");
  }
  if (const OrderedJson* m = f.get("modalities"); m && *m != OrderedJson::array({"text"}))
    refuse("modalities", "modalities must be [\"text\"]: answers are text");
  std::string model;
  const int adapter = s.adapter_of(f, model);
  for (const char* name : {"max_tokens", "max_completion_tokens"})
    if (f.integer(name, 1, 0, INT32_MAX) == 0) refuse(name, "{} must be at least 1", name);
  CommonFields common = read_common(s, f, f.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens", -1);
  Chat::Plan plan;
  plan.logprobs = f.flag("logprobs", false);
  const int64_t likely = f.integer("top_logprobs", 0, 0, s.settings.max_logprobs);
  if (likely > 0 && !plan.logprobs) refuse("top_logprobs", "top_logprobs needs logprobs to be true");
  std::string only;
  OrderedJson tools = read_tools(f);
  const ToolChoice choice = read_tool_choice(f, tools, only);
  ChatPrompt prompt = render_chat(s, f, choice != ToolChoice::kNone ? std::move(tools) : OrderedJson());
  s.check_length(prompt.ids, "messages");
  plan.one_call = !f.flag("parallel_tool_calls", true);
  const auto grammar = answer_grammar(s, f, prompt, choice, only, plan.one_call);
  plan.parser.reasoning = s.settings.reasoning;
  plan.parser.starts_thinking = prompt.thinking_opened || (prompt.thinking && s.settings.always_thinks);
  plan.parser.tools = prompt.tools.is_null() ? ToolStyle::kNone : s.settings.tools;
  plan.tools = prompt.tools;

  std::vector<infer::Request> requests;
  infer::Request& r = common.request;
  r.prompt = std::move(prompt.ids);
  r.shown = std::move(prompt.shown);
  r.logprobs = plan.logprobs ? likely : -1;
  r.adapter = adapter;
  r.group = static_cast<uint64_t>(key + 1);
  const uint64_t seed = r.sampling.seed;
  for (int64_t i = 0; i < common.n; ++i) {
    requests.push_back(r);
    requests.back().sampling.seed = seed + static_cast<uint64_t>(i);
    if (grammar) requests.back().constraint = grammar_constraint(grammar);
  }
  std::make_shared<Chat>(s, std::move(reply), std::move(ticket), std::move(common), std::move(model), std::move(plan))
      ->start(std::move(requests), http);
}

}  // namespace mxt::serve

// One server in this process without sockets, asked one request after another; what any answer has to hold.
#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "infer/end_of_turn.h"
#include "serve/any_request.h"
#include "serve/operator.h"
#include "serve/tiny_model.h"

namespace mxt::serve {

class Collected final : public Reply {
 public:
  void send(HttpAnswer a) override { status = a.status, body = std::move(a.body), done = true; }
  void begin(int s, Headers) override { status = s, streamed = true; }
  void write(std::string piece) override { body += piece; }
  void end(Headers) override { done = true; }
  bool gone() const override { return false; }
  void on_gone(std::function<void()>) override {}
  void on_sent(std::function<void()>) override {}
  int status = 0;
  std::string body;
  bool done = false, streamed = false;
};

class HostileServer {
 public:
  HostileServer(const std::string& folder, const TinyTokenizer& kind, ToolStyle tools = ToolStyle::kHermes)
      : model_(make_tiny_model(folder, kind), "", DType::kF32, 256, kernels::cpu_ops()),
        scheduler_(model_, {.batch = 4}) {
    ServedModel s;
    s.model = &model_;
    s.scheduler = &scheduler_;
    s.tok = tokenizer::Tokenizer::from_folder(folder);
    s.chat_source = kTinyChat;
    s.chat = tokenizer::ChatTemplate::compile(kTinyChat, "test", {}, {"<s>", "</s>"});
    s.stop = infer::end_of_turn(*s.tok, s.chat.get(), model_.config());
    s.names = {{"tiny", -1}};
    OperatorSettings o;
    o.tools = tools;
    op_ = std::make_unique<Operator>(std::move(s), o);
  }

  // Empty where the answer is as it has to be, else what is wrong with it.
  std::string ask(const Any& request, bool chat) {
    HttpRequest http;
    http.method = "POST";
    http.path = chat ? "/v1/chat/completions" : "/v1/completions";
    http.body = request.dump(-1, ' ', false, Any::error_handler_t::replace);
    const auto reply = std::make_shared<Collected>();
    op_->handle(http, reply);
    for (int i = 0; i < 5000 && !reply->done; ++i)
      if (!scheduler_.step() && !reply->done) break;
    if (!reply->done) return "no answer";
    if (reply->status == 200) return reply->streamed ? streamed(reply->body) : whole(request, reply->body);
    const auto error = Any::parse(reply->body, nullptr, false);
    if (!error.is_object() || !error.contains("error")) return "an error without its shape: " + reply->body;
    if (reply->status >= 500) return "an error of the server's own: " + reply->body;
    return "";
  }

 private:
  static std::string streamed(const std::string& body) {
    if (!body.ends_with("data: [DONE]\n\n")) return "a stream without an end";
    for (size_t at = 0; at < body.size();) {
      const size_t end = body.find("\n\n", at);
      const std::string line = body.substr(at, end - at);
      if (!line.starts_with("data: ")) return "no event: " + line;
      if (line != "data: [DONE]" && !Any::accept(line.substr(6))) return "an event that is no JSON: " + line;
      at = end + 2;
    }
    return "";
  }
  static std::string whole(const Any& request, const std::string& body) {
    const auto j = Any::parse(body, nullptr, false);
    if (!j.is_object()) return "no JSON: " + body;
    for (const auto& c : j["choices"]) {
      const auto& reason = c["finish_reason"];
      if (reason != "stop" && reason != "length" && reason != "tool_calls") return "ended by " + reason.dump();
      if (!c.contains("message")) continue;
      const auto& m = c["message"];
      if (m.contains("tool_calls"))
        for (const auto& call : m["tool_calls"]) {
          const auto arguments = Any::parse(call["function"]["arguments"].get<std::string>(), nullptr, false);
          if (!arguments.is_object()) return "arguments that are no object: " + call.dump();
        }
      // Held to a grammar, and ended by it: JSON, unless the request itself cuts it off.
      const bool held = request.contains("response_format") && reason == "stop" && !request.contains("stop") &&
                        !request.contains("stop_token_ids");
      if (held && !Any::accept(m["content"].get<std::string>())) return "content that is no JSON: " + m.dump();
    }
    return "";
  }

  infer::Model model_;
  infer::Scheduler scheduler_;
  std::unique_ptr<Operator> op_;
};

}  // namespace mxt::serve

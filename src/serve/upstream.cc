// The operator in front of another OpenAI-compatible server: keys, limits, checks, metering and parsers are ours, the
// model is theirs.
#include <map>

#include "base/error.h"
#include "net/http.h"
#include "serve/generation.h"
#include "tokenizer/chat/input/conversation.h"

namespace mxt::serve {
namespace {

struct Gone {};

class Relay {
 public:
  Relay(OperatorState& s, std::shared_ptr<Reply> reply, KeyRing::Ticket& ticket, bool chat, const OrderedJson& body)
      : s_(s), reply_(std::move(reply)), ticket_(ticket), chat_(chat), born_(std::chrono::steady_clock::now()) {
    const Fields f(body);
    parser_.reasoning = s.settings.reasoning;
    const OrderedJson* kwargs = f.get("chat_template_kwargs");
    const bool off = kwargs && kwargs->is_object() && kwargs->contains("enable_thinking") &&
                     (*kwargs)["enable_thinking"] == OrderedJson(false);
    parser_.starts_thinking = s.settings.always_thinks && !off;
    const OrderedJson* choice = f.get("tool_choice");
    if (f.has("tools") && !(choice && *choice == "none")) {
      try {  // as the parser reads them, whatever their spelling
        tools_ = tokenizer::normalize_tools(*f.get("tools"));
      } catch (const tokenizer::BadChat& e) {
        refuse(e.at(), "{}", e.what());
      }
      parser_.tools = s.settings.tools;
      parser_.tool_list = &tools_;
    }
    if (const OrderedJson* o = f.get("stream_options")) wants_usage_ = Fields(*o).flag("include_usage", false);
  }

  // Pieces of an event stream as they come.
  void feed(std::string_view data) {
    if (reply_->gone()) throw Gone{};
    held_ += data;
    if (held_.size() > kMaxEvent) fail_input("the upstream server sent an event of more than {} bytes", kMaxEvent);
    for (size_t end; (end = held_.find('\n')) != std::string::npos;) {
      std::string line = held_.substr(0, end);
      held_.erase(0, end + 1);
      if (line.ends_with('\r')) line.pop_back();
      if (!line.starts_with("data:")) continue;
      line.erase(0, line.starts_with("data: ") ? 6 : 5);
      if (line == "[DONE]") continue;
      event(line);
    }
  }
  void end_stream() {
    reply_->write("data: [DONE]\n\n");
    reply_->end();
  }

  void whole(const net::HttpResponse& r) {
    OrderedJson j = parse_ordered_json(r.body, "the upstream server's answer");
    if (!j.is_object()) refuse_status(502, "server_error", "", "the upstream server's answer is no JSON object");
    meter(j);
    if (chat_ && j.contains("choices") && j["choices"].is_array())
      for (auto& c : j["choices"])
        if (c.is_object() && c.contains("message") && c["message"].is_object()) message(c);
    reply_->send({200, {{"Content-Type", "application/json"}}, dump(j)});
  }

 private:
  static constexpr size_t kMaxEvent = 4 << 20;

  void meter(const OrderedJson& j) {
    if (j.contains("usage") && j["usage"].is_object() && j["usage"].contains("total_tokens") &&
        j["usage"]["total_tokens"].is_number_integer())
      ticket_.tokens = j["usage"]["total_tokens"].get<int64_t>();
  }
  // An upstream that has parsers of its own has done this already.
  static bool parsed(const OrderedJson& m) {
    for (const char* key : {"reasoning_content", "reasoning", "tool_calls"})
      if (m.contains(key) && !m[key].is_null() && !m[key].empty()) return true;
    return !m.contains("content") || !m["content"].is_string();
  }
  void message(OrderedJson& choice) {
    OrderedJson& m = choice["message"];
    if (parsed(m)) return;
    parser_.id_prefix = "call_" + random_hex(16);
    const auto p = make_parser(parser_);
    Deltas deltas;
    p->push(m["content"].get<std::string>(), deltas);
    p->finish(deltas, choice.value("finish_reason", OrderedJson()) != OrderedJson("length"));
    std::string content, reasoning;
    OrderedJson calls = OrderedJson::array();
    for (const Delta& d : deltas) {
      if (d.kind == Delta::Kind::kContent) content += d.text;
      if (d.kind == Delta::Kind::kReasoning) reasoning += d.text;
      if (d.kind == Delta::Kind::kNoReasoning) reasoning.clear();
      if (d.kind == Delta::Kind::kToolBegin)
        calls.push_back({{"id", d.id}, {"type", "function"}, {"function", {{"name", d.name}, {"arguments", ""}}}});
      if (d.kind == Delta::Kind::kToolArguments) {
        auto& a = calls.back()["function"]["arguments"];
        a = a.get<std::string>() + d.text;
      }
    }
    m["content"] = content.empty() && !calls.empty() ? OrderedJson(nullptr) : OrderedJson(content);
    if (!reasoning.empty()) m["reasoning"] = m["reasoning_content"] = reasoning;
    if (!calls.empty()) {
      m["tool_calls"] = std::move(calls);
      if (choice.value("finish_reason", OrderedJson()) == OrderedJson("stop")) choice["finish_reason"] = "tool_calls";
    }
  }

  void event(const std::string& text) {
    OrderedJson j = parse_ordered_json(text, "an event of the upstream server");
    if (!j.is_object()) fail_input("the upstream server sent an event that is no JSON object");
    meter(j);
    const bool usage_only = j.contains("choices") && j["choices"].is_array() && j["choices"].empty();
    if (usage_only && !wants_usage_) return;
    if (!first_) {
      first_ = true;
      s_.metrics.first_token(std::chrono::duration<double>(std::chrono::steady_clock::now() - born_).count());
    }
    if (!chat_ || !j.contains("choices") || !j["choices"].is_array() || j["choices"].size() != 1 ||
        !j["choices"][0].is_object() || !j["choices"][0].contains("delta"))
      return send(j);
    OrderedJson& choice = j["choices"][0];
    if (choice.contains("index") && !choice["index"].is_number_integer())
      fail_input("the upstream server sent a choice whose index is no number");
    Stream& st = streams_[choice.value("index", 0)];
    OrderedJson& delta = choice["delta"];
    if (!delta.is_object()) return send(j);
    const bool last = choice.contains("finish_reason") && !choice["finish_reason"].is_null();
    if (st.parsed_upstream || (parsed(delta) && !last)) {
      for (const char* key : {"reasoning_content", "reasoning", "tool_calls"})
        st.parsed_upstream = st.parsed_upstream || (delta.contains(key) && !delta[key].is_null());
      return send(j);
    }
    if (!st.parser) {
      parser_.id_prefix = "call_" + random_hex(16);
      st.parser = make_parser(parser_);
    }
    Deltas deltas;
    if (delta.contains("content") && delta["content"].is_string())
      st.parser->push(delta["content"].get<std::string>(), deltas);
    if (last) st.parser->finish(deltas, choice["finish_reason"] != OrderedJson("length"));
    const OrderedJson reason = last ? choice["finish_reason"] : OrderedJson(nullptr);
    OrderedJson rest = delta;
    rest.erase("content");
    choice["finish_reason"] = nullptr;
    for (const Delta& d : deltas) {
      if (d.kind == Delta::Kind::kNoReasoning) continue;
      OrderedJson one = std::move(rest);
      rest = OrderedJson::object();
      if (d.kind == Delta::Kind::kContent) one["content"] = d.text;
      if (d.kind == Delta::Kind::kReasoning) one["reasoning"] = one["reasoning_content"] = d.text;
      if (d.kind == Delta::Kind::kToolBegin) {
        st.called = true;
        one["tool_calls"] = OrderedJson::array({{{"index", d.index},
                                                 {"id", d.id},
                                                 {"type", "function"},
                                                 {"function", {{"name", d.name}, {"arguments", ""}}}}});
      }
      if (d.kind == Delta::Kind::kToolArguments)
        one["tool_calls"] = OrderedJson::array({{{"index", d.index}, {"function", {{"arguments", d.text}}}}});
      choice["delta"] = std::move(one);
      send(j);
    }
    if (last || !rest.empty()) {
      choice["delta"] = std::move(rest);
      if (last)
        choice["finish_reason"] = st.called && reason == OrderedJson("stop") ? OrderedJson("tool_calls") : reason;
      send(j);
    }
  }
  void send(const OrderedJson& j) { reply_->write("data: " + dump(j) + "\n\n"); }

  struct Stream {
    std::unique_ptr<OutputParser> parser;
    bool parsed_upstream = false, called = false;
  };
  OperatorState& s_;
  std::shared_ptr<Reply> reply_;
  KeyRing::Ticket& ticket_;
  bool chat_, wants_usage_ = false, first_ = false;
  std::chrono::steady_clock::time_point born_;
  OrderedJson tools_;
  ParserSettings parser_;
  std::string held_;
  std::map<int, Stream> streams_;
};

}  // namespace

void forward(OperatorState& s, const HttpRequest& http, std::shared_ptr<Reply> reply, TicketPtr ticket) {
  if (s.draining) refuse_status(503, "server_error", "shutting_down", "the server is shutting down", 5);
  const bool chat = http.path == "/v1/chat/completions", generates = chat || http.path == "/v1/completions";
  OrderedJson body = OrderedJson::object();
  bool stream = false;
  if (http.method == "POST") {
    body = parse_body(http.body);
    const Fields f(body);
    if (generates) {
      if (f.has("chat_template")) refuse("chat_template", "a request's own chat template is not accepted");
      f.integer("n", 1, 1, s.settings.max_choices);
      f.integer("best_of", 1, 1, s.settings.max_choices);
      f.integer("max_tokens", 1, 0, INT32_MAX);
      stream = f.flag("stream", false);
      if (const OrderedJson* o = f.get("stream_options"); o && !o->is_object() && !o->is_null())
        refuse("stream_options", "stream_options must be an object");
    }
  }
  Relay relay(s, reply, *ticket, chat, body);
  if (stream) body["stream_options"]["include_usage"] = true;  // what is metered
  net::HttpClient client;
  net::HttpRequest r;
  r.method = http.method;
  r.url = s.settings.upstream + http.path;
  if (http.method == "POST") r.body = dump(body);
  r.headers = {{"Content-Type", "application/json"}};
  if (!s.settings.upstream_key.empty()) r.headers.emplace_back("Authorization", "Bearer " + s.settings.upstream_key);
  r.redirects = 0;
  r.retries = 0;
  r.idle_seconds = r.total_seconds = s.settings.request_seconds;
  bool begun = false;
  if (stream) {
    r.on_headers = [&](int status, const net::Headers&) {
      if (status != 200) return;
      begun = true;
      reply->begin(200, {{"Content-Type", "text/event-stream; charset=utf-8"},
                         {"Cache-Control", "no-cache"},
                         {"X-Accel-Buffering", "no"}});
    };
    r.on_data = [&](std::string_view data) { relay.feed(data); };
  }
  try {
    const net::HttpResponse answer = client.send(r);
    if (begun) return relay.end_stream();
    if (answer.status == 200)
      return generates ? relay.whole(answer) : reply->send({200, {{"Content-Type", "application/json"}}, answer.body});
    // Its refusals are passed on; of its credentials nothing is said.
    if (answer.status == 401 || answer.status == 403)
      refuse_status(502, "server_error", "",
                    "the upstream server refuses our credentials: set MINDXTRAIN_UPSTREAM_KEY");
    HttpAnswer a{answer.status >= 400 && answer.status < 600 ? answer.status : 502,
                 {{"Content-Type", "application/json"}},
                 answer.body};
    if (const std::string* after = answer.header("Retry-After")) a.headers.emplace_back("Retry-After", *after);
    if (!OrderedJson::accept(a.body))
      refuse_status(a.status, "server_error", "", "the upstream server refuses the request");
    reply->send(std::move(a));
  } catch (const Gone&) {
  } catch (const std::exception& e) {
    if (!begun && dynamic_cast<const ApiError*>(&e) != nullptr) throw;
    ApiError a;
    a.status = 502;
    a.type = "server_error";
    a.message = fmt::format("the upstream server cannot be used: {}", e.what());
    if (!begun) throw a;
    reply->write("data: " + to_json(a) + "\n\ndata: [DONE]\n\n");
    reply->end();
  }
}

}  // namespace mxt::serve

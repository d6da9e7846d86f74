// /tokenize, /detokenize, /tokenizer_info (as the evaluation harness reads them) and /v1/embeddings.
#include <cstring>

#include "base/error.h"
#include "serve/generation.h"
#include "serve/paid.h"

namespace mxt::serve {

std::string tokenize(OperatorState& s, const std::string& text) {
  const OrderedJson body = parse_body(text);
  const Fields f(body);
  f.only({"model", "prompt", "messages", "tools", "add_special_tokens", "add_generation_prompt",
          "continue_final_message", "return_token_strs", "chat_template_kwargs", "reasoning_effort"});
  std::string model;
  s.adapter_of(f, model);
  // A chat template writes a text's beginning itself.
  const bool special = f.flag("add_special_tokens", f.has("prompt"));
  if (f.has("prompt") == f.has("messages")) refuse("prompt", "either prompt or messages is wanted");
  std::vector<int32_t> ids;
  if (f.has("messages")) {
    ids = render_chat(s, f, read_tools(f)).ids;
    if (const auto& prefix = s.served.tok->template_prefix(); special)
      ids.insert(ids.begin(), prefix.begin(), prefix.end());
  } else {
    for (const char* name :
         {"tools", "add_generation_prompt", "continue_final_message", "chat_template_kwargs", "reasoning_effort"})
      if (f.has(name)) refuse(name, "{} is for messages, not for a prompt", name);
    ids = special ? s.served.tok->encode_with_prefix(f.text("prompt")) : s.served.tok->encode(f.text("prompt"));
  }
  OrderedJson j{{"count", ids.size()}, {"max_model_len", s.served.model->positions()}, {"tokens", ids}};
  if (f.flag("return_token_strs", false)) {
    j["token_strs"] = OrderedJson::array();
    for (int32_t id : ids) j["token_strs"].push_back(s.served.tok->token(id));
  }
  return dump(j);
}

std::string detokenize(OperatorState& s, const std::string& text) {
  const OrderedJson body = parse_body(text);
  const Fields f(body);
  f.only({"model", "tokens", "skip_special_tokens"});
  std::string model;
  s.adapter_of(f, model);
  if (!f.has("tokens")) refuse("tokens", "tokens is missing");
  const auto ids = read_ids(*f.get("tokens"), "tokens");
  for (int32_t id : ids)
    if (id >= s.served.tok->vocab_size())
      refuse("tokens", "token id {} is outside the vocabulary of {}", id, s.served.tok->vocab_size());
  return dump({{"prompt", s.served.tok->decode(ids, f.flag("skip_special_tokens", false))}});
}

std::string tokenizer_info(OperatorState& s) {
  auto name = [&](int32_t id) { return id < 0 ? OrderedJson(nullptr) : OrderedJson(s.served.tok->token(id)); };
  OrderedJson j{
      {"tokenizer_class", "PreTrainedTokenizerFast"},
      {"vocab_size", s.served.tok->vocab_size()},
      {"model_max_length", s.served.model->positions()},
      {"bos_token", name(s.served.tok->bos())},
      {"eos_token", name(s.served.tok->eos())},
      {"pad_token", name(s.served.tok->pad())},
      {"chat_template", s.served.chat_source.empty() ? OrderedJson(nullptr) : OrderedJson(s.served.chat_source)}};
  return dump(j);
}

namespace {

std::string base64(const std::vector<float>& v) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* b = reinterpret_cast<const unsigned char*>(v.data());
  const size_t n = v.size() * sizeof(float);
  std::string out;
  for (size_t i = 0; i < n; i += 3) {
    const uint32_t x = static_cast<uint32_t>(b[i]) << 16 | (i + 1 < n ? static_cast<uint32_t>(b[i + 1]) << 8 : 0) |
                       (i + 2 < n ? b[i + 2] : 0u);
    for (int k = 0; k < 4; ++k)
      out += static_cast<size_t>(k) <= std::min<size_t>(3, n - i) ? kDigits[(x >> (18 - 6 * k)) & 63] : '=';
  }
  return out;
}

constexpr size_t kMaxInputs = 2048;  // texts of one request, as OpenAI has it

// Answers when the last of several texts is done.
class Embedding : public Timed, public std::enable_shared_from_this<Embedding> {
 public:
  Embedding(OperatorState& s, std::shared_ptr<Reply> reply, TicketPtr ticket, std::string model, bool as_base64,
            size_t n)
      : s_(s),
        reply_(std::move(reply)),
        ticket_(std::move(ticket)),
        model_(std::move(model)),
        base64_(as_base64),
        vectors_(n),
        left_(n) {}

  void start(std::vector<infer::Request> requests, const HttpRequest& http) {
    when_paid(s_, http, reply_, std::move(requests), 1,
              [self = shared_from_this()](std::vector<infer::Request> r, std::shared_ptr<pay::Grant> grant) {
                self->reply_ = keeping(self->reply_, grant);
                self->paid_until_ = paid_until(grant);
                self->grant_ = grant;
                try {
                  self->submit(std::move(r));
                } catch (...) {
                  self->grant_ = nullptr;
                  throw;
                }
              });
  }

  void expire_if_late(std::chrono::steady_clock::time_point now) override {
    const bool late = std::chrono::duration<double>(now - born_).count() >= s_.settings.request_seconds;
    if (!late && now < paid_until_) return;
    std::vector<infer::Scheduler::Id> ids;
    {
      const std::lock_guard lock(mutex_);
      late_ = late ? fmt::format("the request took longer than {} seconds", s_.settings.request_seconds)
                   : "the payment ends before the answer does";
      ids = ids_;
    }
    for (auto id : ids) s_.served.scheduler->cancel(id);
  }

 private:
  void submit(std::vector<infer::Request> requests) {
    const auto self = shared_from_this();
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < requests.size(); ++i) {
      tokens_ += static_cast<int64_t>(requests[i].prompt.size());
      infer::Sink sink;
      sink.hidden = [self, i](const std::vector<float>& h) {
        std::lock_guard inner(self->mutex_);
        self->vectors_[i] = h;
      };
      sink.done = [self](const infer::Outcome& o) { self->done(o); };
      try {
        ids_.push_back(s_.served.scheduler->submit(std::move(requests[i]), std::move(sink)));
      } catch (const Error& e) {
        over_ = true;
        for (auto id : ids_) s_.served.scheduler->cancel(id);
        refuse("input", "{}", e.what());
      }
    }
    s_.watch(self);
    reply_->on_gone([weak = weak_from_this()] {
      const auto e = weak.lock();
      if (!e) return;
      for (auto id : e->ids_) e->s_.served.scheduler->cancel(id);
    });
  }

  void done(const infer::Outcome& o) {
    std::lock_guard lock(mutex_);
    if (o.finish == infer::Finish::kFailed) failure_ = o.error;
    if (--left_ > 0 || over_) return;
    ticket_->tokens += tokens_;
    OrderedJson data = OrderedJson::array();
    for (size_t i = 0; i < vectors_.size(); ++i) {
      if (vectors_[i].empty()) {
        ApiError e;
        e.status = !failure_.empty() ? 500 : late_.empty() ? 503 : 504;
        e.type = "server_error";
        e.message = !failure_.empty() ? failure_ : late_.empty() ? "the request was cancelled" : late_;
        if (e.status == 504) e.code = "timeout";
        return answer(to_answer(e));
      }
      data.push_back({{"object", "embedding"},
                      {"index", i},
                      {"embedding", base64_ ? OrderedJson(base64(vectors_[i])) : OrderedJson(vectors_[i])}});
    }
    answer({200,
            {{"Content-Type", "application/json"}},
            dump({{"object", "list"},
                  {"data", std::move(data)},
                  {"model", model_},
                  {"usage", {{"prompt_tokens", tokens_}, {"total_tokens", tokens_}}}})});
  }
  void answer(HttpAnswer a) {
    const auto grant = std::move(grant_);
    if (!grant) return reply_->send(std::move(a));
    const bool good = a.status == 200, gone = reply_->gone();
    for (const auto& h : grant->headers()) a.headers.push_back(h);
    grant->finish(good || gone ? tokens_ : 0, good && !gone, [reply = reply_, a](const net::Headers& paid) {
      HttpAnswer whole = a;
      whole.headers.insert(whole.headers.end(), paid.begin(), paid.end());
      reply->send(std::move(whole));
    });
  }

  OperatorState& s_;
  std::shared_ptr<Reply> reply_;
  TicketPtr ticket_;
  std::shared_ptr<pay::Grant> grant_;  // null: nothing is sold
  const std::chrono::steady_clock::time_point born_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point paid_until_ = std::chrono::steady_clock::time_point::max();
  std::string model_, failure_, late_;
  bool base64_, over_ = false;
  std::mutex mutex_;
  std::vector<std::vector<float>> vectors_;
  std::vector<infer::Scheduler::Id> ids_;
  size_t left_;
  int64_t tokens_ = 0;
};

}  // namespace

void embeddings(OperatorState& s, const HttpRequest& http, std::shared_ptr<Reply> reply, TicketPtr ticket, int key) {
  const OrderedJson body = parse_body(http.body);
  const Fields f(body);
  f.only({"model", "input", "encoding_format", "dimensions", "user"});
  f.text("user");
  std::string model;
  const int adapter = s.adapter_of(f, model);
  const std::string format = f.text("encoding_format", "float");
  if (format != "float" && format != "base64") refuse("encoding_format", "encoding_format must be float or base64");
  if (f.integer("dimensions", s.served.model->config().hidden_size, 1, INT32_MAX) !=
      s.served.model->config().hidden_size)
    refuse("dimensions", "this model's embeddings have {} dimensions", s.served.model->config().hidden_size);
  if (!f.has("input")) refuse("input", "input is missing");
  const auto inputs = read_prompts(*f.get("input"), "input", kMaxInputs);
  std::vector<infer::Request> requests;
  for (const Prompt& p : inputs) {
    infer::Request r;
    r.prompt = s.encode(p, "input");
    r.hidden = true;
    r.adapter = adapter;
    r.group = static_cast<uint64_t>(key + 1);
    requests.push_back(std::move(r));
  }
  const size_t n = requests.size();
  std::make_shared<Embedding>(s, std::move(reply), std::move(ticket), std::move(model), format == "base64", n)
      ->start(std::move(requests), http);
}

}  // namespace mxt::serve

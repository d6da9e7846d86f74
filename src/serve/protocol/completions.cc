// POST /v1/completions.
#include <cmath>

#include "base/text.h"
#include "serve/generation.h"

namespace mxt::serve {
namespace {

constexpr int64_t kMaxPromptChoices = 8 << 20;  // log-probabilities of prompts in one answer, some hundred bytes each

// A float as the shortest decimal that means it: equal floats are equal numbers to the client.
OrderedJson number(float x) {
  return std::isnan(x) ? OrderedJson(nullptr) : OrderedJson(std::isinf(x) ? -9999.0 : std::stod(fmt::format("{}", x)));
}

struct Logprobs {
  OrderedJson tokens = OrderedJson::array(), token_logprobs = OrderedJson::array(), top = OrderedJson::array(),
              offsets = OrderedJson::array();
  bool empty() const { return tokens.empty(); }
  OrderedJson take() {
    OrderedJson j{{"tokens", std::move(tokens)},
                  {"token_logprobs", std::move(token_logprobs)},
                  {"top_logprobs", std::move(top)},
                  {"text_offset", std::move(offsets)}};
    *this = {};
    return j;
  }
};

class Completion final : public Generation {
 public:
  struct Plan {
    bool echo = false;
    int64_t logprobs = -1;
    std::vector<std::string> prompts;  // text, for echo
  };
  Completion(OperatorState& s, std::shared_ptr<Reply> reply, TicketPtr ticket, CommonFields common, std::string model,
             Plan plan)
      : Generation(s, std::move(reply), std::move(ticket), std::move(common), std::move(model)),
        plan_(std::move(plan)),
        id_("cmpl-" + random_hex(24)) {
    per_prompt_ = static_cast<size_t>(common_.n);
    outputs_.resize(plan_.prompts.size() * per_prompt_);
    if (plan_.echo)
      for (size_t i = 0; i < outputs_.size(); ++i) outputs_[i].text = plan_.prompts[i / per_prompt_];
  }

 private:
  struct Output {
    std::string text;        // so far, or not yet sent
    int64_t characters = 0;  // of all token texts, for text_offset
    Logprobs logprobs;
    bool sent_prompt = false;
  };

  void add(Output& o, const infer::NewToken& t) {
    const std::string text = token_text(t.id);
    o.logprobs.tokens.push_back(text);
    o.logprobs.token_logprobs.push_back(number(t.logprob));
    if (std::isnan(t.logprob)) {
      o.logprobs.top.push_back(nullptr);
    } else {
      OrderedJson top = OrderedJson::object();
      for (const auto& l : t.likely) {
        std::string key = token_text(l.id);
        // Two tokens may look alike; the likelier keeps the name.
        if (!top.contains(key)) top[key] = number(l.logprob);
      }
      if (!top.contains(text)) top[text] = number(t.logprob);
      o.logprobs.top.push_back(std::move(top));
    }
    o.logprobs.offsets.push_back(o.characters);
    for (size_t i = 0; i < text.size(); ++o.characters) next_code_point(text, i);
  }
  void on_prompt(Choice& c, const std::vector<infer::NewToken>& prompt) override {
    for (const auto& t : prompt) add(outputs_[c.index], t);
  }
  OrderedJson frame() const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", model_},
            {"choices", OrderedJson::array()}};
  }
  OrderedJson choice(const Choice& c, Output& o) {
    OrderedJson j{{"index", c.index}, {"text", std::move(o.text)}};
    o.text.clear();
    // A whole answer has what was asked for, of no token as well; a piece of a stream that brings none has null.
    const bool told = plan_.logprobs >= 0 && (!common_.stream || !o.logprobs.empty());
    j["logprobs"] = told ? o.logprobs.take() : OrderedJson(nullptr);
    j["finish_reason"] = c.done ? OrderedJson(c.reason) : OrderedJson(nullptr);
    return j;
  }
  void send(Choice& c, Output& o) {
    OrderedJson j = frame();
    j["choices"].push_back(choice(c, o));
    put_usage(j);
    write_event(j);
  }
  void on_token(Choice& c, const infer::NewToken& t) override {
    if (plan_.logprobs >= 0) add(outputs_[c.index], t);
  }
  bool on_text(Choice& c, const std::string& text) override {
    Output& o = outputs_[c.index];
    o.text += text;
    if (common_.stream && !o.text.empty()) send(c, o);
    return true;
  }
  void on_end(Choice& c, const std::string& text) override {
    Output& o = outputs_[c.index];
    o.text += text;
    if (common_.stream)
      send(c, o);
    else
      finished_.emplace_back(c.index, choice(c, o));
  }
  OrderedJson body() override {
    OrderedJson j = frame();
    std::sort(finished_.begin(), finished_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [i, c] : finished_) j["choices"].push_back(std::move(c));
    return j;
  }
  OrderedJson last_chunk() override { return frame(); }

  Plan plan_;
  std::string id_;
  std::vector<Output> outputs_;
  std::vector<std::pair<size_t, OrderedJson>> finished_;
};

}  // namespace

void completions(OperatorState& s, const HttpRequest& http, std::shared_ptr<Reply> reply, TicketPtr ticket, int key) {
  const OrderedJson body = parse_body(http.body);
  const Fields f(body);
  f.only({"prompt", "echo", "best_of", "suffix", "add_special_tokens"}, kCommonNames);
  f.text("user");
  const bool special = f.flag("add_special_tokens", true);
  std::string model;
  const int adapter = s.adapter_of(f, model);
  CommonFields common = read_common(s, f, "max_tokens", 16);
  Completion::Plan plan;
  plan.echo = f.flag("echo", false);
  plan.logprobs = f.integer("logprobs", -1, 0, s.settings.max_logprobs);
  if (f.has("best_of") && f.integer("best_of", 1, 1, s.settings.max_choices) != common.n)
    refuse("best_of", "best_of other than n is not supported");
  if (!f.text("suffix").empty()) refuse("suffix", "suffix is not supported: this model does not fill in");
  if (common.request.max_tokens == 0 && !plan.echo)
    refuse("max_tokens", "max_tokens must be at least 1 where the prompt is not echoed");
  if (!f.has("prompt")) refuse("prompt", "prompt is missing");
  const auto prompts = read_prompts(*f.get("prompt"), "prompt", static_cast<size_t>(s.settings.max_choices));
  if (static_cast<int64_t>(prompts.size()) * common.n > s.settings.max_choices)
    refuse("n", "{} prompts with n={} make more than {} answers", prompts.size(), common.n, s.settings.max_choices);
  std::vector<infer::Request> requests;
  int64_t rows = 0;
  for (const Prompt& p : prompts) {
    infer::Request r = common.request;
    r.prompt = s.encode(p, "prompt", special);
    rows += static_cast<int64_t>(r.prompt.size()) * common.n;
    if (plan.echo && rows * (plan.logprobs + 1) > kMaxPromptChoices)
      refuse("logprobs",
             "echo with so many log-probabilities of so many tokens is too much for one request: send fewer prompts");
    r.logprobs = plan.logprobs;
    r.prompt_logprobs = plan.echo ? plan.logprobs : -1;
    r.adapter = adapter;
    r.group = static_cast<uint64_t>(key + 1);
    plan.prompts.push_back(!plan.echo ? std::string() : p.text ? *p.text : s.served.tok->decode(p.ids));
    const uint64_t seed = r.sampling.seed;
    for (int64_t i = 0; i < common.n; ++i) {
      r.sampling.seed = seed + static_cast<uint64_t>(i);
      requests.push_back(r);
    }
  }
  std::make_shared<Completion>(s, std::move(reply), std::move(ticket), std::move(common), std::move(model),
                               std::move(plan))
      ->start(std::move(requests), http);
}

}  // namespace mxt::serve

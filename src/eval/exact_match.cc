#include "eval/exact_match.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"

namespace mxt::eval {

std::vector<int32_t> stop_tokens(const tokenizer::Tokenizer& tok, const formats::ModelConfig& config) {
  std::vector<int32_t> stop;
  auto add = [&](int64_t id) {
    if (id >= 0 && std::find(stop.begin(), stop.end(), id) == stop.end()) stop.push_back(static_cast<int32_t>(id));
  };
  add(tok.eos());
  for (int64_t id : config.eos) add(id);
  return stop;
}

std::vector<int32_t> encode_prompt(const tokenizer::Tokenizer& tok, const tokenizer::ChatTemplate& chat,
                                   const OrderedJson& messages) {
  tokenizer::ChatInput in;
  in.messages = &messages;
  in.add_generation_prompt = true;
  const tokenizer::RenderedChat r = chat.render_prompt(in);
  return tok.encode(r.text, r.plain);
}

ExactMatch exact_match(infer::Model& model, const tokenizer::Tokenizer& tok, const tokenizer::ChatTemplate& chat,
                       const std::vector<Question>& questions, int64_t max_tokens, StopFlag stop) {
  std::vector<infer::Request> requests;
  for (const Question& q : questions) {
    infer::Request r;
    r.prompt = encode_prompt(tok, chat, parse_ordered_json(q.messages, "held-out row"));
    r.max_tokens = max_tokens;
    r.stop = stop_tokens(tok, model.config());
    requests.push_back(std::move(r));
  }
  infer::Engine engine(model, {});
  const auto answers = engine.generate(requests, [stop](size_t, int32_t) { return !stop || !*stop; });
  check_stop(stop);
  ExactMatch m;
  for (size_t i = 0; i < questions.size(); ++i) {
    const std::string got(trim(tok.decode(answers[i].tokens, true)));
    const bool exact = got == trim(questions[i].answer);
    ++m.rows;
    m.exact += exact;
    m.samples.push_back({questions[i].messages, questions[i].answer, got, exact});
  }
  return m;
}

}  // namespace mxt::eval

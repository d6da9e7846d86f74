#include "eval/exact_match.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"
#include "infer/end_of_turn.h"

namespace mxt::eval {

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
  const auto ends = infer::end_of_turn(tok, &chat, model.config());
  std::vector<infer::Request> requests;
  for (const Question& q : questions) {
    infer::Request r;
    r.prompt = encode_prompt(tok, chat, parse_ordered_json(q.messages, "held-out row"));
    r.max_tokens = max_tokens;
    r.stop = ends;
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

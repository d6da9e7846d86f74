#include "eval/exact_match.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"
#include "infer/calculator.h"
#include "infer/end_of_turn.h"
#include "infer/final_answer.h"

namespace mxt::eval {

std::vector<int32_t> encode_prompt(const tokenizer::Tokenizer& tok, const tokenizer::ChatTemplate& chat,
                                   const OrderedJson& messages) {
  tokenizer::ChatInput in;
  in.messages = &messages;
  in.add_generation_prompt = true;
  const tokenizer::RenderedChat r = chat.render_prompt(in);
  return tok.encode(r.text, r.plain);
}

namespace {

std::string said(const tokenizer::Tokenizer& tok, const infer::Answer& answer) {
  return std::string(trim(infer::answer_text(tok, answer.tokens)));
}

// Whether it is the expected answer, letter by letter.
bool count(Tally& tally, const std::string& got, const std::string& expected) {
  const bool exact = got == trim(expected);
  const std::string number = infer::final_answer(expected);
  ++tally.rows;
  tally.exact += exact;
  tally.right += exact || (!number.empty() && infer::final_answer(got) == number);
  return exact;
}

}  // namespace

ExactMatch exact_match(infer::Model& model, const tokenizer::Tokenizer& tok, const tokenizer::ChatTemplate& chat,
                       const std::vector<Question>& questions, const AnswerSettings& settings, StopFlag stop) {
  const auto ends = infer::end_of_turn(tok, &chat, model.config());
  std::vector<infer::Request> requests;  // the greedy ones, then the samples
  for (const Question& q : questions) {
    infer::Request r;
    const OrderedJson messages = parse_ordered_json(q.messages, "held-out row");
    Asked asked = settings.ask ? settings.ask(messages) : Asked{encode_prompt(tok, chat, messages), nullptr};
    r.prompt = std::move(asked.ids);
    r.shown = std::move(asked.shown);
    r.max_tokens = settings.max_tokens;
    r.tool = infer::make_calculator(tok);
    requests.push_back(std::move(r));
  }
  const size_t n = questions.size();
  for (size_t i = 0; i < n * static_cast<size_t>(settings.samples); ++i) {
    infer::Request r = requests[i % n];
    r.sampling.temperature = 1;
    r.sampling.seed = settings.seed + i;
    r.tool = infer::make_calculator(tok);
    requests.push_back(std::move(r));
  }
  infer::Engine engine(model, {});
  const auto ended = [&](int32_t id) { return std::find(ends.begin(), ends.end(), id) != ends.end(); };
  auto answers = engine.generate(requests, [&](size_t, int32_t id) { return !ended(id) && (!stop || !*stop); });
  check_stop(stop);
  ExactMatch m;
  for (size_t i = 0; i < answers.size(); ++i) {
    const Question& q = questions[i % n];
    const std::vector<int32_t> ids = answers[i].tokens;
    if (!ids.empty() && ended(ids.back())) answers[i].tokens.pop_back();
    const std::string got = said(tok, answers[i]);
    const bool exact = count(i < n ? m : m.sampled, got, q.answer);
    if (i < n) m.samples.push_back({q.messages, q.answer, got, exact, requests[i].prompt, ids});
  }
  return m;
}

}  // namespace mxt::eval

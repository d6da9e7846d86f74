// Preference pairs and labelled answers, as tokens.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/dataset.h"
#include "data/encode/encode.h"

namespace mxt::data {
namespace {

// Where the answer begins: the first trained token.
size_t first_target(const Document& d) {
  size_t n = 0;
  while (n < d.labels.size() && d.labels[n] == kNoTarget) ++n;
  return n;
}

// Also what lies before its first target; the label of a sequence's first token is never used.
void train_from(Document& d, size_t at) {
  for (size_t t = at; t < d.labels.size() && d.labels[t] == kNoTarget; ++t) d.labels[t] = d.ids[t];
  if (!d.labels.empty()) d.labels[0] = kNoTarget;
}

// Finished tokens stand in columns of their own: the prompt's, which nothing is trained of, and the answer's.
void check_columns(const Example& e, std::string_view answer, const SampleEncoder& coder, const std::string& where) {
  if (e.kind != Example::Kind::kTokens) return;
  const auto prompt = std::find_if(e.labels.begin(), e.labels.end(), [](int32_t id) { return id != kNoTarget; });
  const auto ids = std::span(e.ids);
  const auto n = static_cast<size_t>(prompt - e.labels.begin());
  check_ids(ids.first(n), "prompt_ids", coder, where);
  check_ids(ids.subspan(n), answer, coder, where);
}

Document encode_one(const Example& e, const SampleEncoder& coder, const EncodeRules& rules, const std::string& where) {
  Document d = encode_example(e, coder, rules, where);
  if (d.labels.empty()) d.labels = d.ids;
  return d;
}

}  // namespace

Document encode_answers(const Example& e, const SampleEncoder& coder, const EncodeRules& rules,
                        const std::string& where) {
  EncodeRules answers = rules;
  answers.train_all = false;  // an answer is judged against its prompt
  check_columns(e, e.rejected ? "chosen_ids" : "completion_ids", coder, where);
  if (e.rejected) check_columns(*e.rejected, "rejected_ids", coder, where);
  Document d = encode_one(e, coder, answers, where);
  d.mark = e.mark;
  if (!e.rejected) return d;
  Document other = encode_one(*e.rejected, coder, answers, where);
  const size_t prompt = std::min(first_target(d), first_target(other));
  // An answer is judged from its first token on: what a row leaves out of the loss cannot begin it, or be all of it.
  for (const auto& [answer, name] : {std::pair(&d, "chosen"), std::pair(&other, "rejected")}) {
    const size_t first = first_target(*answer);
    if (first == answer->labels.size())
      fail_input(
          "{}: nothing of \"{}\" is trained on: it holds no turn of the assistant's, or \"loss\", \"weight\" or the "
          "like leaves them all out; take that away or leave the row out",
          where, name);
    if (e.kind == Example::Kind::kChat && first > prompt + 1)
      fail_input(
          "{}: \"{}\" begins with turns that are not trained on: a pair compares two answers to one prompt; put them "
          "into the prompt, or leave the row out",
          where, name);
  }
  if (!std::equal(d.ids.begin(), d.ids.begin() + static_cast<ptrdiff_t>(prompt), other.ids.begin(),
                  other.ids.begin() + static_cast<ptrdiff_t>(prompt)))
    fail_input(
        "{}: the prompt's tokens differ before \"chosen\" and \"rejected\": a pair compares two answers to one prompt; "
        "give both the same prompt",
        where);
  train_from(d, rules.alone ? first_target(d) : prompt);
  train_from(other, rules.alone ? first_target(other) : prompt);
  d.second = d.ids.size();
  d.ids.insert(d.ids.end(), other.ids.begin(), other.ids.end());
  d.labels.insert(d.labels.end(), other.labels.begin(), other.labels.end());
  return d;
}

void require_answer(const Example& e, const std::string& where) {
  if (e.kind == Example::Kind::kChat) {
    const OrderedJson& messages = *e.messages;
    if (messages.empty() || messages.back().value("role", "") != "assistant" || !messages.back().contains("content") ||
        !messages.back()["content"].is_string())
      fail_input("{}: the row ends with no assistant's text: that is the answer which samples are measured against",
                 where);
  } else if (e.kind != Example::Kind::kCompletion) {
    fail_input(
        "{}: the row has no prompt with an answer: give \"prompt\" and \"answer\", or messages that end with one",
        where);
  }
}

Document encode_prompt(const Example& e, const SampleEncoder& coder, const EncodeRules& rules,
                       const std::string& where) {
  require_answer(e, where);
  Document d;
  std::string answer;
  if (e.kind == Example::Kind::kChat) {
    OrderedJson messages = *e.messages;
    if (!coder.has_chat_template())
      fail_input("{}: the row is a conversation and the model has no chat template; use an instruct model", where);
    answer = messages.back()["content"].get<std::string>();
    messages.erase(messages.size() - 1);
    const RenderedChat chat = coder.render_prompt(messages, e.tools.get());
    say_notes(chat, coder, where);
    d.ids = coder.encode(chat.text, chat.plain, nullptr);
  } else {
    answer = e.completion;
    Example prompt;
    prompt.text = e.text;
    d = encode_example(prompt, coder, {true, rules.begin_text, false}, where);
  }
  if (d.ids.empty()) fail_input("{}: the prompt is empty", where);
  const std::vector<ByteSpan> plain{{0, answer.size()}};
  const std::vector<int32_t> ids = coder.encode(answer, plain, nullptr);
  if (ids.empty()) fail_input("{}: the answer is empty: nothing could be measured against it", where);
  d.second = d.ids.size();
  d.ids.insert(d.ids.end(), ids.begin(), ids.end());
  d.labels = d.ids;
  return d;
}

void end_at_targets(Document& d) {
  const auto ends = [&](size_t begin, size_t end) {
    while (end > begin && d.labels[end - 1] == kNoTarget) --end;
    return end;
  };
  if (d.labels.empty()) return;  // all are trained
  const auto at = [](auto& v, size_t i) { return v.begin() + static_cast<ptrdiff_t>(i); };
  const size_t last = ends(d.second, d.ids.size());
  for (auto* v : {&d.ids, &d.labels}) v->erase(at(*v, last), v->end());
  if (d.second == 0) return;
  const size_t first = ends(0, d.second);
  for (auto* v : {&d.ids, &d.labels}) v->erase(at(*v, first), at(*v, d.second));
  d.second = first;
}

std::pair<Document, Document> unpair(const Document& d) {
  MXT_ASSERT(d.second > 0 && !d.labels.empty());
  const auto part = [](const std::vector<int32_t>& v, size_t b, size_t e) {
    return std::vector<int32_t>(v.begin() + static_cast<ptrdiff_t>(b), v.begin() + static_cast<ptrdiff_t>(e));
  };
  const size_t n = d.ids.size();
  return {{part(d.ids, 0, d.second), part(d.labels, 0, d.second), 0, 1},
          {part(d.ids, d.second, n), part(d.labels, d.second, n), 0, -1}};
}

}  // namespace mxt::data

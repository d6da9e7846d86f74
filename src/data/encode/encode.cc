#include "data/encode/encode.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/dataset.h"
#include "data/encode/mask.h"

namespace mxt::data {
namespace {

void append_end(Document& d, const Coder& coder) {
  if (coder.eos() < 0 || (!d.ids.empty() && d.ids.back() == coder.eos())) return;  // some rows spell it out
  d.ids.push_back(coder.eos());
  if (!d.labels.empty()) d.labels.push_back(coder.eos());
}

// As transformers and TRL do. Some rows spell it out.
void put_before(Document& d, const Coder& coder) {
  const std::vector<int32_t> prefix = coder.prefix();
  if (prefix.empty() || (d.ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), d.ids.begin())))
    return;
  d.ids.insert(d.ids.begin(), prefix.begin(), prefix.end());
  if (!d.labels.empty()) d.labels.insert(d.labels.begin(), prefix.size(), kNoTarget);
}

Document encode_completion(const Example& e, const Coder& coder, const EncodeRules& rules) {
  // Together, as one text: that is how the model will meet it, and a token may join the two sides.
  const std::string text = e.text + e.completion;
  std::vector<ByteSpan> offsets;
  Document d;
  d.ids = coder.encode(text, {}, &offsets);
  // A token that joins the two sides is trained: without it nothing would be learnt of the answer's beginning ("Answer:
  // " and "yes" meet in the token " yes").
  ByteSpan trained{e.text.size(), text.size()};
  for (const ByteSpan& o : offsets)
    if (o.begin < e.text.size() && e.text.size() < o.end) trained.begin = o.begin;
  if (!rules.train_all) d.labels = mask_labels(d.ids, offsets, {&trained, 1});
  if (d.ids.empty()) return d;
  put_before(d, coder);
  append_end(d, coder);
  return d;
}

Document encode_chat(const Example& e, const Coder& coder, const EncodeRules& rules, const std::string& where) {
  if (!coder.has_chat_template())
    fail_input(
        "{}: the row is a conversation and the model has no chat template; set model.chat_template, use an instruct "
        "model, or map the columns to prompt and completion by data.columns",
        where);
  RenderedChat chat;
  try {
    chat = coder.render(*e.messages, e.tools.get(), e.trained_from);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", where, error.what()));
  }
  for (const RenderedChat::Note& note : chat.notes)
    coder.warn_once(note.kind, fmt::format("{}: {}, here and perhaps in other rows", where, note.text));
  Document d;
  if (rules.train_all) {
    d.ids = coder.encode(chat.text, chat.plain, nullptr);
    return d;
  }
  std::vector<ByteSpan> offsets;
  d.ids = coder.encode(chat.text, chat.plain, &offsets);
  d.labels = mask_labels(d.ids, offsets, chat.assistant);
  return d;
}

Document take_tokens(const Example& e, const Coder& coder, const std::string& where) {
  for (const auto* list : {&e.ids, &e.labels})
    for (size_t i = 0; i < list->size(); ++i)
      if ((*list)[i] >= coder.vocab_size())
        fail_input("{}: {}[{}] is {}, the model's vocabulary has {} tokens; the row was made for another model", where,
                   list == &e.ids ? "input_ids" : "labels", i, (*list)[i], coder.vocab_size());
  return {e.ids, e.labels};
}

}  // namespace

Document encode_example(const Example& e, const Coder& coder, const EncodeRules& rules, const std::string& where) {
  switch (e.kind) {
    case Example::Kind::kText: {
      Document d{coder.encode(e.text, {}, nullptr), {}};
      if (rules.bos_text) {
        d.ids.insert(d.ids.begin(), coder.bos());
        return d;
      }
      if (rules.begin_text && !d.ids.empty()) put_before(d, coder);
      if (rules.end_text) append_end(d, coder);
      return d;
    }
    case Example::Kind::kCompletion:
      return encode_completion(e, coder, rules);
    case Example::Kind::kChat:
      return encode_chat(e, coder, rules, where);
    case Example::Kind::kTokens:
      return take_tokens(e, coder, where);
  }
  MXT_ASSERT(false);
}

int64_t cut(Document& d, int64_t seq_len) {
  const size_t n = static_cast<size_t>(seq_len), before = d.ids.size();
  const auto shorten = [&](size_t begin, size_t end) {
    if (end - begin <= n) return;
    for (auto* list : {&d.ids, &d.labels})
      if (!list->empty())
        list->erase(list->begin() + static_cast<ptrdiff_t>(begin + n), list->begin() + static_cast<ptrdiff_t>(end));
  };
  shorten(d.second, d.ids.size());
  if (d.second > 0) {
    shorten(0, d.second);
    d.second = std::min(d.second, n);
  }
  return static_cast<int64_t>(before - d.ids.size());
}

int64_t count_targets(const Document& d) {
  if (d.labels.empty()) return d.ids.empty() ? 0 : static_cast<int64_t>(d.ids.size()) - 1;
  return count_targets(d.labels);
}

}  // namespace mxt::data

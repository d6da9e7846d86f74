#include "data/encode/encode.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/dataset.h"
#include "data/encode/mask.h"

namespace mxt::data {
namespace {

void append_end(Document& d, const SampleEncoder& coder) {
  if (coder.eos() < 0 || (!d.ids.empty() && d.ids.back() == coder.eos())) return;  // some rows spell it out
  d.ids.push_back(coder.eos());
  if (!d.labels.empty()) d.labels.push_back(coder.eos());
}

// As transformers and TRL do. Some rows spell it out.
void put_before(Document& d, const SampleEncoder& coder) {
  const std::vector<int32_t> prefix = coder.prefix();
  if (prefix.empty() || (d.ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), d.ids.begin())))
    return;
  d.ids.insert(d.ids.begin(), prefix.begin(), prefix.end());
  if (!d.labels.empty()) d.labels.insert(d.labels.begin(), prefix.size(), kNoTarget);
}

Document encode_completion(const Example& e, const SampleEncoder& coder, const EncodeRules& rules,
                           const std::string& where) {
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
  // Whoever gives the model the prompt alone gives it other tokens than the row has.
  if (!rules.train_all && trained.begin < e.text.size())
    warn_row(coder, "joined token",
             fmt::format("a token joins the prompt's end and the completion's beginning: {}; end prompts without a "
                         "space and begin completions with it",
                         d.labels.front() == kNoTarget ? "it is trained as a whole"
                                                       : "it is the row's first, which nothing predicts, so not "
                                                         "trained"),
             where);
  append_end(d, coder);
  return d;
}

// The rows' pictures; the model must see any, and there must be somewhere for them to go.
std::vector<SeenPicture> see_all(const Example& e, const SampleEncoder& coder, const EncodeRules& rules,
                                 const std::string& where) {
  std::vector<SeenPicture> seen;
  if (e.picture_missing && coder.pictures() != nullptr)
    fail_input("{}: <image> in the texts and no picture: give it in \"image\", or take the word out", where);
  if (e.pictures.empty()) return seen;
  if (coder.pictures() == nullptr) fail_input("{}: the row has pictures and the model sees none", where);
  if (rules.pictures == nullptr)
    fail_missing("{}: rows with pictures are built in for supervised training alone", where);
  for (size_t i = 0; i < e.pictures.size(); ++i)
    seen.push_back(see_picture(*coder.pictures(), e.pictures[i], e.beside, where));
  return seen;
}

void put_all(Document& d, std::span<const SeenPicture> seen, std::span<const int64_t> first, const EncodeRules& rules) {
  for (size_t i = 0; i < seen.size(); ++i) {
    DocumentPicture p;
    p.first = static_cast<uint32_t>(first[i]);
    p.rows = static_cast<int32_t>(seen[i].grid.height);
    p.columns = static_cast<int32_t>(seen[i].grid.width);
    rules.pictures->put(seen[i], p.digest);
    d.pictures.push_back(p);
  }
}

Document encode_chat(const Example& e, const SampleEncoder& coder, const EncodeRules& rules, const std::string& where) {
  if (!coder.has_chat_template())
    fail_input(
        "{}: the row is a conversation and the model has no chat template; set model.chat_template, use an instruct "
        "model, or map the columns to prompt and completion by data.columns",
        where);
  RenderedChat chat;
  try {
    chat = rules.train_all ? coder.render_whole(*e.messages, e.tools.get())
                           : coder.render(*e.messages, e.tools.get(), e.trained_from);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", where, error.what()));
  }
  say_notes(chat, coder, where);
  const std::vector<SeenPicture> seen = see_all(e, coder, rules, where);
  if (!seen.empty()) spell_pictures(chat.text, chat.plain, &chat.assistant, *coder.pictures(), seen.size(), where);
  Document d;
  if (rules.train_all && seen.empty()) {
    d.ids = coder.encode(chat.text, chat.plain, nullptr);
    return d;
  }
  std::vector<ByteSpan> offsets;
  d.ids = coder.encode(chat.text, chat.plain, &offsets);
  if (!seen.empty() && rules.train_all) {
    d.labels = d.ids;
    for (int32_t& label : d.labels)
      if (label == coder.pictures()->pad) label = kNoTarget;
  } else {
    d.labels = mask_labels(d.ids, offsets, chat.assistant);
  }
  if (rules.parts && !seen.empty())
    fail_missing("{}: data.loss_weights for rows with pictures is not built in: leave it out", where);
  if (rules.parts) mark_parts(offsets, chat.calls, d.labels);
  if (seen.empty()) return d;
  std::vector<int64_t> first;
  expand_pictures(d.ids, d.labels, *coder.pictures(), seen, first, where);
  put_all(d, seen, first, rules);
  return d;
}

Document take_tokens(const Example& e, const SampleEncoder& coder, const EncodeRules& rules, const std::string& where) {
  check_ids(e.ids, "input_ids", coder, where);
  check_ids(e.labels, "labels", coder, where);
  Document d{e.ids, e.labels};
  if (coder.pictures() == nullptr && e.pictures.empty()) return d;
  const std::vector<SeenPicture> seen = see_all(e, coder, rules, where);
  put_all(d, seen, find_pictures(d.ids, *coder.pictures(), seen, where), rules);
  return d;
}

}  // namespace

void check_ids(std::span<const int32_t> ids, std::string_view column, const SampleEncoder& coder,
               const std::string& where) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] >= coder.vocab_size())
      fail_input("{}: {}[{}] is {}, the model's vocabulary has {} tokens; the row was made for another model", where,
                 column, i, ids[i], coder.vocab_size());
}

void say_notes(const RenderedChat& chat, const SampleEncoder& coder, const std::string& where) {
  for (const RenderedChat::Note& note : chat.notes) warn_row(coder, note.kind, note.text, where);
}

void warn_row(const SampleEncoder& coder, const std::string& kind, const std::string& text, const std::string& where) {
  coder.warn_once(kind, fmt::format("{}: {}, here and perhaps in other rows", where, text),
                  fmt::format("{}: {}", where, text));
}

Document encode_example(const Example& e, const SampleEncoder& coder, const EncodeRules& rules,
                        const std::string& where) {
  if (rules.parts && e.kind != Example::Kind::kChat)
    warn_row(coder, "loss_weights", "data.loss_weights weighs calls of conversations, and the row is none", where);
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
      return encode_completion(e, coder, rules, where);
    case Example::Kind::kChat:
      return encode_chat(e, coder, rules, where);
    case Example::Kind::kTokens:
      return take_tokens(e, coder, rules, where);
  }
  MXT_ASSERT(false);
}

int64_t cut(Document& d, int64_t seq_len) {
  size_t n = static_cast<size_t>(seq_len);
  const size_t before = d.ids.size();
  for (size_t i = 0; i < d.pictures.size(); ++i) {  // the first whose tokens reach beyond
    const size_t end = i + 1 < d.pictures.size() ? d.pictures[i + 1].first : before;
    size_t last = d.pictures[i].first;
    while (last < end && d.ids[last] == d.ids[d.pictures[i].first]) ++last;
    if (last <= n) continue;
    n = std::min<size_t>(n, d.pictures[i].first);
    d.pictures.resize(i);
    break;
  }
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

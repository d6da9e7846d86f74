// What this room asks of a tokenizer and its chat template; make_coder() wraps the real ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "data/pictures.h"
#include "tokenizer/span.h"

namespace mxt::tokenizer {
class Tokenizer;
class ChatTemplate;
}  // namespace mxt::tokenizer

namespace mxt::data {

using ByteSpan = tokenizer::Span;

struct RenderedChat {
  std::string text;
  std::vector<ByteSpan> assistant;  // what is trained on, sorted and disjoint
  std::vector<ByteSpan> plain;      // message text, where control tokens are ordinary text; sorted and disjoint
  std::vector<tokenizer::CallSpan> calls = {};  // of trained turns with tool calls, all but their content; sorted
  // What of the row the text has nothing of, in words; said once for each kind.
  struct Note {
    std::string kind, text;
  };
  std::vector<Note> notes = {};
};

// Immutable and thread-safe.
class SampleEncoder {
 public:
  SampleEncoder() = default;
  SampleEncoder(const SampleEncoder&) = delete;
  virtual ~SampleEncoder() = default;
  // Token ids of the text; with `offsets`, the bytes that every token stands for. Control tokens inside `plain` are
  // ordinary text, elsewhere they are recognised. Nothing is added.
  virtual std::vector<int32_t> encode(std::string_view text, std::span<const ByteSpan> plain,
                                      std::vector<ByteSpan>* offsets) const = 0;
  virtual int32_t eos() const = 0;                            // −1 where there is none
  virtual int32_t bos() const { return -1; }                  // −1 where there is none
  virtual std::vector<int32_t> prefix() const { return {}; }  // what a text begins with: a BOS, mostly nothing
  virtual int64_t vocab_size() const = 0;                     // ids of finished token rows must lie below
  virtual bool has_chat_template() const = 0;
  // OpenAI messages; `tools` may be null. Assistant turns before message `trained_from` are context. Errors
  // (kBadInput): the template refuses the row.
  virtual RenderedChat render(const OrderedJson& messages, const OrderedJson* tools, size_t trained_from) const = 0;
  // All of it, where no turn need be located: text and plain spans.
  virtual RenderedChat render_whole(const OrderedJson& messages, const OrderedJson* tools) const = 0;
  // The messages with the header that asks for an answer; nothing is trained.
  virtual RenderedChat render_prompt(const OrderedJson& messages, const OrderedJson* tools) const = 0;
  virtual const PictureRules* pictures() const { return nullptr; }  // null: the model sees none
  virtual std::string digest() const = 0;  // of everything above: equal digest = equal tokens for equal rows
  // Bytes of one token, for showing.
  virtual std::string token_bytes(int32_t id) const = 0;
  // Of many rows alike the first one met is named, the others are counted: say_more() says how many there were, where
  // `first` names that one. Hostile rows with ever new kinds are not followed without end.
  void warn_once(const std::string& kind, const std::string& text, const std::string& first = "") const {
    std::lock_guard lock(mutex_);
    if (const auto it = warned_.find(kind); it != warned_.end()) {
      ++it->second.more;
    } else if (warned_.size() < 32) {
      warned_.emplace(kind, Warned{first, 0});
      log::warn("{}", text);
    }
  }
  void say_more() const {
    std::lock_guard lock(mutex_);
    for (auto& [kind, w] : warned_)
      if (const int64_t more = std::exchange(w.more, 0); more > 0 && !w.first.empty())
        log::warn("data: {} more like {}", more, w.first);
  }

 private:
  struct Warned {
    std::string first;
    int64_t more;
  };
  mutable std::mutex mutex_;
  mutable std::map<std::string, Warned> warned_;
};

// The date that templates with strftime_now see in training data: fixed, so that equal inputs prepare to equal bytes on
// any day (2025-01-01 12:00 UTC: the same day in nearly every time zone).
inline constexpr int64_t kTemplateTime = 1735732800;

struct SampleEncoderParts {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;         // null: finished token rows only
  std::shared_ptr<const tokenizer::ChatTemplate> chat_template;  // null where the model has none
  std::string chat_template_source;  // the text that chat_template was compiled from, for the digest
  int64_t vocab_size = 0;            // the model's, which may be larger than the tokenizer's; 0 = the tokenizer's
  std::optional<PictureRules> pictures = {};  // of a model that sees them
};
std::unique_ptr<SampleEncoder> make_coder(SampleEncoderParts parts);

}  // namespace mxt::data

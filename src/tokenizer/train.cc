#include "tokenizer/train.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/io/byte_level.h"
#include "tokenizer/io/load.h"
#include "tokenizer/split/scanner.h"
#include "tokenizer/train/merges.h"
#include "tokenizer/train/words.h"

namespace mxt::tokenizer {
namespace {

void set_pattern(const std::string& name, Spec& spec) {
  const auto cl100k = [](int digits) { return pattern_of({ScanRule::Kind::kCl100k, digits}); };
  if (name == "gpt2" || name.empty())
    set_byte_level(spec, "", false);
  else if (name == "smollm")
    set_byte_level(spec, "", true);
  else if (name == "qwen" || name == "qwen3")
    set_byte_level(spec, cl100k(1), false);
  else if (name == "nanochat")
    set_byte_level(spec, cl100k(2), false);
  else if (name == "cl100k")
    set_byte_level(spec, cl100k(3), false);
  else if (std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; }))
    fail_input(
        "pattern \"{}\" is none of nanochat, gpt2, qwen3, cl100k and smollm, and as a regular expression it cuts "
        "texts nowhere but at that word",
        name);
  else
    set_byte_level(spec, name, false);
}

size_t id_of(const std::vector<std::string>& tokens, const std::string& t) {
  return static_cast<size_t>(std::find(tokens.begin(), tokens.end(), t) - tokens.begin());
}

// The 256 bytes as tokens, behind what is there: Hugging Face orders them by their spelling, rustbpe by value.
std::array<int32_t, 256> add_bytes(std::vector<std::string>& tokens, Ties ties) {
  std::vector<std::pair<uint32_t, int>> order;
  for (int b = 0; b < 256; ++b)
    order.emplace_back(ties == Ties::kRustBpe ? static_cast<uint32_t>(b) : byte_alphabet()[static_cast<size_t>(b)], b);
  std::sort(order.begin(), order.end());
  std::array<int32_t, 256> ids{};
  for (const auto& [key, b] : order) {
    const std::string t = spell_bytes(std::string(1, static_cast<char>(b)));
    const size_t at = id_of(tokens, t);  // a special token may be spelled so
    if (at == tokens.size()) tokens.push_back(t);
    ids[static_cast<size_t>(b)] = static_cast<int32_t>(at);
  }
  return ids;
}

// tiktoken joins neighbours wherever what they spell is a token, whatever that token was made of: every way in which a
// token falls into two others is a merge, ranked by its token. Of ids that spell the same the last is the one in use.
void put_as_ranks(std::vector<std::string> tokens, ModelSpec& model) {
  std::unordered_map<std::string_view, int32_t> id;
  for (size_t i = 0; i < tokens.size(); ++i) id[tokens[i]] = static_cast<int32_t>(i);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& t = tokens[i];
    if (id[t] != static_cast<int32_t>(i)) continue;
    model.put(static_cast<int32_t>(i), t);
    std::vector<std::pair<int32_t, int32_t>> ways;
    for (size_t cut = 1; cut < t.size(); ++cut) {
      const auto l = id.find(std::string_view(t).substr(0, cut)), r = id.find(std::string_view(t).substr(cut));
      if (l != id.end() && r != id.end()) ways.emplace_back(l->second, r->second);
    }
    std::sort(ways.begin(), ways.end());
    model.merges.insert(model.merges.end(), ways.begin(), ways.end());
  }
}

void check_special(const TrainOptions& o) {
  for (size_t i = 0; i < o.special_tokens.size(); ++i)
    if (o.special_tokens[i].empty() || id_of(o.special_tokens, o.special_tokens[i]) != i)
      fail_input("special token \"{}\" is empty or stands twice", o.special_tokens[i]);
  const auto among = [&](const std::string& t, const char* what) {
    if (!t.empty() && id_of(o.special_tokens, t) == o.special_tokens.size())
      fail_input("{} \"{}\" is not among the special tokens", what, t);
  };
  among(o.bos_token, "bos_token");
  among(o.eos_token, "eos_token");
  among(o.pad_token, "pad_token");
}

void add_specials(Spec& spec, const std::string& t, int32_t id) {
  spec.model.put(id, t);
  spec.added.push_back({id, t, true, false, false, false, false});
}

}  // namespace

Trained train_byte_level_bpe(const TrainOptions& options, const std::function<bool(std::string_view& text)>& next) {
  Trained made;
  Spec& spec = made.spec;
  spec.source = "tokenizer training";
  set_pattern(options.pattern, spec);
  if (options.nfc) spec.normalizer = R"({"type":"NFC"})";
  check_special(options);
  spec.bos_token = options.bos_token, spec.eos_token = options.eos_token, spec.pad_token = options.pad_token;
  spec.chat_template = options.chat_template;
  const bool rust = options.ties == Ties::kRustBpe;
  const std::vector<std::string>& special = options.special_tokens;
  std::vector<std::string> tokens;
  if (!rust) tokens = special;
  const std::array<int32_t, 256> byte_id = add_bytes(tokens, options.ties);
  LearnOptions learn{rust ? MergeRules::kRustBpe : MergeRules::kHuggingFace, 0, options.min_count, options.stop};
  const int64_t room = int64_t{options.vocab_size} - (rust ? static_cast<int64_t>(special.size()) : 0);
  if (room < static_cast<int64_t>(tokens.size()))
    fail_input("a vocabulary of {} cannot hold 256 bytes and {} special tokens", options.vocab_size, special.size());
  learn.tokens = static_cast<size_t>(room);
  WordCounts counts = count_words(spec, next, {options.memory_limit, options.stop});
  made.text_bytes = counts.text_bytes, made.distinct_pieces = static_cast<int64_t>(counts.distinct());
  made.table_bytes = counts.bytes();
  Learned learned = learn_merges(std::move(counts), std::move(tokens), byte_id, learn);
  made.table_bytes = std::max(made.table_bytes, learned.memory);
  if (rust) {
    for (const std::string& t : special)
      if (id_of(learned.tokens, t) < learned.tokens.size())
        fail_input("the texts spell the special token \"{}\" so often that it became a token of theirs: choose another",
                   t);
    const auto first = static_cast<int32_t>(learned.tokens.size());
    put_as_ranks(std::move(learned.tokens), spec.model);
    for (size_t i = 0; i < special.size(); ++i) add_specials(spec, special[i], first + static_cast<int32_t>(i));
  } else {
    for (size_t i = 0; i < special.size(); ++i) add_specials(spec, special[i], static_cast<int32_t>(i));
    for (size_t i = special.size(); i < learned.tokens.size(); ++i)
      spec.model.put(static_cast<int32_t>(i), learned.tokens[i]);
    spec.model.merges = std::move(learned.merges);
  }
  spec.config = Json{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}}.dump();
  return made;
}

}  // namespace mxt::tokenizer

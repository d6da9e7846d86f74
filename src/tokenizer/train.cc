#include "tokenizer/train.h"

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tokenizer/io/byte_level.h"
#include "tokenizer/io/load.h"
#include "tokenizer/split/pretokenizer.h"

namespace mxt::tokenizer {
namespace {

struct Word {
  std::vector<int32_t> ids;
  int64_t count;
};

uint64_t key_of(int32_t a, int32_t b) { return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b); }

struct PairInfo {
  int64_t count = 0;
  std::vector<uint32_t> words;  // where it may stand; a word may be named twice
};

// A pair waiting to be merged; its count may have fallen since.
struct Candidate {
  int64_t count;
  uint64_t pair;
  bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
};

void set_pattern(const std::string& name, Spec& spec) {
  const auto cl100k = [](int digits) { return pattern_of({ScanRule::Kind::kCl100k, digits}); };
  if (name == "gpt2" || name.empty())
    set_byte_level(spec, "", false);
  else if (name == "smollm")
    set_byte_level(spec, "", true);
  else if (name == "qwen")
    set_byte_level(spec, cl100k(1), false);
  else if (name == "nanochat")
    set_byte_level(spec, cl100k(2), false);
  else if (name == "cl100k")
    set_byte_level(spec, cl100k(3), false);
  else
    set_byte_level(spec, name, false);
}

// Transparent look-ups: most words are known, and then no string is made.
struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
};
using Counts = std::unordered_map<std::string, int64_t, Hash, std::equal_to<>>;

Counts count_words(const Spec& spec, const std::function<bool(std::string_view&)>& next) {
  const PreTokenizer pre(parse_json(spec.pre_tokenizer, "pre_tokenizer"), spec.source);
  const Normalizer normalizer = normalizer_from_json(parse_json(spec.normalizer, "normalizer"), spec.source);
  Counts counts;
  const auto count = [&](std::string_view piece) {
    if (piece.empty()) return;
    const auto it = counts.find(piece);
    if (it != counts.end())
      ++it->second;
    else
      counts.emplace(std::string(piece), 1);
  };
  const auto rule = pre.scanner();
  std::vector<uint32_t> ends(kScanWindow + 64);
  std::string_view text;
  std::string fixed, storage;
  while (next(text)) {
    if (!is_valid_utf8(text)) text = fixed = replace_invalid_utf8(text);
    const std::string_view now = normalizer.apply(text, storage, nullptr);
    if (!rule) {
      PreTokenizer::Storage made;
      for (const auto& p : pre.split(now, true, made)) count(p.text);
      continue;
    }
    for (size_t p = 0; p < now.size();) {
      const size_t n = scan_pieces(*rule, now.data(), p, now.size(), ends.data());
      uint32_t b = 0;
      for (size_t k = 0; k < n; ++k) {
        count(now.substr(p + b, ends[k] - b));
        b = ends[k];
      }
      p += b;
    }
  }
  return counts;
}

class Trainer {
 public:
  Trainer(Spec& spec, const TrainOptions& options) : model_(spec.model), options_(options) {}

  void run(const Counts& counts, const std::array<int32_t, 256>& byte_id) {
    words_.reserve(counts.size());
    for (const auto& [text, n] : counts) {
      Word w{{}, n};
      for (const char c : text) w.ids.push_back(byte_id[static_cast<unsigned char>(c)]);
      words_.push_back(std::move(w));
    }
    // Sorted, so that nothing below depends on the hash table's order.
    std::sort(words_.begin(), words_.end(), [](const Word& a, const Word& b) { return a.ids < b.ids; });
    for (uint32_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].ids.size(); ++i)
        add(key_of(words_[w].ids[i], words_[w].ids[i + 1]), words_[w].count, w);
    for (const auto& [pair, info] : pairs_)
      if (info.count > 0) queue_.push({info.count, pair});
    while (static_cast<int32_t>(model_.tokens.size()) < options_.vocab_size && !queue_.empty()) {
      Candidate top = queue_.top();
      queue_.pop();
      PairInfo& info = pairs_[top.pair];
      if (top.count != info.count) {
        top.count = info.count;
        if (top.count > 0) queue_.push(top);
        continue;
      }
      if (top.count < 1 || top.count < options_.min_count) break;
      merge(top.pair);
    }
  }

  void learn_existing() {
    for (size_t i = 0; i < model_.tokens.size(); ++i) known_.emplace(model_.tokens[i], static_cast<int32_t>(i));
  }

 private:
  void add(uint64_t pair, int64_t change, uint32_t word) {
    PairInfo& p = pairs_[pair];
    p.count += change;
    if (change > 0 && (p.words.empty() || p.words.back() != word)) p.words.push_back(word);
  }

  void merge(uint64_t pair) {
    const auto a = static_cast<int32_t>(pair >> 32), b = static_cast<int32_t>(pair);
    const std::string joined = model_.tokens[static_cast<size_t>(a)] + model_.tokens[static_cast<size_t>(b)];
    int32_t id = static_cast<int32_t>(model_.tokens.size());
    // Two merges may spell the same token: it keeps its id.
    if (const auto it = known_.find(joined); it != known_.end())
      id = it->second;
    else {
      known_.emplace(joined, id);
      model_.put(id, joined);
    }
    // A pair can come back once merged, where a later merge spells one of its tokens anew: its rank stands already.
    if (merged_.insert(pair).second) model_.merges.emplace_back(a, b);
    auto where = std::move(pairs_[pair].words);
    pairs_[pair].words.clear();
    std::sort(where.begin(), where.end());
    where.erase(std::unique(where.begin(), where.end()), where.end());
    std::unordered_set<uint64_t> grown;
    for (const uint32_t w : where) merge_in(w, a, b, id, grown);
    pairs_[pair].count = 0;
    for (const uint64_t p : grown)
      if (pairs_[p].count > 0) queue_.push({pairs_[p].count, p});
  }

  // Left to right; the pairs around each place change at once, as Hugging Face counts them.
  void merge_in(uint32_t w, int32_t a, int32_t b, int32_t id, std::unordered_set<uint64_t>& grown) {
    std::vector<int32_t>& s = words_[w].ids;
    const int64_t n = words_[w].count;
    size_t to = 0;
    for (size_t i = 0; i < s.size();) {
      if (i + 1 >= s.size() || s[i] != a || s[i + 1] != b) {
        s[to++] = s[i++];
        continue;
      }
      if (to > 0) {
        add(key_of(s[to - 1], a), -n, w);
        add(key_of(s[to - 1], id), n, w);
        grown.insert(key_of(s[to - 1], id));
      }
      if (i + 2 < s.size()) {
        add(key_of(b, s[i + 2]), -n, w);
        add(key_of(id, s[i + 2]), n, w);
        grown.insert(key_of(id, s[i + 2]));
      }
      s[to++] = id;
      i += 2;
    }
    s.resize(to);
  }

  ModelSpec& model_;
  const TrainOptions& options_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, PairInfo> pairs_;
  std::unordered_map<std::string, int32_t> known_;
  std::unordered_set<uint64_t> merged_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

Spec train_byte_level_bpe(const TrainOptions& options, const std::function<bool(std::string_view& text)>& next) {
  Spec spec;
  spec.source = "tokenizer training";
  set_pattern(options.pattern, spec);
  if (options.nfc) spec.normalizer = R"({"type":"NFC"})";
  for (const auto& t : options.special_tokens) {
    const auto id = static_cast<int32_t>(spec.model.tokens.size());
    if (t.empty() || std::find(spec.model.tokens.begin(), spec.model.tokens.end(), t) != spec.model.tokens.end())
      fail_input("special token \"{}\" is empty or stands twice", t);
    spec.model.put(id, t);
    spec.added.push_back({id, t, true, false, false, false, false});
  }
  std::array<int32_t, 256> byte_id{};
  std::vector<std::pair<uint32_t, int>> alphabet;
  for (int b = 0; b < 256; ++b) alphabet.emplace_back(byte_alphabet()[static_cast<size_t>(b)], b);
  std::sort(alphabet.begin(), alphabet.end());
  for (const auto& [c, b] : alphabet) {
    std::string t;
    append_utf8(t, c);
    const auto& tokens = spec.model.tokens;
    const auto known = std::find(tokens.begin(), tokens.end(), t);
    byte_id[static_cast<size_t>(b)] = static_cast<int32_t>(known - tokens.begin());
    if (known == tokens.end()) spec.model.put(static_cast<int32_t>(tokens.size()), t);
  }
  if (options.vocab_size < static_cast<int32_t>(spec.model.tokens.size()))
    fail_input("a vocabulary of {} cannot hold 256 bytes and {} special tokens", options.vocab_size,
               options.special_tokens.size());
  const auto special = [&](const std::string& t, const char* what) {
    const auto& all = options.special_tokens;
    if (!t.empty() && std::find(all.begin(), all.end(), t) == all.end())
      fail_input("{} \"{}\" is not among the special tokens", what, t);
    return t;
  };
  spec.bos_token = special(options.bos_token, "bos_token");
  spec.eos_token = special(options.eos_token, "eos_token");
  spec.pad_token = special(options.pad_token, "pad_token");
  spec.chat_template = options.chat_template;
  Trainer trainer(spec, options);
  trainer.learn_existing();
  trainer.run(count_words(spec, next), byte_id);
  spec.config = Json{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}}.dump();
  return spec;
}

}  // namespace mxt::tokenizer

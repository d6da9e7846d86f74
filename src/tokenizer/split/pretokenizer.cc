#include "tokenizer/split/pretokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/text/unicode.h"

namespace mxt::tokenizer {
namespace {

using Kind = SplitStep::Kind;
using Behavior = SplitStep::Behavior;

struct Cut {
  size_t begin, end;
  bool match;
};

// How a behaviour arranges matches and the text between them (tokenizers' NormalizedString::split).
template <typename F>
void arrange(const std::vector<Cut>& cuts, Behavior behavior, F&& emit) {
  const auto put = [&](size_t b, size_t e) {
    if (e > b) emit(b, e);
  };
  switch (behavior) {
    case Behavior::kRemoved:
      for (const auto& c : cuts)
        if (!c.match) put(c.begin, c.end);
      return;
    case Behavior::kIsolated:
      for (const auto& c : cuts) put(c.begin, c.end);
      return;
    case Behavior::kContiguous:
      for (size_t i = 0; i < cuts.size();) {
        size_t e = i + 1;
        while (e < cuts.size() && cuts[e].match == cuts[i].match) ++e;
        put(cuts[i].begin, cuts[e - 1].end);
        i = e;
      }
      return;
    case Behavior::kMergedWithPrevious:
      for (size_t i = 0; i < cuts.size();) {  // text, then one match
        const bool joins = !cuts[i].match && i + 1 < cuts.size() && cuts[i + 1].match;
        put(cuts[i].begin, cuts[i + (joins ? 1 : 0)].end);
        i += joins ? 2 : 1;
      }
      return;
    case Behavior::kMergedWithNext:
      for (size_t i = 0; i < cuts.size();) {  // one match, then text
        const bool joins = cuts[i].match && i + 1 < cuts.size() && !cuts[i + 1].match;
        put(cuts[i].begin, cuts[i + (joins ? 1 : 0)].end);
        i += joins ? 2 : 1;
      }
      return;
  }
}

// Cuts where each character with one of `classes` is a match of its own.
std::vector<Cut> cut_by_class(std::string_view s, uint16_t classes) {
  const auto& table = unicode::Table::get();
  std::vector<Cut> cuts;
  size_t text = 0;
  for (size_t i = 0; i < s.size();) {
    size_t n;
    if (table[unicode::decode(s.data() + i, n)] & classes) {
      if (i > text) cuts.push_back({text, i, false});
      cuts.push_back({i, i + n, true});
      text = i + n;
    }
    i += n;
  }
  if (text < s.size()) cuts.push_back({text, s.size(), false});
  return cuts;
}

template <typename Find>
std::vector<Cut> cut_by_search(std::string_view s, Find&& find) {
  std::vector<Cut> cuts;
  size_t from = 0, b, e;
  while (from < s.size() && find(from, b, e)) {
    if (b > from) cuts.push_back({from, b, false});
    cuts.push_back({b, e, true});
    from = e;
  }
  if (from < s.size()) cuts.push_back({from, s.size(), false});
  return cuts;
}

// \w+|[^\w\s]+
template <typename F>
void cut_words(std::string_view s, F&& emit) {
  const auto& table = unicode::Table::get();
  const auto kind = [&](size_t i, size_t& n) {
    const uint16_t f = table[unicode::decode(s.data() + i, n)];
    return f & unicode::kRustWord ? 0 : f & unicode::kWhite ? 1 : 2;
  };
  for (size_t i = 0, n; i < s.size();) {
    const int k = kind(i, n);
    size_t e = i + n;
    while (e < s.size() && kind(e, n) == k) e += n;
    if (k != 1) emit(i, e);
    i = e;
  }
}

template <typename F>
void cut_scan(const ScanRule& rule, std::string_view s, F&& emit) {
  std::vector<uint32_t> ends(kScanWindow + 64);
  for (size_t p = 0; p < s.size();) {
    const size_t n = scan_pieces(rule, s.data(), p, s.size(), ends.data());
    size_t b = p;
    for (size_t k = 0; k < n; ++k) {
      emit(b, p + ends[k]);
      b = p + ends[k];
    }
    p = b;
  }
}

std::vector<Cut> cuts_of(const SplitStep& step, std::string_view s) {
  std::vector<Cut> cuts;
  switch (step.kind) {
    case Kind::kRegex:
      cuts = cut_by_search(s, [&](size_t from, size_t& b, size_t& e) { return step.regex->find(s, from, b, e); });
      break;
    case Kind::kLiteral:
      cuts = cut_by_search(s, [&](size_t from, size_t& b, size_t& e) {
        b = s.find(step.literal, from);
        e = b + step.literal.size();
        return b != std::string_view::npos;
      });
      break;
    case Kind::kDigits:
      cuts = cut_by_class(s, unicode::kNumeric);
      break;
    case Kind::kWhitespaceSplit:
      cuts = cut_by_class(s, unicode::kWhite);
      break;
    default:
      cuts = cut_by_class(s, unicode::kPunctuation);
      break;
  }
  if (step.invert)
    for (auto& c : cuts) c.match = !c.match;
  return cuts;
}

// ' ' becomes the step's mark, and a text that does not begin with it gets one in front.
Piece metaspace(const SplitStep& step, const Piece& in, bool first, PreTokenizer::Storage& storage) {
  auto text = std::make_unique<std::string>();
  auto map = std::make_unique<OffsetMap>();
  const std::string& mark = step.literal;
  const bool starts = in.text.starts_with(mark) || in.text.starts_with(' ');
  if (!starts &&
      (step.prepend == SplitStep::Prepend::kAlways || (step.prepend == SplitStep::Prepend::kFirst && first))) {
    *text += mark;
    map->add({0, mark.size(), 0, 0});
  }
  for (size_t i = 0; i < in.text.size(); ++i) {
    if (in.text[i] != ' ') {
      *text += in.text[i];
      continue;
    }
    map->add({text->size(), text->size() + mark.size(), i, i + 1});
    *text += mark;
  }
  Piece out{*text, in.base + in.shift, 0, map.get()};
  storage.texts.push_back(std::move(text));
  storage.maps.push_back(std::move(map));
  return out;
}

Piece prefix_space(const Piece& in, PreTokenizer::Storage& storage) {
  if (in.text.starts_with(' ')) return in;
  storage.texts.push_back(std::make_unique<std::string>(" " + std::string(in.text)));
  storage.maps.push_back(std::make_unique<OffsetMap>());
  storage.maps.back()->add({0, 1, 0, 0});
  return {*storage.texts.back(), in.base + in.shift, 0, storage.maps.back().get()};
}

}  // namespace

std::optional<ScanRule> PreTokenizer::scanner() const {
  if (!byte_level_) return std::nullopt;
  if (steps_.size() == 1 && steps_[0].kind == Kind::kScan) return steps_[0].rule;
  if (steps_.size() == 2 && steps_[0].kind == Kind::kDigits && steps_[0].individual && steps_[1].kind == Kind::kScan &&
      steps_[1].rule.kind == ScanRule::Kind::kGpt2)
    return ScanRule{ScanRule::Kind::kDigitsGpt2, 0};
  return std::nullopt;
}

std::vector<Piece> PreTokenizer::split(std::string_view text, bool at_start, Storage& storage) const {
  std::vector<Piece> now{{text}};
  std::vector<Piece> next;
  for (const auto& step : steps_) {
    next.clear();
    for (const auto& p : now) {
      const auto emit = [&](size_t b, size_t e) {
        next.push_back({p.text.substr(b, e - b), p.base, p.shift + b, p.map});
      };
      switch (step.kind) {
        case Kind::kScan:
          cut_scan(step.rule, p.text, emit);
          break;
        case Kind::kWhitespace:
          cut_words(p.text, emit);
          break;
        case Kind::kPrefixSpace:
          next.push_back(prefix_space(p, storage));
          break;
        case Kind::kMetaspace: {
          const Piece marked = metaspace(step, p, at_start && p.base + p.shift == 0, storage);
          if (!step.individual) {
            next.push_back(marked);
            break;
          }
          const auto cuts = cut_by_search(marked.text, [&](size_t from, size_t& b, size_t& e) {
            b = marked.text.find(step.literal, from);
            e = b + step.literal.size();
            return b != std::string_view::npos;
          });
          arrange(cuts, Behavior::kMergedWithNext, [&](size_t b, size_t e) {
            next.push_back({marked.text.substr(b, e - b), marked.base, b, marked.map});
          });
          break;
        }
        case Kind::kBert: {
          const auto words = cut_by_class(p.text, unicode::kWhite);
          arrange(words, Behavior::kRemoved, [&](size_t b, size_t e) {
            arrange(cut_by_class(p.text.substr(b, e - b), unicode::kPunctuation), Behavior::kIsolated,
                    [&](size_t b2, size_t e2) { emit(b + b2, b + e2); });
          });
          break;
        }
        default:
          arrange(cuts_of(step, p.text), step.behavior, emit);
          break;
      }
    }
    now.swap(next);
  }
  return now;
}

namespace {

bool split_flag(const Json& j, const char* key, bool otherwise) {
  const auto it = j.find(key);
  return it == j.end() || it->is_null() ? otherwise : it->get<bool>();
}

Behavior behavior_of(const Json& j, Behavior otherwise, const std::string& source) {
  const auto it = j.find("behavior");
  if (it == j.end()) return otherwise;
  const auto name = it->get<std::string>();
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  fail_input("{}: pre_tokenizer: behavior \"{}\" is not known", source, name);
}

}  // namespace

PreTokenizer::PreTokenizer(const Json& spec, const std::string& source) {
  if (!spec.is_null()) add(spec, source);
  const auto changes = std::count_if(steps_.begin(), steps_.end(), [](const SplitStep& s) {
    return s.kind == Kind::kPrefixSpace || s.kind == Kind::kMetaspace;
  });
  if (changes > 1) fail_missing("{}: pre_tokenizer: more than one step that adds a prefix is not built in", source);
}

void PreTokenizer::add_split(const Json& spec, const std::string& source) {
  SplitStep step{Kind::kRegex};
  step.behavior = behavior_of(spec, Behavior::kIsolated, source);
  step.invert = split_flag(spec, "invert", false);
  const Json& pattern = spec.at("pattern");
  if (pattern.contains("String")) {
    step.kind = Kind::kLiteral;
    step.literal = pattern.at("String").get<std::string>();
    if (step.literal.empty()) fail_input("{}: pre_tokenizer: Split by an empty string", source);
  } else {
    const auto text = pattern.at("Regex").get<std::string>();
    const auto rule = scan_rule_of(text);
    // A scanner's pieces are all matches: isolating matches, or removing what does not match, keeps each of them.
    if (rule && ((step.behavior == Behavior::kIsolated) || (step.behavior == Behavior::kRemoved && step.invert))) {
      step.kind = Kind::kScan;
      step.rule = *rule;
    } else {
      step.regex = std::make_shared<Regex>(text, source);
    }
  }
  steps_.push_back(std::move(step));
}

void PreTokenizer::add(const Json& spec, const std::string& source) {
  const auto type = spec.at("type").get<std::string>();
  if (byte_level_) fail_missing("{}: pre_tokenizer: {} after ByteLevel is not built in", source, type);
  if (type == "Sequence") {
    for (const auto& s : spec.at("pretokenizers")) add(s, source);
  } else if (type == "ByteLevel") {
    if (split_flag(spec, "add_prefix_space", true)) steps_.push_back({Kind::kPrefixSpace});
    if (split_flag(spec, "use_regex", true)) {
      SplitStep step{Kind::kScan};
      step.rule = {ScanRule::Kind::kGpt2, 0};
      steps_.push_back(step);
    }
    byte_level_ = true;
  } else if (type == "Split") {
    add_split(spec, source);
  } else if (type == "Digits") {
    SplitStep step{Kind::kDigits};
    step.individual = split_flag(spec, "individual_digits", false);
    step.behavior = step.individual ? Behavior::kIsolated : Behavior::kContiguous;
    steps_.push_back(step);
  } else if (type == "Whitespace") {
    steps_.push_back({Kind::kWhitespace});
  } else if (type == "WhitespaceSplit") {
    steps_.push_back({Kind::kWhitespaceSplit, Behavior::kRemoved});
  } else if (type == "BertPreTokenizer") {
    steps_.push_back({Kind::kBert});
  } else if (type == "Punctuation") {
    steps_.push_back({Kind::kPunctuation, behavior_of(spec, Behavior::kIsolated, source)});
  } else if (type == "CharDelimiterSplit") {
    SplitStep step{Kind::kLiteral, Behavior::kRemoved};
    step.literal = spec.at("delimiter").get<std::string>();
    if (step.literal.empty()) fail_input("{}: pre_tokenizer: CharDelimiterSplit without delimiter", source);
    steps_.push_back(step);
  } else if (type == "Metaspace") {
    SplitStep step{Kind::kMetaspace};
    step.literal = spec.value("replacement", std::string("\xE2\x96\x81"));
    step.individual = split_flag(spec, "split", true);
    if (step.literal.empty()) fail_input("{}: pre_tokenizer: Metaspace without replacement", source);
    // Old files say add_prefix_space instead of prepend_scheme.
    const std::string scheme =
        spec.value("prepend_scheme", split_flag(spec, "add_prefix_space", true) ? "always" : "never");
    if (scheme == "always")
      step.prepend = SplitStep::Prepend::kAlways;
    else if (scheme == "first")
      step.prepend = SplitStep::Prepend::kFirst;
    else if (scheme != "never")
      fail_input("{}: pre_tokenizer: prepend_scheme \"{}\" is not known", source, scheme);
    steps_.push_back(step);
  } else {
    if (type == "UnicodeScripts" || type == "FixedLength")
      fail_missing("{}: pre_tokenizer {} is not built in", source, type);
    fail_input("{}: pre_tokenizer {} is not known", source, type);
  }
}

}  // namespace mxt::tokenizer

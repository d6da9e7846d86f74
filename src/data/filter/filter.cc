#include "data/filter/filter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/dedupe/shingles.h"
#include "data/source/records.h"
#include "tokenizer/text/unicode.h"

namespace mxt::data {
namespace {

namespace unicode = tokenizer::unicode;
constexpr int kRepeated = 5;                                                // words of a repeated run
constexpr uint64_t kDigit = uint64_t{1} << 21, kSpace = uint64_t{1} << 42;  // fields of a word of counts

double repeated_lines(std::string_view text) {
  std::unordered_set<std::string_view> seen;
  size_t lines = 0, again = 0;
  for (std::string_view line : split(text, '\n')) {
    line = trim(line);
    if (line.empty()) continue;
    ++lines;
    again += !seen.insert(line).second;
  }
  return lines == 0 ? 0 : static_cast<double>(again) / static_cast<double>(lines);
}

// A set of hashes that is filled for one text after another: open addressing, no memory of its own for each member.
class HashSet {
 public:
  void reset(size_t most) {
    slots_.assign(std::bit_ceil(2 * most + 1), 0);
    zero_ = false;
  }
  bool insert(uint64_t x) {  // false where it was there
    if (x == 0) return !std::exchange(zero_, true);
    const size_t mask = slots_.size() - 1;
    size_t i = x & mask;
    for (; slots_[i] != 0; i = (i + 1) & mask)
      if (slots_[i] == x) return false;
    slots_[i] = x;
    return true;
  }

 private:
  std::vector<uint64_t> slots_;
  bool zero_ = false;
};

// What measuring needs again for every row of one thread.
struct FilterBuffers {
  std::string normalised;
  Shingler words{config::ShingleUnit::kWords, 1}, repeated{config::ShingleUnit::kWords, kRepeated};
  std::vector<uint32_t> hashes;
  std::vector<uint64_t> runs;
  HashSet seen;
};

double repeated_ngrams(FilterBuffers& b, size_t words) {
  if (words < kRepeated) return 0;
  std::vector<uint64_t>& runs = b.runs;
  runs.clear();
  b.repeated.append(b.normalised, &runs);
  HashSet& seen = b.seen;
  seen.reset(runs.size());
  size_t covered = 0, until = 0;  // words [0, until) are counted already where they are covered
  for (size_t i = 0; i < runs.size(); ++i) {
    if (seen.insert(runs[i])) continue;
    covered += i + kRepeated - std::max(until, i);
    until = i + kRepeated;
  }
  return static_cast<double>(covered) / static_cast<double>(words);
}

}  // namespace

TextMeasures measure_text(std::string_view text, bool lines, bool ngrams) {
  const unicode::Table& table = unicode::Table::get();
  TextMeasures m;
  // ASCII, which is most text: three counts in one word, added up for as many bytes as they cannot overflow.
  static const std::array<uint64_t, 128> kinds = [&] {
    std::array<uint64_t, 128> k{};
    for (uint32_t c = 0; c < k.size(); ++c)
      k[c] = table[c] & (unicode::kLetter | unicode::kMark) ? 1
             : table[c] & unicode::kNumber                  ? kDigit
             : table[c] & unicode::kWhite                   ? kSpace
                                                            : 0;
    return k;
  }();
  size_t letters = 0, digits = 0, spaces = 0;
  const size_t ascii = unicode::ascii_run(text.data(), text.size());
  for (size_t i = 0; i < ascii;) {
    uint64_t sum = 0;
    for (const size_t end = std::min(ascii, i + (size_t{1} << 20)); i < end; ++i)
      sum += kinds[static_cast<unsigned char>(text[i])];
    letters += sum % kDigit;
    digits += sum % kSpace / kDigit;
    spaces += sum / kSpace;
  }
  m.characters = static_cast<int64_t>(ascii);
  for (size_t i = ascii, n = 0; i < text.size(); i += n) {
    const uint16_t c = table[unicode::decode(text.data() + i, n)];
    ++m.characters;
    if (c & (unicode::kLetter | unicode::kMark))
      ++letters;
    else if (c & unicode::kNumber)
      ++digits;
    else if (c & unicode::kWhite)
      ++spaces;
  }
  if (const size_t seen = static_cast<size_t>(m.characters) - spaces; seen > 0) {
    m.letters = static_cast<double>(letters) / static_cast<double>(seen);
    m.symbols = static_cast<double>(seen - letters - digits) / static_cast<double>(seen);
  }
  thread_local FilterBuffers b;
  normalise_text(text, &b.normalised);
  b.hashes.clear();
  b.words.append(b.normalised, &b.hashes);
  m.words = static_cast<int64_t>(b.hashes.size());
  if (lines) m.repeated_lines = repeated_lines(text);
  if (ngrams) m.repeated_ngrams = repeated_ngrams(b, b.hashes.size());
  return m;
}

RowFilter::RowFilter(const config::Filter& f, const std::vector<std::string>& eval_texts) : filter_(f) {
  const auto on = [&](bool given, const char* name) {
    if (given) reasons_.emplace_back(name);
  };
  on(f.min_chars.has_value(), "min_chars");
  on(f.max_chars.has_value(), "max_chars");
  on(f.min_words.has_value(), "min_words");
  on(f.max_words.has_value(), "max_words");
  on(f.min_letters.has_value(), "min_letters");
  on(f.max_symbols.has_value(), "max_symbols");
  on(f.max_repeated_lines.has_value(), "max_repeated_lines");
  on(f.max_repeated_ngrams.has_value(), "max_repeated_ngrams");
  on(!f.languages.empty(), "languages");
  on(!f.decontaminate.empty() || f.decontaminate_eval, "decontaminate");
  if (!f.languages.empty()) languages_.emplace(f.languages);
  Shingler shingler(config::ShingleUnit::kWords, static_cast<int>(f.decontaminate_ngram));
  std::string text;
  for (const std::string& path : f.decontaminate) {
    bool any = false;
    for (const SourceFile& file : find_source_files(path, "test")) {
      const auto rows = open_records(file);
      Record r;
      RowText row;
      std::optional<Layout> layout;
      while (rows->next(&r)) {
        any = true;
        if (r.kind == FileKind::kText) {
          normalise_text(replace_invalid_utf8(r.text), &text);
        } else {
          if (!layout) layout = find_layout(r, {});
          read_row_text(r, *layout, &row);
          normalise_text(row.text, &text);
        }
        shingler.append(text, &benchmark_);
      }
    }
    if (!any)
      fail_input("data.filter.decontaminate: {} holds no rows, so nothing could be found to overlap with it", path);
  }
  for (const std::string& t : eval_texts) {
    normalise_text(t, &text);
    shingler.append(text, &benchmark_);
  }
  std::sort(benchmark_.begin(), benchmark_.end());
  benchmark_.erase(std::unique(benchmark_.begin(), benchmark_.end()), benchmark_.end());
}

int RowFilter::check(const RowText& row) const {
  const config::Filter& f = filter_;
  const TextMeasures m = measure_text(row.text, f.max_repeated_lines.has_value(), f.max_repeated_ngrams.has_value());
  int at = -1, failed = -1;
  // In the order of reasons().
  const auto check = [&](const auto& limit, auto bad) {
    if (!limit) return;
    ++at;
    if (failed < 0 && bad(*limit)) failed = at;
  };
  check(f.min_chars, [&](int64_t x) { return m.characters < x; });
  check(f.max_chars, [&](int64_t x) { return m.characters > x; });
  check(f.min_words, [&](int64_t x) { return m.words < x; });
  check(f.max_words, [&](int64_t x) { return m.words > x; });
  check(f.min_letters, [&](double x) { return m.letters < x; });
  check(f.max_symbols, [&](double x) { return m.symbols > x; });
  check(f.max_repeated_lines, [&](double x) { return m.repeated_lines > x; });
  check(f.max_repeated_ngrams, [&](double x) { return m.repeated_ngrams > x; });
  if (languages_) {
    ++at;
    if (failed < 0 && !in_languages(row.text)) failed = at;
  }
  if (failed < 0 && !benchmark_.empty() && in_benchmark(row.text)) failed = at + 1;
  return failed;
}

bool RowFilter::in_languages(std::string_view text) const {
  const double part = languages_->part(text);
  return part < 0 ? !filter_.drop_unknown_language : part >= filter_.min_language_part;
}

bool RowFilter::in_benchmark(std::string_view text) const {
  std::string normalised;
  normalise_text(text, &normalised);
  std::vector<uint64_t> runs;
  Shingler(config::ShingleUnit::kWords, static_cast<int>(filter_.decontaminate_ngram)).append(normalised, &runs);
  return std::any_of(runs.begin(), runs.end(),
                     [&](uint64_t x) { return std::binary_search(benchmark_.begin(), benchmark_.end(), x); });
}

}  // namespace mxt::data

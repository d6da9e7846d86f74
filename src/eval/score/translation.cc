#include "eval/score/translation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "eval/python/literal.h"
#include "pytext/python_regex.h"

namespace mxt::eval {
namespace {

using pytext::PythonRegex;

constexpr int kWords = 4, kCharacters = 6;  // longest n-grams

std::vector<std::string> words_of(const std::string& s) {
  static const pytext::PythonRegex word("\\S+", "words");
  std::vector<std::string> out;
  for (const pytext::PythonRegex::Match& m : word.find_all(s)) out.push_back(s.substr(m.begin(), m.end() - m.begin()));
  return out;
}

// mteval-v13a's tokens: punctuation apart, but for points and commas inside numbers.
std::vector<std::string> tokens_13a(const std::string& sentence) {
  static const pytext::PythonRegex marks(R"(([\{-\~\[-\` -\&\(-\+\:-\@\/]))", "13a"),
      after(R"(([^0-9])([\.,]))", "13a"), before(R"(([\.,])([^0-9]))", "13a"), dash(R"(([0-9])(-))", "13a");
  std::string s = strip(sentence, false, true);
  for (const auto& [from, to] : {std::pair{"<skipped>", ""}, {"-\n", ""}, {"\n", " "}}) s = replace_all(s, from, to);
  for (const auto& [from, to] : {std::pair{"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}})
    s = replace_all(s, from, to);
  s = marks.sub(R"( \1 )", " " + s + " ");
  s = after.sub(R"(\1 \2 )", s);
  s = before.sub(R"( \1 \2)", s);
  return words_of(dash.sub(R"(\1 \2 )", s));
}

std::vector<std::string> characters_of(const std::string& s) {
  std::vector<std::string> out;
  for (const std::string& word : words_of(s))
    for (size_t i = 0; i < word.size();) {
      size_t end = i + 1;
      while (end < word.size() && (word[end] & 0xc0) == 0x80) ++end;
      out.push_back(word.substr(i, end - i));
      i = end;
    }
  return out;
}

using Counts = std::map<std::vector<std::string>, int64_t>;

Counts ngrams(const std::vector<std::string>& units, int n) {
  Counts counts;
  for (size_t i = 0; i + static_cast<size_t>(n) <= units.size(); ++i)
    ++counts[{units.begin() + static_cast<ptrdiff_t>(i), units.begin() + static_cast<ptrdiff_t>(i) + n}];
  return counts;
}

double total(const Counts& counts) {
  int64_t sum = 0;
  for (const auto& [gram, count] : counts) sum += count;
  return static_cast<double>(sum);
}

double matches(const Counts& a, const Counts& b) {
  int64_t sum = 0;
  for (const auto& [gram, count] : a)
    if (const auto it = b.find(gram); it != b.end()) sum += std::min(count, it->second);
  return static_cast<double>(sum);
}

std::vector<double> added(const std::vector<double>& sums, size_t width) {
  std::vector<double> all(width, 0);
  for (size_t i = 0; i < sums.size(); ++i) all[i % width] += sums[i];
  return all;
}

// ---- TER. Words are numbers here.

using Line = std::vector<int>;
constexpr int kBeam = 25, kShiftWords = 10, kShiftDistance = 50, kShiftCandidates = 1000;

// The cheapest way from a sentence to a reference, without shifts, near the diagonal of the table alone.
struct Edits {
  int cost = 0;
  std::vector<int> place;  // for each word of the reference: where the sentence stands then (−1: before its first word)
  std::vector<char> wrong_there, wrong_here;  // words of the reference, of the sentence, that an edit touches
};

Edits edits(const Line& here, const Line& there) {
  enum Step : char { kNone, kSame, kReplace, kDrop, kMissing };
  struct Cell {
    int cost = std::numeric_limits<int>::max() / 2;
    Step step = kNone;
  };
  const int m = static_cast<int>(here.size()), n = static_cast<int>(there.size());
  std::vector<Cell> table(static_cast<size_t>(m + 1) * static_cast<size_t>(n + 1));
  const auto at = [&](int i, int j) -> Cell& {
    return table[static_cast<size_t>(i) * static_cast<size_t>(n + 1) + static_cast<size_t>(j)];
  };
  for (int j = 0; j <= n; ++j) at(0, j) = {j, kMissing};
  const double ratio = m > 0 ? static_cast<double>(n) / m : 1;
  const int beam = kBeam < ratio / 2 ? static_cast<int>(std::ceil(ratio / 2 + kBeam)) : kBeam;
  for (int i = 1; i <= m; ++i) {
    const int diagonal = static_cast<int>(std::floor(i * ratio));
    const int end = i == m ? n + 1 : std::min(n + 1, diagonal + beam);
    for (int j = std::max(0, diagonal - beam); j < end; ++j) {
      if (j == 0) {
        at(i, 0) = {at(i - 1, 0).cost + 1, kDrop};
        continue;
      }
      const bool same = here[static_cast<size_t>(i - 1)] == there[static_cast<size_t>(j - 1)];
      // Of equal costs the first.
      Cell best{at(i - 1, j - 1).cost + (same ? 0 : 1), same ? kSame : kReplace};
      if (at(i - 1, j).cost + 1 < best.cost) best = {at(i - 1, j).cost + 1, kDrop};
      if (at(i, j - 1).cost + 1 < best.cost) best = {at(i, j - 1).cost + 1, kMissing};
      at(i, j) = best;
    }
  }
  std::vector<Step> path;
  for (int i = m, j = n; i > 0 || j > 0;) {
    path.push_back(at(i, j).step);
    MXT_ASSERT(path.back() != kNone);
    i -= path.back() != kMissing, j -= path.back() != kDrop;
  }
  Edits out{at(m, n).cost, {}, {}, {}};
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    if (*step != kMissing) out.wrong_here.push_back(*step != kSame);
    if (*step == kDrop) continue;
    out.place.push_back(static_cast<int>(out.wrong_here.size()) - 1);
    out.wrong_there.push_back(*step != kSame);
  }
  return out;
}

// `length` words from `start` on, taken out and put before what now is word `to`.
Line shifted(const Line& line, int start, int length, int to) {
  Line rest = line;
  rest.erase(rest.begin() + start, rest.begin() + start + length);
  // Behind the words themselves the place moves up by their number; among them it counts from their start.
  const int into = to > start + length ? to - length : to;
  rest.insert(rest.begin() + std::min<ptrdiff_t>(into, std::ssize(rest)), line.begin() + start,
              line.begin() + start + length);
  return rest;
}

bool any(const std::vector<char>& wrong, int begin, int count) {
  return std::any_of(wrong.begin() + begin, wrong.begin() + begin + count, [](char w) { return w != 0; });
}

// The shift that saves most edits: then the longest, the earliest, the one to the earliest place. Returns what it
// saves.
int shift(Line& line, const Line& there, int& candidates) {
  const Edits now = edits(line, there);
  const int m = static_cast<int>(line.size()), n = static_cast<int>(there.size());
  std::vector<int> best;
  Line best_line;
  for (int h = 0; h < m && candidates < kShiftCandidates; ++h)
    for (int r = 0; r < n && candidates < kShiftCandidates; ++r) {
      if (std::abs(r - h) > kShiftDistance) continue;
      for (int length = 1; length <= kShiftWords && h + length <= m && r + length <= n &&
                           line[static_cast<size_t>(h + length - 1)] == there[static_cast<size_t>(r + length - 1)] &&
                           candidates < kShiftCandidates;
           ++length) {
        // Words that are right where they are, or are wanted where others are right, stay.
        if (!any(now.wrong_here, h, length) || !any(now.wrong_there, r, length)) continue;
        const int place = now.place[static_cast<size_t>(r)];
        if (h <= place && place < h + length) continue;
        int before = -1;
        for (int offset = -1; offset < length; ++offset) {
          const int to = r + offset == -1 ? 0 : now.place[static_cast<size_t>(r + offset)] + 1;
          if (to == before) continue;
          before = to;
          Line moved = shifted(line, h, length, to);
          std::vector<int> rank{now.cost - edits(moved, there).cost, length, -h, -to};
          ++candidates;
          if (best.empty() || rank > best) best = std::move(rank), best_line = std::move(moved);
        }
      }
    }
  if (best.empty() || best[0] <= 0 || candidates >= kShiftCandidates) return 0;
  line = std::move(best_line);
  return best[0];
}

int edits_with_shifts(Line line, const Line& there) {
  if (there.empty()) return static_cast<int>(line.size());
  int shifts = 0, candidates = 0;
  while (shift(line, there, candidates) > 0) ++shifts;
  return shifts + edits(line, there).cost;
}

}  // namespace

// Matches of one to four words, how many there were, and the two lengths.
std::vector<double> bleu_sums(const std::string& sentence, const std::vector<std::string>& references) {
  const std::vector<std::string> here = tokens_13a(sentence);
  std::vector<std::vector<std::string>> there;
  for (const std::string& r : references) there.push_back(tokens_13a(r));
  std::vector<double> sums(kBleuSums, 0);
  for (int n = 1; n <= kWords; ++n) {
    Counts most;  // of any reference
    for (const auto& r : there)
      for (const auto& [gram, count] : ngrams(r, n)) most[gram] = std::max(most[gram], count);
    const Counts own = ngrams(here, n);
    sums[static_cast<size_t>(n - 1)] = matches(own, most);
    sums[static_cast<size_t>(kWords + n - 1)] = total(own);
  }
  const auto length = static_cast<double>(here.size());
  double closest = -1;
  for (const auto& r : there) {
    const auto l = static_cast<double>(r.size());
    const double d = std::abs(l - length), before = std::abs(closest - length);
    if (closest < 0 || d < before || (d == before && l < closest)) closest = l;
  }
  sums[8] = length, sums[9] = closest;
  return sums;
}

double bleu_score(const std::vector<double>& sums) {
  const std::vector<double> all = added(sums, kBleuSums);
  if (all[0] + all[1] + all[2] + all[3] == 0) return 0;
  double logs = 0, smoothing = 1;
  for (size_t n = 0; n < kWords; ++n) {
    const double most = all[kWords + n];
    if (most == 0) return 0;  // texts of fewer words
    if (all[n] == 0) smoothing *= 2;
    logs += std::log(all[n] == 0 ? 100 / (smoothing * most) : 100 * all[n] / most);
  }
  const double brevity = all[8] < all[9] ? all[8] > 0 ? std::exp(1 - all[9] / all[8]) : 0 : 1;
  return brevity * std::exp(logs / kWords);
}

namespace {

// F-score of sums (n-grams here, in the reference, in both) for each length, over lengths that both sides have.
double f_score(const std::vector<double>& sums) {
  double precision = 0, recall = 0, orders = 0;
  for (size_t n = 0; n < kCharacters; ++n) {
    const double here = sums[3 * n], there = sums[3 * n + 1], both = sums[3 * n + 2];
    if (here > 0 && there > 0) precision += both / here, recall += both / there, ++orders;
  }
  if (orders == 0 || precision + recall == 0) return 0;
  precision /= orders, recall /= orders;
  constexpr double kBeta2 = 4;
  return 100 * (1 + kBeta2) * precision * recall / (kBeta2 * precision + recall);
}

}  // namespace

std::vector<double> chrf_sums(const std::string& sentence, const std::vector<std::string>& references) {
  const std::vector<std::string> here = characters_of(sentence);
  std::vector<double> best;
  double best_score = -1;
  for (const std::string& r : references) {
    const std::vector<std::string> there = characters_of(r);
    std::vector<double> sums;
    for (int n = 1; n <= kCharacters; ++n) {
      const Counts a = ngrams(here, n), b = ngrams(there, n);
      sums.insert(sums.end(), {b.empty() ? 0 : total(a), total(b), matches(a, b)});
    }
    if (const double score = f_score(sums); score > best_score) best_score = score, best = std::move(sums);
  }
  return best;
}

double chrf_score(const std::vector<double>& sums) { return f_score(added(sums, kChrfSums)); }

// Edits against the nearest reference, and the references' mean length.
std::vector<double> ter_sums(const std::string& sentence, const std::vector<std::string>& references) {
  std::unordered_map<std::string, int> ids;
  const auto numbers = [&](const std::string& text) {
    Line line;
    for (const std::string& w : words_of(lower(text)))
      line.push_back(ids.try_emplace(w, static_cast<int>(ids.size())).first->second);
    return line;
  };
  const Line here = numbers(sentence);
  double fewest = std::numeric_limits<double>::infinity(), length = 0;
  for (const std::string& r : references) {
    const Line there = numbers(r);
    fewest = std::min<double>(fewest, edits_with_shifts(here, there));
    length += static_cast<double>(there.size());
  }
  return {fewest, length / static_cast<double>(references.size())};
}

double ter_score(const std::vector<double>& sums) {
  const std::vector<double> all = added(sums, kTerSums);
  if (all[1] > 0) return 100 * all[0] / all[1];
  return all[0] > 0 ? 100 : 0;
}

}  // namespace mxt::eval

#include "eval/score/ifeval.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "eval/python/literal.h"
#include "eval/score/language.h"
#include "pytext/python_regex.h"
#include "pytext/unicode.h"

namespace mxt::eval {
namespace {

using pytext::PythonRegex;

size_t matches_of(const char* pattern, const std::string& text, bool multiline = false) {
  return pytext::PythonRegex(pattern, "ifeval", false, multiline).find_all(text).size();
}

std::vector<std::string> split_on(const std::string& s, const std::string& separator) {
  std::vector<std::string> out;
  size_t at = 0;
  for (size_t i = s.find(separator); i != std::string::npos; i = s.find(separator, at)) {
    out.push_back(s.substr(at, i - at));
    at = i + separator.size();
  }
  out.push_back(s.substr(at));
  return out;
}

// "less than" or "at least".
bool relation(const std::string& r, size_t is, int64_t wanted) {
  if (r == "less than") return static_cast<int64_t>(is) < wanted;
  if (r == "at least") return static_cast<int64_t>(is) >= wanted;
  fail_input("ifeval: a relation is \"less than\" or \"at least\", not \"{}\"", r);
}

// Sentences: ends at . ! ? (with quotes and brackets after it) before white space and something that can begin a
// sentence; titles, initials and common abbreviations end none. The published checker uses NLTK's trained Punkt model,
// so counts may differ by a little.
size_t sentences(const std::string& text) {
  const std::string t =
      pytext::PythonRegex(R"(\b(Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|Inc|Ltd|Co|No|Fig|[A-Z])\.)", "ifeval")
          .sub("\\1", strip(text));
  if (t.empty()) return 0;
  return pytext::PythonRegex(R"([.!?]+["'”’)\]*]*\s+(?=["'“‘(\[*A-Z0-9\p{Lu}]))", "ifeval").find_all(t).size() + 1;
}

bool is_upper_text(const std::string& s) {  // str.isupper
  bool cased = false;
  for (size_t i = 0, size = 0; i < s.size(); i += size) {
    const char32_t c = pytext::code_point(s, i, size);
    if (pytext::is_lower(c) || pytext::is_title(c)) return false;
    cased |= pytext::is_upper(c);
  }
  return cased;
}
bool is_lower_text(const std::string& s) {
  bool cased = false;
  for (size_t i = 0, size = 0; i < s.size(); i += size) {
    const char32_t c = pytext::code_point(s, i, size);
    if (pytext::is_upper(c) || pytext::is_title(c)) return false;
    cased |= pytext::is_lower(c);
  }
  return cased;
}

// Words as a Treebank tokenizer cuts them, as far as capitals are concerned: punctuation stands alone, hyphens and
// periods inside stay.
size_t capital_words(const std::string& text) {
  size_t n = 0;
  for (const auto& m : pytext::PythonRegex(R"([\w][\w\-.'&/]*)", "ifeval").find_all(text)) {
    std::string w = text.substr(m.begin(), m.end() - m.begin());
    while (!w.empty() && (w.back() == '.' || w.back() == '\'' || w.back() == '-')) w.pop_back();
    n += is_upper_text(w);
  }
  return n;
}

struct Case {
  const OrderedJson& kwargs;
  const std::string& prompt;
  const std::string& text;

  const OrderedJson& need(const char* key) const {
    const auto it = kwargs.find(key);
    if (it == kwargs.end() || it->is_null()) fail_input("ifeval: the instruction lacks {}", key);
    return *it;
  }
  int64_t number(const char* key) const {
    const OrderedJson& v = need(key);
    if (!v.is_number()) fail_input("ifeval: {} is a number", key);
    return static_cast<int64_t>(v.get<double>());
  }
  std::string word(const char* key) const { return need(key).get<std::string>(); }
};

using Check = bool (*)(const Case&);

bool keywords(const Case& c) {
  for (const OrderedJson& k : c.need("keywords"))
    if (!pytext::PythonRegex(k.get<std::string>(), "ifeval", true).search(c.text)) return false;
  return true;
}

bool forbidden(const Case& c) {
  for (const OrderedJson& k : c.need("forbidden_words"))
    if (pytext::PythonRegex("\\b" + k.get<std::string>() + "\\b", "ifeval", true).search(c.text)) return false;
  return true;
}

bool paragraphs(const Case& c) {
  const std::vector<std::string> parts = pytext::PythonRegex("\\s?\\*\\*\\*\\s?", "ifeval").split(c.text);
  size_t n = parts.size();
  for (size_t i = 0; i < parts.size(); ++i)
    if (strip(parts[i]).empty()) {
      if (i != 0 && i + 1 != parts.size()) return false;
      --n;
    }
  return static_cast<int64_t>(n) == c.number("num_paragraphs");
}

bool paragraph_first_word(const Case& c) {
  const std::vector<std::string> parts = split_on(c.text, "\n\n");
  int64_t n = 0;
  for (const std::string& p : parts) n += !strip(p).empty();
  const int64_t nth = c.number("nth_paragraph");
  if (nth < 1 || nth > n) return false;
  const std::string paragraph = strip(parts[static_cast<size_t>(nth) - 1]);
  if (paragraph.empty()) return false;
  std::string word = pytext::PythonRegex("\\s+", "ifeval").split(paragraph)[0];
  word.erase(0, std::min(word.find_first_not_of('\''), word.size()));
  word.erase(0, std::min(word.find_first_not_of('"'), word.size()));
  return n == c.number("num_paragraphs") &&
         lower(word.substr(0, word.find_first_of(".,?!'\""))) == lower(c.word("first_word"));
}

bool highlights(const Case& c) {
  int64_t n = 0;
  auto has_text = [](std::string s) {
    s.erase(0, std::min(s.find_first_not_of('*'), s.size()));
    while (!s.empty() && s.back() == '*') s.pop_back();
    return !strip(s).empty();
  };
  for (const auto& m : pytext::PythonRegex("\\*[^\\n\\*]*\\*", "ifeval").findall(c.text)) n += has_text(m[0]);
  for (const auto& m : pytext::PythonRegex("\\*\\*[^\\n\\*]*\\*\\*", "ifeval").findall(c.text)) n += has_text(m[0]);
  return n >= c.number("num_highlights");
}

bool postscript(const Case& c) {
  const std::string marker = strip(c.word("postscript_marker"));
  const std::string pattern = marker == "P.P.S"  ? "\\s*p\\.\\s?p\\.\\s?s.*$"
                              : marker == "P.S." ? "\\s*p\\.\\s?s\\..*$"
                                                 : "\\s*" + lower(marker) + ".*$";
  return pytext::PythonRegex(pattern, "ifeval", false, true).search(lower(c.text));
}

bool json_format(const Case& c) {
  std::string s = strip(c.text);
  for (const char* fence : {"```json", "```Json", "```JSON", "```"})
    if (s.starts_with(fence)) s.erase(0, std::string_view(fence).size());
  if (s.ends_with("```")) s.resize(s.size() - 3);
  return Json::accept(strip(s));
}

bool two_responses(const Case& c) {
  const std::vector<std::string> parts = split_on(c.text, "******");
  std::vector<std::string> valid;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string p = strip(parts[i]);
    if (!p.empty())
      valid.push_back(p);
    else if (i != 0 && i + 1 != parts.size())
      return false;
  }
  return valid.size() == 2 && valid[0] != valid[1];
}

bool constrained(const Case& c) {
  for (const char* option : {"My answer is yes.", "My answer is no.", "My answer is maybe."})
    if (strip(c.text).find(option) != std::string::npos) return true;
  return false;
}

bool title(const Case& c) {
  for (const auto& m : pytext::PythonRegex("<<[^\\n]+>>", "ifeval").findall(c.text)) {
    std::string s = m[0];
    s.erase(0, std::min(s.find_first_not_of('<'), s.size()));
    while (!s.empty() && s.back() == '>') s.pop_back();
    if (!strip(s).empty()) return true;
  }
  return false;
}

bool end_phrase(const Case& c) {
  std::string s = strip(c.text);
  s.erase(0, std::min(s.find_first_not_of('"'), s.size()));
  while (!s.empty() && s.back() == '"') s.pop_back();
  return lower(s).ends_with(lower(strip(c.word("end_phrase"))));
}

bool letter_frequency(const Case& c) {
  const std::string letter = lower(strip(c.word("letter"))), s = lower(c.text);
  size_t n = 0;
  for (size_t at = s.find(letter); !letter.empty() && at != std::string::npos; at = s.find(letter, at + letter.size()))
    ++n;
  return relation(c.word("let_relation"), n, c.number("let_frequency"));
}

const std::map<std::string, Check>& checks() {
  static const std::map<std::string, Check> table = {
      {"keywords:existence", keywords},
      {"keywords:frequency",
       [](const Case& c) {
         return relation(c.word("relation"),
                         pytext::PythonRegex(strip(c.word("keyword")), "ifeval", true).find_all(c.text).size(),
                         c.number("frequency"));
       }},
      {"keywords:forbidden_words", forbidden},
      {"keywords:letter_frequency", letter_frequency},
      {"language:response_language",
       [](const Case& c) {
         const std::string is = detect_language(c.text);
         return is.empty() || is == c.word("language");
       }},
      {"length_constraints:number_sentences",
       [](const Case& c) { return relation(c.word("relation"), sentences(c.text), c.number("num_sentences")); }},
      {"length_constraints:number_paragraphs", paragraphs},
      {"length_constraints:number_words",
       [](const Case& c) { return relation(c.word("relation"), matches_of("\\w+", c.text), c.number("num_words")); }},
      {"length_constraints:nth_paragraph_first_word", paragraph_first_word},
      {"detectable_content:number_placeholders",
       [](const Case& c) {
         return static_cast<int64_t>(matches_of("\\[.*?\\]", c.text)) >= c.number("num_placeholders");
       }},
      {"detectable_content:postscript", postscript},
      {"detectable_format:number_bullet_lists",
       [](const Case& c) {
         return static_cast<int64_t>(matches_of("^\\s*\\*[^\\*].*$", c.text, true) +
                                     matches_of("^\\s*-.*$", c.text, true)) == c.number("num_bullets");
       }},
      {"detectable_format:constrained_response", constrained},
      {"detectable_format:number_highlighted_sections", highlights},
      {"detectable_format:multiple_sections",
       [](const Case& c) {
         return static_cast<int64_t>(matches_of(("\\s?" + strip(c.word("section_spliter")) + "\\s?\\d+\\s?").c_str(),
                                                c.text)) >= c.number("num_sections");
       }},
      {"detectable_format:json_format", json_format},
      {"detectable_format:title", title},
      {"combination:two_responses", two_responses},
      {"combination:repeat_prompt",
       [](const Case& c) { return lower(strip(c.text)).starts_with(lower(strip(c.word("prompt_to_repeat")))); }},
      {"startend:end_checker", end_phrase},
      {"change_case:capital_word_frequency",
       [](const Case& c) {
         return relation(c.word("capital_relation"), capital_words(c.text), c.number("capital_frequency"));
       }},
      {"change_case:english_capital",
       [](const Case& c) { return is_upper_text(c.text) && detect_language(c.text) == "en"; }},
      {"change_case:english_lowercase",
       [](const Case& c) { return is_lower_text(c.text) && detect_language(c.text) == "en"; }},
      {"punctuation:no_comma", [](const Case& c) { return c.text.find(',') == std::string::npos; }},
      {"startend:quotation", [](const Case& c) {
         const std::string s = strip(c.text);
         return s.size() > 1 && s.front() == '"' && s.back() == '"';
       }}};
  return table;
}

std::string join_lines(const std::vector<std::string>& lines, size_t begin, size_t end) {
  std::string out;
  for (size_t i = begin; i < end; ++i) out += (i > begin ? "\n" : "") + lines[i];
  return strip(out);
}

// The answer itself, and without asterisks, first line, last line, both.
std::vector<std::string> loose(const std::string& answer) {
  const std::vector<std::string> lines = split_on(answer, "\n");
  const size_t n = lines.size();
  std::vector<std::string> out = {answer, join_lines(lines, 1, n), join_lines(lines, 0, n - 1),
                                  n > 1 ? join_lines(lines, 1, n - 1) : ""};
  for (size_t i = 0; i < 4; ++i) out.push_back(replace_all(out[i], "*", ""));
  return out;
}

}  // namespace

bool follows_instruction(const std::string& id, const OrderedJson& kwargs, const std::string& prompt,
                         const std::string& answer) {
  const auto it = checks().find(id);
  if (it == checks().end()) fail_missing("ifeval: the instruction {} cannot be verified here", id);
  return !strip(answer).empty() && it->second({kwargs, prompt, answer});
}

DocMetrics ifeval_results(const OrderedJson& doc, const std::vector<OrderedJson>& results) {
  const std::string answer = results.at(0).get<std::string>();
  const std::string prompt = doc.at("prompt");
  const OrderedJson& ids = doc.at("instruction_id_list");
  const std::vector<std::string> variants = loose(answer);
  OrderedJson strict = OrderedJson::array(), lenient = OrderedJson::array();
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string id = ids[i];
    const OrderedJson& kwargs = doc.at("kwargs").at(i);
    strict.push_back(follows_instruction(id, kwargs, prompt, answer));
    lenient.push_back(std::any_of(variants.begin(), variants.end(),
                                  [&](const std::string& v) { return follows_instruction(id, kwargs, prompt, v); }));
  }
  auto all = [](const OrderedJson& list) {
    return std::all_of(list.begin(), list.end(), [](const OrderedJson& b) { return b.get<bool>(); });
  };
  return {{"prompt_level_strict_acc", all(strict)},
          {"inst_level_strict_acc", strict},
          {"prompt_level_loose_acc", all(lenient)},
          {"inst_level_loose_acc", lenient}};
}

double ifeval_instruction_accuracy(const std::vector<OrderedJson>& items) {
  double right = 0, n = 0;
  for (const OrderedJson& list : items)
    for (const OrderedJson& b : list) {
      right += b.get<bool>();
      ++n;
    }
  return n > 0 ? right / n : 0;
}

}  // namespace mxt::eval

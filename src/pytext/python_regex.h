// Python's `re` over PCRE2: search, findall and sub with Python's rules for empty matches and replacement templates.
// Patterns are hostile: a match that backtracks without end is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mxt::pytext {

class PythonRegex {
 public:
  // Errors (kBadInput): the pattern does not compile; `where` is named.
  PythonRegex(std::string_view pattern, std::string_view where, bool ignore_case = false, bool multiline = false);
  ~PythonRegex();
  PythonRegex(PythonRegex&&) noexcept;

  struct Match {
    struct Group {
      bool set = false;
      size_t begin = 0, end = 0;  // bytes
    };
    std::vector<Group> groups;  // [0] is the whole match
    size_t begin() const { return groups[0].begin; }
    size_t end() const { return groups[0].end; }
  };
  // All matches, left to right, none overlapping (re.finditer); at most `limit` of them (0: all).
  std::vector<Match> find_all(std::string_view text, size_t limit = 0) const;
  bool search(std::string_view text) const { return !find_all(text, 1).empty(); }
  // What re.findall returns for each match: the groups where the pattern has some, else the whole match; an unset group
  // is "".
  std::vector<std::vector<std::string>> findall(std::string_view text) const;
  // re.sub with a replacement template (\1, \g<name>, \n); `count` 0: all.
  std::string sub(std::string_view replacement, std::string_view text, size_t count = 0) const;
  std::vector<std::string> split(std::string_view text) const;  // re.split for a pattern without groups

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace mxt::pytext

// Python's view of characters: white space, classes, case. Tables of utf8proc (Unicode 14, as Python 3.11) with the
// one-to-many case mappings that it lacks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mxt::pytext {

bool is_space(char32_t c);       // str.isspace, and \s of a regular expression
bool is_line_break(char32_t c);  // where str.splitlines cuts
bool is_printable(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);
inline bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }
inline bool is_word(char32_t c) { return c == '_' || is_alnum(c); }
bool is_name_start(char32_t c);
bool is_name_part(char32_t c);

// Each appends the mapping of one character to `out`.
void append_upper(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);
void append_casefold(std::string& out, char32_t c);
// Whether a capital sigma at byte `at` of `s` stands at the end of a word, where Python's lower() gives ς.
bool is_final_sigma(std::string_view s, size_t at);

// The code point at s[i], of `size` bytes. The text is valid UTF-8; a stray byte counts as one character.
char32_t code_point(std::string_view s, size_t i, size_t& size);
// The code point that ends before s[i].
char32_t code_point_before(std::string_view s, size_t i, size_t& size);
bool is_ascii(std::string_view s);
size_t length(std::string_view s);                   // in code points
size_t byte_offset(std::string_view s, size_t n);    // of code point n; the size where there are fewer
size_t skip_space(std::string_view s, size_t i);     // first byte from i that is no white space
size_t rskip_space(std::string_view s, size_t end);  // end without trailing white space

// Substring search in linear time, whatever the texts (std::string::find is quadratic at worst).
size_t find_text(std::string_view text, std::string_view what, size_t from);
size_t rfind_text(std::string_view text, std::string_view what);

}  // namespace mxt::pytext

// Small text helpers: UTF-8, edit distance, human figures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mxt {

bool is_valid_utf8(std::string_view s);
// Replaces what is not UTF-8 by U+FFFD exactly as Python's errors='replace' does (one per maximal invalid part).
std::string replace_invalid_utf8(std::string_view s);
// For one line of a message: control characters and what is not UTF-8 as \xNN, so that a name from outside cannot break
// it.
std::string printable(std::string_view s);
// Decodes the code point at s[i] of valid UTF-8 and moves i past it.
uint32_t next_code_point(std::string_view s, size_t& i);
void append_utf8(std::string& out, uint32_t code_point);

// The candidate with the smallest edit distance, or "" where none is near (distance over a third of the length).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

std::vector<std::string_view> split(std::string_view s, char sep);
std::string_view trim(std::string_view s);
std::string human_bytes(uint64_t bytes);  // "1.25 GiB"

}  // namespace mxt

// What cleaning asks of every byte of a source, a vector at a time (Highway, chosen at run time).
#pragma once

#include <cstddef>
#include <cstdint>

namespace mxt::data {

// How many bytes stand before the first that ends or breaks a JSON string's plain part: a quote, a backslash or a
// control character. n where there is none.
size_t json_plain_run(const char* p, size_t n);

// True where the text is ASCII without control characters, without two spaces side by side and without one at its ends.
bool is_plain_line(const char* p, size_t n);

// ASCII text: letters made small in out [n], and one bit a byte in bits [(n + 63) / 64], set for letters and digits.
// out may be read and written up to the next multiple of 64.
void lower_and_mark_words(const char* p, size_t n, char* out, uint64_t* bits);

}  // namespace mxt::data

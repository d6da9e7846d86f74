// Hand-written scanners for the split patterns of GPT-2, SmolLM (digits apart, then GPT-2's) and the cl100k family
// (Qwen2/3, Llama 3, nanochat, GPT-4): every byte of the text falls into exactly one piece.
//
// Whether a piece ends at a byte depends, but for runs of white space, only on a few neighbours. So the bulk scanner
// makes one bit mask a class for some thousand bytes and finds all ends by bit operations, with rare repairs by hand;
// the plain function `next_piece` reads like the regular expression, serves very long pieces, and is the test's oracle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mxt::tokenizer {

struct ScanRule {
  enum class Kind { kGpt2, kDigitsGpt2, kCl100k };
  Kind kind;
  int max_digits = 0;  // kCl100k: digits in one piece (1, 2 or 3)
};

// The rule for a split pattern as tokenizer.json spells it; none for patterns without a scanner.
std::optional<ScanRule> scan_rule_of(std::string_view pattern);
// The pattern as tokenizer.json spells it (kDigitsGpt2: the part after the digits).
std::string_view pattern_of(const ScanRule& rule);

// End of the piece that starts at p < end. Linear in the piece (and in a run of white space it starts).
size_t next_piece(const ScanRule& rule, const char* text, size_t p, size_t end);

// Ends of pieces, relative to `begin` and increasing, of some first part of text[begin, end); begin < end. Writes at
// least one; `ends` has room for kScanWindow + 64. text is valid UTF-8 and `begin` is the start of a piece.
constexpr size_t kScanWindow = 4096;
size_t scan_pieces(const ScanRule& rule, const char* text, size_t begin, size_t end, uint32_t* ends);

}  // namespace mxt::tokenizer

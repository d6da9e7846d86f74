// GPT-2's spelling of bytes as printable characters ("Ġ" for a space), which byte-level vocabularies are written in.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace mxt::tokenizer {

// Byte → code point.
const std::array<uint32_t, 256>& byte_alphabet();
// The spelling of raw bytes.
std::string spell_bytes(std::string_view bytes);
// The bytes behind a spelling; false where a character is none of the 256.
bool unspell_bytes(std::string_view spelled, std::string& bytes);

}  // namespace mxt::tokenizer

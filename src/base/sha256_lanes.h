// SHA-256 (FIPS 180-4) of two messages at once by the processor's own instructions (SHA-NI). Each round waits for the
// one before it; a second message fills the wait, so that two take little longer than one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/hash.h"

namespace mxt {

bool has_sha256_lanes();  // the processor has the instructions; the functions below need them

struct Sha256State {
  std::array<uint32_t, 8> h{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};
// Takes `blocks` blocks of 64 bytes into each state.
void sha256_two(Sha256State& a, const uint8_t* x, Sha256State& b, const uint8_t* y, size_t blocks);
void sha256_one(Sha256State& s, const uint8_t* x, size_t blocks);
// Of a message of `bytes` bytes, of which all but the last bytes % 64, `tail`, are in `s`.
Digest sha256_end(Sha256State s, const uint8_t* tail, uint64_t bytes);

}  // namespace mxt

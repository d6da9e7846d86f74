#include "publish/ipfs/murmur3.h"

#include <bit>

namespace mxt::publish {
namespace {

constexpr uint64_t kC1 = 0x87c37b91114253d5, kC2 = 0x4cf5ad432745937f;

uint64_t mixed(uint64_t k, uint64_t first, int turn, uint64_t second) { return std::rotl(k * first, turn) * second; }

uint64_t finalized(uint64_t k) {
  k = (k ^ k >> 33) * 0xff51afd7ed558ccd;
  k = (k ^ k >> 33) * 0xc4ceb9fe1a85ec53;
  return k ^ k >> 33;
}

// Little-endian; what is not there is zero.
uint64_t load(std::string_view s) {
  uint64_t v = 0;
  for (size_t i = 0; i < s.size() && i < 8; ++i) v |= static_cast<uint64_t>(static_cast<unsigned char>(s[i])) << 8 * i;
  return v;
}

}  // namespace

uint64_t murmur3_x64_64(std::string_view s) {
  uint64_t h1 = 0, h2 = 0;
  const uint64_t bytes = s.size();
  for (; s.size() >= 16; s.remove_prefix(16)) {
    h1 ^= mixed(load(s), kC1, 31, kC2);
    h1 = (std::rotl(h1, 27) + h2) * 5 + 0x52dce729;
    h2 ^= mixed(load(s.substr(8)), kC2, 33, kC1);
    h2 = (std::rotl(h2, 31) + h1) * 5 + 0x38495ab5;
  }
  if (s.size() > 8) h2 ^= mixed(load(s.substr(8)), kC2, 33, kC1);
  if (!s.empty()) h1 ^= mixed(load(s), kC1, 31, kC2);
  h1 ^= bytes;
  h2 ^= bytes;
  h1 += h2;
  h2 += h1;
  h1 = finalized(h1);
  h2 = finalized(h2);
  return h1 + h2;
}

}  // namespace mxt::publish

#include "evm/rlp.h"

namespace mxt::evm {
namespace {

// `base`: 0x80 for bytes, 0xc0 for a list.
std::string head(size_t size, int base) {
  if (size < 56) return std::string(1, static_cast<char>(base + static_cast<int>(size)));
  const std::string length = minimal_bytes(U256(size));
  return std::string(1, static_cast<char>(base + 55 + static_cast<int>(length.size()))) + length;
}

}  // namespace

std::string rlp_bytes(std::string_view b) {
  if (b.size() == 1 && static_cast<uint8_t>(b[0]) < 0x80) return std::string(b);
  return head(b.size(), 0x80).append(b);
}

std::string rlp_number(const U256& n) { return rlp_bytes(minimal_bytes(n)); }

std::string rlp_list(const std::vector<std::string>& items) {
  std::string all;
  for (const std::string& i : items) all += i;
  return head(all.size(), 0xc0) + all;
}

}  // namespace mxt::evm

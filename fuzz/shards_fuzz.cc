// Whatever the bytes, a token shard is read or refused. The header's checksum is mended first, or nothing would get
// past.
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "formats/shards.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint64_t> file((size + 7) / 8);  // aligned, as a mapping is
  if (size > 0) std::memcpy(file.data(), data, size);
  auto* bytes = reinterpret_cast<uint8_t*>(file.data());
  if (size >= 112) {
    mxt::Blake3 h;
    h.update(bytes, 80);
    const mxt::Digest d = h.digest();
    std::memcpy(bytes + 80, d.data(), d.size());
  }
  try {
    const auto s = mxt::formats::TokenShard::parse({reinterpret_cast<const std::byte*>(bytes), size}, "fuzz", false);
    uint64_t sum = s.targets();
    for (uint64_t r = 0; r < s.rows(); ++r) {
      const auto row = s.row(r);
      for (size_t i = 0; i < row.tokens(); ++i) sum += static_cast<uint64_t>(row.ids[i]) + row.is_target(i);
      for (float w : row.weights) sum += w > 0;
    }
    return sum == ~0ull;
  } catch (const mxt::Error&) {
  }
  return 0;
}

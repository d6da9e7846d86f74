// Whatever the bytes, a safetensors file is read or refused; what is read can be touched to its last byte.
#include <cstring>
#include <vector>

#include "base/error.h"
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mxt::formats;
  // A copy of its own, so that reading past the end is seen.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  try {
    const Safetensors s = Safetensors::parse(file, "fuzz");
    unsigned sum = 0;
    for (const TensorInfo& t : s.tensors()) {
      for (std::byte b : s.bytes(t)) sum += static_cast<unsigned>(b);
      MXT_ASSERT(s.find(t.name) == &t && static_cast<uint64_t>(t.count()) * mxt::size_of(t.type) == t.bytes);
    }
    return sum == 0xffffffffu;
  } catch (const mxt::Error& e) {
    MXT_ASSERT(std::strchr(e.what(), '\n') == nullptr);  // one line, whatever the file holds
  }
  return 0;
}

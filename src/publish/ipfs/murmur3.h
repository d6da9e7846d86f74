// MurmurHash3_x64_128 (Austin Appleby, public domain), the first 64 of its 128 bits, seed 0: what UnixFS's HAMT places
// names by.
#pragma once

#include <cstdint>
#include <string_view>

namespace mxt::publish {

uint64_t murmur3_x64_64(std::string_view s);

}  // namespace mxt::publish

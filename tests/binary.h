// The binary that tests run, as folders.h has the sources.
#pragma once

namespace mxt {
extern const char* const kBinary;
}  // namespace mxt

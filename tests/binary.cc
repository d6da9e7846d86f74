#include "binary.h"

namespace mxt {
const char* const kBinary = MXT_BINARY;
}  // namespace mxt

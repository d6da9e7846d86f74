#include "folders.h"

namespace mxt {
const char* const kSourceDir = MXT_SOURCE_DIR;
}  // namespace mxt

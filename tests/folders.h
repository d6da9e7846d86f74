// Where the sources lie. Compiled once (folders.cc): no other object of the tests holds a path, so that another clone
// finds them in a compiler's cache.
#pragma once

namespace mxt {
extern const char* const kSourceDir;
}  // namespace mxt

#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace mxt {

void assert_failed(const char* expr, const char* file, int line) {
  std::fprintf(stderr, "mindxtrain: internal error: %s at %s:%d\n", expr, file, line);
  std::abort();
}

}  // namespace mxt

#include "base/entropy.h"

#include <sys/random.h>

#include <cerrno>

#include "base/error.h"

namespace mxt {

uint32_t unguessable() {
  uint32_t v = 0;
  while (getrandom(&v, sizeof v, 0) != sizeof v)  // so few bytes come whole, or not at all for a signal
    if (errno != EINTR) fail_missing("the kernel gives no random numbers (getrandom)");
  return v;
}

}  // namespace mxt

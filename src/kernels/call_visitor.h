// A visitor of a call's members (calls.h: operands() and the like) that does nothing with what does not interest it:
// derive from it, and name what does.
#pragma once

#include <cstdint>

namespace mxt::kernels {

struct CallVisitor {
  void adds(bool&) {}
  void draws(float, uint64_t&, uint64_t&, int64_t&) {}
  void documents(int64_t&, int64_t&) {}
  void cache(int64_t&, int64_t&) {}
  void page(int64_t&) {}
};

}  // namespace mxt::kernels

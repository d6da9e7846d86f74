// Memory that kernels keep of their own from a call on (packed operands, tiles), of all threads together: part of a
// plan beside the scratch that a caller gives. A backend that keeps some is also an OwnMemory.
#pragma once

#include <cstddef>

#include "kernels/api.h"

namespace mxt::kernels {

class OwnMemory {
 public:
  virtual ~OwnMemory() = default;
  virtual size_t own_memory(const Gemm&) const = 0;
  virtual size_t own_memory(const Attention&) const = 0;
  virtual size_t own_memory(const AttentionGrad&) const = 0;
  virtual size_t own_memory(const GroupedGemm&) const = 0;
  virtual size_t own_memory(const GatedDelta&) const = 0;
  virtual size_t own_memory(const GatedDeltaGrad&) const = 0;
};

template <typename Call>
size_t own_memory(const Ops& ops, const Call& call) {
  const auto* own = dynamic_cast<const OwnMemory*>(&ops);
  return own ? own->own_memory(call) : 0;
}

}  // namespace mxt::kernels

// What an answer may look like, token by token. One object per request; it is used by the scheduler's thread alone.
#pragma once

#include <cstdint>
#include <span>

namespace mxt::infer {

class Constraint {
 public:
  virtual ~Constraint() = default;
  // Bit i of word i/64: token i may come next. Empty: no limit for now. Valid until accept(). All bits zero: the answer
  // is complete.
  virtual std::span<const uint64_t> allowed() = 0;
  virtual void accept(int32_t id) = 0;
};

}  // namespace mxt::infer

// What an answer may look like, token by token. One object per request; it is used by the scheduler's thread alone.
#pragma once

#include <cstdint>
#include <span>

namespace mxt::infer {

class Constraint {
 public:
  virtual ~Constraint() = default;
  // Bit i of word i/64: token i may come next as text. Empty: no limit for now. Valid until accept(). End tokens are
  // no text: whether they may come is what complete() says.
  virtual std::span<const uint64_t> allowed() = 0;
  virtual bool complete() const = 0;  // the answer may end here
  // Whether `id`, which allowed() offers, may come indeed: what no set of tokens can say beforehand.
  virtual bool takes(int32_t) { return true; }
  virtual void accept(int32_t id) = 0;  // an Error where `id` was not allowed: it ends this answer alone
};

}  // namespace mxt::infer

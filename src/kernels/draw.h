// Choosing next tokens where the logits are: a device's logits are many and its choice is one number. A backend that
// has this call is also a Drawer; without one the host chooses (infer/sampler.h), which filters and penalties want
// anyway.
#pragma once

#include "kernels/api.h"

namespace mxt::kernels {

// Of each row of logits [rows, vocab], F32, with z = softcap·tanh(logits/softcap) (softcap 0: the logits):
//   drawn[r] = {id, ln softmax(z)[id]}, F32
// The id is the first whose share of softmax(z/temperature), added up in the order of ids, passes the uniform number of
// the row's 64 bits (high, low); temperature 0: the most likely, the lowest among equals. {−1, NaN} where one of the
// logits is not finite. Ids are below 2^24, which F32 holds exactly.
struct DrawTokens {
  ConstMat logits;
  float softcap = 0;
  const float* temperature = nullptr;  // [rows]
  const int32_t* bits = nullptr;       // [rows, 2]
  Mat drawn;                           // [rows, 2]
};

void check(const DrawTokens&);  // as checks.h

class Drawer {
 public:
  virtual ~Drawer() = default;
  virtual void draw_tokens(const DrawTokens&) = 0;
};

namespace reference {
void draw_tokens(const DrawTokens&);
}

}  // namespace mxt::kernels

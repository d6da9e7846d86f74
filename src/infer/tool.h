// A tool that the model uses inside an answer. One object per request; it is used by the scheduler's thread alone.
#pragma once

#include <cstdint>
#include <vector>

namespace mxt::infer {

class Tool {
 public:
  virtual ~Tool() = default;
  // Told each token of the answer; what it returns stands in the answer next, whatever the model would say there. They
  // count as the answer's own tokens, and are not told.
  virtual std::vector<int32_t> after(int32_t id) = 0;
};

}  // namespace mxt::infer

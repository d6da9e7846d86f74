// What layers of gated DeltaNet carry on of a sequence that is generated: the last inputs of the convolution and the
// recurrent state (fp32), a slot a sequence. Models without such layers take no memory here. A state stands for a whole
// beginning and cannot be taken apart as pages can, so these models share no beginnings between requests.
#pragma once

#include <cstdint>
#include <vector>

#include "device/memory.h"
#include "formats/model_config.h"
#include "runtime/program.h"

namespace mxt::infer {

class SequenceStates {
 public:
  SequenceStates(const formats::ModelConfig& config, DType type, int64_t slots, device::Accelerator* device = nullptr);
  static int64_t bytes(const formats::ModelConfig& config, DType type);  // of one sequence

  bool any() const { return any_; }
  int32_t take();  // there must be one free
  void release(int32_t slot) { free_.push_back(slot); }
  // `slots`: one for each request of the pass, in memory that lasts as long as the view.
  void show(runtime::CacheView& view, const std::vector<int32_t>& slots) const;

 private:
  bool any_ = false;
  device::Buffer memory_;
  std::vector<void*> convolution_, state_;  // [layer]; null where attention is
  std::vector<int32_t> free_;
};

}  // namespace mxt::infer

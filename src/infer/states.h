// What layers of gated DeltaNet carry on of a sequence that is generated: the last inputs of the convolution and the
// recurrent state (fp32), a slot a sequence. Models without such layers take no memory here. A state stands for a whole
// beginning and cannot be taken apart as pages can: requests share a beginning where a copy of the state at its end was
// kept, under the digest of the page that ends there (cache.h). The copy used longest ago goes first.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "base/hash.h"
#include "device/memory.h"
#include "formats/model_config.h"
#include "runtime/program.h"

namespace mxt::infer {

class SequenceStates {
 public:
  // `copies`: of states that later requests may begin with; they take as much memory as slots.
  SequenceStates(const formats::ModelConfig& config, DType type, int64_t slots, device::Accelerator* device = nullptr,
                 int64_t copies = 0);
  static int64_t bytes(const formats::ModelConfig& config, DType type);  // of one sequence

  bool any() const { return any_; }
  int32_t take();  // there must be one free
  void release(int32_t slot) { free_.push_back(slot); }
  // The state of `slot`, as it is now, is what the digest stands for.
  void keep(const Digest& digest, int32_t slot);
  bool kept(const Digest& digest) const { return copies_.contains(digest); }
  void restore(const Digest& digest, int32_t slot);  // one that is kept
  void forget();                                     // every copy
  // `slots`: one for each request of the pass, in memory that lasts as long as the view.
  void show(runtime::CacheView& view, const std::vector<int32_t>& slots) const;

 private:
  struct Copy {
    int32_t slot;
    std::list<Digest>::iterator used;
  };
  void copy(int32_t from, int32_t to) const;
  bool any_ = false;
  device::Accelerator* device_;
  int64_t convolution_bytes_ = 0, state_bytes_ = 0;  // of one sequence and layer
  device::Buffer memory_;
  std::vector<void*> convolution_, state_;  // [layer]; null where attention is
  std::vector<int32_t> free_, free_copies_;
  std::map<Digest, Copy> copies_;
  std::list<Digest> used_;  // the longest unused first
};

}  // namespace mxt::infer

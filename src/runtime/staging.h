// A batch where the kernels read it: its arrays packed into one block (the device's memory, where it has one), and the
// rows that have a target. Internal to the room.
#pragma once

#include <memory>

#include "device/memory.h"
#include "runtime/picture_staging.h"
#include "runtime/program.h"

namespace mxt::runtime {

struct StagedBatch : Batch {
  const int32_t *target_rows = nullptr, *target_labels = nullptr;
  const float* target_weights = nullptr;
  const int32_t *host_rows = nullptr, *host_cu_seqlens = nullptr;
  const float* staged_balance_scale = nullptr;
  int64_t target_count = 0, longest = 0;
  // Of pictures: the block as the kernels see it and as the host does; null where the model sees none.
  const std::byte *picture_block = nullptr, *host_picture_block = nullptr;
  const PictureLayout* picture_layout = nullptr;
  int64_t longest_picture = 0;
};

// Packs a batch into one block and carries it to the device in one copy. Two blocks of pinned memory take turns, so
// that a copy in flight is never overwritten.
class Program::Staging {
 public:
  // `previous`: whether the program reads the token before each.
  Staging(const ProgramSettings& s, device::Accelerator* device, bool previous, const graph::Graph& g);
  ~Staging();
  Staging(const Staging&) = delete;
  const StagedBatch& take(const Batch& b);
  const StagedBatch& batch() const { return staged_; }

 private:
  // What generation adds, in a block that grows with the number of requests and the pages that each may have.
  void take_cache(const Batch& b);

  device::Accelerator* device_;
  ProgramSettings settings_;
  bool previous_;
  std::unique_ptr<PictureStaging> pictures_;
  device::Buffer host_[1], there_, cache_there_;
  void* pinned_[2] = {};
  void* cache_pinned_[2] = {};
  CacheView view_;
  void* marks_[2] = {};
  int turn_ = 0;
  StagedBatch staged_;
};

}  // namespace mxt::runtime

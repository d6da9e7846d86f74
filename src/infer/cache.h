// Paged key/value cache: memory for `pages` pages of kPage tokens in every layer, handed out page by page.
#pragma once

#include <cstdint>
#include <vector>

#include "device/memory.h"
#include "formats/model_config.h"

namespace mxt::infer {

class PagedCache {
 public:
  static constexpr int64_t kPage = 16;
  // In the memory of `device`; null: the host's.
  PagedCache(const formats::ModelConfig& config, DType type, int64_t pages, device::Accelerator* device = nullptr);
  static int64_t bytes(const formats::ModelConfig& config, DType type, int64_t pages);
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t pages() const { return pages_; }
  int32_t take();               // a page; there must be a free one
  void give(int32_t page) { free_.push_back(page); }
  const std::vector<void*>& k() const { return k_; }
  const std::vector<void*>& v() const { return v_; }

 private:
  int64_t pages_;
  device::Buffer memory_;
  std::vector<void*> k_, v_;
  std::vector<int32_t> free_;
};

}  // namespace mxt::infer

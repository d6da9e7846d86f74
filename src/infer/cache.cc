#include "infer/cache.h"

#include "base/error.h"

namespace mxt::infer {

int64_t PagedCache::bytes(const formats::ModelConfig& c, DType type, int64_t pages) {
  return 2 * c.num_layers * pages * kPage * c.num_kv_heads * c.head_dim * static_cast<int64_t>(size_of(type));
}

PagedCache::PagedCache(const formats::ModelConfig& c, DType type, int64_t pages, device::Accelerator* device)
    : pages_(pages), memory_(device::Buffer::on(device, static_cast<size_t>(bytes(c, type, pages)))) {
  const int64_t layer = pages * kPage * c.num_kv_heads * c.head_dim * static_cast<int64_t>(size_of(type));
  for (int64_t i = 0; i < c.num_layers; ++i) {
    k_.push_back(memory_.bytes_at(static_cast<size_t>(2 * i * layer)));
    v_.push_back(memory_.bytes_at(static_cast<size_t>((2 * i + 1) * layer)));
  }
  for (int64_t p = pages; p-- > 0;) free_.push_back(static_cast<int32_t>(p));
}

int32_t PagedCache::take() {
  MXT_ASSERT(!free_.empty());
  const int32_t p = free_.back();
  free_.pop_back();
  return p;
}

}  // namespace mxt::infer

#include "infer/cache.h"

#include "base/error.h"

namespace mxt::infer {
namespace {

int64_t layers_with_pages(const formats::ModelConfig& c) {
  int64_t n = 0;
  for (const formats::LayerSpec& l : c.layers) n += l.mixer == formats::LayerSpec::Mixer::kAttention;
  return n;
}

}  // namespace

int64_t PagedCache::bytes(const formats::ModelConfig& c, DType type, int64_t pages) {
  return 2 * layers_with_pages(c) * pages * kPage * c.num_kv_heads * c.head_dim * static_cast<int64_t>(size_of(type));
}

PagedCache::PagedCache(const formats::ModelConfig& c, DType type, int64_t pages, device::Accelerator* device)
    : memory_(device::Buffer::on(device, static_cast<size_t>(bytes(c, type, pages)))),
      uses_(static_cast<size_t>(pages)),
      name_(static_cast<size_t>(pages), published_.end()),
      place_(static_cast<size_t>(pages)) {
  const int64_t layer = pages * kPage * c.num_kv_heads * c.head_dim * static_cast<int64_t>(size_of(type));
  size_t at = 0;
  for (const formats::LayerSpec& l : c.layers)
    for (auto* list : {&k_, &v_}) {
      const bool paged = l.mixer == formats::LayerSpec::Mixer::kAttention;
      list->push_back(paged ? memory_.bytes_at(at) : nullptr);
      if (paged) at += static_cast<size_t>(layer);
    }
  for (int64_t p = pages; p-- > 0;) free_.push_back(static_cast<int32_t>(p));
}

void PagedCache::unpublish(int32_t page) {
  auto& name = name_[static_cast<size_t>(page)];
  published_.erase(name);
  name = published_.end();
}

int32_t PagedCache::take() {
  int32_t page;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else {
    MXT_ASSERT(!idle_.empty());
    page = idle_.front();
    idle_.pop_front();
    unpublish(page);
  }
  uses_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagedCache::release(int32_t page) {
  const auto p = static_cast<size_t>(page);
  MXT_ASSERT(uses_[p] > 0);
  if (--uses_[p] > 0) return;
  if (name_[p] == published_.end())
    free_.push_back(page);
  else
    place_[p] = idle_.insert(idle_.end(), page);
}

int32_t PagedCache::find(const Digest& digest) {
  const auto it = published_.find(digest);
  if (it == published_.end()) return -1;
  const auto p = static_cast<size_t>(it->second);
  if (uses_[p]++ == 0) idle_.erase(place_[p]);
  return it->second;
}

void PagedCache::publish(int32_t page, const Digest& digest) {
  const auto p = static_cast<size_t>(page);
  if (name_[p] != published_.end()) return;
  if (const auto [it, fresh] = published_.emplace(digest, page); fresh) name_[p] = it;
}

void PagedCache::forget() {
  for (int32_t page : idle_) free_.push_back(page);
  idle_.clear();
  published_.clear();
  for (auto& n : name_) n = published_.end();
}

Digest page_digest(const Digest& before, uint32_t adapter, std::span<const int32_t> tokens) {
  Blake3 h;
  h.update(before.data(), before.size());
  h.update(&adapter, sizeof adapter);
  h.update(tokens.data(), tokens.size_bytes());
  return h.digest();
}

}  // namespace mxt::infer

// Paged key/value cache: memory for `pages` pages of kPage tokens in every layer of attention, handed out page by page.
// Full pages may be published under a digest of everything that led to them, so that a later request with the same
// beginning shares them; pages that nobody uses are kept until their memory is wanted, the one used longest ago goes
// first.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "base/hash.h"
#include "device/memory.h"
#include "formats/model_config.h"

namespace mxt::infer {

class PagedCache {
 public:
  static constexpr int64_t kPage = 16;
  // In the memory of `device`; null: the host's.
  PagedCache(const formats::ModelConfig& config, DType type, int64_t pages, device::Accelerator* device = nullptr);
  static int64_t bytes(const formats::ModelConfig& config, DType type, int64_t pages);

  int64_t pages() const { return static_cast<int64_t>(uses_.size()); }
  int64_t available() const { return static_cast<int64_t>(free_.size() + idle_.size()); }  // take() can give so many
  int32_t take();              // a page of one's own; there must be one available
  void release(int32_t page);  // one use less
  // The page published under this digest, with one use more; −1 where there is none.
  int32_t find(const Digest& digest);
  // The page holds what the digest stands for and will not be written any more. A second page of the same digest stays
  // unpublished.
  void publish(int32_t page, const Digest& digest);
  void forget();  // unpublishes everything

  const std::vector<void*>& k() const { return k_; }
  const std::vector<void*>& v() const { return v_; }

 private:
  void unpublish(int32_t page);
  device::Buffer memory_;
  std::vector<void*> k_, v_;
  std::vector<int32_t> free_, uses_;
  std::map<Digest, int32_t> published_;
  std::vector<std::map<Digest, int32_t>::iterator> name_;  // end(): not published
  std::list<int32_t> idle_;                                // published and unused, the longest unused first
  std::vector<std::list<int32_t>::iterator> place_;
};

// Digest of a full page: of the page before it (all zero for the first), what else decides its contents, and its
// tokens.
Digest page_digest(const Digest& before, uint32_t adapter, std::span<const int32_t> tokens);

}  // namespace mxt::infer

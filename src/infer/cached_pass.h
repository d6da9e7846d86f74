// A pass over the paged cache, gathered request by request: what runtime::Batch and runtime::CacheView point into.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/cache.h"
#include "infer/states.h"
#include "runtime/program.h"

namespace mxt::infer {

struct CachedPass {
  std::vector<int32_t> ids, previous, positions, slots;  // [tokens]
  std::vector<int32_t> cu_q{0}, context, states;         // [requests + 1], [requests], [requests]
  std::vector<int32_t> tables;                           // [requests, max_pages]
  std::vector<int32_t> logit_rows;                       // of tokens whose logits or hidden states are wanted

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  int64_t requests() const { return static_cast<int64_t>(context.size()); }
  // Token `at` of a sequence that lies in `pages`, after the last one added.
  void add_token(std::span<const int32_t> sequence, int64_t at, std::span<const int32_t> pages);
  // What was added since the last request is one; its cache then holds `held` tokens. `state`: its place among
  // SequenceStates.
  void end_request(int64_t held, std::span<const int32_t> pages, int64_t max_pages, int32_t state);
  // Both last as long as this pass is not added to.
  runtime::CacheView view(const PagedCache& cache, const SequenceStates& of, int64_t max_pages) const;
  runtime::Batch batch() const;  // without the cache and where results go
};

}  // namespace mxt::infer

#include "infer/cached_pass.h"

#include <algorithm>

namespace mxt::infer {

void CachedPass::add_token(std::span<const int32_t> sequence, int64_t at, std::span<const int32_t> pages) {
  constexpr auto page = static_cast<int32_t>(PagedCache::kPage);
  ids.push_back(sequence[static_cast<size_t>(at)]);
  previous.push_back(sequence[static_cast<size_t>(std::max<int64_t>(at - 1, 0))]);
  positions.push_back(static_cast<int32_t>(at));
  slots.push_back(pages[static_cast<size_t>(at / page)] * page + static_cast<int32_t>(at % page));
}

void CachedPass::end_request(int64_t held, std::span<const int32_t> pages, int64_t max_pages, int32_t state) {
  cu_q.push_back(static_cast<int32_t>(ids.size()));
  context.push_back(static_cast<int32_t>(held));
  states.push_back(state);
  tables.resize(tables.size() + static_cast<size_t>(max_pages), 0);
  std::copy(pages.begin(), pages.end(), tables.end() - max_pages);
}

runtime::CacheView CachedPass::view(const PagedCache& cache, const SequenceStates& of, int64_t max_pages) const {
  runtime::CacheView view;
  view.k = cache.k();
  view.v = cache.v();
  view.page = PagedCache::kPage;
  view.max_pages = max_pages;
  view.cu_q = cu_q.data();
  view.context = context.data();
  view.tables = tables.data();
  view.slots = slots.data();
  view.requests = requests();
  of.show(view, states);
  return view;
}

runtime::Batch CachedPass::batch() const {
  runtime::Batch b;
  b.tokens = tokens();
  b.ids = ids.data();
  b.positions = positions.data();
  b.previous = previous.data();
  b.logit_rows = logit_rows.data();
  b.logit_count = static_cast<int64_t>(logit_rows.size());
  return b;
}

}  // namespace mxt::infer

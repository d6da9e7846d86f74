// Where the documents of a packed batch begin and end and what a query sees of them, on the device.
#pragma once

#include "kernels/gpu/gpu.h"

namespace mxt::kernels::MXT_GPU_NS {

// Document of token t: the last i with cu[i] ≤ t.
__device__ __forceinline__ int64_t document_of(const int32_t* cu, int64_t documents, int64_t t) {
  int64_t lo = 0, hi = documents - 1;
  while (lo < hi) {
    const int64_t mid = (lo + hi + 1) / 2;
    if (cu[mid] <= t)
      lo = mid;
    else
      hi = mid - 1;
  }
  return lo;
}

// The keys that a query sees: of its own document from `first` on up to itself, and [prefix, prefix_end) of the one
// that this goes on from (Attention::prefix).
struct Seen {
  int32_t first, prefix, prefix_end;
  __device__ __forceinline__ bool at(int32_t key) const { return key >= first || (key >= prefix && key < prefix_end); }
  // Of all that it sees.
  __device__ __forceinline__ int32_t lowest() const { return prefix < prefix_end ? prefix : first; }
};

__device__ __forceinline__ Seen seen_by(const int32_t* cu, const int32_t* prefix, int64_t documents, int64_t window,
                                        int64_t t) {
  const int64_t document = document_of(cu, documents, t), begin = cu[document];
  const int64_t hidden = window > 0 ? t - window + 1 : 0;  // keys before this row are out of the window
  Seen s{static_cast<int32_t>(hidden > begin ? hidden : begin), 0, 0};
  const int32_t from = prefix != nullptr ? prefix[document] : -1;
  if (from < 0) return s;
  // As if that document ended where this one begins.
  const int64_t its_begin = cu[from], its_end = cu[from + 1], its_hidden = window > 0 ? hidden - begin + its_end : 0;
  s.prefix = static_cast<int32_t>(its_hidden > its_begin ? its_hidden : its_begin);
  s.prefix_end = static_cast<int32_t>(its_end);
  return s;
}

// One past the last row of `document` and of those that go on from it.
__device__ __forceinline__ int64_t end_with_followers(const int32_t* cu, const int32_t* prefix, int64_t documents,
                                                      int64_t document) {
  int64_t i = document + 1;
  if (prefix != nullptr)
    while (i < documents && prefix[i] == document) ++i;
  return cu[i];
}

}  // namespace mxt::kernels::MXT_GPU_NS

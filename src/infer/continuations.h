// How likely given continuations are. Requests that begin alike share the work on what they have in common: the pages
// of the cache that hold it. What a request gets does not depend on what else is scored, nor on how many at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "infer/cache.h"
#include "infer/model.h"
#include "infer/states.h"

namespace mxt::infer {

struct Continuation {
  std::vector<int32_t> ids;  // context and continuation
  int64_t scored = 0;        // of these, the last `scored` are the continuation; at least one id stands before them
};

struct ContinuationScore {
  double logprob = 0;  // Σ ln p of the continuation's tokens
  bool greedy = true;  // each of them is the most likely one where it stands
};

class ContinuationScorer {
 public:
  // `batch`: different inputs in one pass; `tokens_per_pass`: of all of them.
  ContinuationScorer(Model& model, int64_t batch, int64_t tokens_per_pass = 1024);
  // Calls done(row, score) for every row as it is finished, in any order. Errors (kBadInput): a row longer than the
  // model's positions + 1 or with ids outside the vocabulary, naming the row. `more`: asked before each pass; false
  // ends the work.
  void score(const std::vector<Continuation>& rows, const std::function<void(size_t, const ContinuationScore&)>& done,
             const std::function<bool()>& more = {});

 private:
  Model& model_;
  int64_t batch_, tokens_;
  std::unique_ptr<runtime::Program> program_;
  std::unique_ptr<PagedCache> cache_;
  SequenceStates states_;
};

}  // namespace mxt::infer

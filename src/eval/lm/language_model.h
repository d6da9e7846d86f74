// The model as a harness sees it: answers to requests. Tokens are cut as lm-evaluation-harness's `hf` model cuts them,
// so log-likelihoods are of the same tokens.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "eval/lm/cache.h"
#include "eval/task/task.h"
#include "infer/continuations.h"
#include "kernels/api.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mxt::eval {

struct ModelChoice {
  std::string path, adapter;  // HF folder or .gguf; PEFT folder or ""
  DType type = DType::kBF16;
  int64_t batch = 16;  // requests in one pass; never changes an answer
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<const tokenizer::ChatTemplate> chat;  // its end of a turn ends answers too; null: none
  kernels::Ops* ops = nullptr;
  bool rendered = false;  // contexts come out of the chat template, which writes what a text begins with
};

class LanguageModel {
 public:
  // The weights are read when the first request needs them.
  LanguageModel(ModelChoice choice, const std::atomic<bool>* stop);
  ~LanguageModel();

  // Fills `responses` of every request, `repeats` each; those that `cache` holds are not computed again, new ones are
  // put there as they are finished. False where `stop` ended it.
  bool run(const std::vector<Request*>& requests, int64_t repeats, RequestCache& cache);

  // How likely given tokens are, a result for each row; those in `cache` are not computed again. Of a row that is
  // longer than the context the last tokens are read. False where `stop` ended it.
  bool score(const std::vector<infer::Continuation>& rows, RequestCache& cache,
             std::vector<infer::ContinuationScore>* out);
  // The BOS (EOS where there is none), then the text, in which control tokens are ordinary text.
  std::vector<int32_t> encode_plain(const std::string& text) const;

  int64_t max_length() const { return max_length_; }  // of the model's configuration
  std::string identity() const;  // digests of weights and adapter, and the type: what answers depend on
  std::string eos_text() const;

  // Public for tests: the harness's rules.
  struct Pair {
    std::vector<int32_t> context, continuation;
  };
  Pair encode_pair(const std::string& context, const std::string& continuation) const;
  std::vector<int32_t> encode(const std::string& text)
      const;  // with the tokenizer's own prefix (BOS), unless the text begins with it or was `rendered`

 private:
  struct Loaded;
  Loaded& load(int64_t tokens);  // for texts of at most so many
  bool run_likelihood(const std::vector<Request*>& requests, RequestCache& cache);
  // Rows that no cache holds: each to `take` and under its key into `cache`.
  bool score_new(const std::vector<infer::Continuation>& rows, const std::vector<std::string>& keys,
                 RequestCache& cache, const std::function<void(size_t, const infer::ContinuationScore&)>& take);
  bool run_rolling(const std::vector<Request*>& requests, RequestCache& cache);
  bool run_generation(const std::vector<Request*>& requests, int64_t repeats, RequestCache& cache);
  std::string key(const Request& r, int64_t repeat) const;
  bool stopped() const { return stop_ && *stop_; }

  ModelChoice choice_;
  const std::atomic<bool>* stop_;
  int64_t max_length_ = 0;
  // LongRoPE turns texts of more tokens than these by other frequencies: they are computed apart, so that no text's
  // numbers depend on the others' lengths.
  int64_t brief_ = std::numeric_limits<int64_t>::max();
  std::vector<int32_t> stops_;
  int32_t prefix_token_ = -1;  // what stands where a context is empty
  mutable std::string identity_;
  std::unique_ptr<Loaded> loaded_;
};

// [first token, last token) windows of a text for rolling log-likelihood: pairs of what is read and what is predicted,
// disjoint.
std::vector<LanguageModel::Pair> rolling_windows(const std::vector<int32_t>& tokens, int32_t prefix,
                                                 int64_t max_length);

// generation_kwargs as the engine needs them.
struct GenerationSettings {
  std::vector<std::string> until;
  int64_t max_tokens = 256;
  double temperature = 0, top_p = 1, min_p = 0;
  int64_t top_k = 0;
};
GenerationSettings generation_settings(const OrderedJson& kwargs);

// Text before the first occurrence of each stop string, taken one after the other.
std::string cut_at_stops(std::string text, const std::vector<std::string>& stops);

}  // namespace mxt::eval

// What this room asks of models: embeddings and perplexities of texts. The caller of prepare() supplies them
// (data/prepare.h), since engines stand above this room.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace mxt::data {

// Both may load their model with the first text only; digest() must not need it. Used by one thread at a time.
class Embedder {
 public:
  virtual ~Embedder() = default;
  virtual std::string digest() const = 0;  // of the model and its tokenizer: equal digest = equal embeddings
  virtual int64_t width() = 0;
  // out: [texts, width], each row of length 1. A text longer than the model reads counts as its beginning.
  virtual void embed(std::span<const std::string> texts, float* out) = 0;
};

class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual std::string digest() const = 0;
  // out[i] = exp(mean −ln p) of the tokens of text i; NaN where it has fewer than two.
  virtual void perplexity(std::span<const std::string> texts, double* out) = 0;
};

// Those that a recipe's data section asks for; null where it does not.
struct Models {
  std::shared_ptr<Embedder> embedder;
  std::shared_ptr<Scorer> scorer;
};

}  // namespace mxt::data

// Bits per byte of a prepared dataset: a loss that does not depend on the vocabulary.
#pragma once

#include <cstdint>

#include "base/stop.h"
#include "data/dataset.h"
#include "infer/model.h"
#include "tokenizer/tokenizer.h"

namespace mxt::eval {

// Σ −ln p over the targets that stand for bytes, and those bytes; control tokens stand for none and are left out
// (nanochat's evaluate_bpb).
struct BitsPerByte {
  double nats = 0;
  int64_t bytes = 0, targets = 0, rows = 0;
  double value() const;  // nats / (ln 2 · bytes); infinite where there are none
};

// The first `rows` rows of the part (0: all), each document by itself as training reads it.
BitsPerByte bits_per_byte(infer::Model& model, const tokenizer::Tokenizer& tokenizer, const data::Dataset& data,
                          int64_t rows, StopFlag stop = nullptr);

}  // namespace mxt::eval

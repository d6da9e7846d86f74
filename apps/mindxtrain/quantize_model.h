// Quantizing a model into a folder, with the report of what it cost: shared by `quantize` and `run`.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "config/sections/quantize.h"
#include "model_files.h"

namespace mxt::app {

struct QuantizeJob {
  std::string model, adapter;  // folder or .gguf; PEFT folder or ""
  std::string name;            // for a GGUF's general.name
  config::Quantize settings;
  std::string out;     // appears whole or not at all
  std::string text;    // held-out text file for the report; "" = the built-in one
  bool report = true;  // perplexity and KL against the original
  // In which both models are run for it. Unset: float32 for GGUF, so that the KL is the format's and not that of
  // rounded activations (half of Q8_0's), where both models take little memory; else bfloat16.
  std::optional<DType> type;
  int64_t window = 512;
  bool own_text_side = true;  // the model's tokenizer files as they are; false: `side` is written instead
};

// Writes the weights, the tokenizer's files and quantization.json (the returned report: no dates, no durations).
OrderedJson quantize_model(const QuantizeJob& job, const TokenizerBundle& side);
std::string report_text(const OrderedJson& report);

}  // namespace mxt::app

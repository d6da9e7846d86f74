// Quantizing a model into a folder, with the report of what it cost: shared by `quantize` and `run`.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "config/sections/quantize.h"
#include "model_files.h"

namespace mxt::train {
struct Setup;
}

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

// What a run could not end in is refused before it begins, as far as what is here tells (of a Hub model: its
// configuration in the cache). Errors: kMissing where the model's family has no layout of the recipe's quantize.scheme.
// Whether there is the tokenizer that a GGUF holds is asked where the run has opened it.
void require_layout(const config::Recipe& recipe);

// What a run's report holds of the host's memory, after training: the trained model and its copy, as both are compared
// where so much is free (infer::comparison_bytes). 0 where the recipe quantizes nothing.
int64_t report_bytes(const train::Setup& setup, uint64_t free);
constexpr const char* kQuantizeLater = "quantize.enabled: false, and `mindxtrain quantize --no-report` afterwards";
// kBadInput where the host has not what the report needs at least: said before training, not after.
void require_report_fits(const train::Setup& setup);

}  // namespace mxt::app

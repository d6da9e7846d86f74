// Embeddings of texts: the mean of a model's last hidden states over a text's tokens, scaled to length 1. Of an encoder
// (BERT) as sentence-transformers computes them; of a decoder, the states that its head reads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/weight_source.h"
#include "graph/graph.h"
#include "kernels/api.h"
#include "kernels/plan.h"
#include "runtime/params.h"
#include "runtime/program.h"

namespace mxt::infer {

class Embedder {
 public:
  // `path`: HF folder (sentence-transformers' modules.json is honoured) or .gguf. Errors (kMissing): a pooling other
  // than the mean, a module beyond pooling and normalisation, a model that this build has no graph for.
  Embedder(const std::string& path, DType type, kernels::Ops& ops);
  ~Embedder();
  Embedder(const Embedder&) = delete;

  const formats::WeightSource& source() const { return *source_; }
  int64_t width() const { return source_->config().hidden_size; }
  // Longest row in tokens, special ones included: what sentence_bert_config.json says, else the model's positions, at
  // most 512.
  int64_t max_length() const { return max_length_; }
  // out: [rows, width]. Rows hold 1 … max_length() ids of the vocabulary; a row's embedding does not depend on the
  // others.
  void embed(std::span<const std::vector<int32_t>> rows, float* out);

 private:
  std::unique_ptr<formats::WeightSource> source_;
  int64_t max_length_ = 0, max_tokens_ = 0;
  graph::Graph graph_;
  kernels::KernelPlan plan_;
  std::unique_ptr<runtime::ParamStore> params_;
  std::unique_ptr<runtime::Program> program_;
};

}  // namespace mxt::infer

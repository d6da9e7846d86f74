#include "models/model.h"

#include <cmath>

#include "base/error.h"
#include "graph/ops.h"
#include "models/decoder.h"

namespace mxt::models {
namespace {

graph::Graph forward(const formats::ModelConfig& c, const BuildOptions& o) {
  if (c.model_type == "qwen3") return qwen3(c, o);
  if (c.model_type == "llama" || c.model_type == "mistral" || c.model_type == "qwen2") return llama(c, o);
  if (c.model_type == "gpt2") return gpt2(c, o);
  if (c.model_type == "bert") return bert(c, o);
  fail_missing(
      "{} models: this build has no graph for them yet (it has llama, mistral, qwen2, qwen3, gpt2, and bert for "
      "embeddings)",
      c.model_type);
}

bool lora_target(const void* ctx, const std::string& module, graph::LoraSettings::Target* out) {
  const auto t = static_cast<const LoraPlan*>(ctx)->target(module);
  if (!t) return false;
  out->rank = t->rank;
  const double r = static_cast<double>(t->rank);
  out->scale = static_cast<float>(t->alpha / (t->rslora ? std::sqrt(r) : r));
  return true;
}

}  // namespace

graph::Graph build(const formats::ModelConfig& config, const BuildOptions& options) {
  graph::Graph g = forward(config, options);
  if (options.lora)
    graph::add_lora(g, {lora_target, options.lora, options.purpose == Purpose::kTrain ? options.lora->dropout : 0.0f});
  if (options.purpose == Purpose::kTrain) {
    graph::differentiate(g);
    graph::recompute(g, options.recompute);
  }
  if (options.lora && options.join_lora && options.recompute == graph::Recompute::kNone) graph::join_lora(g);
  if (options.lora) graph::quantize_base(g, options.base);
  graph::in_place(g);
  return g;
}

std::vector<std::string> spellings(const formats::ModelConfig& config, const std::string& name) {
  std::vector<std::string> all{name};
  auto without = [&](std::string_view prefix) {
    if (name.starts_with(prefix)) all.push_back(name.substr(prefix.size()));
  };
  without(config.model_type == "gpt2" ? "transformer." : config.model_type == "bert" ? "bert." : "model.");
  return all;
}

std::vector<std::string> lora_modules(const formats::ModelConfig& config) {
  if (config.model_type == "gpt2") return {"c_attn", "c_proj", "c_fc"};
  return {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
}

}  // namespace mxt::models

#include "models/model.h"

#include <cmath>

#include "base/error.h"
#include "formats/classifier.h"
#include "formats/family.h"
#include "graph/ops.h"
#include "models/decoder.h"

namespace mxt::models {
namespace {

struct Builder {
  std::string_view model_type;
  graph::Graph (*build)(const formats::ModelConfig&, const BuildOptions&);
};
constexpr Builder kBuilders[] = {{"llama", llama},
                                 {"mistral", mistral},
                                 {"qwen2", qwen2},
                                 {"qwen3", qwen3},
                                 {"qwen3_moe", qwen3},
                                 {"qwen3_vl", qwen3_vl},
                                 {"qwen3_vl_text", qwen3},
                                 {"qwen3_5", qwen3_5},
                                 {"qwen3_5_text", qwen3_5},
                                 {"qwen3_5_moe", qwen3_5},
                                 {"qwen3_5_moe_text", qwen3_5},
                                 {"instella", instella},
                                 {"olmo2", olmo2},
                                 {"phi3", phi3},
                                 {"gemma3", gemma3},
                                 {"gemma3_text", gemma3},
                                 {"gpt_oss", gpt_oss},
                                 {"nanochat", nanochat},
                                 {"nanochat_v2", nanochat_v2},
                                 {"gpt2", gpt2},
                                 {"bert", bert}};

graph::Graph forward(const formats::ModelConfig& c, const BuildOptions& o) {
  std::string known;
  for (const Builder& b : kBuilders) {
    if (b.model_type == c.model_type) return b.build(c, o);
    known += (known.empty() ? "" : ", ") + std::string(b.model_type);
  }
  fail_missing("{} models: this build has no graph for them yet (it has {}; bert for embeddings)", c.model_type, known);
}

bool lora_target(const void* ctx, const std::string& module, graph::LoraSettings::Target* out) {
  const auto t = static_cast<const LoraPlan*>(ctx)->target(module);
  if (!t) return false;
  out->rank = t->rank;
  const double r = static_cast<double>(t->rank);
  out->scale = static_cast<float>(t->alpha / (t->rslora ? std::sqrt(r) : r));
  return true;
}

bool trains(const void* ctx, const std::string& tensor) { return static_cast<const LoraPlan*>(ctx)->trains(tensor); }

// What pictures become passes no adapted layer, but the store that the graph is run on holds the adapters of them all.
void add_adapters_behind(graph::Graph& g, const formats::ModelConfig& config, const BuildOptions& options) {
  BuildOptions all = options;
  all.purpose = Purpose::kScore;
  const graph::Graph whole = build(config, all);
  for (size_t i = g.params.size(); i < whole.params.size(); ++i)
    g.add_param(whole.params[i], whole.value(whole.params[i].value).type);
}

graph::SegmentCoding coding_of(const void* ctx, const std::string& weight) {
  return static_cast<const CodedPlan*>(ctx)->of(weight);
}

}  // namespace

graph::Graph build(const formats::ModelConfig& config, const BuildOptions& options) {
  if (formats::is_classifier(config) && options.head != Head::kScore && options.purpose != Purpose::kEmbed)
    fail_input(
        "the model is a reward model ({}): it writes nothing, it scores (mindxtrain score --reward; "
        "train.method.rewards)",
        config.architecture);
  graph::Graph g = forward(config, options);
  if (options.lora && options.lora->trains) graph::train_parts(g, trains, options.lora);
  if (options.lora)
    graph::add_lora(g, {lora_target, options.lora, options.purpose == Purpose::kTrain ? options.lora->dropout : 0.0f,
                        options.lora->dora});
  if (options.lora && options.purpose == Purpose::kPictures) add_adapters_behind(g, config, options);
  if (options.purpose == Purpose::kTrain) {
    graph::differentiate(g);
    graph::recompute(g, options.recompute);
  }
  if (options.lora && options.coded) graph::code_base(g, coding_of, options.coded);
  const bool recomputed = options.purpose == Purpose::kTrain && options.recompute != graph::Recompute::kNone;
  if (options.lora && options.join_lora && (!recomputed || options.base == graph::Storage::kFp8))
    graph::join_lora(g, options.base, recomputed);
  if (options.lora) graph::quantize_base(g, options.base);
  if (options.purpose == Purpose::kTrain && options.fp8_products) graph::quantize_trained(g);
  if (options.purpose == Purpose::kTrain && options.relu2_products) graph::join_relu2(g);
  graph::in_place(g);
  return g;
}

std::vector<std::string> spellings(const formats::ModelConfig& config, const std::string& name) {
  std::vector<std::string> all{name};
  const std::string_view prefix = config.family->prefix;
  if (name.starts_with(prefix)) {
    const std::string rest = name.substr(prefix.size());
    all.push_back(rest);
    for (const std::string_view other : config.family->other_prefixes) all.push_back(std::string(other) + rest);
  }
  return all;
}

std::vector<std::string> lora_modules(const formats::ModelConfig& config) {
  return {config.family->lora_modules.begin(), config.family->lora_modules.end()};
}

}  // namespace mxt::models

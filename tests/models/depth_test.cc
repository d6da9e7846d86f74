// Building a model's graph and lowering it takes work in proportion to its depth: operations looked at are counted, so
// no clock is asked.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "folders.h"
#include "formats/weight_source.h"
#include "kernels/api.h"
#include "models/model.h"
#include "models/modules.h"
#include "runtime/program.h"

namespace mxt::models {
namespace {

formats::ModelConfig narrow(int64_t layers) {
  return formats::parse_model_config(OrderedJson{{"model_type", "qwen3"},
                                                 {"hidden_size", 64},
                                                 {"intermediate_size", 128},
                                                 {"num_hidden_layers", layers},
                                                 {"num_attention_heads", 4},
                                                 {"num_key_value_heads", 2},
                                                 {"head_dim", 16},
                                                 {"vocab_size", 64},
                                                 {"rms_norm_eps", 1e-6},
                                                 {"max_position_embeddings", 64},
                                                 {"hidden_act", "silu"}},
                                     "a test");
}

BuildOptions options_of(const LoraPlan* lora, graph::Storage base, graph::Recompute recompute) {
  BuildOptions o;
  o.lora = lora;
  o.train_base = lora == nullptr;
  o.base = base;
  o.join_lora = recompute == graph::Recompute::kNone && base != graph::Storage::kFakeQuant;
  o.recompute = recompute;
  o.positions = 64;
  return o;
}

// Operations looked at for a graph of so many layers, and for its program.
std::pair<double, double> work(int64_t layers, const BuildOptions& o) {
  const uint64_t before = graph::OpList::looked_at();
  const graph::Graph g = build(narrow(layers), o);
  const uint64_t built = graph::OpList::looked_at();
  const runtime::Program program(g, {}, kernels::cpu_ops(), {64, 0, false});
  return {static_cast<double>(built - before), static_cast<double>(graph::OpList::looked_at() - built)};
}

TEST(Depth, WorkGrowsAsTheNumberOfLayers) {
  LoraPlan lora;
  lora.target = [](const std::string& module) -> std::optional<LoraTarget> {
    if (!is_of_layers(module)) return std::nullopt;
    return LoraTarget{16, 32};
  };
  LoraPlan dropped = lora;
  dropped.dropout = 0.1f;
  for (const BuildOptions& o : {options_of(&lora, graph::Storage::kPlain, graph::Recompute::kNone),
                                options_of(&lora, graph::Storage::kFp8, graph::Recompute::kNone),
                                options_of(&lora, graph::Storage::kFakeQuant, graph::Recompute::kLayer),
                                options_of(&dropped, graph::Storage::kPlain, graph::Recompute::kCheap),
                                options_of(nullptr, graph::Storage::kPlain, graph::Recompute::kLayer)}) {
    const auto small = work(24, o), middle = work(48, o), large = work(96, o);
    // Twice the layers more, twice the work more: what is the same for every model falls out.
    EXPECT_NEAR(large.first - middle.first, 2 * (middle.first - small.first), 0.01 * large.first);
    if (o.base == graph::Storage::kFp8) continue;  // the CPU has no such products to lower to
    EXPECT_NEAR(large.second - middle.second, 2 * (middle.second - small.second), 0.01 * large.second);
  }
}

// What lies right of a value's columns has room there after every pass, also where the value is a sum (no norm before
// a product, as OLMo 2 has it) or is read by a gate.
TEST(Joined, AdaptersHaveRoomBesideWhatTheyRead) {
  LoraPlan lora;
  lora.target = [](const std::string& module) -> std::optional<LoraTarget> {
    if (!is_of_layers(module)) return std::nullopt;
    return LoraTarget{4, 8};
  };
  for (const char* name : {"olmo2", "nanochat_v2", "nanochat_v2_values", "phi3", "gemma3", "gpt2"}) {
    const auto source = formats::WeightSource::open(std::string(kSourceDir) + "/tests/golden/models/" + name);
    const graph::Graph g = build(source->config(), options_of(&lora, graph::Storage::kPlain, graph::Recompute::kNone));
    int64_t beside = 0;
    for (const graph::Value& v : g.values) {
      if (v.adjacent_to == graph::kNone) continue;
      ++beside;
      EXPECT_GE(g.ld(v.adjacent_to), g.value(v.adjacent_to).cols + v.cols) << name << " " << v.name;
    }
    EXPECT_GT(beside, 0) << name;
  }
}

}  // namespace
}  // namespace mxt::models

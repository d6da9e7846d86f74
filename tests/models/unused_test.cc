// Tensors that stand in a model's files and that its graph does not read.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/weights.h"
#include "folders.h"
#include "formats/safetensors.h"
#include "models/model.h"

namespace mxt {
namespace {

const std::string kGolden = std::string(kSourceDir) + "/tests/golden/models/";

// The golden model with further tensors of two elements.
std::string with_tensors(const std::string& name, const std::vector<std::string>& more) {
  const std::string folder = testing::TempDir() + "/unused_" + name;
  make_folders(folder);
  write_file_atomic(folder + "/config.json", read_file(kGolden + name + "/config.json"));
  const auto source = formats::WeightSource::open(kGolden + name);
  std::vector<formats::TensorSpec> specs;
  for (const auto& t : source->names()) specs.push_back({t, DType::kF32, source->shape(t)});
  for (const auto& t : more) specs.push_back({t, DType::kF32, {2}});
  specs = formats::SafetensorsWriter::usual_order(std::move(specs));
  formats::SafetensorsWriter w(folder + "/model.safetensors", specs);
  for (const auto& s : specs) {
    size_t n = 1;
    for (const int64_t d : s.shape) n *= static_cast<size_t>(d);
    std::vector<float> values(n, 1.0f);
    if (source->has(s.name)) source->read(s.name, DType::kF32, values.data());
    w.append_tensor(s.name, values.data(), n * 4);
  }
  w.commit();
  return folder;
}

std::vector<std::string> unused(const std::string& folder) {
  const auto source = formats::WeightSource::open(folder);
  models::BuildOptions o;
  o.type = DType::kF32;
  o.purpose = models::Purpose::kGenerate;
  o.positions = 16;
  return checkpoint::unused_tensors(models::build(source->config(), o), *source);
}

TEST(UnusedTensors, AreNamed) {
  using Names = std::vector<std::string>;
  for (const char* name : {"qwen3_gqa", "qwen3_tied", "llama_scaled", "gpt2_scales", "gemma3", "phi3", "nanochat"})
    EXPECT_EQ(unused(kGolden + name), Names{}) << name;
  for (const char* more : {"score.weight", "model.layers.0.self_attn.q_proj.bias", "model.layers.99.mlp.up_proj.weight",
                           "mtp.fc.weight", "model.visual.patch_embed.proj.bias"})
    EXPECT_EQ(unused(with_tensors("qwen3_gqa", {more})), Names{more});
  EXPECT_EQ(unused(with_tensors("llama_scaled", {"model.layers.0.self_attn.rotary_emb.inv_freq"})), Names{});
  EXPECT_EQ(unused(with_tensors("gpt2_scales", {"transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias",
                                                "v_head.summary.bias"})),
            Names{"v_head.summary.bias"});
}

}  // namespace
}  // namespace mxt

// Folders in bitsandbytes' layout: what transformers writes of the same model (tools/golden/qlora.py) is what we write.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "folders.h"
#include "formats/coded.h"
#include "formats/safetensors.h"
#include "quantize/quantize.h"

namespace mxt::quantize {
namespace {

using config::QuantScheme;

TEST(Bnb, TensorsAreThoseThatTransformersSaves) {
  const std::string golden = std::string(kSourceDir) + "/tests/golden/",
                    root = testing::TempDir() + "mxt_bnb_" + std::to_string(getpid());
  for (const bool twice : {false, true}) {
    fs::remove_all(root);
    make_folders(root);
    const auto source = formats::WeightSource::open(golden + "models/llama_mqa");
    const Written w =
        write_quantized(*source, nullptr, {true, twice ? QuantScheme::kBnbNf4Double : QuantScheme::kBnbNf4}, "x", root);
    EXPECT_EQ(w.quantized, 14);
    const auto ours = formats::Safetensors::open(root);
    const auto theirs = formats::Safetensors::open(golden + "qlora/" + (twice ? "folder" : "folder_fp32"));
    EXPECT_EQ(ours.tensors().size(), theirs.tensors().size());
    size_t nested = 0, apart = 0;
    for (const auto& t : theirs.tensors()) {
      SCOPED_TRACE(t.name);
      const auto& mine = ours.at(t.name);
      const auto a = ours.bytes(mine), b = theirs.bytes(t);
      if (t.name.ends_with("bitsandbytes__nf4")) {
        Json x = Json::parse(std::string(reinterpret_cast<const char*>(a.data()), a.size()));
        Json y = Json::parse(std::string(reinterpret_cast<const char*>(b.data()), b.size()));
        if (twice) {
          EXPECT_NEAR(x["nested_offset"], y["nested_offset"], 1e-7);
        }
        x.erase("nested_offset"), y.erase("nested_offset");
        EXPECT_EQ(x, y);
        continue;
      }
      EXPECT_EQ(mine.type, t.type);
      ASSERT_EQ(mine.shape, t.shape);
      if (twice && t.name.ends_with(".absmax")) {
        for (size_t i = 0; i < a.size(); ++i) {
          const int d = std::abs(static_cast<int>(a[i]) - static_cast<int>(b[i]));
          EXPECT_LE(d, 1);
          apart += d > 0, ++nested;
        }
      } else if (t.name.ends_with(".nested_absmax")) {
        for (size_t i = 0; i < a.size(); i += 4) {
          float x, y;
          std::memcpy(&x, a.data() + i, 4), std::memcpy(&y, b.data() + i, 4);
          EXPECT_NEAR(x, y, 1e-6f * y);
        }
      } else {
        EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0);
      }
    }
    EXPECT_LE(50 * apart, nested);
    const OrderedJson q = parse_ordered_json(read_file(root + "/config.json"), root)["quantization_config"];
    const OrderedJson want =
        parse_ordered_json(read_file(golden + "qlora/folder/config.json"), golden)["quantization_config"];
    for (const auto& [key, value] : want.items())
      if (key != "llm_int8_skip_modules" && key != "bnb_4bit_use_double_quant") {
        EXPECT_EQ(q[key], value) << key;
      }
    EXPECT_EQ(q["bnb_4bit_use_double_quant"], twice);
    EXPECT_EQ(q["llm_int8_skip_modules"], OrderedJson({"lm_head"}));
    // A folder of ours is taken as it is.
    const auto back = formats::WeightSource::open(root);
    const std::string name = "model.layers.0.mlp.up_proj.weight";
    EXPECT_EQ(formats::config_coding(back->config(), name)->coding, formats::coded_tensor(*back, name)->matrix.coding);
  }
  fs::remove_all(root);
}

}  // namespace
}  // namespace mxt::quantize

// Rotary tables against transformers' (5.24, LlamaRotaryEmbedding of these configs, cos and sin of position 127).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/model.h"

namespace mxt {
namespace {

struct Case {
  const char* outer;    // keys beside the object
  const char* scaling;  // keys of rope_parameters
  float cos[4], sin[4];
};

constexpr Case kCases[] = {
    {"",
     R"("rope_type":"linear","factor":4.0)",
     {0.944715f, -0.999442f, 0.950019f, 0.999496f},
     {0.327894f, -0.033401f, 0.312192f, 0.031745f}},
    {"",
     R"("rope_type":"dynamic","factor":4.0)",
     {0.232359f, 0.991085f, 0.296281f, 0.991946f},
     {0.97263f, 0.133232f, 0.955101f, 0.126659f}},
    {R"("original_max_position_embeddings":32,)",
     R"("rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0)",
     {0.232359f, -0.016703f, 0.987426f, 0.999874f},
     {0.97263f, 0.999861f, 0.158084f, 0.015874f}},
    {"",
     R"("rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32)",
     {0.264571f, -1.137994f, 1.08172f, 1.138056f},
     {1.107465f, -0.038031f, 0.355472f, 0.036145f}},
    {R"("original_max_position_embeddings":32,)",
     R"("rope_type":"yarn","factor":4.0,"original_max_position_embeddings":64,"beta_fast":0,"beta_slow":0,"mscale":0,"mscale_all_dim":1.0)",
     {0.264571f, -1.137994f, 1.08172f, 1.138056f},
     {1.107465f, -0.038031f, 0.355472f, 0.036145f}},
    {"",
     R"("rope_type":"yarn","factor":4.0,"mscale":0.7,"mscale_all_dim":1.0,"truncate":false,"beta_fast":16,"beta_slow":2)",
     {0.223872f, -0.956799f, 0.915319f, 0.962989f},
     {0.937104f, -0.113222f, 0.30079f, 0.030585f}},
    // LongRoPE beyond its original maximum, and within it.
    {R"("original_max_position_embeddings":64,)",
     R"("rope_type":"longrope","short_factor":[1.0,1.1,1.3,1.7],"long_factor":[1.0,2.0,3.5,8.0])",
     {0.250977f, 1.077713f, 1.009793f, 1.079987f},
     {1.050561f, 0.072114f, 0.383386f, 0.017146f}},
    {R"("original_max_position_embeddings":128,)",
     R"("rope_type":"longrope","short_factor":[1.0,1.1,1.3,1.7],"long_factor":[1.0,2.0,3.5,8.0])",
     {0.232359f, 0.522585f, 0.559575f, 0.997211f},
     {0.97263f, -0.852587f, 0.82878f, 0.074636f}},
};

TEST(Rope, TablesEqualTransformers) {
  for (const Case& c : kCases) {
    const std::string config =
        std::string(R"({"model_type":"llama","vocab_size":96,"hidden_size":32,"intermediate_size":40,
      "num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"max_position_embeddings":128,)") +
        c.outer + R"("rope_parameters":{"rope_theta":10000.0,)" + c.scaling + "}}";
    std::vector<float> cos, sin;
    models::rope_tables(formats::parse_model_config(parse_ordered_json(config, "config"), "config"), 128, cos, sin);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(cos[127 * 4 + i], c.cos[i], 1e-5) << c.scaling;
      EXPECT_NEAR(sin[127 * 4 + i], c.sin[i], 1e-5) << c.scaling;
    }
  }
}

// int(12 · 0.75) = 9: five pairs turn, whose exponents are ninths (Qwen3_5TextRotaryEmbedding).
TEST(Rope, AnOddPartOfAHeadTurnsItsLastPairWhole) {
  const char* config = R"({"model_type":"qwen3_5_text","num_hidden_layers":1,"head_dim":12,
    "rope_parameters":{"rope_type":"default","rope_theta":10000.0,"partial_rotary_factor":0.75}})";
  const auto c = formats::parse_model_config(parse_ordered_json(config, "config"), "config");
  ASSERT_EQ(c.rotary(), 10);
  std::vector<float> cos, sin;
  models::rope_tables(c, 128, cos, sin);
  const float want_cos[] = {0.232359f, -0.768234f, -0.520718f, 0.962801f, 0.999376f},
              want_sin[] = {0.97263f, -0.640169f, 0.853729f, 0.270212f, 0.035331f};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(cos[127 * 5 + i], want_cos[i], 1e-5);
    EXPECT_NEAR(sin[127 * 5 + i], want_sin[i], 1e-5);
  }
}

}  // namespace
}  // namespace mxt

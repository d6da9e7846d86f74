// What families keep their own way on disk: a GGUF of each reads back as the folder that it was made from.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "folders.h"
#include "formats/family.h"
#include "formats/gguf_hf.h"
#include "formats/helpers.h"
#include "formats/nanochat.h"
#include "formats/weight_source.h"

namespace mxt::formats {
namespace {

ModelConfig parse(const std::string& text) {
  return parse_model_config(parse_ordered_json(text, "config.json"), "config.json");
}

std::string model(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/models/" + name; }

// The golden model with what a GGUF cannot state (Gemma's odd scale and pattern) as GGUFs have it.
ModelConfig plain_config(const std::string& name) {
  OrderedJson j = parse_ordered_json(read_file(model(name) + "/config.json"), name);
  if (name == "gemma3") {
    j["query_pre_attn_scalar"] = 16;
    j["layer_types"] = {"sliding_attention", "sliding_attention", "sliding_attention"};
  }
  return parse_model_config(j, name);
}

class GgufOf : public testing::TestWithParam<std::string> {};

TEST_P(GgufOf, FamilyReadsBackTheSame) {
  TempFolder dir;
  const auto folder = WeightSource::open(model(GetParam()));
  const ModelConfig c = plain_config(GetParam());
  const std::string path = dir / "m.gguf";
  {
    GgufWriter out(path);
    write_gguf_model(out, c, GetParam(), 0);
    for (const std::string& hf : folder->names()) {
      const std::string name = gguf_tensor_name(hf, c);
      ASSERT_NE(name, "") << hf;
      out.declare(name, GgmlType::kF32, folder->shape(hf));
    }
    for (const std::string& hf : folder->names()) {
      const std::string name = gguf_tensor_name(hf, c);
      const auto shape = folder->shape(hf);
      std::vector<float> w(static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1)));
      folder->read(hf, DType::kF32, w.data());
      for (float& v : w) v += gguf_form(name, c).more;
      out.append(name, w.data(), shape.size() > 1 ? shape[0] : 1);
    }
    out.commit();
  }
  const auto file = WeightSource::open(path);
  const ModelConfig& back = file->config();
  EXPECT_EQ(back.model_type, c.model_type);
  EXPECT_EQ(back.layers, c.layers);
  EXPECT_EQ(back.rotary(), c.rotary());
  EXPECT_EQ(back.rope_theta, c.rope_theta);
  EXPECT_EQ(back.sliding_rope_theta, c.sliding_rope_theta);
  EXPECT_EQ(back.rope_scaling, c.rope_scaling);
  EXPECT_EQ(back.query_scalar, c.query_scalar);
  EXPECT_EQ(back.activation, c.activation);
  EXPECT_EQ(back.tie_embeddings, c.tie_embeddings);
  EXPECT_EQ(back.num_kv_heads, c.num_kv_heads);
  EXPECT_FLOAT_EQ(static_cast<float>(back.norm_eps), static_cast<float>(c.norm_eps));
  EXPECT_EQ(file->names().size(), folder->names().size());
  for (const std::string& hf : folder->names()) {
    ASSERT_TRUE(file->has(hf)) << hf;
    ASSERT_EQ(file->shape(hf), folder->shape(hf)) << hf;
    const auto shape = folder->shape(hf);
    std::vector<float> want(static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1))), got(want.size());
    folder->read(hf, DType::kF32, want.data());
    file->read(hf, DType::kF32, got.data());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(want[i], got[i], 1e-6) << hf;
  }
  // What such a file gives as config.json says the same.
  const ModelConfig again = parse_model_config(to_hf_config(back), "again");
  EXPECT_EQ(again.layers, c.layers);
  EXPECT_EQ(again.rotary(), c.rotary());
  EXPECT_EQ(again.sliding_rope_theta, c.sliding_rope_theta);
  EXPECT_EQ(again.query_scalar, c.query_scalar);
}

INSTANTIATE_TEST_SUITE_P(Families, GgufOf, testing::Values("olmo2", "phi3", "gemma3", "qwen2"),
                         [](const auto& i) { return i.param; });

// llama.cpp calls Mistral a llama and follows windows of neither; the file states them all the same.
TEST(Families, AGgufOfAMistralKeepsItsWindow) {
  TempFolder dir;
  const ModelConfig c =
      parse_model_config(parse_ordered_json(read_file(model("mistral") + "/config.json"), "mistral"), "mistral");
  ASSERT_GT(c.layers[0].window, 0);
  const auto reread = [&](const ModelConfig& from, const auto& more) {
    GgufWriter out(dir / "m.gguf");
    write_gguf_model(out, from, "m", 0);
    more(out);
    out.declare("token_embd.weight", GgmlType::kF32, {from.vocab_size, from.hidden_size});
    const std::vector<float> zero(static_cast<size_t>(from.vocab_size * from.hidden_size));
    out.append("token_embd.weight", zero.data(), from.vocab_size);
    return out.commit(), model_config_from_gguf(Gguf::open(dir / "m.gguf"));
  };
  const auto as_written = [](GgufWriter&) {};
  const ModelConfig back = reread(c, as_written);
  EXPECT_EQ(back.model_type, "mistral");
  EXPECT_EQ(back.layers, c.layers);
  EXPECT_EQ(parse_model_config(to_hf_config(back), "again").layers, c.layers);
  // One that says nothing of windows is a llama.
  ModelConfig wide = c;
  for (LayerSpec& l : wide.layers) l.window = 0;
  EXPECT_EQ(reread(wide, as_written).model_type, "llama");
  // A window as wide as the context is none.
  EXPECT_EQ(reread(wide, [](GgufWriter& w) { w.add("llama.attention.sliding_window", GgufValue::u32(64)); }).model_type,
            "llama");
  const ModelConfig olmo = plain_config("olmo2");
  expect_refused(
      [&] { reread(olmo, [](GgufWriter& w) { w.add("olmo2.attention.sliding_window", GgufValue::u32(8)); }); },
      Exit::kMissing, "windows of olmo2");
}

TEST(Families, WhatAGgufCannotStateIsRefused) {
  TempFolder dir;
  const auto written = [&](const ModelConfig& c) {
    GgufWriter out(dir / "m.gguf");
    write_gguf_model(out, c, "m", 0);
  };
  const auto gemma = [&](const char* keys) {
    return parse(fmt::format(R"({{"model_type":"gemma3_text","num_hidden_layers":6{}}})", keys));
  };
  EXPECT_NO_THROW(written(gemma("")));
  expect_refused([&] { written(gemma(R"(,"query_pre_attn_scalar":24)")); }, Exit::kMissing, "query_pre_attn_scalar 24");
  expect_refused([&] { written(gemma(R"(,"sliding_window_pattern":3)")); }, Exit::kMissing, "five of six");
  expect_refused([&] { written(gemma(R"(,"rope_local_base_freq":500)")); }, Exit::kMissing, "base of 500");
  expect_refused([&] { written(parse(R"({"model_type":"nanochat"})")); }, Exit::kMissing, "nanochat");
}

TEST(Families, Gemma3ReadsBothSpellingsOfItsRotaryBases) {
  const ModelConfig old = parse(R"({"model_type":"gemma3_text","num_hidden_layers":6,"rope_theta":500000,
    "rope_local_base_freq":2000,"rope_scaling":{"rope_type":"linear","factor":8.0},"sliding_window":512,
    "sliding_window_pattern":3})");
  const ModelConfig now = parse(R"({"model_type":"gemma3_text","num_hidden_layers":6,"sliding_window":512,
    "layer_types":["sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention",
    "full_attention"],"rope_parameters":{"full_attention":{"rope_theta":500000,"rope_type":"linear","factor":8.0},
    "sliding_attention":{"rope_theta":2000,"rope_type":"default"}}})");
  EXPECT_EQ(old.rope_theta, 500000);
  EXPECT_EQ(old.sliding_rope_theta, 2000);
  EXPECT_EQ(old.rope_scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(now.rope_theta, old.rope_theta);
  EXPECT_EQ(now.sliding_rope_theta, old.sliding_rope_theta);
  EXPECT_EQ(now.rope_scaling, old.rope_scaling);
  EXPECT_EQ(now.layers, old.layers);
  EXPECT_EQ(old.layers[1].window, 512);
  EXPECT_EQ(old.layers[2].window, 0);
  const ModelConfig defaults = parse(R"({"model_type":"gemma3_text"})");
  EXPECT_EQ(defaults.rope_theta, 1e6);
  EXPECT_EQ(defaults.sliding_rope_theta, 1e4);
  EXPECT_EQ(defaults.query_scalar, 256);
  EXPECT_EQ(defaults.layers[5].window, 0);
  EXPECT_EQ(defaults.layers[6].window, 4096);
  expect_refused([] { parse(R"({"model_type":"gemma3_text","attn_logit_softcapping":50.0})"); }, Exit::kMissing,
                 "\"attn_logit_softcapping\" is 50.0: not built in for gemma3_text models");
  expect_refused([] { parse(R"({"model_type":"gemma3_text","use_bidirectional_attention":true})"); }, Exit::kMissing,
                 "use_bidirectional_attention");
}

TEST(Families, NanochatOf2026StatesItsParts) {
  const ModelConfig c = parse(R"({"model_type":"nanochat_v2","num_hidden_layers":8})");
  EXPECT_EQ(c.intermediate_size, 4 * 768);
  EXPECT_EQ(c.rope_theta, 100000);
  EXPECT_EQ(c.norm_eps, 1.1920929e-07);
  EXPECT_FALSE(c.tie_embeddings);
  // SSSL over 2,048 positions: 512 tokens back, 513 with its own; the last layer sees everything.
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(c.layers[i].window, i % 4 == 3 ? 0 : 513) << i;
  EXPECT_TRUE(nanochat_parts(c).smear);
  EXPECT_EQ(nanochat_parts(c).qk_scale, 1.2);
  const ModelConfig less = parse(R"({"model_type":"nanochat_v2","num_hidden_layers":3,"window_pattern":"S",
    "short_window":100,"smear":false,"backout":false,"qk_scale":1.0})");
  EXPECT_EQ(less.layers[0].window, 101);
  EXPECT_EQ(less.layers[2].window, 0);
  EXPECT_FALSE(nanochat_parts(less).smear || nanochat_parts(less).backout);
  EXPECT_TRUE(nanochat_parts(less).value_embeddings);
  expect_refused([] { parse(R"({"model_type":"nanochat_v2","window_pattern":"SXL"})"); }, Exit::kBadInput, "SXL");
  expect_refused([] { parse(R"({"model_type":"nanochat_v2","smear":1})"); }, Exit::kBadInput, "true or false");
  expect_refused([] { parse(R"({"model_type":"nanochat_v2","hidden_size":16,"num_attention_heads":2})"); },
                 Exit::kBadInput, "24 of 16 channels");
}

TEST(Families, LongRopeListsOneDivisorForEachRotatedPair) {
  const auto phi = [](const char* rope) {
    return fmt::format(R"({{"model_type":"phi3","hidden_size":64,"num_attention_heads":4,"max_position_embeddings":8192,
      "original_max_position_embeddings":2048,"partial_rotary_factor":0.75,"rope_scaling":{}}})",
                       rope);
  };
  const ModelConfig c = parse(phi(R"({"type":"longrope","short_factor":[1,1,1,1,1,1.5],"long_factor":[1,2,3,4,5,6]})"));
  EXPECT_EQ(c.rotary(), 12);
  EXPECT_EQ(c.rope_scaling.original_max_positions, 2048);
  EXPECT_EQ(c.rope_scaling.factor, 4);
  EXPECT_EQ(c.rope_scaling.long_factor[5], 6);
  // Phi-3's first folders call it so.
  for (const char* name : {"su", "yarn"})
    EXPECT_EQ(
        parse(phi(fmt::format(R"({{"type":"{}","short_factor":[1,1,1,1,1,1.5],"long_factor":[1,2,3,4,5,6]}})", name)
                      .c_str()))
            .rope_scaling,
        c.rope_scaling)
        << name;
  expect_refused([&] { parse(phi(R"({"type":"longrope","short_factor":[1],"long_factor":[1,2,3,4,5,6]})")); },
                 Exit::kBadInput, "1 divisors for 6");
  expect_refused([&] { parse(phi(R"({"type":"longrope","long_factor":[1,2,3,4,5,6]})")); }, Exit::kBadInput,
                 "no list \"short_factor\"");
  expect_refused([&] { parse(phi(R"({"type":"su","short_factor":[0],"long_factor":[1]})")); }, Exit::kBadInput,
                 "above 0");
}

}  // namespace
}  // namespace mxt::formats

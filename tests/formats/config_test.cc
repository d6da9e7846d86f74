#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "formats/gguf.h"
#include "formats/helpers.h"
#include "formats/model_config.h"

namespace mxt::formats {
namespace {

ModelConfig parse(const std::string& text) {
  return parse_model_config(parse_ordered_json(text, "config.json"), "config.json");
}
void refused(const std::string& text, Exit code, const std::string& part) {
  expect_refused([&] { parse(text); }, code, part);
}

// The layers in transformers' words.
std::vector<std::string> types_of(const ModelConfig& c) {
  std::vector<std::string> out;
  for (const LayerSpec& l : c.layers)
    out.push_back(l.mixer == LayerSpec::Mixer::kGatedDelta ? "linear_attention"
                  : l.window > 0                           ? "sliding_attention"
                                                           : "full_attention");
  return out;
}

TEST(ModelConfig, WhatIsRefusedIsShownAsItStands) {
  refused(R"({"model_type":"llama","eos_token_id":123456789012345678901})", Exit::kBadInput,
          "\"eos_token_id\" is 123456789012345678901: it must hold whole numbers below 2^31");
  refused(R"({"model_type":"llama","hidden_size":[-123456789012345678901]})", Exit::kBadInput,
          "\"hidden_size\" is [-123456789012345678901]: it must be a whole number");
  // No character is cut in halves, and none moves the cursor.
  std::string long_text;
  for (int i = 0; i < 40; ++i) long_text += "é";
  for (const std::string pad : {"", "a"})
    refused(R"({"model_type":"llama","hidden_size":")" + pad + long_text + R"("})", Exit::kBadInput,
            "é...: it must be");
  refused("{\"model_type\":\"llama\",\"hidden_size\":\"\xC2\x9B\"}", Exit::kBadInput, R"(is "\xc2\x9b")");
}

TEST(ModelConfig, NullIsNoDefault) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "gpt2", "nanochat"}) {
    const ModelConfig c = parse(
        fmt::format(R"({{"model_type":"{}","eos_token_id":null,"bos_token_id":null,"pad_token_id":null}})", type));
    EXPECT_TRUE(c.eos.empty()) << type;
    EXPECT_EQ(c.bos, -1) << type;
    EXPECT_EQ(c.pad, -1) << type;
  }
  EXPECT_EQ(parse(R"({"model_type":"llama","eos_token_id":[7,9]})").eos, (std::vector<int64_t>{7, 9}));
  EXPECT_EQ(parse(R"({"model_type":"llama"})").eos, std::vector<int64_t>{2});
  for (const char* beyond : {"100", "[7,100]", "4000000"})
    refused(fmt::format(R"({{"model_type":"llama","vocab_size":100,"eos_token_id":{}}})", beyond), Exit::kBadInput,
            "lies beyond the vocabulary (vocab_size 100)");
  // GPT-2's own is no statement: transformers writes it beside any vocabulary.
  EXPECT_EQ(parse(R"({"model_type":"gpt2","vocab_size":96,"eos_token_id":50256})").eos, std::vector<int64_t>{50256});
  EXPECT_EQ(parse(R"({"model_type":"gpt2","eos_token_id":null})").bos, 50256);
}

TEST(ModelConfig, DefaultsAreTransformers) {
  const Json all = read_json_file(golden("config_defaults.json"));
  for (const auto& [type, want] : all.items()) {
    const ModelConfig c = parse(fmt::format(R"({{"model_type":"{}"}})", type));
    const auto number = [&](const char* key, double got) {
      if (want.contains(key) && !want[key].is_null()) {
        EXPECT_EQ(want[key].get<double>(), got) << type << " " << key;
      }
    };
    const auto whole = [&](std::initializer_list<const char*> keys, int64_t got) {
      for (const char* key : keys) number(key, static_cast<double>(got));
    };
    whole({"vocab_size"}, c.vocab_size);
    whole({"hidden_size", "n_embd"}, c.hidden_size);
    whole({"intermediate_size"}, c.intermediate_size);
    whole({"num_hidden_layers", "n_layer"}, c.num_layers);
    whole({"num_attention_heads", "n_head"}, c.num_heads);
    whole({"num_key_value_heads"}, c.num_kv_heads);
    whole({"head_dim"}, c.head_dim);
    whole({"max_position_embeddings", "n_positions"}, c.max_positions);
    for (const char* key : {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"}) number(key, c.norm_eps);
    for (const char* key : {"attn_pdrop", "attention_dropout", "attention_probs_dropout_prob"})
      number(key, c.attn_pdrop);
    for (const char* key : {"resid_pdrop", "hidden_dropout_prob"}) number(key, c.resid_pdrop);
    number("embd_pdrop", c.embd_pdrop);
    number("initializer_range", c.initializer_range);
    number("final_logit_softcapping", c.final_logit_softcapping);
    whole({"bos_token_id"}, c.bos);
    whole({"pad_token_id"}, c.pad);
    if (want.contains("eos_token_id")) {
      EXPECT_EQ(want["eos_token_id"].is_null(), c.eos.empty()) << type;
      if (!c.eos.empty()) whole({"eos_token_id"}, c.eos[0]);
    }
    if (want.contains("tie_word_embeddings")) {
      EXPECT_EQ(want["tie_word_embeddings"].get<bool>(), c.tie_embeddings) << type;
    }
    if (want.contains("attention_bias")) {
      EXPECT_EQ(want["attention_bias"].get<bool>(), c.attention_bias) << type;
    }
    for (const char* key : {"hidden_act", "activation_function", "hidden_activation"})
      if (want.contains(key)) {
        EXPECT_EQ(want[key].get<std::string>(), c.activation) << type;
      }
    if (want.contains("rope_parameters") && want["rope_parameters"].contains("rope_theta")) {
      EXPECT_EQ(want["rope_parameters"]["rope_theta"].get<double>(), c.rope_theta) << type;
      EXPECT_EQ(want["rope_parameters"].value("partial_rotary_factor", 1.0), c.partial_rotary_factor) << type;
    }
    whole({"num_experts", "num_local_experts"}, c.num_experts);
    whole({"num_experts_per_tok"}, c.experts_per_token);
    whole({"moe_intermediate_size"}, c.moe_intermediate_size);
    whole({"shared_expert_intermediate_size"}, c.shared_expert_intermediate_size);
    if (want.contains("norm_topk_prob")) {
      EXPECT_EQ(want["norm_topk_prob"].get<bool>(), c.norm_topk_prob) << type;
    }
    whole({"linear_conv_kernel_dim"}, c.linear_conv_kernel);
    whole({"linear_key_head_dim"}, c.linear_key_head_dim);
    whole({"linear_num_value_heads"}, c.linear_value_heads);
    int64_t window = 0;
    for (const LayerSpec& l : c.layers) window = std::max(window, l.window);
    whole({"sliding_window"}, window);
    whole({"type_vocab_size"}, c.type_vocab_size);
    if (want.contains("layer_types")) {
      EXPECT_EQ(want["layer_types"].get<std::vector<std::string>>(), types_of(c)) << type;
    }
  }
  EXPECT_EQ(all.size(), 16u);
}

TEST(ModelConfig, BothSpellingsOfTransformersAgree) {
  const ModelConfig old =
      parse(R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":2048,"num_attention_heads":32,
    "num_key_value_heads":8,"num_hidden_layers":16,"rope_theta":500000.0,"torch_dtype":"bfloat16","vocab_size":128256,"eos_token_id":[128001,128008],
    "rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}})");
  const ModelConfig now =
      parse(R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":2048,"num_attention_heads":32,
    "num_key_value_heads":8,"num_hidden_layers":16,"dtype":"bfloat16","vocab_size":128256,"eos_token_id":[128001,128008],
    "rope_parameters":{"rope_theta":500000.0,"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,
    "rope_type":"llama3"}})");
  EXPECT_EQ(old.rope_theta, 500000.0);
  EXPECT_EQ(old.rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(old.rope_scaling, now.rope_scaling);
  EXPECT_EQ(old.rope_theta, now.rope_theta);
  EXPECT_EQ(old.dtype, DType::kBF16);
  EXPECT_EQ(now.dtype, DType::kBF16);
  EXPECT_EQ(old.head_dim, 64);
  EXPECT_EQ(old.eos, (std::vector<int64_t>{128001, 128008}));
}

TEST(ModelConfig, QwenWindowsAndLayerTypes) {
  EXPECT_EQ(types_of(parse(R"({"model_type":"qwen3","num_hidden_layers":2})")),
            (std::vector<std::string>{"full_attention", "full_attention"}));
  const ModelConfig w = parse(
      R"({"model_type":"qwen3","num_hidden_layers":4,"use_sliding_window":true,"sliding_window":128,"max_window_layers":3})");
  EXPECT_EQ(w.layers[3].window, 128);
  // A window that begins beyond the last layer is none.
  EXPECT_EQ(parse(R"({"model_type":"qwen3","num_hidden_layers":4,"use_sliding_window":true,"sliding_window":128})")
                .layers[3]
                .window,
            0);
  // With experts every layer slides.
  const ModelConfig experts = parse(
      R"({"model_type":"qwen3_moe","num_hidden_layers":4,"use_sliding_window":true,"sliding_window":128,"max_window_layers":3})");
  for (const LayerSpec& l : experts.layers) EXPECT_EQ(l.window, 128);
  EXPECT_EQ(types_of(w),
            (std::vector<std::string>{"full_attention", "full_attention", "full_attention", "sliding_attention"}));
  const ModelConfig h =
      parse(R"({"model_type":"qwen3_5","architectures":["Qwen3_5ForConditionalGeneration"],"tie_word_embeddings":true,
    "text_config":{"model_type":"qwen3_5_text","num_hidden_layers":4,"hidden_size":1024},"vision_config":{}})");
  EXPECT_EQ(types_of(h)[3], "full_attention");
  EXPECT_EQ(types_of(h)[0], "linear_attention");
  EXPECT_EQ(h.hidden_size, 1024);
  EXPECT_TRUE(h.tie_embeddings);
  EXPECT_TRUE(h.raw->contains("vision_config"));
  const ModelConfig m = parse(R"({"model_type":"qwen3_moe","decoder_sparse_step":2,"mlp_only_layers":[3]})");
  EXPECT_EQ(m.layers[0].mlp, LayerSpec::Mlp::kDense);
  EXPECT_EQ(m.layers[1].mlp, LayerSpec::Mlp::kExperts);
  EXPECT_EQ(m.layers[3].mlp, LayerSpec::Mlp::kDense);
}

TEST(ModelConfig, RotaryScalingIsReadAsTransformersReadsIt) {
  // Stated beside the object, it wins over what the object says.
  for (const char* scaling : {R"("original_max_position_embeddings":4096,)", ""}) {
    const ModelConfig c = parse(std::string(R"({"model_type":"llama","original_max_position_embeddings":64,
      "rope_scaling":{)") + scaling +
                                R"("rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4}})");
    EXPECT_EQ(c.rope_scaling.original_max_positions, 64);
  }
  const ModelConfig zeros = parse(R"({"model_type":"llama","rope_scaling":{"type":"yarn","factor":4,"beta_fast":0,
    "beta_slow":0,"mscale":0,"mscale_all_dim":0}})");
  EXPECT_EQ(zeros.rope_scaling, (RopeScaling{.kind = RopeScaling::Kind::kYarn, .factor = 4}));
  const ModelConfig linear = parse(R"({"model_type":"llama","original_max_position_embeddings":64,
    "rope_scaling":{"type":"linear","factor":4}})");
  EXPECT_EQ(linear.rope_scaling.original_max_positions, 0);
}

TEST(ModelConfig, KeysThatTheClassDoesNotReadSayNothing) {
  EXPECT_EQ(parse(R"({"model_type":"llama","rope_scaling":{"rope_type":"default","rope_theta":50}})").rope_theta, 50);
  EXPECT_EQ(parse(R"({"model_type":"llama","rope_theta":500,
    "rope_scaling":{"rope_type":"linear","factor":2,"rope_theta":20000}})")
                .rope_theta,
            20000);
  refused(R"({"model_type":"llama","rope_parameters":{"rope_type":"default","rope_theta":100},
    "rope_scaling":{"rope_type":"default","rope_theta":50}})",
          Exit::kBadInput, "differ");
  EXPECT_EQ(parse(R"({"model_type":"llama","max_position_embeddings":77,
    "rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4}})")
                .rope_scaling.original_max_positions,
            77);
  EXPECT_TRUE(parse(R"({"model_type":"llama","attention_bias":true,"mlp_bias":true})").mlp_bias);
  const ModelConfig mistral = parse(R"({"model_type":"mistral","attention_bias":true,"mlp_bias":true})");
  EXPECT_FALSE(mistral.attention_bias || mistral.mlp_bias);
  const ModelConfig qwen2 = parse(R"({"model_type":"qwen2","attention_bias":false,"mlp_bias":true})");
  EXPECT_TRUE(qwen2.attention_bias && !qwen2.mlp_bias);
  EXPECT_TRUE(parse(R"({"model_type":"qwen3","attention_bias":true})").attention_bias);
  const ModelConfig gpt2 = parse(R"({"model_type":"gpt2","hidden_act":"gelu","intermediate_size":5})");
  EXPECT_EQ(gpt2.activation, "gelu_new");
  EXPECT_EQ(gpt2.intermediate_size, 4 * 768);
  EXPECT_EQ(parse(R"({"model_type":"llama","layer_norm_eps":0.5})").norm_eps, 1e-6);
}

TEST(ModelConfig, RefusesWithKeyAndValue) {
  refused("[]", Exit::kBadInput, "must hold an object");
  refused("{}", Exit::kBadInput, "neither");
  refused(R"({"model_type":"mamba","architectures":["MambaForCausalLM"]})", Exit::kMissing, "MambaForCausalLM");
  refused(R"({"architectures":["FalconForCausalLM"]})", Exit::kMissing, "FalconForCausalLM");
  refused(R"({"model_type":"llama","hidden_size":"big"})", Exit::kBadInput, "\"hidden_size\" is \"big\"");
  refused(R"({"model_type":"llama","hidden_size":-4})", Exit::kBadInput, "hidden_size");
  refused(R"({"model_type":"llama","hidden_size":1e9})", Exit::kBadInput, "hidden_size");
  refused(R"({"model_type":"llama","hidden_size":18446744073709551615})", Exit::kBadInput, "hidden_size");
  refused(R"({"model_type":"llama","vocab_size":0})", Exit::kBadInput, "vocab_size");
  refused(R"({"model_type":"llama","num_attention_heads":6,"num_key_value_heads":4})", Exit::kBadInput, "cannot share");
  refused(R"({"model_type":"gpt2","n_embd":100,"n_head":3})", Exit::kBadInput, "do not divide");
  refused(R"({"model_type":"llama","head_dim":63})", Exit::kBadInput, "even head_dim");
  refused(R"({"model_type":"llama","rms_norm_eps":"1e-5"})", Exit::kBadInput, "rms_norm_eps");
  refused(R"({"model_type":"llama","tie_word_embeddings":1})", Exit::kBadInput, "true or false");
  refused(R"({"model_type":"llama","torch_dtype":"int3"})", Exit::kBadInput, "int3");
  refused(R"({"model_type":"llama","rope_scaling":{"type":"longrope","factor":2}})", Exit::kBadInput, "longrope");
  refused(R"({"model_type":"llama","rope_scaling":{"type":"proportional","factor":2}})", Exit::kMissing,
          "proportional");
  refused(R"({"model_type":"qwen3","partial_rotary_factor":0.5})", Exit::kMissing, "partial_rotary_factor");
  refused(R"({"model_type":"llama","attention_multiplier":0.1})", Exit::kMissing, "attention_multiplier");
  refused(R"({"model_type":"llama","final_logit_softcapping":30.0})", Exit::kMissing, "final_logit_softcapping");
  refused(R"({"model_type":"llama","num_local_experts":8})", Exit::kMissing, "num_local_experts");
  refused(R"({"model_type":"llama","num_hidden_layers":65536})", Exit::kBadInput, "num_hidden_layers");
  refused(
      R"({"model_type":"llama","rope_parameters":{"rope_type":"default"},"rope_scaling":{"type":"linear","factor":4}})",
      Exit::kBadInput, "differ");
  refused(R"({"model_type":"llama","num_hidden_layers":1,"layer_types":["sliding_attention"]})", Exit::kBadInput,
          "no \"sliding_window\" is in use");
  refused(R"({"model_type":"qwen3","num_hidden_layers":1,"layer_types":["linear_attention"]})", Exit::kMissing,
          "linear_attention");
  refused(R"({"model_type":"mistral","num_hidden_layers":1,"layer_types":["full_attention"]})", Exit::kMissing,
          "all their layers slide");
  refused(R"({"model_type":"llama","rope_scaling":{"type":"linear"}})", Exit::kBadInput, "no \"factor\"");
  refused(R"({"model_type":"llama","rope_scaling":{"rope_type":"llama3","factor":8}})", Exit::kBadInput,
          "low_freq_factor");
  refused(
      R"({"model_type":"llama","rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4}})",
      Exit::kBadInput, "no \"original_max_position_embeddings\"");
  refused(R"({"model_type":"llama","rope_parameters":{"full_attention":{"rope_theta":1}}})", Exit::kMissing,
          "layer type");
  refused(R"({"model_type":"qwen3","num_hidden_layers":2,"layer_types":["full_attention"]})", Exit::kBadInput,
          "2 layers");
  refused(R"({"model_type":"qwen3_moe","num_experts":4,"num_experts_per_tok":8})", Exit::kBadInput, "experts");
  refused(R"({"model_type":"llama","architectures":"LlamaForCausalLM"})", Exit::kBadInput, "architectures");
}

TEST(ModelConfig, WrittenConfigReadsBackTheSame) {
  ModelConfig c = parse(
      R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":100,"hidden_size":64,"num_attention_heads":4,
    "quantization_config":{"quant_method":"fp8"},"custom":[1]})");
  EXPECT_EQ(c.quantization, "fp8");
  const OrderedJson j = to_hf_config(c, DType::kF32);
  EXPECT_FALSE(j.contains("quantization_config"));
  EXPECT_TRUE(j.contains("custom"));
  EXPECT_EQ(j["torch_dtype"], "float32");
  c.raw = nullptr;  // as one from a GGUF
  c.rope_scaling = {.kind = RopeScaling::Kind::kYarn, .factor = 4, .original_max_positions = 4096};
  const ModelConfig back = parse_model_config(to_hf_config(c, DType::kBF16), "again");
  EXPECT_EQ(back.hidden_size, 64);
  EXPECT_EQ(back.num_kv_heads, 4);
  EXPECT_EQ(back.rope_scaling, c.rope_scaling);
  EXPECT_EQ(back.dtype, DType::kBF16);
  EXPECT_EQ(back.eos, c.eos);
}

// A small GGUF of a given architecture; `change` adds keys and tensors after the common ones.
ModelConfig from_gguf(const std::string& arch, const std::function<void(GgufWriter&)>& change) {
  TempFolder dir;
  GgufWriter w(dir / "m.gguf");
  w.add("general.architecture", GgufValue::text(arch));
  w.add(arch + ".block_count", GgufValue::u32(1));
  w.add(arch + ".context_length", GgufValue::u32(131072));
  w.add(arch + ".embedding_length", GgufValue::u32(128));
  w.add(arch + ".feed_forward_length", GgufValue::u32(256));
  w.add(arch + ".attention.head_count", GgufValue::u32(2));
  w.add(arch + ".attention.layer_norm_rms_epsilon", GgufValue::f32(1e-5f));
  w.add(arch + ".rope.freq_base", GgufValue::f32(500000));
  w.declare("token_embd.weight", GgmlType::kF32, {4, 128});
  change(w);
  const std::vector<float> zero(512);
  w.append("token_embd.weight", zero.data(), 4);
  return w.commit(), model_config_from_gguf(Gguf::open(dir / "m.gguf"));
}

TEST(ModelConfig, FromGguf) {
  const ModelConfig c =
      from_gguf("llama", [](GgufWriter& w) { w.add("llama.attention.head_count_kv", GgufValue::u32(1)); });
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.vocab_size, 4);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.num_kv_heads, 1);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_TRUE(c.tie_embeddings);
  EXPECT_FALSE(c.attention_bias);
  const ModelConfig q =
      from_gguf("qwen3", [](GgufWriter& w) { w.add("qwen3.attention.key_length", GgufValue::u32(32)); });
  EXPECT_EQ(q.head_dim, 32);
  expect_refused([] { from_gguf("mamba", [](GgufWriter&) {}); }, Exit::kMissing, "\"mamba\"");
  expect_refused([] { from_gguf("llama", [](GgufWriter& w) { w.add("llama.expert_count", GgufValue::u32(8)); }); },
                 Exit::kMissing, "experts");
  expect_refused(
      [] {
        from_gguf("llama", [](GgufWriter& w) { w.add("llama.attention.head_count_kv", GgufValue::i32s({1, 2})); });
      },
      Exit::kMissing, "differs by layer");
  expect_refused(
      [] { from_gguf("llama", [](GgufWriter& w) { w.add("llama.attention.head_count_kv", GgufValue::u32(0)); }); },
      Exit::kBadInput, "head_count_kv");
  expect_refused(
      [] {
        from_gguf("llama",
                  [](GgufWriter& w) { w.add("tokenizer.ggml.tokens", GgufValue::strings({"a", "b", "c", "d", "e"})); });
      },
      Exit::kBadInput, "do not belong together");
}

// Divisors as transformers computes them for Llama 3.2 (factor 32): a file that carries them states the scaling.
TEST(ModelConfig, FindsLlama3ScalingInTheDivisors) {
  TempFolder dir;
  const auto file = [&](double spoil, uint32_t rotated = 64) {
    std::vector<float> f;
    for (int i = 0; i < 32; ++i) {
      const double inv = std::pow(500000.0, -2.0 * i / 64), wave = 2 * std::numbers::pi / inv;
      double d = 1;
      if (wave > 8192)
        d = 32;
      else if (wave >= 2048) {
        const double smooth = (8192 / wave - 1) / 3;
        d = 1 / ((1 - smooth) / 32 + smooth);
      }
      f.push_back(static_cast<float>(d * spoil));
    }
    GgufWriter w(dir / "m.gguf");
    w.add("general.architecture", GgufValue::text("llama"));
    for (const auto& [k, v] : {std::pair{"block_count", 1u},
                               {"context_length", 131072u},
                               {"embedding_length", 128u},
                               {"feed_forward_length", 256u},
                               {"attention.head_count", 2u}})
      w.add(std::string("llama.") + k, GgufValue::u32(v));
    w.add("llama.rope.freq_base", GgufValue::f32(500000));
    w.add("llama.rope.dimension_count", GgufValue::u32(rotated));
    w.declare("token_embd.weight", GgmlType::kF32, {1, 128});
    w.declare("rope_freqs.weight", GgmlType::kF32, {32});
    w.append("token_embd.weight", std::vector<float>(128).data(), 1);
    w.append("rope_freqs.weight", f.data(), 1);
    w.commit();
    return model_config_from_gguf(Gguf::open(dir / "m.gguf"));
  };
  const ModelConfig c = file(1);
  EXPECT_EQ(c.rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(c.rope_scaling.factor, 32.0);
  EXPECT_EQ(c.rope_scaling.original_max_positions, 8192);
  // Others are taken as they stand.
  const ModelConfig other = file(1.01);
  EXPECT_EQ(other.rope_scaling.kind, RopeScaling::Kind::kDivisors);
  ASSERT_EQ(other.rope_scaling.divisors.size(), 32u);
  EXPECT_EQ(other.rope_scaling.divisors[0], 1.01f);
  EXPECT_FLOAT_EQ(other.rope_scaling.divisors[31], 32 * 1.01f);
  expect_refused([&] { to_hf_config(other, DType::kF32); }, Exit::kMissing, "rope_freqs");
  expect_refused([&] { file(-1); }, Exit::kBadInput, "divisors are wanted");
  expect_refused([&] { file(1, 7); }, Exit::kBadInput, "is odd");
}

}  // namespace
}  // namespace mxt::formats

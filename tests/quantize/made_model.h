// A small model that C++ and Python make alike (tools/golden/quantize.py holds the same formula): every element is a
// function of its tensor's number and its own index, exact in double, rounded to bf16.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "formats/safetensors.h"

namespace mxt::quantize {

struct MadeModel {
  std::string type = "qwen3";  // or llama
  int64_t hidden = 256, ffn = 512, heads = 4, kv_heads = 2, head_dim = 64, layers = 4, vocab = 512;
  bool tied = true;

  int64_t q() const { return heads * head_dim; }
  int64_t kv() const { return kv_heads * head_dim; }

  std::vector<formats::TensorSpec> tensors() const {
    std::vector<formats::TensorSpec> t;
    const auto put = [&](std::string name, std::vector<int64_t> shape) {
      t.push_back({std::move(name), DType::kBF16, std::move(shape)});
    };
    put("model.embed_tokens.weight", {vocab, hidden});
    for (int64_t i = 0; i < layers; ++i) {
      const std::string l = fmt::format("model.layers.{}.", i);
      put(l + "input_layernorm.weight", {hidden});
      put(l + "mlp.down_proj.weight", {hidden, ffn});
      put(l + "mlp.gate_proj.weight", {ffn, hidden});
      put(l + "mlp.up_proj.weight", {ffn, hidden});
      put(l + "post_attention_layernorm.weight", {hidden});
      if (type == "qwen3") put(l + "self_attn.k_norm.weight", {head_dim});
      put(l + "self_attn.k_proj.weight", {kv(), hidden});
      put(l + "self_attn.o_proj.weight", {hidden, q()});
      if (type == "qwen3") put(l + "self_attn.q_norm.weight", {head_dim});
      put(l + "self_attn.q_proj.weight", {q(), hidden});
      put(l + "self_attn.v_proj.weight", {kv(), hidden});
    }
    put("model.norm.weight", {hidden});
    if (!tied) put("lm_head.weight", {vocab, hidden});
    return t;
  }

  static float element(size_t tensor, int64_t i, bool norm) {
    const auto h = static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761u + (tensor + 1) * 40503u);
    const double v = (static_cast<double>(h >> 16) - 32768.0) / 32768.0;
    const double amplitude = 0.015625 * static_cast<double>(1 + (static_cast<uint64_t>(i) * 7 + tensor) % 5);
    return static_cast<float>(norm ? 1.0 + v * 0.125 : v * amplitude);
  }

  // `wide`: the same numbers stored in F32.
  void write(const std::string& folder, bool wide = false) const {
    make_folders(folder);
    auto specs = tensors();
    for (auto& s : specs) s.type = wide ? DType::kF32 : DType::kBF16;
    formats::SafetensorsWriter out(folder + "/model.safetensors", specs);
    for (size_t t = 0; t < specs.size(); ++t) {
      int64_t n = 1;
      for (int64_t d : specs[t].shape) n *= d;
      std::vector<uint16_t> values(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i)
        values[static_cast<size_t>(i)] = float_to_bf16(element(t, i, specs[t].shape.size() == 1));
      std::vector<float> floats;
      if (wide)
        for (const uint16_t v : values) floats.push_back(bf16_to_float(v));
      wide ? out.append_tensor(specs[t].name, floats.data(), floats.size() * 4)
           : out.append_tensor(specs[t].name, values.data(), values.size() * 2);
    }
    out.commit();
    OrderedJson c;
    c["architectures"] = {type == "qwen3" ? "Qwen3ForCausalLM" : "LlamaForCausalLM"};
    c["model_type"] = type;
    c["hidden_size"] = hidden;
    c["intermediate_size"] = ffn;
    c["num_hidden_layers"] = layers;
    c["num_attention_heads"] = heads;
    c["num_key_value_heads"] = kv_heads;
    c["head_dim"] = head_dim;
    c["vocab_size"] = vocab;
    c["max_position_embeddings"] = 256;
    c["rms_norm_eps"] = 1e-6;
    c["rope_theta"] = 10000.0;
    c["hidden_act"] = "silu";
    c["attention_bias"] = false;
    c["tie_word_embeddings"] = tied;
    c["torch_dtype"] = wide ? "float32" : "bfloat16";
    c["bos_token_id"] = 0;
    c["eos_token_id"] = 0;
    write_file_atomic(folder + "/config.json", c.dump(2) + "\n");
  }
};

// The two that the goldens are of: sizes that fit every layout, and sizes that K-quants and 128×128 blocks do not
// divide.
inline MadeModel even_model() { return {}; }
inline MadeModel ragged_model() { return {"llama", 192, 320, 3, 1, 64, 2, 300, false}; }

}  // namespace mxt::quantize

// What the benches of whole passes share: Qwen3's dimensions, random weights, a clock, and how a program ends.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/philox.h"
#include "formats/model_config.h"
#include "kernels/backend.h"
#include "runtime/params.h"

namespace mxt {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// run()'s exit code; an error's own, with its line, where it throws one.
inline int guarded(int (*run)(int, char**), int argc, char** argv) {
  if (const char* as = std::getenv("MINDXTRAIN_CUDA_CAPABILITY")) kernels::treat_cuda_as(as);
  try {
    return run(argc, argv);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return static_cast<int>(e.code());
  }
}

// One of Qwen3's dense sizes, or what a config.json says (bench/gpu/models).
inline formats::ModelConfig model_of(const std::string& name) {
  if (name.ends_with(".json")) return formats::parse_model_config(parse_ordered_json(read_file(name), name), name);
  struct S {
    const char* name;
    int64_t hidden, ffn, layers, heads;
    bool tied;
  };
  for (const S& s : {S{"0.6b", 1024, 3072, 28, 16, true}, S{"1.7b", 2048, 6144, 28, 16, true},
                     S{"4b", 2560, 9728, 36, 32, true}, S{"8b", 4096, 12288, 36, 32, false},
                     S{"14b", 5120, 17408, 40, 40, false}, S{"32b", 5120, 25600, 64, 64, false}}) {
    if (name != s.name) continue;
    const nlohmann::ordered_json j{{"architectures", {"Qwen3ForCausalLM"}},
                                   {"model_type", "qwen3"},
                                   {"vocab_size", 151936},
                                   {"hidden_size", s.hidden},
                                   {"intermediate_size", s.ffn},
                                   {"num_hidden_layers", s.layers},
                                   {"num_attention_heads", s.heads},
                                   {"num_key_value_heads", 8},
                                   {"head_dim", 128},
                                   {"max_position_embeddings", 40960},
                                   {"rms_norm_eps", 1e-6},
                                   {"rope_theta", 1000000},
                                   {"tie_word_embeddings", s.tied},
                                   {"hidden_act", "silu"},
                                   {"attention_bias", false},
                                   {"initializer_range", 0.02}};
    return formats::parse_model_config(j, name);
  }
  fail_input("unknown model {}", name);
}

// Bytes of a matrix that is held in E4M3 or in codes: the numbers, their scales, the numbers transposed.
struct HeldBytes {
  size_t weight, scale, transposed;
};
inline HeldBytes held_bytes(const graph::Param& p) {
  if (p.held == graph::Storage::kCoded) {
    const runtime::CodedPlace end = runtime::coded_place(p, p.segments.size());
    return {static_cast<size_t>(end.codes), static_cast<size_t>(end.scales), 0};
  }
  const auto numbers = static_cast<size_t>(p.rows * p.cols);
  return {numbers, static_cast<size_t>(p.rows) * sizeof(float), numbers};
}
inline bool held_alike(const graph::Param& a, const graph::Param& b) {
  return a.held == b.held && a.back == b.back && a.rows == b.rows && a.cols == b.cols &&
         std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(),
                    [](const auto& x, const auto& y) { return x.rows == y.rows && x.coding == y.coding; });
}

// Weights: normal(0, 0.02) from one block of numbers, read from another place for each parameter; of matrices held in
// E4M3 or in codes all of one shape are the same, since the host takes minutes to round a large model. Norms are 1, an
// adapter's B 0.
inline void fill_with_noise(runtime::ParamStore& params, const graph::Graph& g, DType type, device::Accelerator& d) {
  std::vector<float> noise(size_t{4} << 20);
  Philox rng(1, 1);
  for (size_t i = 0; i < noise.size(); i += 2) noise[i] = rng.normal() * 0.02f, noise[i + 1] = -0.7f * noise[i];
  std::vector<std::byte> typed(noise.size() * size_of(type));
  convert(noise.data(), DType::kF32, typed.data(), type, noise.size());
  std::vector<graph::ParamId> rounded;  // the first of each shape
  for (size_t i = 0; i < g.params.size(); ++i) {
    const graph::Param& p = g.params[i];
    const auto id = static_cast<graph::ParamId>(i);
    const bool vector = p.kind == graph::ParamKind::kNormWeight || p.kind == graph::ParamKind::kBias;
    if ((p.trainable && p.adapter) || vector) {
      {
        const auto a = params.write(id);
        const bool zero = p.adapter && p.name.find("lora_B") != std::string::npos;
        for (int64_t k = 0; k < a->size; ++k) {
          const float v = vector ? 1.0f
                          : zero ? 0.0f
                                 : noise[static_cast<size_t>(k * 7 + static_cast<int64_t>(i) * 911) % noise.size()];
          if (a->master)
            a->master[k] = v;
          else if (type == DType::kBF16)
            static_cast<uint16_t*>(a->weight)[k] = float_to_bf16(v);
          else
            static_cast<float*>(a->weight)[k] = v;
        }
      }
      params.sync_weights(id);
      continue;
    }
    if (p.held == graph::Storage::kFp8 || p.held == graph::Storage::kCoded) {
      const auto same = std::find_if(rounded.begin(), rounded.end(), [&](graph::ParamId of) {
        return held_alike(g.params[static_cast<size_t>(of)], p);
      });
      if (same != rounded.end()) {
        const runtime::ParamSlot &from = params[*same], &to = params[id];
        const HeldBytes bytes = held_bytes(p);
        d.copy(to.weight, from.weight, bytes.weight);
        d.copy(to.scale, from.scale, bytes.scale);
        if (to.transposed != nullptr) d.copy(to.transposed, from.transposed, bytes.transposed);
        continue;
      }
      rounded.push_back(id);
    }
    if (p.held != graph::Storage::kPlain || p.back != graph::Storage::kPlain) {
      const auto a = params.write(id);
      auto* to = static_cast<std::byte*>(a->weight);
      const size_t bytes = static_cast<size_t>(a->size) * size_of(type), start = (i * 7919 % 1000) * 64;
      for (size_t done = 0; done < bytes; done += typed.size() - start)
        std::memcpy(to + done, typed.data() + start, std::min(bytes - done, typed.size() - start));
      continue;
    }
    const runtime::ParamSlot& s = params[id];
    const size_t width = static_cast<size_t>(p.cols) * size_of(type),
                 pitch = static_cast<size_t>(graph::stride(p)) * size_of(type), start = (i * 7919 % 1000) * 64;
    const int64_t at_once = static_cast<int64_t>((typed.size() - start) / width);
    for (int64_t row = 0; row < p.rows; row += at_once) {
      const int64_t rows = std::min(at_once, p.rows - row);
      d.upload_rows(static_cast<std::byte*>(s.weight) + static_cast<size_t>(row) * pitch, pitch, typed.data() + start,
                    width, width, static_cast<size_t>(rows));
      if (s.master != nullptr && static_cast<void*>(s.master) != s.weight)
        d.upload(s.master + row * p.cols, noise.data() + start / size_of(type), static_cast<size_t>(rows * p.cols) * 4);
    }
  }
  d.synchronize();
}

}  // namespace mxt

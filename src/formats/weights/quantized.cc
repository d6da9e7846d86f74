#include "formats/weights/quantized.h"

#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/threads.h"

namespace mxt::formats {
namespace {

constexpr std::array<float, 16> kE2M1{0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

int64_t blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

float load_scale(std::span<const std::byte> bytes, DType type, size_t i) {
  if (type == DType::kF32) {
    float f;
    std::memcpy(&f, bytes.data() + 4 * i, 4);
    return f;
  }
  uint16_t h;
  std::memcpy(&h, bytes.data() + 2 * i, 2);
  return type == DType::kBF16 ? bf16_to_float(h) : f16_to_float(h);
}

bool is_scale_type(DType t) { return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16; }

// Which block one scale covers follows from the scale's shape: one for all, one a row, or one a block.
void fit_fp8(QuantizedWeight& w, bool inverse_name, const ModelConfig& c, const std::string& source) {
  const int64_t rows = w.shape[0], columns = w.shape[1];
  const auto& s = w.scale.shape;
  const int64_t count = w.scale.count();
  bool good = is_scale_type(w.scale.type);
  if (inverse_name && s.size() == 2) {
    std::array<int64_t, 2> block{128, 128};
    if (c.raw && c.raw->contains("quantization_config")) {
      const auto& q = (*c.raw)["quantization_config"];
      if (q.contains("weight_block_size") && q["weight_block_size"].is_array() && q["weight_block_size"].size() == 2)
        for (size_t i = 0; i < 2; ++i)
          block[i] = q["weight_block_size"][i].is_number_integer() ? q["weight_block_size"][i].get<int64_t>() : 0;
    }
    good = good && block[0] > 0 && block[1] > 0;
    if (good) {
      w.block_rows = block[0];
      w.block_columns = block[1];
      good = s[0] == blocks(rows, block[0]) && s[1] == blocks(columns, block[1]);
    }
  } else if (count == 1) {
    w.block_rows = rows;
    w.block_columns = columns;
  } else {
    w.block_columns = columns;
    good = good && count == rows && s[0] == rows;
  }
  if (!good) fail_input("{}: the scales \"{}\" do not fit \"{}\"", source, w.scale.name, w.data.name);
}

void fit_mxfp4(QuantizedWeight& w, const std::string& source) {
  w.kind = QuantizedWeight::Kind::kMxfp4;
  w.shape[1] *= 2;
  w.block_columns = 32;
  const std::vector<int64_t> want{w.shape[0], w.shape[1] / 32};
  if (w.scale.type != DType::kU8 || w.shape[1] % 32 != 0 || w.scale.shape != want)
    fail_input("{}: the scales \"{}\" do not fit \"{}\"", source, w.scale.name, w.data.name);
}

// Dynamic rounding of inputs, as the config of each method states it.
InputRounding inputs_of(const ModelConfig& c) {
  if (!c.raw || !c.raw->contains("quantization_config")) return InputRounding::kNone;
  const OrderedJson& q = (*c.raw)["quantization_config"];
  const auto at = [](const OrderedJson& j, const char* key) {
    return j.is_object() && j.contains(key) ? j[key] : OrderedJson();
  };
  if (c.quantization == "fp8")
    return at(q, "activation_scheme") == OrderedJson("dynamic")
               ? (at(q, "weight_block_size").is_array() ? InputRounding::kFp8Group128 : InputRounding::kFp8Token)
               : InputRounding::kNone;
  if (c.quantization == "compressed-tensors") {
    const OrderedJson groups = at(q, "config_groups");
    if (!groups.is_object() || groups.empty()) return InputRounding::kNone;
    const OrderedJson in = at(groups.begin().value(), "input_activations");
    if (at(in, "dynamic") != OrderedJson(true)) return InputRounding::kNone;
    if (at(in, "num_bits") == OrderedJson(4) && at(in, "group_size") == OrderedJson(32)) return InputRounding::kMxfp4;
    if (at(in, "num_bits") == OrderedJson(8) && at(in, "strategy") == OrderedJson("token"))
      return InputRounding::kFp8Token;
    if (at(in, "num_bits") == OrderedJson(8) && at(in, "group_size") == OrderedJson(128))
      return InputRounding::kFp8Group128;
  }
  if (c.quantization == "quark") {
    const OrderedJson in = at(at(q, "global_quant_config"), "input_tensors");
    if (at(in, "is_dynamic") != OrderedJson(true)) return InputRounding::kNone;
    if (at(in, "dtype") == OrderedJson("fp4")) return InputRounding::kMxfp4;
    if (at(in, "dtype") == OrderedJson("fp8_e4m3") && at(in, "qscheme") == OrderedJson("per_channel"))
      return InputRounding::kFp8Token;
  }
  return InputRounding::kNone;
}

}  // namespace

QuantizedTensors find_quantized(const Safetensors& files, const ModelConfig& c, const std::string& source) {
  QuantizedTensors out;
  if (!c.quantization.empty() && c.quantization != "fp8" && c.quantization != "compressed-tensors" &&
      c.quantization != "quark")
    fail_missing("{}: is quantised by \"{}\", which is not read here: use the model it was made from", source,
                 c.quantization);
  for (const TensorInfo& t : files.tensors()) {
    const bool packed = t.name.ends_with(".weight_packed");
    if (!packed && !t.name.ends_with(".weight")) continue;
    const bool fp8 = t.type == DType::kF8E4M3, fp4 = t.type == DType::kU8;
    if (!fp8 && !fp4) continue;
    const std::string module = t.name.substr(0, t.name.rfind('.'));
    const TensorInfo* scale = files.find(module + ".weight_scale_inv");
    const bool inverse = scale != nullptr;
    if (!scale) scale = files.find(module + ".weight_scale");
    if (!scale || t.shape.size() != 2 || t.bytes == 0)
      fail_input("{}: \"{}\" is {} without scales that say what it means", source, t.name, name_of(t.type));
    QuantizedWeight w;
    w.shape = t.shape;
    w.data = t;
    w.scale = *scale;
    if (fp8)
      fit_fp8(w, inverse, c, source);
    else
      fit_mxfp4(w, source);
    out.hidden.insert(scale->name);
    if (packed) out.hidden.insert(t.name);
    for (const char* more : {".input_scale", ".output_scale", ".weight_zero_point", ".weight_shape"})
      if (const TensorInfo* extra = files.find(module + more)) out.hidden.insert(extra->name);
    out.weights.emplace(module + ".weight", std::move(w));
  }
  if (!c.quantization.empty() && out.weights.empty())
    fail_missing("{}: its config says \"{}\", but none of its weights is in a layout that is read here", source,
                 c.quantization);
  out.inputs = inputs_of(c);
  return out;
}

void decode_rows(const Safetensors& files, const QuantizedWeight& w, int64_t begin, int64_t end, float* out) {
  const auto data = files.bytes(w.data), scale = files.bytes(w.scale);
  const int64_t columns = w.shape[1], scale_columns = blocks(columns, w.block_columns);
  parallel_for(begin, end, std::max<int64_t>(1, (1 << 16) / columns), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      float* y = out + (r - begin) * columns;
      for (int64_t g = 0; g < scale_columns; ++g) {
        const int64_t first = g * w.block_columns, last = std::min(columns, first + w.block_columns);
        const auto at = static_cast<size_t>(r / w.block_rows * scale_columns + g);
        if (w.kind == QuantizedWeight::Kind::kFp8) {
          const float s = load_scale(scale, w.scale.type, at);
          for (int64_t k = first; k < last; ++k)
            y[k] = f8e4m3_to_float(static_cast<uint8_t>(data[static_cast<size_t>(r * columns + k)])) * s;
        } else {
          const int exponent = static_cast<uint8_t>(scale[at]);
          const float s = exponent == 255 ? std::nanf("") : std::ldexp(1.0f, exponent - 127);
          for (int64_t k = first; k < last; ++k) {
            const auto byte = static_cast<uint8_t>(data[static_cast<size_t>((r * columns + k) / 2)]);
            y[k] = kE2M1[k % 2 ? byte >> 4 : byte & 15] * s;
          }
        }
      }
    }
  });
}

}  // namespace mxt::formats

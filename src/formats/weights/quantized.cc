#include "formats/weights/quantized.h"

#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/threads.h"
#include "formats/family.h"
#include "formats/weights/experts.h"

namespace mxt::formats {
namespace {

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

// Which block one scale covers follows from the scale's shape: one for all, one a row, or one a block, whose size
// config.json says.
void fit_fp8(QuantizedWeight& w, bool inverse_name, const ModelConfig& c, const std::string& source) {
  const int64_t rows = w.shape[0], columns = w.shape[1];
  const auto& s = w.scale.shape;
  const int64_t count = w.scale.count();
  bool good = is_scale_type(w.scale.type);
  const auto said = fp8_blocks(c);
  if (s.size() == 2 && (inverse_name || (said && c.quantization == "compressed-tensors"))) {
    const Fp8Blocks block = said.value_or(Fp8Blocks{kE4M3Block, kE4M3Block});
    good = good && block.rows > 0 && block.columns > 0;
    if (good) {
      w.block_rows = block.rows;
      w.block_columns = block.columns;
      good = s[0] == blocks(rows, block.rows) && s[1] == blocks(columns, block.columns);
    }
    if (block.rows == kE4M3Block && block.columns == kE4M3Block) w.coding = Coding::kE4M3Blocks;
  } else {
    w.coding = Coding::kE4M3Rows;
    w.block_columns = columns;
    if (count == 1)
      w.block_rows = rows;
    else
      good = good && count == rows && s[0] == rows;
  }
  if (!good) fail_input("{}: the scales \"{}\" do not fit \"{}\"", source, w.scale.name, w.data.name);
}

void fit_mxfp4(QuantizedWeight& w, const std::string& source) {
  w.kind = QuantizedWeight::Kind::kCoded;
  w.coding = Coding::kMxfp4;
  w.shape[1] *= 2;
  const std::vector<int64_t> want{w.shape[0], w.shape[1] / kMxBlock};
  if (w.scale.type != DType::kU8 || w.shape[1] % kMxBlock != 0 || w.scale.shape != want)
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

DType type_from_torch(const std::string& name) {
  return name == "bfloat16" ? DType::kBF16 : name == "float16" ? DType::kF16 : DType::kF32;
}

constexpr std::string_view kState = ".weight.quant_state.bitsandbytes__";

// bitsandbytes writes what its tensors mean as JSON in a tensor of bytes: the matrix's shape and type, the blocks, and
// with double quantization the mean of the scales, which stands nowhere else.
class Nf4Reader {
 public:
  Nf4Reader(const Safetensors& files, std::string module, const TensorInfo& state, const std::string& source)
      : files_(files), module_(std::move(module)), source_(source) {
    const auto bytes = files.bytes(state);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    state_ = parse_ordered_json(text, source + ": \"" + state.name + "\"");
    if (!state_.is_object()) bad("is no object");
  }

  QuantizedWeight read() {
    if (text("quant_type") != "nf4")
      fail_missing(
          "{}: \"{}\" is in {}: of bitsandbytes' types nf4 alone is read here: use the model that it was made from",
          source_, module_ + ".weight", text("quant_type"));
    const bool twice = state_.contains("nested_blocksize");
    QuantizedWeight w;
    w.kind = QuantizedWeight::Kind::kCoded;
    w.coding = twice ? Coding::kNf4Double : Coding::kNf4;
    w.through = type_from_torch(text("dtype"));
    w.shape = shape();
    if (number("blocksize") != kNf4Block || (twice && number("nested_blocksize") != kNf4Nested))
      fail_missing(
          "{}: \"{}\" is in blocks of another size than {}, which is not read here: use the model that it was made "
          "from",
          source_, module_ + ".weight", kNf4Block);
    const CodedBytes bytes = coded_bytes(w.coding, w.shape[0], w.shape[1]);
    w.data = part("", DType::kU8, bytes.codes);
    w.scale = part(".absmax", twice ? DType::kU8 : DType::kF32, twice ? bytes.scales : bytes.scales / 4);
    table(".quant_map", kNf4Table, 16);
    if (!twice) return w;
    w.nested = part(".nested_absmax", DType::kF32, bytes.nested / 4 - 1);
    table(".nested_quant_map", kNf4Bytes.data(), 256);
    if (!state_.contains("nested_offset") || !state_["nested_offset"].is_number()) bad("has no \"nested_offset\"");
    w.mean = state_["nested_offset"].get<float>();
    return w;
  }

 private:
  [[noreturn]] void bad(std::string_view what) const {
    fail_input("{}: the quantization state of \"{}.weight\" {}: the folder is damaged, or not of bitsandbytes", source_,
               module_, what);
  }
  std::string text(const char* key) const {
    if (!state_.contains(key) || !state_[key].is_string()) bad(fmt::format("has no \"{}\"", key));
    return state_[key].get<std::string>();
  }
  int64_t number(const char* key) const {
    if (!state_.contains(key) || !state_[key].is_number_integer()) bad(fmt::format("has no \"{}\"", key));
    return state_[key].get<int64_t>();
  }
  std::vector<int64_t> shape() const {
    const OrderedJson s = state_.contains("shape") ? state_["shape"] : OrderedJson();
    const auto good = [](const OrderedJson& n) {
      return n.is_number_integer() && n.get<int64_t>() > 0 && n.get<int64_t>() < int64_t{1} << 31;
    };
    if (!s.is_array() || s.size() != 2 || !good(s[0]) || !good(s[1])) bad("has no \"shape\" of a matrix");
    return {s[0].get<int64_t>(), s[1].get<int64_t>()};
  }
  // A tensor of so many elements, whatever its dimensions.
  TensorInfo part(const char* suffix, DType type, int64_t count) const {
    const std::string name = module_ + ".weight" + suffix;
    const TensorInfo* t = files_.find(name);
    if (!t)
      fail_input("{}: tensor \"{}\" is missing: the folder does not hold the whole model: fetch or save it again",
                 source_, name);
    // Bytes may be stored as another type (bnb_4bit_quant_storage).
    const bool fits = *suffix == 0 ? t->bytes == static_cast<uint64_t>(count) : t->type == type && t->count() == count;
    if (!fits)
      fail_input("{}: tensor \"{}\" is {} with {} bytes, and {} {} are wanted: fetch or save it again", source_, name,
                 mxt::name_of(t->type), t->bytes, count, *suffix == 0 ? "bytes" : mxt::name_of(type));
    return *t;
  }
  void table(const char* suffix, const float* want, int64_t n) const {
    const TensorInfo t = part(suffix, DType::kF32, n);
    std::vector<float> have(static_cast<size_t>(n));
    std::memcpy(have.data(), files_.bytes(t).data(), t.bytes);
    for (int64_t i = 0; i < n; ++i)
      if (std::abs(have[static_cast<size_t>(i)] - want[i]) > 1e-6f)
        fail_missing("{}: \"{}\" is a table of its own, which is not read here: use the model that it was made from",
                     source_, t.name);
  }

  const Safetensors& files_;
  std::string module_, source_;
  OrderedJson state_;
};

void find_nf4(const Safetensors& files, const std::string& source, QuantizedTensors& out) {
  for (const TensorInfo& t : files.tensors()) {
    const size_t at = t.name.find(kState);
    if (at == std::string::npos) continue;
    const std::string module = t.name.substr(0, at);
    out.weights.emplace(module + ".weight", Nf4Reader(files, module, t, source).read());
    out.hidden.insert(t.name);
    for (const char* more : {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"})
      out.hidden.insert(module + ".weight" + more);
  }
}

// Experts' matrices of gpt-oss: a stack's rows lie in the order of its products' columns, gate's and up's in turn.
void find_mxfp4_stacks(const Safetensors& files, const ModelConfig& c, const std::string& source,
                       QuantizedTensors& out) {
  for (const TensorInfo& t : files.tensors()) {
    constexpr std::string_view kBlocks = "_blocks";
    if (!t.name.ends_with(kBlocks)) continue;
    const std::string stem = t.name.substr(0, t.name.size() - kBlocks.size());
    const TensorInfo* scale = files.find(stem + "_scales");
    for (const ExpertStack& s : expert_stacks(c)) {
      const std::string end = fmt::format(".experts.{}", s.name);
      if (!stem.ends_with(end)) continue;
      const auto parts = static_cast<int64_t>(s.parts.size());
      const std::vector<int64_t> blocks_of{c.num_experts, parts * s.part_rows, s.cols / kMxBlock, kMxBlock / 2},
          scales_of{blocks_of[0], blocks_of[1], blocks_of[2]};
      if (!scale || s.cols % kMxBlock != 0 || t.type != DType::kU8 || scale->type != DType::kU8 ||
          t.shape != blocks_of || scale->shape != scales_of)
        fail_input("{}: \"{}\" and its \"_scales\" are not {} experts of {} × {} in MXFP4, as config.json has them",
                   source, t.name, c.num_experts, parts * s.part_rows, s.cols);
      out.hidden.insert(t.name);
      out.hidden.insert(scale->name);
      for (int64_t e = 0; e < c.num_experts; ++e)
        for (int64_t part = 0; part < parts; ++part) {
          QuantizedWeight w;
          w.kind = QuantizedWeight::Kind::kCoded;
          w.coding = Coding::kMxfp4;
          w.shape = {s.part_rows, s.cols};
          w.data = t;
          w.scale = *scale;
          w.first_row = e * parts * s.part_rows + part;
          w.row_step = parts;
          out.weights.emplace(fmt::format("{}.experts.{}.{}.weight", stem.substr(0, stem.size() - end.size()), e,
                                          s.parts[static_cast<size_t>(part)]),
                              std::move(w));
        }
    }
  }
}

}  // namespace

QuantizedTensors find_quantized(const Safetensors& files, const ModelConfig& c, const std::string& source) {
  QuantizedTensors out;
  if (!c.quantization.empty() && c.quantization != "fp8" && c.quantization != "compressed-tensors" &&
      c.quantization != "quark" && c.quantization != "bitsandbytes" &&
      !(c.quantization == "mxfp4" && c.family->turned_experts))
    fail_missing("{}: is quantised by \"{}\", which is not read here: use the model it was made from", source,
                 c.quantization);
  find_nf4(files, source, out);
  if (c.quantization == "mxfp4") find_mxfp4_stacks(files, c, source, out);
  for (const TensorInfo& t : files.tensors()) {
    if (out.weights.contains(t.name)) continue;
    const bool packed = t.name.ends_with(".weight_packed");
    if (!packed && !t.name.ends_with(".weight")) continue;
    const bool fp8 = t.type == DType::kF8E4M3, fp4 = t.type == DType::kU8;
    if (!fp8 && !fp4) continue;
    const std::string module = t.name.substr(0, t.name.rfind('.'));
    const TensorInfo* scale = files.find(module + ".weight_scale_inv");
    const bool inverse = scale != nullptr;
    if (!scale) scale = files.find(module + ".weight_scale");
    if (!scale || t.shape.size() != 2 || t.bytes == 0)
      fail_input("{}: \"{}\" is {} without scales that say what it means: fetch or save it again", source, t.name,
                 name_of(t.type));
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
    fail_missing(
        "{}: its config says \"{}\", but none of its weights is in a layout that is read here: use the model that it "
        "was made from",
        source, c.quantization);
  out.inputs = inputs_of(c);
  return out;
}

namespace {

void take_fp8_scales(const Safetensors& files, const QuantizedWeight& w, CodedTensor* out) {
  const auto scales = files.bytes(w.scale);
  const auto held = static_cast<size_t>(w.scale.count()),
             want = static_cast<size_t>(coded_bytes(w.coding, w.shape[0], w.shape[1]).scales) / sizeof(float);
  out->floats.resize(want);
  for (size_t i = 0; i < want; ++i) out->floats[i] = load_scale(scales, w.scale.type, held == 1 ? 0 : i);
  out->matrix.scales = reinterpret_cast<const uint8_t*>(out->floats.data());
}

}  // namespace

CodedTensor coded_of(const Safetensors& files, const QuantizedWeight& w) {
  MXT_ASSERT(w.coding != Coding::kNone);
  CodedTensor out;
  out.through = w.through;
  const auto codes = files.bytes(w.data), scales = files.bytes(w.scale);
  out.matrix = {w.coding,
                w.shape[0],
                w.shape[1],
                reinterpret_cast<const uint8_t*>(codes.data()),
                reinterpret_cast<const uint8_t*>(scales.data()),
                nullptr};
  if (w.kind == QuantizedWeight::Kind::kFp8) {
    take_fp8_scales(files, w, &out);
    return out;
  }
  if (w.row_step > 0) {  // its rows alone, codes before scales
    const size_t codes_row = static_cast<size_t>(w.shape[1] / 2),
                 scales_row = static_cast<size_t>(w.shape[1] / kMxBlock);
    out.bytes.resize(static_cast<size_t>(w.shape[0]) * (codes_row + scales_row));
    uint8_t *codes_to = out.bytes.data(), *scales_to = codes_to + static_cast<size_t>(w.shape[0]) * codes_row;
    for (int64_t r = 0; r < w.shape[0]; ++r) {
      const auto from = static_cast<size_t>(w.first_row + r * w.row_step), to = static_cast<size_t>(r);
      std::memcpy(codes_to + to * codes_row, codes.data() + from * codes_row, codes_row);
      std::memcpy(scales_to + to * scales_row, scales.data() + from * scales_row, scales_row);
    }
    out.matrix.codes = codes_to, out.matrix.scales = scales_to;
    return out;
  }
  const bool floats = w.coding == Coding::kNf4;  // files of old writers need not align them
  if (floats && reinterpret_cast<uintptr_t>(scales.data()) % sizeof(float) != 0) {
    out.floats.resize(scales.size() / sizeof(float));
    std::memcpy(out.floats.data(), scales.data(), scales.size());
    out.matrix.scales = reinterpret_cast<const uint8_t*>(out.floats.data());
  }
  if (w.coding == Coding::kNf4Double) {
    const auto nested = files.bytes(w.nested);
    out.floats.resize(nested.size() / sizeof(float));
    std::memcpy(out.floats.data(), nested.data(), nested.size());
    out.floats.push_back(w.mean);
    out.matrix.nested = out.floats.data();
  }
  return out;
}

namespace {

void decode_coded(const CodedTensor& t, int64_t begin, int64_t end, float* out) {
  const int64_t columns = t.matrix.cols;
  parallel_for(begin, end, std::max<int64_t>(1, (1 << 16) / columns), [&](int64_t b, int64_t e) {
    float* y = out + (b - begin) * columns;
    const int64_t n = (e - b) * columns;
    decode(t.matrix, b * columns, n, y);
    for (int64_t i = 0; i < n; ++i) {
      if (t.through == DType::kBF16) y[i] = bf16_to_float(float_to_bf16(y[i]));
      if (t.through == DType::kF16) y[i] = f16_to_float(float_to_f16(y[i]));
    }
  });
}

}  // namespace

void decode_rows(const Safetensors& files, const QuantizedWeight& w, int64_t begin, int64_t end, float* out) {
  if (w.kind == QuantizedWeight::Kind::kCoded) return decode_coded(coded_of(files, w), begin, end, out);
  const auto data = files.bytes(w.data), scale = files.bytes(w.scale);
  const int64_t columns = w.shape[1], scale_columns = blocks(columns, w.block_columns);
  parallel_for(begin, end, std::max<int64_t>(1, (1 << 16) / columns), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      float* y = out + (r - begin) * columns;
      for (int64_t g = 0; g < scale_columns; ++g) {
        const int64_t first = g * w.block_columns, last = std::min(columns, first + w.block_columns);
        const float s = load_scale(scale, w.scale.type, static_cast<size_t>(r / w.block_rows * scale_columns + g));
        for (int64_t k = first; k < last; ++k)
          y[k] = f8e4m3_to_float(static_cast<uint8_t>(data[static_cast<size_t>(r * columns + k)])) * s;
      }
    }
  });
}

}  // namespace mxt::formats

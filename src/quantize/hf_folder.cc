// Hugging Face folders: safetensors with quantized matrices, and the quantization_config that its loaders expect.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/coding.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "formats/buffers.h"
#include "formats/family.h"
#include "formats/safetensors.h"
#include "formats/vision.h"
#include "quantize/encode.h"
#include "quantize/internal.h"

namespace mxt::quantize {
namespace {

using config::QuantScheme;
using formats::SafetensorsWriter;
using formats::TensorSpec;

constexpr uint64_t kShardBytes = 5'000'000'000;

enum class Scales { kRow, kTensor, kBlock, kGroup, kNf4, kNf4Double };

// What a scheme's tensors look like.
struct Layout {
  Scales scales = Scales::kRow;
  std::string_view weight = ".weight", scale = ".weight_scale";  // endings of a module's tensors
  DType scale_type = DType::kF32;
  bool one_dimension = false;  // scales of rows as [N], not [N, 1]
  bool fp4() const { return scales == Scales::kGroup; }
  bool nf4() const { return scales == Scales::kNf4 || scales == Scales::kNf4Double; }
};

Layout layout_of(const config::Quantize& q, DType model_type) {
  switch (q.scheme) {
    case QuantScheme::kFp8Dynamic:  // its tools hold scales in the model's own type
      return {Scales::kRow, ".weight", ".weight_scale", model_type, false};
    case QuantScheme::kFp8Block:
      return {Scales::kBlock, ".weight", ".weight_scale_inv", DType::kF32, false};
    case QuantScheme::kQuarkFp8:
      return {q.ptpc ? Scales::kRow : Scales::kTensor, ".weight", ".weight_scale", DType::kF32, true};
    case QuantScheme::kMxfp4:
      return {Scales::kGroup, ".weight_packed", ".weight_scale", DType::kU8, false};
    case QuantScheme::kQuarkMxfp4:
      return {Scales::kGroup, ".weight", ".weight_scale", DType::kU8, false};
    case QuantScheme::kBnbNf4:
      return {Scales::kNf4, ".weight", ".weight.absmax", DType::kF32, true};
    case QuantScheme::kBnbNf4Double:
      return {Scales::kNf4Double, ".weight", ".weight.absmax", DType::kU8, true};
    default:
      assert_failed("scheme of a folder", __FILE__, __LINE__);
  }
}

// Matrices that every loader of these layouts multiplies by its quantized kernels: the projections inside layers.
bool is_projection(std::string_view name, const std::vector<int64_t>& shape) {
  static constexpr std::array kLeaves = {"q_proj",   "k_proj",    "v_proj",      "o_proj",    "gate_proj",
                                         "up_proj",  "down_proj", "in_proj_qkv", "in_proj_z", "in_proj_qkvz",
                                         "out_proj", "qkv_proj",  "gate_up_proj"};
  if (shape.size() != 2 || !name.ends_with(".weight") || name.find("layers.") == std::string_view::npos) return false;
  if (formats::sees_pictures(name)) return false;
  return std::find(kLeaves.begin(), kLeaves.end(), leaf_of(name)) != kLeaves.end();
}

bool is_embedding(std::string_view name) {
  return leaf_of(name).find("embed") != std::string_view::npos || leaf_of(name) == "wte" || leaf_of(name) == "wpe";
}

std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

OrderedJson compressed_tensors_config(const config::Quantize& q, const std::vector<std::string>& ignore) {
  OrderedJson weights, inputs = nullptr;
  if (q.scheme == QuantScheme::kMxfp4) {
    weights = {{"num_bits", 4},     {"type", "float"},  {"strategy", "group"},          {"group_size", kMxBlock},
               {"symmetric", true}, {"dynamic", false}, {"scale_dtype", "torch.uint8"}, {"zp_dtype", "torch.uint8"}};
  } else {
    weights = {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}, {"symmetric", true}, {"dynamic", false}};
    inputs = {{"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"symmetric", true}, {"dynamic", true}};
  }
  const char* format = q.scheme == QuantScheme::kMxfp4 ? "mxfp4-pack-quantized" : "float-quantized";
  OrderedJson j;
  j["quant_method"] = "compressed-tensors";
  j["format"] = format;
  j["quantization_status"] = "compressed";
  j["ignore"] = ignore;
  j["kv_cache_scheme"] = nullptr;
  OrderedJson& group = j["config_groups"]["group_0"];
  group["targets"] = {"Linear"};
  group["weights"] = weights;
  group["input_activations"] = inputs;
  group["output_activations"] = nullptr;
  group["format"] = format;
  return j;
}

OrderedJson quark_config(const config::Quantize& q, const std::vector<std::string>& ignore) {
  OrderedJson weight, input;
  if (q.scheme == QuantScheme::kQuarkMxfp4) {
    weight = {{"dtype", "fp4"}, {"qscheme", "per_group"}, {"group_size", kMxBlock},
              {"ch_axis", -1},  {"scale_format", "e8m0"}, {"is_dynamic", false}};
    input = weight;
  } else {
    weight = {{"dtype", "fp8_e4m3"},
              {"qscheme", q.ptpc ? "per_channel" : "per_tensor"},
              {"ch_axis", q.ptpc ? OrderedJson(0) : OrderedJson(nullptr)},
              {"is_dynamic", false}};
    input = {{"dtype", "fp8_e4m3"}, {"qscheme", "per_channel"}, {"ch_axis", 0}};
  }
  input["is_dynamic"] = true;
  OrderedJson j;
  j["quant_method"] = "quark";
  OrderedJson& g = j["global_quant_config"];
  g["weight"] = weight;
  g["input_tensors"] = input;
  g["output_tensors"] = nullptr;
  g["bias"] = nullptr;
  j["layer_quant_config"] = OrderedJson::object();
  j["layer_type_quant_config"] = OrderedJson::object();
  j["exclude"] = ignore;
  j["export"] = {
      {"kv_cache_group", OrderedJson::array()}, {"pack_method", "reorder"}, {"weight_format", "real_quantized"}};
  return j;
}

std::string_view torch_name(DType t) {
  return t == DType::kBF16 ? "bfloat16" : t == DType::kF16 ? "float16" : "float32";
}

// As transformers writes it: the older versions look for the keys with an underscore.
OrderedJson bitsandbytes_config(bool twice, DType type, const std::vector<std::string>& ignore) {
  OrderedJson j;
  j["quant_method"] = "bitsandbytes";
  for (const char* key : {"_load_in_4bit", "load_in_4bit"}) j[key] = true;
  for (const char* key : {"_load_in_8bit", "load_in_8bit"}) j[key] = false;
  j["bnb_4bit_quant_type"] = "nf4";
  j["bnb_4bit_use_double_quant"] = twice;
  j["bnb_4bit_compute_dtype"] = torch_name(type);
  j["bnb_4bit_quant_storage"] = "uint8";
  j["llm_int8_enable_fp32_cpu_offload"] = j["llm_int8_has_fp16_weight"] = false;
  j["llm_int8_skip_modules"] = ignore;
  j["llm_int8_threshold"] = 6.0;
  return j;
}

OrderedJson quantization_config(const config::Quantize& q, DType type, const std::vector<std::string>& ignore) {
  switch (q.scheme) {
    case QuantScheme::kBnbNf4:
    case QuantScheme::kBnbNf4Double:
      return bitsandbytes_config(q.scheme == QuantScheme::kBnbNf4Double, type, ignore);
    case QuantScheme::kFp8Dynamic:
    case QuantScheme::kMxfp4:
      return compressed_tensors_config(q, ignore);
    case QuantScheme::kFp8Block: {
      OrderedJson j;
      j["quant_method"] = "fp8";
      j["fmt"] = "e4m3";
      j["activation_scheme"] = "dynamic";
      j["weight_block_size"] = {kFp8Block, kFp8Block};
      j["modules_to_not_convert"] = ignore;
      return j;
    }
    default:
      return quark_config(q, ignore);
  }
}

class FolderWriter {
 public:
  FolderWriter(const formats::WeightSource& source, const config::Quantize& settings, const std::string& folder)
      : source_(source),
        settings_(settings),
        folder_(folder),
        type_(plain_type()),
        layout_(layout_of(settings, type_)) {}

  Written run(StopFlag stop) {
    declare();
    SafetensorsWriter::Options options;
    options.max_shard_bytes = kShardBytes;
    SafetensorsWriter out(folder_ + "/model.safetensors", specs_, options);
    log::Progress progress("quantizing", static_cast<double>(written_.parameters));
    double done = 0;
    for (const Item& item : items_) {
      check_stop(stop);
      if (item.quantized)
        write_quantized(item, out);
      else
        write_plain(item, out);
      source_.drop_pages();
      progress.update(done += static_cast<double>(item.count()), item.name);
    }
    out.commit();
    for (const auto& f : out.files())
      if (f.ends_with(".safetensors")) written_.bytes += fs::file_size(f);
    OrderedJson config = formats::to_hf_config(source_.config(), type_);
    config["quantization_config"] = quantization_config(settings_, type_, ignore_);
    write_file_atomic(folder_ + "/config.json", config.dump(2) + "\n");
    written_.model = folder_;
    return written_;
  }

 private:
  struct Item {
    std::string name;
    std::vector<int64_t> shape;
    bool quantized = false;
    DType type = DType::kF32;  // of a plain one
    int64_t count() const { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()); }
    int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
    int64_t width() const { return rows() > 0 ? count() / rows() : 0; }
  };

  // What the unquantized tensors are held in. compressed-tensors makes bf16 of MXFP4's matrices, whatever the model's
  // type, and a product of two types is refused there.
  DType plain_type() const { return settings_.scheme == QuantScheme::kMxfp4 ? DType::kBF16 : source_.held_type(); }

  void declare() {
    const std::string& source = source_.path();
    ignore_.push_back("lm_head");  // a module even where it shares the embedding
    int64_t ragged = 0;
    for (const std::string& name : source_.names()) {
      Item item{name, source_.shape(name), false, type_};
      if (formats::is_buffer(name) || (name == "lm_head.weight" && source_.config().tie_embeddings)) continue;
      const DType stored = source_.stored_type(name);
      const bool number =
          stored == DType::kF32 || stored == DType::kF16 || stored == DType::kBF16 || stored == DType::kF64;
      if (!number) item.type = stored;
      written_.parameters += item.count();
      if (number && is_projection(name, item.shape)) {
        if (layout_.fp4() && item.shape[1] % kMxBlock != 0)
          written_.kept.push_back(name);
        else
          item.quantized = true;
        ragged +=
            layout_.scales == Scales::kBlock && (item.shape[0] % kFp8Block != 0 || item.shape[1] % kFp8Block != 0);
      }
      if (item.shape.size() == 2 && name.ends_with(".weight") && !item.quantized && !is_embedding(name) &&
          name != "lm_head.weight")
        ignore_.push_back(module_of(name));
      declare(item);
      written_.quantized += item.quantized;
      items_.push_back(std::move(item));
    }
    if (written_.quantized == 0) fail_input("{}: has no matrix that this scheme can hold", source);
    for (const auto& k : written_.kept)
      log::warn("{}: {} columns are no multiple of {}: kept as it is", k, source_.shape(k)[1], kMxBlock);
    if (layout_.nf4() && source_.config().num_experts > 0)
      log::warn(
          "experts in bitsandbytes' codes, a matrix each: transformers from 5 on holds them stacked and does not load "
          "such a folder; mxfp4 and fp8_dynamic have no such limit");
    if (ragged > 0)
      log::warn(
          "{} matrices have sizes that are no multiple of {}: their last blocks are smaller, which vLLM's fused layers "
          "and "
          "transformers' dequantize=True do not read; fp8_dynamic has no such limit",
          ragged, kFp8Block);
  }

  // A module's weight and then its scales: both come out of one reading of the source.
  void declare(const Item& item) {
    if (!item.quantized) return specs_.push_back({item.name, item.type, item.shape});
    if (layout_.nf4()) return declare_nf4(item);
    const int64_t rows = item.shape[0], cols = item.shape[1];
    const std::string module = module_of(item.name);
    specs_.push_back({module + std::string(layout_.weight), layout_.fp4() ? DType::kU8 : DType::kF8E4M3,
                      layout_.fp4() ? std::vector<int64_t>{rows, cols / 2} : item.shape});
    std::vector<int64_t> scale;
    if (layout_.scales == Scales::kRow)
      scale = layout_.one_dimension ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, 1};
    if (layout_.scales == Scales::kBlock)
      scale = {(rows + kFp8Block - 1) / kFp8Block, (cols + kFp8Block - 1) / kFp8Block};
    if (layout_.scales == Scales::kGroup) scale = {rows, cols / kMxBlock};
    specs_.push_back({module + std::string(layout_.scale), layout_.scale_type, scale});
  }

  bool twice() const { return layout_.scales == Scales::kNf4Double; }

  void declare_nf4(const Item& item) {
    const CodedBytes bytes = coded_bytes(twice() ? Coding::kNf4Double : Coding::kNf4, item.shape[0], item.shape[1]);
    specs_.push_back({item.name, DType::kU8, {bytes.codes, 1}});
    specs_.push_back({item.name + ".absmax", layout_.scale_type, {bytes.scales / (twice() ? 1 : 4)}});
    specs_.push_back({item.name + ".quant_map", DType::kF32, {16}});
    if (twice()) {
      specs_.push_back({item.name + ".nested_absmax", DType::kF32, {bytes.nested / 4 - 1}});
      specs_.push_back({item.name + ".nested_quant_map", DType::kF32, {256}});
    }
    const auto length = static_cast<int64_t>(nf4_state(item, 0).size());
    specs_.push_back({item.name + ".quant_state.bitsandbytes__nf4", DType::kU8, {length}});
  }

  // What bitsandbytes reads back, as JSON. The mean is known when all is written, so that room is kept for any.
  std::string nf4_state(const Item& item, float mean) const {
    OrderedJson j{{"quant_type", "nf4"}, {"blocksize", kNf4Block}, {"dtype", torch_name(type_)}, {"shape", item.shape}};
    if (twice()) {
      j["nested_blocksize"] = kNf4Nested;
      j["nested_dtype"] = "float32";
      j["nested_offset"] = static_cast<double>(mean);
    }
    std::string text = j.dump();
    if (twice()) text.append(32 - OrderedJson(static_cast<double>(mean)).dump().size(), ' ');
    return text;
  }

  void write_plain(const Item& item, SafetensorsWriter& out) {
    if (item.count() == 0) return;
    by_rows(item.rows(), item.width(), 1,
            [&](int64_t b, int64_t e) { check_finite(item, largest(read(item, b, e), (e - b) * item.width())); });
    if (const auto bytes = source_.mapped(item.name, item.type); !bytes.empty())
      return out.append(bytes.data(), bytes.size());
    by_rows(item.rows(), item.width(), 1, [&](int64_t b, int64_t e) {
      buffer_.resize(static_cast<size_t>((e - b) * item.width()) * size_of(item.type));
      source_.read(item.name, item.type, buffer_.data(), b, e);
      out.append(buffer_.data(), buffer_.size());
    });
  }

  const float* read(const Item& item, int64_t b, int64_t e) {
    values_.resize(static_cast<size_t>((e - b) * item.width()));
    source_.read(item.name, DType::kF32, values_.data(), b, e);
    return values_.data();
  }

  void check_finite(const Item& item, float largest) const {
    if (!std::isfinite(largest))
      fail_input("{}: tensor \"{}\" holds NaN or infinity: the model is damaged", source_.path(), item.name);
  }

  // In the model's own type, which transformers rounds from.
  void write_nf4(const Item& item, SafetensorsWriter& out) {
    const int64_t rows = item.shape[0], cols = item.shape[1];
    std::vector<float> scales;
    by_rows(rows, cols, kNf4Block, [&](int64_t b, int64_t e) {  // whole blocks
      const int64_t n = e - b;
      buffer_.resize(static_cast<size_t>(n * cols) * size_of(type_));
      source_.read(item.name, type_, buffer_.data(), b, e);
      const CodedBytes bytes = coded_bytes(Coding::kNf4, n, cols);
      codes_.resize(static_cast<size_t>(bytes.codes));
      const size_t at = scales.size();
      scales.resize(at + static_cast<size_t>(bytes.scales) / 4);
      encode(buffer_.data(), type_,
             {Coding::kNf4, n, cols, codes_.data(), reinterpret_cast<uint8_t*>(scales.data() + at)});
      check_finite(item, largest(read(item, b, e), n * cols));
      out.append(codes_.data(), codes_.size());
    });
    float mean = 0;
    if (twice()) {
      std::vector<uint8_t> bytes(scales.size());
      std::vector<float> nested((scales.size() + kNf4Nested - 1) / kNf4Nested + 1);
      encode_nf4_scales(scales, bytes.data(), nested.data());
      mean = nested.back();
      out.append(bytes.data(), bytes.size());
      out.append(kNf4Table, sizeof kNf4Table);
      out.append(nested.data(), (nested.size() - 1) * sizeof(float));
      out.append(kNf4Bytes.data(), sizeof kNf4Bytes);
    } else {
      out.append(scales.data(), scales.size() * sizeof(float));
      out.append(kNf4Table, sizeof kNf4Table);
    }
    const std::string state = nf4_state(item, mean);
    out.append(state.data(), state.size());
  }

  void write_quantized(const Item& item, SafetensorsWriter& out) {
    if (layout_.nf4()) return write_nf4(item, out);
    const int64_t rows = item.shape[0], cols = item.shape[1], across = (cols + kFp8Block - 1) / kFp8Block;
    std::vector<float> scales;
    std::vector<uint8_t> exponents;
    if (layout_.scales == Scales::kTensor) {
      float most = 0;
      by_rows(rows, cols, 1,
              [&](int64_t b, int64_t e) { most = std::max(most, largest(read(item, b, e), (e - b) * cols)); });
      check_finite(item, most);
      scales = {fp8_scale(most, DType::kF32)};
    }
    by_rows(rows, cols, kFp8Block, [&](int64_t b, int64_t e) {
      const float* w = read(item, b, e);
      const int64_t n = e - b;
      buffer_.resize(static_cast<size_t>(layout_.fp4() ? n * cols / 2 : n * cols));
      auto* q = reinterpret_cast<uint8_t*>(buffer_.data());
      const size_t at = scales.size();
      switch (layout_.scales) {
        case Scales::kTensor:
          fp8_with_scale(w, n * cols, scales[0], q);
          break;
        case Scales::kRow:
          scales.resize(at + static_cast<size_t>(n));
          fp8_by_row(w, n, cols, layout_.scale_type, q, scales.data() + at);
          break;
        case Scales::kBlock:
          scales.resize(at + static_cast<size_t>((n + kFp8Block - 1) / kFp8Block * across));
          fp8_by_block(w, n, cols, q, scales.data() + at);
          break;
        case Scales::kGroup: {
          const float most = largest(w, n * cols);
          check_finite(item, most);
          if (most >= 0x1p127f)  // what a group then reads back as may be past float32
            fail_input("{}: tensor \"{}\" holds weights as large as {:g}, more than this scheme can", source_.path(),
                       item.name, most);
          const size_t done = exponents.size();
          exponents.resize(done + static_cast<size_t>(n * cols / kMxBlock));
          encode(w, DType::kF32, {Coding::kMxfp4, n, cols, q, exponents.data() + done});
          break;
        }
        case Scales::kNf4:
        case Scales::kNf4Double:
          break;
      }
      for (size_t i = at; i < scales.size(); ++i) check_finite(item, scales[i]);
      out.append(buffer_.data(), buffer_.size());
    });
    if (layout_.fp4()) return out.append(exponents.data(), exponents.size());
    buffer_.resize(scales.size() * size_of(layout_.scale_type));
    convert(scales.data(), DType::kF32, buffer_.data(), layout_.scale_type, scales.size());
    out.append(buffer_.data(), buffer_.size());
  }

  const formats::WeightSource& source_;
  const config::Quantize& settings_;
  std::string folder_;
  DType type_;
  Layout layout_;
  std::vector<Item> items_;
  std::vector<TensorSpec> specs_;
  std::vector<std::string> ignore_;
  std::vector<float> values_;
  std::vector<std::byte> buffer_;
  std::vector<uint8_t> codes_;
  Written written_;
};

}  // namespace

Written write_hf_folder(const formats::WeightSource& source, const config::Quantize& settings,
                        const std::string& folder, StopFlag stop) {
  return FolderWriter(source, settings, folder).run(stop);
}

}  // namespace mxt::quantize

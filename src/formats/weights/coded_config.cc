#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/coded.h"
#include "formats/family.h"
#include "formats/peft/pattern.h"

namespace mxt::formats {
namespace {

// Whether one of the entries of a list of modules names this one, as transformers and compressed-tensors match them:
// whole, by what it begins or ends with, or after "re:" by an expression that its beginning fits.
bool listed(const OrderedJson& q, const char* key, const std::string& module) {
  if (!q.contains(key) || !q[key].is_array()) return false;
  return std::any_of(q[key].begin(), q[key].end(), [&](const OrderedJson& e) {
    if (!e.is_string()) return false;
    const std::string name = e.get<std::string>();
    if (name.starts_with("re:")) return pattern_matches("^(?:" + name.substr(3) + ")", name, module);
    return module == name || module.starts_with(name + ".") || module.ends_with("." + name);
  });
}

bool is(const OrderedJson& j, const char* key, const OrderedJson& value) {
  return j.is_object() && j.contains(key) && j[key] == value;
}

const OrderedJson& member(const OrderedJson& j, const char* key) {
  static const OrderedJson none;
  return j.is_object() && j.contains(key) ? j[key] : none;
}

const OrderedJson& said_of(const ModelConfig& c) {
  static const OrderedJson none;
  return c.raw ? member(*c.raw, "quantization_config") : none;
}

// What compressed-tensors says of all its matrices; null where it says several things.
const OrderedJson& group_weights(const OrderedJson& q) {
  const OrderedJson& groups = member(q, "config_groups");
  return member(groups.is_object() && groups.size() == 1 ? groups.begin().value() : groups, "weights");
}

// How an FP8 layout holds a matrix: kNone where nothing here holds it so.
Coding fp8_coding(const ModelConfig& c) {
  const auto blocks = fp8_blocks(c);
  if (!blocks) return Coding::kE4M3Rows;
  return blocks->rows == kE4M3Block && blocks->columns == kE4M3Block ? Coding::kE4M3Blocks : Coding::kNone;
}

std::optional<ConfigCoding> fp8_config(const ModelConfig& c, const char* left_out, const std::string& module) {
  const Coding coding = fp8_coding(c);
  if (coding == Coding::kNone) return std::nullopt;
  return listed(said_of(c), left_out, module) ? ConfigCoding{} : ConfigCoding{coding};
}

}  // namespace

std::optional<Fp8Blocks> fp8_blocks(const ModelConfig& c) {
  const OrderedJson &q = said_of(c), &weights = group_weights(q);
  const OrderedJson& size =
      c.quantization == "compressed-tensors" ? member(weights, "block_structure") : member(q, "weight_block_size");
  // transformers takes blocks of 128 where its layout leaves the key out, and one scale a matrix where it is null.
  if (c.quantization == "fp8" && q.is_object() && !q.contains("weight_block_size"))
    return Fp8Blocks{kE4M3Block, kE4M3Block};
  if (!size.is_array() || size.size() != 2) return std::nullopt;
  const auto number = [](const OrderedJson& n) { return n.is_number_integer() ? n.get<int64_t>() : 0; };
  return Fp8Blocks{number(size[0]), number(size[1])};
}

std::optional<ConfigCoding> config_coding(const ModelConfig& c, const std::string& name) {
  const OrderedJson& q = said_of(c);
  if (c.quantization.empty() || !q.is_object()) return std::nullopt;
  const std::string module = name.substr(0, name.rfind('.'));
  if (c.quantization == "bitsandbytes") {
    if (!is(q, "load_in_4bit", true) || !is(q, "bnb_4bit_quant_type", "nf4")) return std::nullopt;
    if (listed(q, "llm_int8_skip_modules", module)) return ConfigCoding{};
    return ConfigCoding{is(q, "bnb_4bit_use_double_quant", true) ? Coding::kNf4Double : Coding::kNf4,
                        c.dtype.value_or(DType::kF32)};
  }
  if (c.quantization == "mxfp4" && c.family->turned_experts)
    return ConfigCoding{name.find(".experts.") != std::string::npos && name.ends_with(".weight") ? Coding::kMxfp4
                                                                                                 : Coding::kNone};
  if (c.quantization == "fp8") return fp8_config(c, "modules_to_not_convert", module);
  if (c.quantization == "compressed-tensors") {
    const OrderedJson& weights = group_weights(q);
    if (is(q, "format", "float-quantized") && is(weights, "num_bits", 8) && is(weights, "type", "float"))
      return fp8_config(c, "ignore", module);
    if (!is(q, "format", "mxfp4-pack-quantized")) return std::nullopt;
    return listed(q, "ignore", module) ? ConfigCoding{} : ConfigCoding{Coding::kMxfp4};
  }
  if (c.quantization == "quark") {
    const OrderedJson& weights = member(member(q, "global_quant_config"), "weight");
    if (is(weights, "dtype", "fp8_e4m3")) return fp8_config(c, "exclude", module);
    if (is(weights, "dtype", "fp4"))
      return listed(q, "exclude", module) ? ConfigCoding{} : ConfigCoding{Coding::kMxfp4};
  }
  return std::nullopt;
}

}  // namespace mxt::formats

#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/coded.h"
#include "formats/family.h"

namespace mxt::formats {
namespace {

// Whether one of the entries of a list of modules names this one, as transformers and compressed-tensors match them:
// whole, by what it begins or ends with.
bool listed(const OrderedJson& q, const char* key, const std::string& module) {
  if (!q.contains(key) || !q[key].is_array()) return false;
  return std::any_of(q[key].begin(), q[key].end(), [&](const OrderedJson& e) {
    if (!e.is_string()) return false;
    const std::string name = e.get<std::string>();
    return module == name || module.starts_with(name + ".") || module.ends_with("." + name);
  });
}

bool is(const OrderedJson& j, const char* key, const OrderedJson& value) {
  return j.is_object() && j.contains(key) && j[key] == value;
}

}  // namespace

std::optional<ConfigCoding> config_coding(const ModelConfig& c, const std::string& name) {
  if (c.quantization.empty() || !c.raw || !c.raw->contains("quantization_config")) return std::nullopt;
  const OrderedJson& q = (*c.raw)["quantization_config"];
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
  if (c.quantization == "compressed-tensors") {
    if (!is(q, "format", "mxfp4-pack-quantized")) return std::nullopt;
    return listed(q, "ignore", module) ? ConfigCoding{} : ConfigCoding{Coding::kMxfp4};
  }
  if (c.quantization == "quark" && q.contains("global_quant_config") &&
      is(q["global_quant_config"].is_object() && q["global_quant_config"].contains("weight")
             ? q["global_quant_config"]["weight"]
             : OrderedJson(),
         "dtype", "fp4"))
    return listed(q, "exclude", module) ? ConfigCoding{} : ConfigCoding{Coding::kMxfp4};
  return std::nullopt;
}

}  // namespace mxt::formats

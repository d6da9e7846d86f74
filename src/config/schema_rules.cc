// rules.cc in the words of JSON Schema, so that an editor says most of it while typing. `name` and `source` absent mean
// mi300x and hf: an `if` over `properties` holds then, too.
#include <nlohmann/json.hpp>

#include "config/rules.h"

namespace mxt::config {
namespace {

constexpr std::string_view kHardware = R"([
  {"if": {"properties": {"name": {"enum": ["mi300x", "mi325x", "mi350x", "mi355x"]}}},
   "then": {"properties": {"gpus": {"enum": [0, 1, 8]}, "expected_hbm_gb": {"minimum": 64}}}},
  {"if": {"properties": {"name": {"enum": ["h100", "h200"]}}, "required": ["name"]},
   "then": {"properties": {"gfx_arch": {"const": "sm_90"}, "expected_hbm_gb": {"minimum": 64}}}},
  {"if": {"properties": {"name": {"enum": ["h100", "h200", "rtx3090", "rtx4090", "rtx5090", "rtx6000ada", "l4", "l40s",
                                           "a100", "b200", "cuda"]}}, "required": ["name"]},
   "then": {"properties": {"gpus": {"enum": [0, 1, 2, 4, 8]}}}},
  {"if": {"properties": {"name": {"enum": ["a100", "cuda"]}}, "required": ["name"]},
   "then": {"properties": {"gfx_arch": {"const": "sm_80"}}}},
  {"if": {"properties": {"name": {"const": "rtx3090"}}, "required": ["name"]},
   "then": {"properties": {"gfx_arch": {"const": "sm_86"}}}},
  {"if": {"properties": {"name": {"enum": ["rtx4090", "rtx6000ada", "l4", "l40s"]}}, "required": ["name"]},
   "then": {"properties": {"gfx_arch": {"const": "sm_89"}}}},
  {"if": {"properties": {"name": {"const": "b200"}}, "required": ["name"]},
   "then": {"properties": {"gfx_arch": {"const": "sm_100"}}}},
  {"if": {"properties": {"name": {"const": "rtx5090"}}, "required": ["name"]},
   "then": {"properties": {"gfx_arch": {"const": "sm_120"}}}},
  {"if": {"properties": {"name": {"const": "cpu"}}, "required": ["name"]},
   "then": {"properties": {"gpus": {"const": 0}, "gfx_arch": {"const": "none"}}}},
  {"if": {"properties": {"name": {"enum": ["mi300x", "mi325x"]}}},
   "then": {"properties": {"gfx_arch": {"const": "gfx942"}}}},
  {"if": {"properties": {"name": {"enum": ["mi350x", "mi355x"]}}, "required": ["name"]},
   "then": {"properties": {"gfx_arch": {"const": "gfx950"}}}}
])";

constexpr std::string_view kModel = R"([
  {"properties": {"trust_remote_code": {"const": false}}},
  {"if": {"properties": {"init": {"const": "random"}}, "required": ["init"]},
   "then": {"properties": {"config": {"type": ["string", "object"], "minLength": 1}}, "required": ["config"]},
   "else": {"properties": {"config": {"type": "null"}}}}
])";

constexpr std::string_view kMixtureSource = R"([
  {"oneOf": [{"properties": {"path": {"type": "string"}, "hf_id": {"type": "null"}, "synth": {"type": "null"}},
              "required": ["path"]},
             {"properties": {"hf_id": {"type": "string"}, "path": {"type": "null"}, "synth": {"type": "null"},
                             "optional": {"const": false}}, "required": ["hf_id"]},
             {"properties": {"synth": {"type": "object", "properties": {"teacher": {"type": "null"}}},
                             "path": {"type": "null"}, "hf_id": {"type": "null"}, "optional": {"const": false}},
              "required": ["synth"]}]}
])";

constexpr std::string_view kData = R"([
  {"if": {"properties": {"source": {"const": "hf"}}},
   "then": {"properties": {"hf_id": {"type": "string", "minLength": 1}}, "required": ["hf_id"]}},
  {"if": {"properties": {"source": {"enum": ["local", "mindx_dreams"]}}, "required": ["source"]},
   "then": {"properties": {"path": {"type": "string"}}, "required": ["path"]}},
  {"if": {"properties": {"source": {"const": "lighthouse"}}, "required": ["source"]},
   "then": {"properties": {"cid": {"type": "string"}}, "required": ["cid"]}},
  {"if": {"not": {"properties": {"source": {"const": "synth"}}, "required": ["source"]}},
   "then": {"properties": {"synth": {"type": "null"}}}},
  {"if": {"properties": {"source": {"const": "mixture"}}, "required": ["source"]},
   "then": {"properties": {"mixture": {"minItems": 1}, "path": {"type": "null"}, "hf_id": {"type": "null"},
                           "max_samples": {"type": "null"}, "sql": {"type": "null"}, "columns": {"maxProperties": 0},
                           "sampling": {"const": "documents"}, "shuffle": {"const": true}}, "required": ["mixture"]},
   "else": {"properties": {"mixture": {"maxItems": 0}}}},
  {"if": {"properties": {"eval_path": {"type": "string"}}, "required": ["eval_path"]},
   "then": {"properties": {"eval_fraction": {"const": 0}}}}
])";

constexpr std::string_view kTeacher = R"([
  {"if": {"properties": {"max_cost_usd": {"type": "number"}}, "required": ["max_cost_usd"]},
   "then": {"anyOf": [
     {"properties": {"input_usd_per_1m": {"exclusiveMinimum": 0}}, "required": ["input_usd_per_1m"]},
     {"properties": {"output_usd_per_1m": {"exclusiveMinimum": 0}}, "required": ["output_usd_per_1m"]}]}}
])";

constexpr std::string_view kTrain = R"([
  {"properties": {"env": {"propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}}}},
  {"if": {"properties": {"base_precision": {"const": "fp8_e4m3"}}, "required": ["base_precision"]},
   "then": {"properties": {"method": {"anyOf": [
     {"properties": {"kind": {"const": "lora"}}},
     {"properties": {"lora": {"type": "object"}}, "required": ["lora"]}]}}}}
])";

constexpr std::string_view kOptimizer = R"([
  {"if": {"not": {"properties": {"name": {"const": "muon"}}, "required": ["name"]}},
   "then": {"properties": {"muon": {"type": "null"}}}},
  {"if": {"properties": {"name": {"enum": ["lion", "adafactor"]}}, "required": ["name"]},
   "then": {"properties": {"eps": {"const": 1e-8}}}}
])";

constexpr std::string_view kMuon = R"([
  {"if": {"properties": {"schedule": {"enum": ["pretrain", "sft"]}}, "required": ["schedule"]},
   "then": {"properties": {"momentum": {"const": 0.95}}}}
])";

constexpr std::string_view kSchedule = R"([
  {"if": {"not": {"properties": {"type": {"const": "wsd"}}, "required": ["type"]}},
   "then": {"properties": {"decay_ratio": {"type": "null"}}}}
])";

constexpr std::string_view kMethod = R"([
  {"if": {"properties": {"reward": {"const": "model"}}, "required": ["reward"]},
   "then": {"properties": {"reward_model": {"type": "string"}}, "required": ["reward_model"]},
   "else": {"properties": {"reward_model": {"type": "null"}}}},
  {"if": {"properties": {"quant_bits": {"const": 8}}, "required": ["quant_bits"]},
   "then": {"properties": {"quant_type": false, "double_quant": false}}},
  {"if": {"properties": {"quant_type": {"const": "mxfp4"}}, "required": ["quant_type"]},
   "then": {"properties": {"double_quant": false}}}
])";

// What the CPU lane, and each device, does not compute with; then what one section asks of another.
constexpr std::string_view kRecipe = R"([
  {"if": {"properties": {"hardware": {"anyOf": [{"properties": {"name": {"const": "cpu"}}, "required": ["name"]},
                                                {"properties": {"gpus": {"const": 0}}, "required": ["gpus"]}]}},
          "required": ["hardware"]},
   "then": {"properties": {"train": {"properties": {
     "precision": {"enum": ["bfloat16", "float16", "float32"]}}}}}},
  {"if": {"not": {"properties": {"hardware": {"properties": {"name": {"enum": ["mi350x", "mi355x"]}},
                                              "required": ["name"]}}, "required": ["hardware"]}},
   "then": {"properties": {"train": {"properties": {"precision": {"not": {"const": "mxfp4"}}}}}}},
  {"if": {"properties": {"data": {"properties": {"filter": {"type": "object", "required": ["decontaminate_eval"],
                                                            "properties": {"decontaminate_eval": {"const": true}}}},
                                  "required": ["filter"]}}},
   "then": {"required": ["eval"]}},
  {"if": {"properties": {"data": {"properties": {"sampling": {"const": "random_windows"}}, "required": ["sampling"]}}},
   "then": {"properties": {"train": {"properties": {"method": {"properties": {
     "kind": {"enum": ["full", "lora", "qlora", "cpt", "pretrain"]}}}}}}}}
])";

}  // namespace

OrderedJson schema_rules(std::string_view path) {
  for (const auto& [section, text] : {std::pair{std::string_view("hardware"), kHardware},
                                      {"model", kModel},
                                      {"data", kData},
                                      {"data.mixture[]", kMixtureSource},
                                      {"data.synth.teacher", kTeacher},
                                      {"train", kTrain},
                                      {"train.optimizer", kOptimizer},
                                      {"train.optimizer.muon", kMuon},
                                      {"train.schedule", kSchedule},
                                      {"train.method", kMethod},
                                      {"", kRecipe}})
    if (path == section) return parse_ordered_json(text, "schema rules");
  return OrderedJson::array();
}

}  // namespace mxt::config

// Whatever the text, a config.json or adapter_config.json is read or refused, and what is read can be written.
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/model_config.h"
#include "formats/peft.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mxt::formats;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const mxt::OrderedJson j = mxt::parse_ordered_json(text, "fuzz");
    try {
      const ModelConfig c = parse_model_config(j, "fuzz");
      parse_model_config(to_hf_config(c), "again");
    } catch (const mxt::Error&) {
    }
    const AdapterConfig a = parse_adapter_config(j, "fuzz");
    a.scaling("model.layers.0.self_attn.q_proj");
    to_json(a).dump();
  } catch (const mxt::Error&) {
  }
  return 0;
}

// Section `model`: the base model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/enums.h"

namespace mxt::config {

// Either a path or the content itself, as canonical JSON; both empty = not given.
struct PathOrInline {
  std::string path, json;
  bool empty() const { return path.empty() && json.empty(); }
};

struct Model {
  std::string name;  // Hub id, folder, .gguf file, or "recipe:NAME"
  std::optional<std::string> revision;
  AttnImplementation attn_implementation = AttnImplementation::kFlashAttention2;  // hint
  Precision torch_dtype = Precision::kBFloat16;                                   // how weights are held
  bool trust_remote_code = false;
  Init init = Init::kPretrained;
  PathOrInline config;                       // HF config.json, for init random
  std::optional<std::string> tokenizer;      // folder, Hub id, .gguf, "char", "train"; absent = the model's own
  std::vector<ModelPart> freeze;             // parts that do not train
  bool vision = false;                       // the tower that sees pictures too, of models whose text is used alone
  std::optional<std::string> chat_template;  // Jinja file; absent = the tokenizer's own
};

}  // namespace mxt::config

// The recipe: one YAML file per run. Everything about a field (type, default, range, spellings, documentation, mark)
// is declared once, in declare/; parsing, JSON Schema, docs/recipe.md and the canonical form all follow from it.
// A loaded recipe is passed as `const Recipe&` and never changed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "config/sections/autotune.h"
#include "config/sections/data.h"
#include "config/sections/eval.h"
#include "config/sections/hardware.h"
#include "config/sections/meta.h"
#include "config/sections/model.h"
#include "config/sections/pretrain.h"
#include "config/sections/publish.h"
#include "config/sections/quantize.h"
#include "config/sections/receipt.h"
#include "config/sections/serve.h"
#include "config/sections/train.h"

namespace mxt::config {

struct Recipe {
  Meta meta;
  Hardware hardware;
  Autotune autotune;
  Model model;
  Data data;
  std::optional<Pretrain> pretrain;
  Train train;
  std::optional<Eval> eval;  // absent = the stage is off, and so for the next three
  std::optional<Quantize> quantize;
  std::optional<Serve> serve;
  std::optional<Publish> publish;
  Receipt receipt;

  // Where it came from: the name for messages, the file's bytes, and the dotted keys that the file gives, in its order.
  std::string source, text;
  std::vector<std::string> given;
  bool is_given(std::string_view key) const;
};

// One thing wrong with a recipe. Lines and columns count from 1.
struct Issue {
  std::string source;
  int line = 1, column = 1;
  std::string key;           // dotted, as `train.optimizer.lr`; "" where the file as a whole is meant
  std::string what;          // what is wrong; what to do
  std::string text() const;  // "source:line:column: key: what"
};

// Checks the whole text and returns every issue in the order of the file; empty = valid, and then `*out` is set.
std::vector<Issue> check_recipe(std::string_view text, std::string_view source, Recipe* out);

// The valid recipe, or Error(kBadInput) with the first issue's line (and how many more there are).
Recipe parse_recipe(std::string_view text, std::string_view source);
Recipe load_recipe(const std::string& path);

// Every field with its effective value (a method's only of its kind), as canonical JSON: equal text = equal run. It
// holds nothing of how the file was written (order, comments, defaults spelled out).
std::string canonical(const Recipe& recipe);
// BLAKE3, hex: equal where canonical() is, and for one recipe the same in every version of the program.
std::string recipe_hash(const Recipe& recipe);
std::string hash_without_hardware(const Recipe& recipe);  // the same where only the machine differs

OrderedJson schema();              // JSON Schema, draft 2020-12
std::string reference_markdown();  // docs/recipe.md

// Lines for people: stages that are off and why; what the file gives and something else decides.
std::vector<std::string> off_stages(const Recipe& recipe);
std::vector<std::string> hints(const Recipe& recipe);

// The eight keys that train.env holds on MI300-class hardware, with their values for this gfx_arch.
std::vector<std::pair<std::string, std::string>> mandatory_env(Arch gfx_arch);
// The environment of a run: the recipe's, with a plan's values over it. A plan may change values and add keys, never
// leave one out (kBadInput, naming the key).
std::map<std::string, std::string> check_plan_env(const Recipe& recipe,
                                                  const std::map<std::string, std::string>& plan_env);

// The device can multiply in this precision (fp8: MI300-class and Hopper; mxfp4: gfx950; the CPU lane: neither).
bool device_computes(const Hardware& hardware, Precision precision);

}  // namespace mxt::config

// What no other trainer has, and what several lack: refused before anything is written.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "config/enums.h"
#include "export/target.h"

namespace mxt::exporting {

// Whether every linear layer but the head gets an adapter, and the names of those of a usual block, for trainers that
// have no word for it.
bool is_all_linear(const config::Lora& lora);
std::vector<std::string> linear_modules(const config::Lora& lora);

// kMissing: "RECIPE: KEY: TITLE cannot WHAT".
[[noreturn]] void cannot(const Job& job, std::string_view title, std::string_view key, const std::string& what);

using Names = std::initializer_list<std::string_view>;

// What this program alone does: refused for every target. `has`: as of refuse_variants().
void refuse_own(const Job& job, std::string_view title, Names has = {});
// Settings of adapters and their training that a target is not told of. kMissing. `has`: keys, without train.method or
// train, that it is told of: "use_dora", "neftune_noise_alpha" …
void refuse_variants(const config::Recipe& recipe, std::string_view title, Names has = {});
// Errors (kMissing): the recipe's method is none of these.
void need_method(const Job& job, std::string_view title, std::initializer_list<config::MethodKind> has);
// Errors (kMissing): the rows are of no form that it reads.
void need_form(const Job& job, std::string_view title, std::initializer_list<Form> reads);
// Errors (kMissing): the recipe has any of these, which the target lacks: "lora_plus", "init_adapter", "muon" …
void refuse(const Job& job, std::string_view title, Names lacks);

// Stages of the recipe that no trainer has, for Settings::absent, and variables that the settings so far leave out.
void list_stages(const Job& job, Settings* s);

}  // namespace mxt::exporting

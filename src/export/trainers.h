// The targets, one file each. `*_settings`: errors (kMissing) for what it cannot express; `*_row`: one row in its form.
#pragma once

#include "export/target.h"

namespace mxt::exporting {

Settings trl_settings(const Job& job);  // its rows: trl_row() of rows.h
Settings axolotl_settings(const Job& job);
OrderedJson axolotl_row(const data::Example& e, const config::Recipe& recipe);
Settings llama_factory_settings(const Job& job);
OrderedJson llama_factory_row(const data::Example& e, const config::Recipe& recipe);
Settings unsloth_settings(const Job& job);
Settings torchtune_settings(const Job& job);
OrderedJson torchtune_row(const data::Example& e, const config::Recipe& recipe);
Settings primus_settings(const Job& job);
OrderedJson primus_row(const data::Example& e, const config::Recipe& recipe);

}  // namespace mxt::exporting

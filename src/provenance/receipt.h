// The receipt: what a person wants to know of a run, out of its manifest, with the fields that `receipt.include` names.
#pragma once

#include <string>

#include "base/json.h"
#include "config/sections/receipt.h"

namespace mxt::provenance {

// JSON for programs. A field that the run does not know (no container, no energy meter) is null.
OrderedJson make_receipt(const Json& manifest, const config::Receipt& settings);
// The same for people: one line a field, aligned.
std::string receipt_text(const OrderedJson& receipt);
// Refuses (kBadInput) an output that could not be written; makes its folders.
void check_receipt_place(const config::Receipt& settings);
// Writes the JSON to settings.output (folders are made).
void write_receipt(const OrderedJson& receipt, const config::Receipt& settings);

}  // namespace mxt::provenance

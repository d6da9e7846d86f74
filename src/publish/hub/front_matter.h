// What the Hub reads of a model card.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "publish/run.h"

namespace mxt::publish {

// The base model's Hub id; "" where it is a folder or a file of this machine, whose path says nothing to others.
std::string base_model_id(const Run& run);

// Ordered keys of the YAML between the two lines of dashes.
OrderedJson front_matter(const Run& run);
// YAML of it: scalars are JSON's, which YAML reads as the same values.
std::string yaml_of(const OrderedJson& map);

// What was measured, as the card's table and its model-index show it.
struct Measure {
  std::string dataset, metric;  // "mmlu", "acc"
  bool percent = false;
  Json before, after;  // numbers or null
};
std::vector<Measure> measures_of(const Run& run);

}  // namespace mxt::publish

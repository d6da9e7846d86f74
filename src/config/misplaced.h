// Keys that a recipe has elsewhere, or under another name.
#pragma once

#include <string>
#include <string_view>

namespace mxt::config {

// Where what is called `key` and stands at `path` belongs: the field of that name nearest to the root
// ("train.schedule.max_steps"), else what other trainers' word for it is here ("lora_r": "train.method.r"). "" where
// there is none but `path` (of another kind of method), or where several are called so and the name says nothing.
std::string place_of(std::string_view key, std::string_view path);

}  // namespace mxt::config

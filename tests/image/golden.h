// tests/golden/image, made by tools/golden/pictures.py.
#pragma once

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "folders.h"

namespace mxt::image::test {

inline const std::string kGolden = std::string(kSourceDir) + "/tests/golden/image/";

inline std::vector<uint8_t> bytes_of(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

}  // namespace mxt::image::test

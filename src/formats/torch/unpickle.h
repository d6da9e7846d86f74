// The part of Python's pickle (protocols 2 to 5) that a dictionary of tensors needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.h"

namespace mxt::formats {

struct PickleStorage {
  std::string key;  // data/KEY of the archive
  DType type = DType::kF32;
};
struct PickleTensor {
  PickleStorage storage;
  int64_t offset = 0;  // in elements
  std::vector<int64_t> shape, stride;
};

// Names and tensors of the dictionary that the pickle makes, in its order. `path` is for messages. Errors (kBadInput):
// see TorchFile.
std::vector<std::pair<std::string, PickleTensor>> unpickle_tensors(std::span<const std::byte> pickle,
                                                                   std::string_view path);

}  // namespace mxt::formats

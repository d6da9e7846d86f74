// Tensors of a PyTorch checkpoint (torch.save's zip form), read without running anything: the pickle inside is a small
// program, and of its instructions only those that name tensors, texts, numbers and containers of them are followed.
// Anything else, above all a call of anything but the functions that rebuild a tensor, is refused.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/types.h"

namespace mxt::formats {

struct TorchTensor {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // row after row
};

// One file, mapped read-only. Everything is checked at open. Errors (kBadInput) name the file: no zip archive or a cut
// one, compressed or overlong entries, a pickle that holds code, an object that is no dictionary from names to tensors,
// tensors that are not contiguous or lie outside their storage, big-endian files.
class TorchFile {
 public:
  static TorchFile open(const std::string& path);
  const std::vector<TorchTensor>& tensors() const { return tensors_; }  // in the order of the file
  const TorchTensor* find(std::string_view name) const;                 // null where there is none
  const std::string& path() const { return map_.path(); }

 private:
  MappedFile map_;
  std::vector<TorchTensor> tensors_;
};

}  // namespace mxt::formats

// A half-open range of bytes of a text.
#pragma once

#include <cstddef>

namespace mxt::tokenizer {

struct Span {
  size_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

}  // namespace mxt::tokenizer

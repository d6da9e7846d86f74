// A half-open range of bytes of a text.
#pragma once

#include <cstddef>

namespace mxt::tokenizer {

struct Span {
  size_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

// What bytes of a tool call are: its form (tags, braces, keys), the function's name, the arguments.
enum class CallPart { kStructure = 1, kName, kArguments };
struct CallSpan {
  Span span;
  CallPart part = CallPart::kStructure;
};

}  // namespace mxt::tokenizer

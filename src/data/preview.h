// One example as a person would check it: its text with what is trained marked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/coder.h"
#include "data/dataset.h"

namespace mxt::data {

struct PreviewPiece {
  std::string text;  // safe to show: control characters as \xNN
  bool trained = false;
  std::string
      picture{};  // what stands here instead: a data URI of no more than 320 pixels a side; `text` says its size
};
struct PreviewDocument {
  int64_t tokens = 0, trained = 0;
  std::vector<PreviewPiece> pieces;
};
// Row `i`, document by document. Errors (kBadInput): no such row.
std::vector<PreviewDocument> preview_documents(const Dataset& data, int64_t i, const SampleEncoder& coder);

enum class Marks { kBrackets, kAnsi };  // ⟦trained⟧, or green on a terminal

// Row `i`, document by document: a head line with its counts, then the text. Control characters of the data are shown
// as
// \xNN, so nothing in a data set can steer a terminal. Errors (kBadInput): no such row.
std::string preview_row(const Dataset& data, int64_t i, const SampleEncoder& coder, Marks marks);

// Rows [first, first + count) as one HTML page without scripts or outside parts: what is trained stands on green, token
// borders show as fine lines, pictures stand where their tokens are. Everything from the data is escaped. Errors
// (kBadInput): no such row.
std::string preview_page(const Dataset& data, int64_t first, int64_t count, const SampleEncoder& coder);

}  // namespace mxt::data

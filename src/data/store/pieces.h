// Tokenized rows kept by the digest of what they were made from, so that work that was interrupted goes on where it
// stood: a piece that is there is not tokenized again. Each piece is one file that appears whole or not at all.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/encode/encode.h"

namespace mxt::data {

struct Piece {
  std::vector<Document> documents;    // one for each row, as yet uncut; some may be empty
  std::array<int64_t, 3> redacted{};  // counts of what was replaced (filter/redact.h)
};

class Pieces {
 public:
  explicit Pieces(std::string folder) : folder_(std::move(folder)) {}  // made with the first piece
  // None where it is not there or its file is damaged.
  std::optional<Piece> find(const std::string& digest) const;
  void put(const std::string& digest, const Piece& piece) const;

 private:
  std::string folder_;
};

}  // namespace mxt::data

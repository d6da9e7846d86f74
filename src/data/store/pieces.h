// Tokenized rows kept by the digest of what they were made from, so that work that was interrupted goes on where it
// stood: a piece that is there is not tokenized again. Each piece is one file that appears whole or not at all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/encode/encode.h"

namespace mxt::data {

class Pieces {
 public:
  explicit Pieces(std::string folder) : folder_(std::move(folder)) {}  // made with the first piece
  // The documents of a piece (some may be empty), or none where it is not there or its file is damaged.
  std::optional<std::vector<Document>> find(const std::string& digest) const;
  void put(const std::string& digest, const std::vector<Document>& documents) const;

 private:
  std::string folder_;
};

}  // namespace mxt::data

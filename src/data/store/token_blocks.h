// Blocks of tokenized rows, kept (store/kept.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/encode/encode.h"
#include "data/filter/redact.h"
#include "data/shape/example.h"
#include "data/store/kept.h"

namespace mxt::data {

struct TokenBlock {
  struct Row {
    Document document;
    bool made = false;       // a row that does not stay need not be tokenized
    bool text = false;       // a piece of a plain-text file
    bool last_piece = true;  // of a plain-text file; else true
  };
  std::vector<Row> rows;
  std::vector<Redacted> redacted;  // [rows]; empty where nothing was replaced in the whole block
  Shape shape = Shape::kText;
  bool last = false;  // of its stream
};

// None where it is not there or its file is damaged.
std::optional<TokenBlock> find_tokens(const Kept& kept, const std::string& name);
void put_tokens(const Kept& kept, const std::string& name, const TokenBlock& block);

}  // namespace mxt::data

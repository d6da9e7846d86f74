// Exact and near copies among the rows of a source.
//
// Exact: equal normalised text (and context: roles, tools). Near: connected components of the pairs that share a band
// of their MinHash signatures and whose shingles' Jaccard similarity, counted and not estimated, reaches the threshold.
// Of every group the row with the smallest digest of its content stays, so what stays does not depend on the order of
// the rows, nor on threads.
//
// Memory: about 30 bytes a row, up to 16 more a thread while bands are compared, and 24 for the digests, which are
// mapped. Digests, shingles and band keys lie in unnamed files of the folder (about 4 bytes a word of the text and 80
// bytes a row).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/sections/data.h"
#include "data/dedupe/minhash.h"
#include "data/dedupe/shingles.h"
#include "data/shape/row_text.h"
#include "data/store/scratch.h"

namespace mxt::data {

// What is found out about one row on its own; made on any thread.
struct RowPrint {
  uint8_t content[16];              // digest of the normalised content
  uint64_t spelling;                // hash of the content as it stands: orders exact copies
  std::vector<uint32_t> shingles;   // in the order of the text
  std::vector<uint32_t> band_keys;  // one a band; empty where there are no shingles
};

class Fingerprinter {  // one a thread
 public:
  explicit Fingerprinter(const std::optional<config::MinHash>& minhash);
  void print(const RowText& row, RowPrint* out);

 private:
  std::optional<Shingler> shingler_;
  std::optional<MinHash> minhash_;
  Bands bands_{0, 0};
  std::string text_, part_, context_;
  std::vector<uint32_t> signature_;
  std::vector<uint64_t> band_hash_;
};

struct Copies {
  std::vector<uint32_t> stays;  // for each row the row of its group that stays: itself where it stays
  std::vector<bool> exact;      // of a row that goes: it equals another row of its group that would do as well
  int64_t groups = 0;           // groups of more than one row
  int64_t largest = 0;          // rows of the largest
};

class CopyFinder {
 public:
  // `folder` takes the unnamed files.
  CopyFinder(const std::optional<config::MinHash>& minhash, const std::string& folder);
  ~CopyFinder();
  void add(std::span<const RowPrint> rows);  // in the order of the source; < 2^32 rows in all
  Copies find();                             // once, after the last row
  // Of two rows' shingles, after find(); 1 for rows without any.
  double similarity(uint32_t a, uint32_t b) const;

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace mxt::data

// Tokenized documents on their way from the tokenizer to the shards: tokens in a file, one small entry each in memory.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/encode/encode.h"
#include "data/store/scratch.h"

namespace mxt::data {

// One document as it is stored. `labels` empty = equal to ids.
struct DocumentView {
  std::span<const int32_t> ids, labels;
};

class Spill {
 public:
  explicit Spill(const std::string& folder) : file_(folder) {}

  void add(const Document& document);  // not empty
  void finish() { file_.finish(); }    // from here on documents may be read
  size_t documents() const { return entries_.size(); }
  uint32_t length(size_t i) const { return entries_[i].length; }
  int64_t targets(size_t i) const { return entries_[i].targets; }  // count_targets()
  bool labelled(size_t i) const { return entries_[i].labelled; }
  uint32_t second(size_t i) const { return entries_[i].second; }
  int32_t mark(size_t i) const { return entries_[i].mark; }
  std::span<const DocumentPicture> pictures(size_t i) const;
  void expect(size_t i) const;        // it will be viewed soon
  DocumentView view(size_t i) const;  // valid until the next call
  // All tokens in order; only where no document has labels of its own.
  std::span<const int32_t> all_ids() const { return file_.as<int32_t>(); }
  void forget() const { file_.forget(); }  // what was read of all_ids() no longer counts as memory

 private:
  struct Entry {
    uint64_t at;  // in elements
    uint32_t length;
    uint32_t targets : 31;
    uint32_t labelled : 1;
    uint32_t second;  // Document::second
    int32_t mark;
    size_t elements() const { return size_t{length} * (1 + labelled); }
  };
  Scratch file_;
  std::vector<Entry> entries_;
  std::map<size_t, std::vector<DocumentPicture>> pictures_;  // of documents that have any
  mutable std::vector<int32_t> document_;                    // what view() shows
};

}  // namespace mxt::data

// Tokenized documents on their way from the tokenizer to the shards: tokens in a file, one small entry each in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/encode/encode.h"
#include "data/store/shard.h"

namespace mxt::data {

class Spill {
 public:
  explicit Spill(std::string path);  // the file is removed with the object
  ~Spill();
  Spill(const Spill&) = delete;

  void add(const Document& document);  // not empty
  void finish();                       // from here on documents may be read
  size_t documents() const { return entries_.size(); }
  uint32_t length(size_t i) const { return entries_[i].length; }
  // Valid as long as the Spill. What was seen does not stay in memory: not for more than one thread.
  DocumentView view(size_t i) const;
  // All tokens in order; only where no document has labels of its own.
  std::span<const int32_t> all_ids() const;
  void forget() const { map_.drop_pages(); }  // pages that were read no longer count as memory

 private:
  struct Entry {
    uint64_t at;  // in elements
    uint32_t length;
    bool labelled;
  };
  std::string path_;
  std::unique_ptr<AtomicFile> file_;
  MappedFile map_;
  std::vector<Entry> entries_;
  uint64_t written_ = 0;
  mutable uint64_t seen_ = 0;  // elements since the last forget()
};

}  // namespace mxt::data

// A stream of rows in blocks: the unit of work that is kept, shared among jobs and taken up again.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "data/settings.h"

namespace mxt::data {

// Work for all threads, little memory, and seldom more than a second that a crash can cost. Where a block ends depends
// on the rows of its stream alone; in a stream of several files a block is of one.
inline constexpr size_t kBlockRows = 32768, kBlockBytes = size_t{16} << 20;

class BlockReader {
 public:
  explicit BlockReader(const RowStream& stream) : stream_(stream) {}  // opened with the first read
  // The rows of block `index`, which is above that of the call before; blocks between are passed over. `last`: none
  // comes after it. A stream without rows has one block, which is empty.
  void read(size_t index, std::vector<Record>* rows, bool* last);
  const Record& first() const { return *first_; }  // the stream's first row; after a block that had one
  double done() const { return rows_ ? rows_->done() : 0; }

 private:
  void cut(std::vector<Record>* rows);
  RowStream stream_;
  std::unique_ptr<RecordReader> rows_;
  std::optional<Record> ahead_, first_;  // read, and not yet in a block
  size_t next_ = 0;
};

}  // namespace mxt::data

#include "data/source/blocks.h"

#include "base/error.h"

namespace mxt::data {

void BlockReader::read(size_t index, std::vector<Record>* rows, bool* last) {
  MXT_ASSERT(index >= next_);
  if (!rows_) {
    rows_ = stream_.open();
    ahead_.emplace();
    if (!rows_->next(&*ahead_)) ahead_.reset();
    first_ = ahead_;
  }
  for (; next_ <= index; ++next_) cut(rows);
  *last = !ahead_;
}

// Records are used again with the room of their texts; what a large row took is given back.
void BlockReader::cut(std::vector<Record>* rows) {
  constexpr size_t kKept = size_t{64} << 10;
  size_t bytes = 0, n = 0;
  while (ahead_ && n < kBlockRows && bytes < kBlockBytes) {
    if (n > 0 && *(*rows)[n - 1].path != *ahead_->path) break;
    bytes += ahead_->text.size();
    for (const std::string& c : ahead_->cells) bytes += c.size();
    if (n == rows->size()) rows->emplace_back();
    std::swap((*rows)[n++], *ahead_);
    if (ahead_->text.capacity() > kKept) ahead_->text = std::string();
    if (!rows_->next(&*ahead_)) ahead_.reset();
  }
  rows->resize(n);
}

}  // namespace mxt::data

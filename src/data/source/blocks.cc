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

void BlockReader::cut(std::vector<Record>* rows) {
  rows->clear();
  size_t bytes = 0;
  while (ahead_ && rows->size() < kBlockRows && bytes < kBlockBytes) {
    if (!rows->empty() && *rows->back().path != *ahead_->path) break;
    bytes += ahead_->text.size();
    for (const std::string& c : ahead_->cells) bytes += c.size();
    rows->push_back(std::move(*ahead_));
    ahead_.emplace();
    if (!rows_->next(&*ahead_)) ahead_.reset();
  }
}

}  // namespace mxt::data

#include "data/filter/filter.h"

#include "base/error.h"

namespace mxt::data {
namespace {

int64_t count_characters(std::string_view s) {
  int64_t n = 0;
  for (char c : s) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

}  // namespace

RowFilter::RowFilter(const config::Filter& f) : filter_(f) {
  if (f.min_chars) reasons_.emplace_back("min_chars");
  if (f.max_chars) reasons_.emplace_back("max_chars");
}

int RowFilter::check(const RowText& row) const {
  int i = -1;
  const int64_t chars = count_characters(row.text);
  if (filter_.min_chars && (++i, chars < *filter_.min_chars)) return i;
  if (filter_.max_chars && (++i, chars > *filter_.max_chars)) return i;
  return -1;
}

}  // namespace mxt::data

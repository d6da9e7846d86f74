// What a row must be like to stay: the checks of `data.filter`, on the row's text alone.
#pragma once

#include <string>
#include <vector>

#include "config/sections/data.h"
#include "data/shape/row_text.h"

namespace mxt::data {

class RowFilter {
 public:
  explicit RowFilter(const config::Filter& filter);
  // Names of the checks that are on, in the order in which they are made: "min_chars", …
  const std::vector<std::string>& reasons() const { return reasons_; }
  // The first check that the row fails, as an index of reasons(); −1 where it passes. May be called by many threads.
  int check(const RowText& row) const;

 private:
  config::Filter filter_;
  std::vector<std::string> reasons_;
};

}  // namespace mxt::data

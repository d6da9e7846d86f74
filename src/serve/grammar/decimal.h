// Numbers of a schema as their decimal digits: bounds and values of any size, compared exactly.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"

namespace mxt::serve {

struct Decimal {
  bool negative = false;    // never of zero
  std::string whole = "0";  // without leading zeros
  std::string fraction;     // without trailing zeros

  bool is_whole() const { return fraction.empty(); }
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

// Nothing for what is no number.
std::optional<Decimal> decimal_of(const OrderedJson& v);
int compare(const Decimal& a, const Decimal& b);  // < 0, 0, > 0
Decimal next_whole(const Decimal& x);             // the least integer that is larger
Decimal last_whole(const Decimal& x);             // the largest that is less
Decimal floor_of(const Decimal& x);
Decimal ceil_of(const Decimal& x);
// 10^digits − 1, or its negative.
Decimal nines(size_t digits, bool negative);
// A magnitude's digits and how many of them stand behind the point: 12.5 is "125" and 1.
std::string digits_of(const Decimal& x);
// Whether x is a whole multiple of step (> 0, of at most 18 digits; of longer ones: nothing).
std::optional<bool> is_multiple(const Decimal& x, const Decimal& step);

}  // namespace mxt::serve

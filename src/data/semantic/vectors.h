// Unit vectors as 16-bit integers. Sums of their products are exact, so that clusters and similarities are the same for
// any number of threads, any order and any instruction set; and an element costs half of what a float does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mxt::data {

// A vector of length 1 holds kUnit · x, rounded. By Cauchy and Schwarz no sum of products passes kUnit² by more than
// rounding, which 32 bits hold; a cosine is off by about 1e-5.
inline constexpr int32_t kUnit = 32767;
inline constexpr double kUnitSquared = static_cast<double>(kUnit) * kUnit;

// Elements of a row in memory: the width, and a zero where that is odd.
inline size_t row_stride(size_t width) { return (width + 1) / 2 * 2; }
// out: row_stride(x.size()) elements. `x` is scaled to length 1; zero stays zero. False: an element is not finite.
bool round_unit(std::span<const double> x, int16_t* out);

// Right operands, packed: 16 vectors side by side, pairs of elements together.
class Panels {
 public:
  static constexpr size_t kPanel = 16;
  explicit Panels(size_t stride) : stride_(stride) {}
  void clear() { size_ = 0; }
  void add(const int16_t* row);  // `stride` elements
  size_t size() const { return size_; }
  size_t panels() const { return (size_ + kPanel - 1) / kPanel; }
  // out[r·kPanel + c] = Σ_k rows[r][k] · vector[panel·kPanel + c][k]; for vectors that are not there anything.
  // `rows`: `count` rows, side by side.
  void products(const int16_t* rows, size_t count, size_t panel, int32_t* out) const;

 private:
  size_t stride_, size_ = 0;
  std::vector<int32_t> packed_;
};

}  // namespace mxt::data

// Numbers of rows that are known when a batch arrives, and bounds for them that memory is planned with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mxt::graph {

enum class Dim : uint8_t {
  kConstant,       // one: the factor alone
  kTokens,         // of the batch
  kRouted,         // rows that a router sends to experts: tokens times experts a token
  kSequences,      // documents of the batch
  kBatchRows,      // rows of the batch, which documents are packed into
  kPictureTokens,  // that pictures become, of Pictures::merge² patches each
  kTargets,        // tokens that have a target
  kLogitRows,      // rows whose logits are wanted
  kChunk,          // rows that a loop works on at once
};
inline constexpr size_t kDims = 9;
std::string_view name_of(Dim d);

// factor rows for each of dim.
struct Extent {
  Dim dim = Dim::kConstant;
  int64_t factor = 0;
  constexpr Extent() = default;
  constexpr Extent(Dim d, int64_t f) : dim(d), factor(f) {}
  constexpr Extent(int64_t rows) : factor(rows) {}  // a constant
  constexpr bool constant() const { return dim == Dim::kConstant; }
  bool operator==(const Extent&) const = default;
};
inline constexpr Extent kTokens{Dim::kTokens, 1};

// How many there are of each: of a batch, or at most.
class Bounds {
 public:
  Bounds(int64_t tokens) {  // all of them may be pictures'
    (*this)[Dim::kConstant] = 1, (*this)[Dim::kTokens] = (*this)[Dim::kPictureTokens] = tokens;
  }
  int64_t& operator[](Dim d) { return of_[static_cast<size_t>(d)]; }
  int64_t operator[](Dim d) const { return of_[static_cast<size_t>(d)]; }
  int64_t rows(Extent e) const { return e.factor * (*this)[e.dim]; }

 private:
  std::array<int64_t, kDims> of_{};
};

}  // namespace mxt::graph

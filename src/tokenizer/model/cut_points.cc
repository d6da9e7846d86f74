#include "tokenizer/model/cut_points.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace mxt::tokenizer {
namespace {

size_t byte(const char* p) { return static_cast<unsigned char>(*p); }

}  // namespace

uint64_t CutPoints::bit(uint64_t window, size_t c) const {
  static constexpr auto kMasks = [] {
    std::array<uint64_t, kClasses> m{};
    for (size_t left = 1; left <= kReach; ++left)
      for (size_t right = 1; right <= kReach; ++right)
        m[class_of(left, right)] = ((uint64_t{1} << (8 * (left + right))) - 1) << (8 * (kReach - left));
    return m;
  }();
  return ((window & kMasks[c]) << 16 | c) * 0x9E3779B97F4A7C15ull >> shift_;
}

void CutPoints::reset(size_t bytes) {
  const size_t bits = std::bit_ceil(std::max<size_t>(64, 4 * bytes));
  classes_.assign(size_t{1} << 16, 0);
  known_.assign(bits / 64, 0);
  shift_ = 64 - std::countr_zero(bits);
}

void CutPoints::add(std::string_view t) {
  for (size_t i = 1; i < t.size(); ++i) {
    const size_t left = std::min(i, kReach), right = std::min(t.size() - i, kReach), c = class_of(left, right);
    uint64_t window = 0;
    std::memcpy(reinterpret_cast<char*>(&window) + (kReach - left), t.data() + i - left, left + right);
    classes_[byte(&t[i - 1]) << 8 | byte(&t[i])] |= static_cast<uint16_t>(1u << c);
    const uint64_t at = bit(window, c);
    known_[at >> 6] |= uint64_t{1} << (at & 63);
  }
}

void CutPoints::cut(const char* text, uint32_t begin, uint32_t end, size_t readable,
                    std::vector<uint32_t>& ends) const {
  // Which neighbourhoods have room between the last seam and the end.
  static constexpr auto kRoom = [] {
    std::array<std::array<uint16_t, kReach + 1>, kReach + 1> room{};
    for (size_t left = 1; left <= kReach; ++left)
      for (size_t right = 1; right <= kReach; ++right)
        for (size_t l = 1; l <= left; ++l)
          for (size_t r = 1; r <= right; ++r) room[left][right] |= static_cast<uint16_t>(1u << class_of(l, r));
    return room;
  }();
  size_t last = begin;
  for (size_t i = size_t{begin} + 1; i < end; ++i) {
    unsigned open = classes_[byte(text + i - 1) << 8 | byte(text + i)] &
                    kRoom[std::min(i - last, kReach)][std::min(end - i, kReach)];
    if (open & 1) continue;  // the two bytes are a token
    if (open != 0) {
      uint64_t window = 0;
      if (i >= kReach && i + 8 - kReach <= readable)
        std::memcpy(&window, text + i - kReach, 8);
      else
        for (size_t k = i - std::min(i, kReach); k < std::min<size_t>(i + kReach, end); ++k)
          window |= uint64_t{byte(text + k)} << (8 * (k + kReach - i));
      for (; open != 0; open &= open - 1) {
        const uint64_t at = bit(window, static_cast<size_t>(std::countr_zero(open)));
        if (known_[at >> 6] >> (at & 63) & 1) break;
      }
      if (open != 0) continue;
    }
    ends.push_back(static_cast<uint32_t>(i));
    last = i;
  }
  ends.push_back(end);
}

}  // namespace mxt::tokenizer

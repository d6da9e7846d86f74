#include "base/hash_files.h"

#include <algorithm>
#include <numeric>

#include "base/files.h"
#include "base/sha256_lanes.h"
#include "base/threads.h"

namespace mxt {
namespace {

constexpr size_t kStep = 2 << 20;  // both hashes, side by side, read a piece while it is in the cache

// Side by side as far as both reach, a piece of one and of the other.
class TwoFiles {
 public:
  TwoFiles(const std::string& a, const std::string& b) : files_{MappedFile(a), MappedFile(b)} {}
  std::array<FileDigests, 2> digests() {
    const size_t both = std::min(text(0).size(), text(1).size()) / 64 * 64,
                 longest = std::max(text(0).size(), text(1).size());
    for (size_t at = 0; at < longest; at += kStep) {
      parallel_for(0, 2, 1, [&](int64_t begin, int64_t end) {
        for (int64_t which = begin; which < end; ++which) which == 0 ? blake(at) : sha(at, both);
      });
      if (at % (2 * kStep) == 0)
        for (MappedFile& f : files_) f.drop_pages();
    }
    std::array<FileDigests, 2> out;
    for (size_t i = 0; i < 2; ++i) {
      const size_t n = text(i).size();
      out[i] = {blake_[i].hex(), to_hex(sha256_end(sha_[i], bytes(i) + n / 64 * 64, n)), n};
    }
    return out;
  }

 private:
  std::string_view text(size_t i) const { return files_[i].text(); }
  const uint8_t* bytes(size_t i) const { return reinterpret_cast<const uint8_t*>(text(i).data()); }
  void blake(size_t at) {
    for (size_t i = 0; i < 2; ++i)
      if (at < text(i).size()) blake_[i].update(text(i).substr(at, kStep));
  }
  void sha(size_t at, size_t both) {
    const size_t shared = at < both ? std::min(kStep, both - at) : 0;
    if (shared > 0) sha256_two(sha_[0], bytes(0) + at, sha_[1], bytes(1) + at, shared / 64);
    for (size_t i = 0; i < 2; ++i) {
      const size_t first = at + shared, end = std::min(at + kStep, text(i).size() / 64 * 64);
      if (first < end) sha256_one(sha_[i], bytes(i) + first, (end - first) / 64);
    }
  }

  std::array<MappedFile, 2> files_;
  std::array<Blake3, 2> blake_;
  std::array<Sha256State, 2> sha_;
};

}  // namespace

std::vector<FileDigests> hash_files(const std::vector<std::string>& paths) {
  std::vector<FileDigests> out(paths.size());
  std::vector<size_t> order(paths.size());  // neighbours are of about one size
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<uint64_t> sizes;
  for (const std::string& p : paths) {
    std::error_code ec;
    const uint64_t n = fs::file_size(p, ec);  // what is not there hash_file() says
    sizes.push_back(ec ? 0 : n);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  const size_t step = has_sha256_lanes() ? 2 : 1, jobs = (order.size() + step - 1) / step;
  parallel_for(0, static_cast<int64_t>(jobs), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin) * step; i < std::min(static_cast<size_t>(end) * step, order.size());
         i += step) {
      if (step == 1 || i + 1 == order.size()) {
        out[order[i]] = hash_file(paths[order[i]]);
        continue;
      }
      auto two = TwoFiles(paths[order[i]], paths[order[i + 1]]).digests();
      out[order[i]] = std::move(two[0]), out[order[i + 1]] = std::move(two[1]);
    }
  });
  return out;
}

}  // namespace mxt

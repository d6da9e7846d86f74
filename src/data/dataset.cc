#include "data/dataset.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/philox.h"
#include "data/store/manifest.h"
#include "data/store/shard.h"
#include "data/streams.h"

namespace mxt::data {
namespace {

struct Opened {
  Manifest manifest;
  PartInfo info;
  std::vector<Shard> shards;
};

Opened open_part(const std::string& folder, std::string_view name, bool verify, bool windows) {
  Opened o{read_manifest(folder), {}, {}};
  if (o.manifest.windows != windows)
    fail_input("{}: was prepared for sampling: {}; prepare the data again with this recipe", folder,
               o.manifest.windows ? "random_windows" : "documents");
  const Part* part = o.manifest.part(name);
  if (!part)
    fail_input("{}: has no part \"{}\"; set data.eval_fraction or data.eval_path and prepare again", folder, name);
  if (const std::string wrong = check_files(folder, *part, false); !wrong.empty())
    fail_input("{}; prepare the data again", wrong);
  if (verify)
    if (const std::string wrong = check_files(folder, *part, true); !wrong.empty())
      fail_verify("{}; prepare the data again", wrong);
  o.info = part->info;
  for (const ShardFile& f : part->files) o.shards.emplace_back((fs::path(folder) / f.name).string());
  return o;
}

}  // namespace

struct Dataset::State {
  Opened opened;
  std::vector<int64_t> first{0};  // row number at which each shard begins, and the end
};

Dataset::Dataset(std::unique_ptr<State> s) : s_(std::move(s)) {}
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

Dataset Dataset::open(const std::string& folder, std::string_view part, bool verify) {
  auto s = std::make_unique<State>(State{open_part(folder, part, verify, false)});
  for (const Shard& shard : s->opened.shards) s->first.push_back(s->first.back() + shard.rows());
  if (s->first.back() != s->opened.info.rows)
    fail_input("{}: the shards hold {} rows, the manifest says {}; prepare the data again", folder, s->first.back(),
               s->opened.info.rows);
  return Dataset(std::move(s));
}

int64_t Dataset::rows() const { return s_->first.back(); }
int64_t Dataset::seq_len() const { return s_->opened.manifest.seq_len; }
const PartInfo& Dataset::info() const { return s_->opened.info; }

Row Dataset::row(int64_t i) const {
  MXT_ASSERT(i >= 0 && i < rows());
  const size_t k = static_cast<size_t>(std::upper_bound(s_->first.begin(), s_->first.end(), i) - s_->first.begin()) - 1;
  Row row = s_->opened.shards[k].row(i - s_->first[k]);
  row.overlaps = s_->opened.manifest.overlaps;
  return row;
}

std::string Dataset::packing() const {
  const Manifest& m = s_->opened.manifest;
  const std::string rows =
      m.counts.cropped
          ? fmt::format("bos_crop: rows of {} + 1 tokens, each text begins with the BOS, the last one is cropped",
                        m.seq_len)
      : m.overlaps
          ? fmt::format("best_fit: rows of at most {} + 1 tokens, documents whole, the longest that fits comes next",
                        m.seq_len)
          : fmt::format("whole: documents of at most {} tokens, none is split", m.seq_len);
  return fmt::format("pack {}; boundaries {}", rows,
                     m.joined ? "row: documents of a row see those before them" : "document: no document sees another");
}

struct WindowDataset::State {
  Opened opened;
  std::span<const int32_t> ids;
};

WindowDataset::WindowDataset(std::unique_ptr<State> s) : s_(std::move(s)) {}
WindowDataset::~WindowDataset() = default;
WindowDataset::WindowDataset(WindowDataset&&) noexcept = default;
WindowDataset& WindowDataset::operator=(WindowDataset&&) noexcept = default;

WindowDataset WindowDataset::open(const std::string& folder, std::string_view part, bool verify) {
  auto s = std::make_unique<State>(State{open_part(folder, part, verify, true), {}});
  MXT_ASSERT(s->opened.shards.size() == 1);
  s->ids = s->opened.shards[0].ids();
  WindowDataset d(std::move(s));
  if (d.tokens() != d.info().tokens || d.tokens() <= d.seq_len())
    fail_input("{}: {} tokens, the manifest says {}, a window needs {}; prepare the data again", folder, d.tokens(),
               d.info().tokens, d.seq_len() + 1);
  return d;
}

int64_t WindowDataset::tokens() const { return static_cast<int64_t>(s_->ids.size()); }
int64_t WindowDataset::seq_len() const { return s_->opened.manifest.seq_len; }
const PartInfo& WindowDataset::info() const { return s_->opened.info; }

std::span<const int32_t> WindowDataset::window(int64_t offset) const {
  MXT_ASSERT(offset >= 0 && offset < tokens() - seq_len());
  return s_->ids.subspan(static_cast<size_t>(offset), static_cast<size_t>(seq_len()) + 1);
}

int64_t WindowDataset::windows() const { return std::max<int64_t>(1, (tokens() - seq_len()) / seq_len()); }

bool has_part(const std::string& folder, std::string_view part) { return read_manifest(folder).part(part) != nullptr; }
bool is_windows(const std::string& folder) { return read_manifest(folder).windows; }

std::vector<uint32_t> epoch_order(uint64_t seed, int64_t epoch, int64_t rows) {
  MXT_ASSERT(rows >= 0 && rows <= INT64_C(0xffffffff) && epoch >= 0);
  std::vector<uint32_t> order(static_cast<size_t>(rows));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
  Philox(seed, streams::kEpochOrder | static_cast<uint64_t>(epoch)).shuffle(order);
  return order;
}

int64_t window_phase(uint64_t seed, int64_t epoch, int64_t tokens, int64_t seq_len) {
  MXT_ASSERT(epoch >= 0 && tokens > seq_len);
  const auto r = philox4x32(seed, streams::kWindows | static_cast<uint64_t>(epoch), 0);
  // The high half of a 64 × 64 bit product: even to 2^-64 · range.
  const unsigned __int128 x = (uint64_t{r[0]} << 32) | r[1];
  return static_cast<int64_t>((x * static_cast<uint64_t>(std::min(seq_len, tokens - seq_len))) >> 64);
}

}  // namespace mxt::data

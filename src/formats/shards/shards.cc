#include "formats/shards.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace mxt::formats {
namespace {

constexpr char kMagic[8] = {'M', 'X', 'T', 'S', 'H', 'A', 'R', 'D'};
constexpr uint32_t kVersion = 1, kHasWeights = 1;
constexpr uint64_t kHeader = 128, kAlign = 64, kMaxMeta = 16u << 20;

struct Header {
  char magic[8];
  uint32_t version, flags;
  uint64_t rows, documents, tokens, meta;
  uint8_t data_digest[32], header_digest[32];
  uint8_t zero[16];
};
static_assert(sizeof(Header) == kHeader && std::endian::native == std::endian::little);
constexpr size_t kDigested = offsetof(Header, header_digest);

uint64_t padded(uint64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

Digest digest_of(const void* data, size_t bytes) {
  Blake3 h;
  h.update(data, bytes);
  return h.digest();
}

// Cuts the sections off the file one after another, with every size compared before it is used.
class Sections {
 public:
  Sections(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  template <typename T>
  std::span<const T> take(uint64_t count, const char* what) {
    const uint64_t left = bytes_.size() - at_;
    if (count > left / sizeof(T)) fail_input("{}: its {} run past the end of the file: it is cut off", path_, what);
    const auto* p = reinterpret_cast<const T*>(bytes_.data() + at_);
    const uint64_t next = padded(at_ + count * sizeof(T));
    if (next > bytes_.size()) fail_input("{}: ends inside its {}: it is cut off", path_, what);
    at_ = next;
    return {p, count};
  }
  uint64_t at() const { return at_; }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  uint64_t at_ = kHeader;
};

// Offsets begin at 0, end at `last`, and ascend (strictly: no row and no document is empty).
void check_offsets(std::span<const uint64_t> offsets, uint64_t last, const char* what, const std::string& path) {
  bool good = offsets.front() == 0 && offsets.back() == last;
  for (size_t i = 1; i < offsets.size(); ++i) good = good && offsets[i] > offsets[i - 1];
  if (!good)
    fail_input("{}: its {} offsets do not ascend from 0 to {}: the file is damaged, prepare the data again", path, what,
               last);
}

template <typename T>
std::string_view raw(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

}  // namespace

TokenShard TokenShard::open(const std::string& path, bool check_data) {
  TokenShard s;
  s.map_ = MappedFile(path);
  s.path_ = path;
  s.read(s.map_.bytes(), check_data);
  return s;
}

TokenShard TokenShard::parse(std::span<const std::byte> bytes, std::string_view source, bool check_data) {
  TokenShard s;
  s.path_ = source;
  s.read(bytes, check_data);
  return s;
}

void TokenShard::read(std::span<const std::byte> bytes, bool check_data) {
  bytes_ = bytes;
  Header h;
  if (bytes.size() < kHeader || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    fail_input("{}: is not a token shard", path_);
  std::memcpy(&h, bytes.data(), sizeof h);
  if (h.version != kVersion)
    fail_input("{}: is a token shard of version {}, not {}: prepare the data again", path_, h.version, kVersion);
  const Digest digest = digest_of(bytes.data(), kDigested);
  if (std::memcmp(digest.data(), h.header_digest, digest.size()) != 0)
    fail_input("{}: the header's checksum does not hold: the file is damaged, prepare the data again", path_);
  if ((h.flags & ~kHasWeights) != 0) fail_input("{}: flags {} are not known", path_, h.flags);
  if (h.meta > kMaxMeta) fail_input("{}: its description of {} bytes is over the limit", path_, h.meta);
  constexpr uint64_t kMost = uint64_t{1} << 48;
  if (h.rows == 0 || h.documents < h.rows || h.tokens < h.documents || h.tokens > kMost)
    fail_input("{}: {} rows, {} documents and {} tokens do not fit each other", path_, h.rows, h.documents, h.tokens);
  rows_ = h.rows;
  documents_ = h.documents;
  tokens_ = h.tokens;
  Sections sections(bytes, path_);
  const auto meta = sections.take<char>(h.meta, "description");
  meta_ = {meta.data(), meta.size()};
  row_documents_ = sections.take<uint64_t>(rows_ + 1, "row offsets");
  document_tokens_ = sections.take<uint64_t>(documents_ + 1, "document offsets");
  ids_ = sections.take<int32_t>(tokens_, "token ids");
  targets_ = sections.take<uint64_t>((tokens_ + 63) / 64, "target flags");
  if (h.flags & kHasWeights) weights_ = sections.take<float>(tokens_, "weights");
  if (sections.at() != bytes.size())
    fail_input("{}: {} bytes follow its last section", path_, bytes.size() - sections.at());
  check_offsets(row_documents_, documents_, "row", path_);
  check_offsets(document_tokens_, tokens_, "document", path_);
  if (check_data) verify();
}

std::string TokenShard::data_digest() const {
  Header h;
  std::memcpy(&h, bytes_.data(), sizeof h);
  return to_hex(h.data_digest);
}

void TokenShard::verify() const {
  Header h;
  std::memcpy(&h, bytes_.data(), sizeof h);
  const Digest digest = digest_of(bytes_.data() + kHeader, bytes_.size() - kHeader);
  if (std::memcmp(digest.data(), h.data_digest, digest.size()) != 0)
    fail_verify("{}: its data's checksum does not hold: the file was changed or damaged, prepare the data again",
                path_);
}

uint64_t TokenShard::targets() const {
  uint64_t n = 0;
  for (uint64_t w : targets_) n += static_cast<uint64_t>(std::popcount(w));
  return n;
}

ShardRow TokenShard::row(uint64_t r) const {
  MXT_ASSERT(r < rows_);
  ShardRow out;
  const uint64_t first = row_documents_[r], last = row_documents_[r + 1];
  out.document_begin = document_tokens_.subspan(first, last - first + 1);
  out.first_token = out.document_begin.front();
  const uint64_t n = out.document_begin.back() - out.first_token;
  out.ids = ids_.subspan(out.first_token, n);
  out.target_words = targets_.data();
  if (!weights_.empty()) out.weights = weights_.subspan(out.first_token, n);
  return out;
}

void TokenShard::check_ids(int64_t vocab_size) const {
  for (size_t i = 0; i < ids_.size(); ++i)
    if (ids_[i] < 0 || ids_[i] >= vocab_size)
      fail_input(
          "{}: token {} has id {}, outside of the model's vocabulary of {}: the data was prepared with another "
          "tokenizer",
          path_, i, ids_[i], vocab_size);
}

void TokenShardWriter::add_document(std::span<const int32_t> ids, std::span<const uint8_t> targets,
                                    std::span<const float> weights) {
  MXT_ASSERT(!ids.empty() && (targets.empty() || targets.size() == ids.size()));
  MXT_ASSERT(weights.empty() || (with_weights_ && weights.size() == ids.size()));
  const size_t at = ids_.size();
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  targets_.resize((ids_.size() + 63) / 64, 0);
  for (size_t i = 0; i < ids.size(); ++i)
    if (targets.empty() || targets[i]) targets_[(at + i) / 64] |= uint64_t{1} << ((at + i) % 64);
  if (with_weights_) {
    if (weights.empty())
      weights_.insert(weights_.end(), ids.size(), 1.0f);
    else
      weights_.insert(weights_.end(), weights.begin(), weights.end());
  }
  document_tokens_.push_back(ids_.size());
}

void TokenShardWriter::end_row() {
  MXT_ASSERT(document_tokens_.size() - 1 > row_documents_.back());
  row_documents_.push_back(document_tokens_.size() - 1);
}

std::string TokenShardWriter::commit(std::string_view meta) {
  MXT_ASSERT(row_documents_.size() > 1 && row_documents_.back() == document_tokens_.size() - 1 &&
             meta.size() <= kMaxMeta);
  std::vector<std::string_view> sections{meta, raw(row_documents_), raw(document_tokens_), raw(ids_), raw(targets_)};
  if (with_weights_) sections.push_back(raw(weights_));
  static constexpr char kZero[kAlign] = {};
  Blake3 data;
  for (std::string_view s : sections) {
    data.update(s);
    data.update(kZero, padded(s.size()) - s.size());
  }
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.flags = with_weights_ ? kHasWeights : 0;
  h.rows = rows();
  h.documents = document_tokens_.size() - 1;
  h.tokens = ids_.size();
  h.meta = meta.size();
  const Digest d = data.digest();
  std::memcpy(h.data_digest, d.data(), d.size());
  const Digest own = digest_of(&h, kDigested);
  std::memcpy(h.header_digest, own.data(), own.size());
  AtomicFile file(path_);
  file.write(&h, sizeof h);
  for (std::string_view s : sections) {
    file.write(s);
    file.write(kZero, padded(s.size()) - s.size());
  }
  file.commit();
  return to_hex(d);
}

}  // namespace mxt::formats

#include "data/store/shard.h"

#include <map>

#include "base/error.h"
#include "data/pictures.h"
#include "data/store/spill.h"
#include "formats/safetensors.h"

namespace mxt::data {
namespace {

using formats::Safetensors;
using formats::SafetensorsWriter;
using formats::TensorInfo;

template <typename T>
void append(SafetensorsWriter& w, std::span<const T> values) {
  w.append(values.data(), values.size_bytes());
}

template <typename T>
std::span<const T> tensor(const Safetensors& file, const char* name, DType type) {
  const TensorInfo& t = file.at(name);
  const auto bytes = file.bytes(t);
  if (t.type != type || t.shape.size() != 1 || reinterpret_cast<uintptr_t>(bytes.data()) % alignof(T) != 0)
    fail_input("{}: tensor \"{}\" is not what a token shard holds; prepare the data again", file.files()[0], name);
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

struct RowIndex {
  std::vector<int64_t> row_tokens{0}, row_cu{0};
  std::vector<int32_t> cu_seqlens;
  std::vector<int32_t> marks;
  bool labelled = false, marked = false;
  std::vector<int64_t> row_pictures{0}, pictures;
  std::vector<std::string> digests;            // of the pixels, each once, in their order
  std::map<std::string, int64_t> places = {};  // of these
  int64_t bytes = 0;
};

// Pixels of a digest: 3 a pixel of patches whose side the store's file tells.
void add_pictures(RowIndex& l, std::span<const DocumentPicture> pictures, int64_t at, const PictureStore* store) {
  for (const DocumentPicture& p : pictures) {
    const std::string digest(p.digest, sizeof p.digest);
    const auto [place, fresh] = l.places.try_emplace(digest, l.bytes);
    if (fresh) {
      MXT_ASSERT(store);
      l.digests.push_back(digest);
      l.bytes += static_cast<int64_t>(store->size(digest));
    }
    l.pictures.insert(l.pictures.end(), {at + p.first, p.rows, p.columns, place->second});
  }
}

RowIndex lay_out(std::span<const RowDocuments> rows, const Spill& documents, bool joined, const PictureStore* store) {
  RowIndex l;
  for (const RowDocuments& row : rows) {
    int32_t at = 0;
    l.cu_seqlens.push_back(0);
    for (size_t i = 0; i < row.documents.size(); ++i) {
      const uint32_t d = row.documents[i];
      l.labelled |= documents.labelled(d);
      if (const uint32_t second = documents.second(d); second > 0) {
        l.cu_seqlens.push_back(at + static_cast<int32_t>(second));
        l.marks.push_back(0);
      }
      add_pictures(l, documents.pictures(d), at, store);
      at += static_cast<int32_t>(row.length(i, documents));
      if (joined && i + 1 < row.documents.size()) continue;
      l.cu_seqlens.push_back(at);
      l.marks.push_back(documents.mark(d));
      l.marked |= documents.mark(d) != 0;
    }
    l.row_tokens.push_back(l.row_tokens.back() + at);
    l.row_cu.push_back(static_cast<int64_t>(l.cu_seqlens.size()));
    l.row_pictures.push_back(static_cast<int64_t>(l.pictures.size() / 4));
  }
  return l;
}

// Calls write(document) for all of them. They lie anywhere in their file, which may long have left the file cache: the
// disk is told of them some rows ahead, so that it need not be waited for one by one.
template <typename F>
void each_document(std::span<const RowDocuments> rows, const Spill& documents, F&& write) {
  constexpr size_t kAhead = 256;
  for (size_t r = 0; r < rows.size() + kAhead; ++r) {
    if (r < rows.size())
      for (uint32_t d : rows[r].documents) documents.expect(d);
    if (r < kAhead) continue;
    const RowDocuments& row = rows[r - kAhead];
    for (size_t i = 0; i < row.documents.size(); ++i) {
      const DocumentView v = documents.view(row.documents[i]);
      const size_t n = row.length(i, documents);
      write(DocumentView{v.ids.first(n), v.labels.empty() ? v.labels : v.labels.first(n)});
    }
  }
}

SafetensorsWriter::Options options() { return {{{"format", "mindxtrain.tokens.1"}}, 0}; }

}  // namespace

uint32_t RowDocuments::length(size_t i, const Spill& spill) const {
  return kept.empty() ? spill.length(documents[i]) : kept[i];
}

void write_shard(const std::string& path, std::span<const RowDocuments> rows, const Spill& documents, bool joined,
                 const PictureStore* pictures) {
  const RowIndex l = lay_out(rows, documents, joined, pictures);
  const int64_t n = static_cast<int64_t>(rows.size()) + 1, tokens = l.row_tokens.back();
  // I64 first, so that every tensor is aligned to its elements.
  std::vector<formats::TensorSpec> specs = {{"row_cu", DType::kI64, {n}},
                                            {"row_tokens", DType::kI64, {n}},
                                            {"cu_seqlens", DType::kI32, {static_cast<int64_t>(l.cu_seqlens.size())}},
                                            {"ids", DType::kI32, {tokens}}};
  if (l.marked) specs.push_back({"marks", DType::kI32, {static_cast<int64_t>(l.marks.size())}});
  if (l.labelled) specs.push_back({"labels", DType::kI32, {tokens}});
  if (!l.pictures.empty()) {
    specs.insert(specs.begin(), {{"row_pictures", DType::kI64, {n}},
                                 {"pictures", DType::kI64, {static_cast<int64_t>(l.pictures.size())}}});
    specs.push_back({"pixels", DType::kU8, {l.bytes}});
  }
  SafetensorsWriter w(path, std::move(specs), options());
  if (!l.pictures.empty()) append<int64_t>(w, l.row_pictures), append<int64_t>(w, l.pictures);
  append<int64_t>(w, l.row_cu);
  append<int64_t>(w, l.row_tokens);
  append<int32_t>(w, l.cu_seqlens);
  each_document(rows, documents, [&](const DocumentView& v) { append(w, v.ids); });
  if (l.marked) append<int32_t>(w, l.marks);
  if (l.labelled)
    each_document(rows, documents, [&](const DocumentView& v) { append(w, v.labels.empty() ? v.ids : v.labels); });
  for (const std::string& digest : l.digests) {
    const std::string pixels = pictures->get(digest);
    w.append(pixels.data(), pixels.size());
  }
  w.commit();
}

void write_array(const std::string& path, int64_t tokens,
                 const std::function<std::span<const int32_t>(size_t)>& piece) {
  SafetensorsWriter w(path, {{"ids", DType::kI32, {tokens}}}, options());
  for (size_t k = 0;; ++k) {
    const std::span<const int32_t> p = piece(k);
    if (p.empty()) break;
    append(w, p);
  }
  w.commit();
}

struct Shard::State {
  Safetensors file;
  std::span<const int32_t> ids, labels, cu, marks;
  std::span<const int64_t> row_tokens, row_cu, row_pictures = {}, pictures = {};
  std::span<const uint8_t> pixels = {};
};

Shard::Shard(const std::string& path)
    : s_(std::make_unique<State>(State{Safetensors::open(path), {}, {}, {}, {}, {}, {}})) {
  State& s = *s_;
  s.ids = tensor<int32_t>(s.file, "ids", DType::kI32);
  if (!s.file.find("row_tokens")) return;
  s.labels = s.file.find("labels") ? tensor<int32_t>(s.file, "labels", DType::kI32) : s.ids;
  s.cu = tensor<int32_t>(s.file, "cu_seqlens", DType::kI32);
  s.row_tokens = tensor<int64_t>(s.file, "row_tokens", DType::kI64);
  s.row_cu = tensor<int64_t>(s.file, "row_cu", DType::kI64);
  if (s.file.find("marks")) s.marks = tensor<int32_t>(s.file, "marks", DType::kI32);
  if (s.file.find("pictures")) {
    s.row_pictures = tensor<int64_t>(s.file, "row_pictures", DType::kI64);
    s.pictures = tensor<int64_t>(s.file, "pictures", DType::kI64);
    s.pixels = tensor<uint8_t>(s.file, "pixels", DType::kU8);
  }
  const auto check = [&](bool good) {
    if (!good) fail_input("{}: the row index does not fit the tokens; prepare the data again", path);
  };
  check(!s.row_tokens.empty() && s.row_tokens.size() == s.row_cu.size() && s.labels.size() == s.ids.size());
  check(s.row_tokens[0] == 0 && s.row_cu[0] == 0);
  check(s.row_tokens.back() == static_cast<int64_t>(s.ids.size()) &&
        s.row_cu.back() == static_cast<int64_t>(s.cu.size()));
  check(s.marks.empty() || s.marks.size() + s.row_tokens.size() - 1 == s.cu.size());
  check(s.row_pictures.empty() || (s.row_pictures.size() == s.row_tokens.size() && s.row_pictures[0] == 0 &&
                                   4 * s.row_pictures.back() == static_cast<int64_t>(s.pictures.size())));
  for (size_t r = 0; r + 1 < s.row_pictures.size(); ++r) {
    check(s.row_pictures[r] <= s.row_pictures[r + 1] && s.row_pictures[r + 1] <= s.row_pictures.back());
    for (int64_t k = s.row_pictures[r]; k < s.row_pictures[r + 1]; ++k) {
      const int64_t* p = s.pictures.data() + 4 * k;
      check(p[0] >= 0 && p[0] < s.row_tokens[r + 1] - s.row_tokens[r] && p[1] > 0 && p[2] > 0 && p[1] < (1 << 20) &&
            p[2] < (1 << 20) && p[3] >= 0 && p[3] <= static_cast<int64_t>(s.pixels.size()));
    }
  }
  for (size_t r = 0; r + 1 < s.row_tokens.size(); ++r) {
    const int64_t n = s.row_tokens[r + 1] - s.row_tokens[r], c = s.row_cu[r], e = s.row_cu[r + 1];
    check(n >= 1 && n <= INT32_MAX && s.row_tokens[r + 1] <= s.row_tokens.back());
    check(e - c >= 2 && e <= s.row_cu.back());
    check(s.cu[static_cast<size_t>(c)] == 0 && s.cu[static_cast<size_t>(e) - 1] == n);
    for (int64_t i = c + 1; i < e; ++i) check(s.cu[static_cast<size_t>(i)] > s.cu[static_cast<size_t>(i) - 1]);
  }
}
Shard::~Shard() = default;
Shard::Shard(Shard&&) noexcept = default;

int64_t Shard::rows() const { return s_->row_tokens.empty() ? 0 : static_cast<int64_t>(s_->row_tokens.size()) - 1; }
std::span<const int32_t> Shard::ids() const { return s_->ids; }

Row Shard::row(int64_t i) const {
  const size_t r = static_cast<size_t>(i), at = static_cast<size_t>(s_->row_tokens[r]),
               c = static_cast<size_t>(s_->row_cu[r]);
  const size_t n = static_cast<size_t>(s_->row_tokens[r + 1]) - at;
  const size_t cu = static_cast<size_t>(s_->row_cu[r + 1]) - c;
  Row row{s_->ids.subspan(at, n), s_->labels.subspan(at, n), s_->cu.subspan(c, cu),
          s_->marks.empty() ? s_->marks : s_->marks.subspan(c - r, cu - 1)};
  if (s_->row_pictures.empty()) return row;
  for (int64_t k = s_->row_pictures[r]; k < s_->row_pictures[r + 1]; ++k) {
    const int64_t* p = s_->pictures.data() + 4 * k;
    row.pictures.push_back({p[0], p[1], p[2], s_->pixels.subspan(static_cast<size_t>(p[3]))});
  }
  return row;
}

}  // namespace mxt::data

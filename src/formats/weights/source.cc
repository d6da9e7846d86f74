#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "formats/buffers.h"
#include "formats/family.h"
#include "formats/gguf.h"
#include "formats/gguf_hf.h"
#include "formats/safetensors.h"
#include "formats/weight_source.h"
#include "formats/weights/experts.h"
#include "formats/weights/quantized.h"

namespace mxt::formats {
namespace {

bool is_float(DType t) {
  return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16 || t == DType::kF8E4M3 || t == DType::kF64;
}

int64_t row_size(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
  return n;
}

int64_t row_count(const std::vector<int64_t>& shape) { return shape.empty() ? 1 : shape[0]; }

// What most of a checkpoint's numbers are stored in.
class Held {
 public:
  void add(DType t, const std::vector<int64_t>& shape) { numbers_[t] += row_count(shape) * row_size(shape); }
  DType most(DType otherwise) const {
    DType best = otherwise;
    int64_t n = 0;
    for (const auto& [type, count] : numbers_)
      if (count > n) best = type, n = count;
    if (best == DType::kF64) return DType::kF32;
    return best == DType::kF16 || best == DType::kF32 ? best : DType::kBF16;
  }

 private:
  std::map<DType, int64_t> numbers_;
};

std::string digest_line(const std::string& path) {
  const FileDigests d = hash_file(path);
  return fmt::format("{} {} {}\n", d.blake3, d.bytes, fs::path(path).filename().string());
}

// Rows decoded to fp32 and then converted, in pieces of about 4 MiB: the extra memory stays small whatever the tensor.
template <typename F>
void through_fp32(int64_t begin, int64_t end, int64_t width, DType to, void* out, F&& decode, bool whole = false) {
  if (begin == end) return;
  if (to == DType::kF32) return decode(begin, end, static_cast<float*>(out));
  const int64_t step = whole ? end - begin : std::max<int64_t>(1, (1 << 20) / std::max<int64_t>(1, width));
  std::vector<float> piece(static_cast<size_t>(std::min(step, end - begin) * width));
  for (int64_t r = begin; r < end; r += step) {
    const int64_t n = std::min(step, end - r);
    decode(r, r + n, piece.data());
    convert(piece.data(), DType::kF32, static_cast<char*>(out) + static_cast<size_t>((r - begin) * width) * size_of(to),
            to, static_cast<size_t>(n * width));
  }
}

bool is_aligned(const void* p, DType t) { return reinterpret_cast<uintptr_t>(p) % size_of(t) == 0; }

class HfFolder final : public WeightSource {
 public:
  explicit HfFolder(const std::string& folder) {
    path_ = folder;
    config_ = read_model_config(folder);
    files_ = Safetensors::open(folder);
    settle_tied();
    check_biases();
    quantized_ = find_quantized(files_, config_, folder);
    experts_ = find_stacked_experts(files_, config_, folder);
    config_.stacked_experts = !experts_.stacks.empty();
    held_ = stored();
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& t : files_.tensors())
      if (!quantized_.hidden.contains(t.name) && !experts_.stacks.contains(t.name)) out.push_back(t.name);
    for (const auto& [name, slice] : experts_.slices) out.push_back(name);
    for (const auto& [name, w] : quantized_.weights)
      if (w.data.name != name) out.push_back(name);
    return out;
  }
  bool has(std::string_view name) const override { return find_weight(name) || find_slice(name) || find(name); }
  std::vector<int64_t> shape(std::string_view name) const override {
    const QuantizedWeight* w = find_weight(name);
    if (w) return w->shape;
    if (const ExpertSlice* s = find_slice(name))
      return s->cols > 0 ? std::vector<int64_t>{s->rows, s->cols} : std::vector<int64_t>{s->rows};
    return at(name).shape;
  }
  DType stored_type(std::string_view name) const override {
    if (find_weight(name)) return DType::kF32;
    const ExpertSlice* s = find_slice(name);
    return at(s ? std::string_view(s->stack) : name).type;
  }
  std::optional<CodedTensor> coded(std::string_view name) const {
    const QuantizedWeight* w = find_weight(name);
    return w && w->coding != Coding::kNone ? std::optional(coded_of(files_, *w)) : std::nullopt;
  }
  InputRounding input_rounding(std::string_view name) const override {
    return find_weight(name) ? quantized_.inputs : InputRounding::kNone;
  }

  void read(std::string_view name, DType to, void* out, int64_t begin, int64_t end) const override {
    if (const QuantizedWeight* w = find_weight(name)) return read_quantized(*w, to, out, begin, end);
    const ExpertSlice* s = find_slice(name);
    const TensorInfo& t = at(s ? std::string_view(s->stack) : name);
    const int64_t rows = s ? s->rows : row_count(t.shape), first = s ? s->row : 0;
    if (end < 0) end = rows;
    MXT_ASSERT(0 <= begin && begin <= end && end <= rows);
    if (t.type != to && (!is_float(t.type) || !is_float(to) || to == DType::kF64))
      fail_input("{}: tensor \"{}\" is {} and cannot be read as {}", path_, t.name, name_of(t.type), name_of(to));
    const size_t each = size_of(t.type),
                 width = static_cast<size_t>(s ? std::max<int64_t>(1, s->cols) : row_size(t.shape));
    if (s && s->pitch > 0) {
      std::vector<uint64_t> mine((static_cast<size_t>(end - begin) * width * each + 7) / 8);
      read_turned(files_.bytes(t).data(), t.type, *s, begin, end, reinterpret_cast<std::byte*>(mine.data()));
      return convert(mine.data(), t.type, out, to, static_cast<size_t>(end - begin) * width);
    }
    const std::byte* from = files_.bytes(t).data() + static_cast<size_t>(first + begin) * width * each;
    copy(from, t.type, static_cast<char*>(out), to, static_cast<size_t>(end - begin) * width);
  }

  std::span<const std::byte> mapped(std::string_view name, DType type) const override {
    if (find_weight(name)) return {};
    const ExpertSlice* s = find_slice(name);
    if (s && s->pitch > 0) return {};
    const TensorInfo& t = at(s ? std::string_view(s->stack) : name);
    auto bytes = files_.bytes(t);
    if (s) {
      const size_t row = static_cast<size_t>(s->cols) * size_of(t.type);
      bytes = bytes.subspan(static_cast<size_t>(s->row) * row, static_cast<size_t>(s->rows) * row);
    }
    return t.type == type && is_aligned(bytes.data(), type) ? bytes : std::span<const std::byte>{};
  }

  std::string digest_text() const override {
    std::string out;
    for (const auto& f : files_.files()) out += digest_line(f);
    return out;
  }
  void drop_pages() const override { files_.drop_pages(); }

 private:
  // nanoGPT's models without biases say so in a key that transformers does not read.
  void check_biases() const {
    const auto& raw = config_.raw;
    if (!config_.family->conv1d || !raw || !raw->contains("bias") || (*raw)["bias"] != false) return;
    for (const char* name : {"transformer.h.0.attn.c_attn.bias", "h.0.attn.c_attn.bias"})
      if (files_.find(name))
        fail_input("{}: config.json says \"bias\": false, but the model has \"{}\": remove the key", path_, name);
  }

  DType stored() const {
    Held held;
    if (quantized_.weights.empty() || !config_.dtype)
      for (const TensorInfo& t : files_.tensors())
        if (is_float(t.type) && !quantized_.hidden.contains(t.name)) held.add(t.type, t.shape);
    return held.most(config_.dtype.value_or(DType::kBF16));
  }

  // Where a config ties the head to the embedding, one tensor is both. Writers that keep tensors apart by their memory
  // (safetensors' save_model) may store it by the head's name alone; where both names stand, they must hold the same.
  void settle_tied() {
    const TensorInfo* head = config_.tie_embeddings ? files_.find("lm_head.weight") : nullptr;
    if (!head) return;
    const std::string name(config_.family->embedding);
    const TensorInfo* embedding = find(name);
    if (!embedding) return files_.rename(head->name, name);
    bool equal = embedding->type == head->type && embedding->shape == head->shape;
    constexpr size_t kPiece = size_t{32} << 20;  // what is compared is let go, so that opening a model holds little
    for (size_t i = 0; equal && i < head->bytes; i += kPiece) {
      const size_t n = std::min(kPiece, head->bytes - i);
      equal = std::memcmp(files_.bytes(*embedding).data() + i, files_.bytes(*head).data() + i, n) == 0;
      files_.drop_pages();
    }
    if (!equal)
      fail_input(
          "{}: config.json ties the embeddings, but \"{}\" and \"{}\" differ: set tie_word_embeddings to false "
          "if the head is its own, or remove the one that is not meant",
          path_, embedding->name, head->name);
  }

  // Old files need not align their tensors: those go through a small aligned buffer.
  static void copy(const std::byte* from, DType type, char* out, DType to, size_t count) {
    if (type == to || is_aligned(from, type)) {
      convert(from, type, out, to, count);
      return;
    }
    std::vector<uint64_t> buffer(1 << 13);
    const size_t step = buffer.size() * sizeof(uint64_t) / size_of(type);
    for (size_t i = 0; i < count; i += step) {
      const size_t n = std::min(step, count - i);
      std::memcpy(buffer.data(), from + i * size_of(type), n * size_of(type));
      convert(buffer.data(), type, out + i * size_of(to), to, n);
    }
  }

  void read_quantized(const QuantizedWeight& w, DType to, void* out, int64_t begin, int64_t end) const {
    if (end < 0) end = w.shape[0];
    MXT_ASSERT(0 <= begin && begin <= end && end <= w.shape[0]);
    if (!is_float(to) || to == DType::kF64)
      fail_input("{}: tensor \"{}\" cannot be read as {}", path_, w.data.name, name_of(to));
    through_fp32(begin, end, w.shape[1], to, out,
                 [&](int64_t b, int64_t e, float* piece) { decode_rows(files_, w, b, e, piece); });
  }

  // A checkpoint of the bare model lacks the prefix that the one with a head has, and the other way round (GPT-2 on the
  // Hub is such a one): transformers takes both. `lookup` gives null where it has no such name.
  template <typename F>
  auto with_or_without_prefix(std::string_view name, F&& lookup) const -> decltype(lookup(name)) {
    if (auto* t = lookup(name)) return t;
    const std::string_view prefix = config_.family->prefix;
    return name.starts_with(prefix) ? lookup(name.substr(prefix.size()))
                                    : lookup(std::string(prefix) + std::string(name));
  }
  const TensorInfo* find(std::string_view name) const {
    return with_or_without_prefix(name, [&](std::string_view n) { return files_.find(n); });
  }
  const QuantizedWeight* find_weight(std::string_view name) const {
    if (quantized_.weights.empty()) return nullptr;
    return with_or_without_prefix(name, [&](std::string_view n) -> const QuantizedWeight* {
      const auto it = quantized_.weights.find(n);
      return it == quantized_.weights.end() ? nullptr : &it->second;
    });
  }
  const ExpertSlice* find_slice(std::string_view name) const {
    if (experts_.slices.empty()) return nullptr;
    return with_or_without_prefix(name, [&](std::string_view n) -> const ExpertSlice* {
      const auto it = experts_.slices.find(n);
      return it == experts_.slices.end() ? nullptr : &it->second;
    });
  }
  const TensorInfo& at(std::string_view name) const {
    const TensorInfo* t = find(name);
    return t ? *t : files_.at(name);
  }

  Safetensors files_;
  QuantizedTensors quantized_;
  StackedExperts experts_;
};

class GgufFile final : public WeightSource {
 public:
  explicit GgufFile(const std::string& path) : gguf_(Gguf::open(path)) {
    path_ = path;
    config_ = model_config_from_gguf(gguf_);
    views_ = gguf_hf_views(gguf_, config_);
    for (size_t i = 0; i < views_.size(); ++i)
      if (!by_name_.emplace(views_[i].name, i).second)
        fail_input("{}: two tensors stand for \"{}\"", path, views_[i].name);
    Held held;
    for (const GgufView& v : views_) {
      const GgmlType type = v.tensor->type;
      const bool plain = type == GgmlType::kF32 || type == GgmlType::kF16;
      held.add(plain ? stored_type(v.name) : DType::kBF16, v.shape);
    }
    held_ = held.most(DType::kBF16);
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& v : views_) out.push_back(v.name);
    return out;
  }
  bool has(std::string_view name) const override { return by_name_.contains(std::string(name)); }
  std::vector<int64_t> shape(std::string_view name) const override { return at(name).shape; }

  DType stored_type(std::string_view name) const override {
    switch (at(name).tensor->type) {
      case GgmlType::kF16:
        return DType::kF16;
      case GgmlType::kBF16:
        return DType::kBF16;
      default:
        return DType::kF32;
    }
  }

  void read(std::string_view name, DType to, void* out, int64_t begin, int64_t end) const override {
    const GgufView& v = at(name);
    if (end < 0) end = row_count(v.shape);
    MXT_ASSERT(0 <= begin && begin <= end && end <= row_count(v.shape));
    if (!is_float(to) || to == DType::kF64)
      fail_input("{}: tensor \"{}\" cannot be read as {}", path_, v.name, name_of(to));
    // A transposed tensor is decoded whole for every piece: read it in one.
    const bool whole = v.form.layout == GgufForm::Layout::kTransposed;
    through_fp32(
        begin, end, row_size(v.shape), to, out,
        [&](int64_t b, int64_t e, float* piece) { read_gguf_view(gguf_, v, b, e, piece); }, whole);
  }

  std::span<const std::byte> mapped(std::string_view name, DType type) const override {
    const GgufView& v = at(name);
    const GgmlType want = type == DType::kBF16  ? GgmlType::kBF16
                          : type == DType::kF16 ? GgmlType::kF16
                                                : GgmlType::kF32;
    const bool plain_type = type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
    if (!plain_type || v.tensor->type != want || v.form.layout != GgufForm::Layout::kPlain || v.form.changes_values())
      return {};
    const auto bytes =
        gguf_.bytes(*v.tensor).subspan(static_cast<size_t>(v.first_row * v.tensor->columns()) * size_of(type),
                                       static_cast<size_t>(row_count(v.shape) * row_size(v.shape)) * size_of(type));
    return is_aligned(bytes.data(), type) ? bytes : std::span<const std::byte>{};
  }

  std::optional<GgmlType> block_type(std::string_view name) const override {
    const GgufView& v = at(name);
    using Layout = GgufForm::Layout;
    if (v.shape.size() != 2 || v.form.layout == Layout::kTransposed || v.form.layout == Layout::kValueColumns)
      return std::nullopt;
    return v.tensor->type;
  }
  std::span<const std::byte> block_row(std::string_view name, int64_t row) const override {
    const GgufView& v = at(name);
    MXT_ASSERT(0 <= row && row < v.shape[0]);
    const GgmlTypeInfo* info = ggml_type_info(v.tensor->type);
    const size_t bytes = static_cast<size_t>(v.tensor->columns() / info->block) * info->bytes;
    return gguf_.bytes(*v.tensor).subspan(static_cast<size_t>(v.first_row + v.form.in_file(row)) * bytes, bytes);
  }

  std::optional<CodedTensor> coded(std::string_view name) const {
    const auto type = block_type(name);
    const Coding coding = type ? ggml_coding(*type) : Coding::kNone;
    if (coding == Coding::kNone) return std::nullopt;
    const GgufView& v = at(name);
    CodedTensor t;
    t.matrix = {coding, v.shape[0], v.shape[1], nullptr, nullptr, nullptr};
    t.bytes.reserve(static_cast<size_t>(coded_bytes(coding, v.shape[0], v.shape[1]).codes));
    for (int64_t r = 0; r < v.shape[0]; ++r) {
      const auto row = block_row(name, r);
      const auto* bytes = reinterpret_cast<const uint8_t*>(row.data());
      t.bytes.insert(t.bytes.end(), bytes, bytes + row.size());
    }
    t.matrix.codes = t.bytes.data();
    return t;
  }

  std::string digest_text() const override {
    std::string out;
    for (const std::string& f : gguf_.files()) out += digest_line(f);
    return out;
  }
  void drop_pages() const override { gguf_.drop_pages(); }

 private:
  const GgufView& at(std::string_view name) const {
    const auto it = by_name_.find(std::string(name));
    if (it != by_name_.end()) return views_[it->second];
    const std::string near = nearest(name, names());
    fail_input("{}: has no tensor for \"{}\"{}", path_, name,
               near.empty() ? std::string() : " (nearest: \"" + near + "\")");
  }

  Gguf gguf_;
  std::vector<GgufView> views_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace

std::optional<CodedTensor> coded_tensor(const WeightSource& source, std::string_view name) {
  if (const auto* file = dynamic_cast<const GgufFile*>(&source)) return file->coded(name);
  const auto* folder = dynamic_cast<const HfFolder*>(&source);
  return folder ? folder->coded(name) : std::nullopt;
}

bool is_buffer(std::string_view name) {
  for (const std::string_view end :
       {".attn.bias", ".attn.masked_bias", "inv_freq", "position_ids", "rope_freqs.weight"})
    if (name.ends_with(end)) return true;
  return false;
}

std::span<const std::byte> WeightSource::block_row(std::string_view, int64_t) const { MXT_ASSERT(!"no blocks"); }

bool is_gguf(const std::string& path) {
  std::error_code ec;
  if (!fs::is_regular_file(path, ec)) return path.ends_with(".gguf");
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, 4);
  return std::memcmp(magic, "GGUF", 4) == 0 || path.ends_with(".gguf");
}

std::unique_ptr<WeightSource> WeightSource::open(const std::string& path) {
  std::error_code ec;
  if (fs::is_directory(path, ec)) return std::make_unique<HfFolder>(path);
  if (!fs::exists(path, ec)) fail_input("{}: no such model folder or .gguf file", path);
  if (is_gguf(path)) return std::make_unique<GgufFile>(path);
  fail_input("{}: is neither a model folder nor a GGUF file", path);
}

}  // namespace mxt::formats

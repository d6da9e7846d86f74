#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "formats/gguf.h"

namespace mxt::formats {
namespace {

constexpr uint64_t kMaxItems = 100'000;         // metadata pairs, and tensors
constexpr uint64_t kMaxKey = 65'535;            // the specification's limit
constexpr uint64_t kMaxAlignment = 1ull << 30;  // anything above is damage
constexpr uint32_t kMaxDims = 4;                // ggml's limit
constexpr uint64_t kMaxListItems = 1ull << 25;  // of all lists together: they grow up to eightfold in memory

size_t scalar_size(GgufValueType t) {
  using T = GgufValueType;
  switch (t) {
    case T::kU8:
    case T::kI8:
    case T::kBool:
      return 1;
    case T::kU16:
    case T::kI16:
      return 2;
    case T::kU32:
    case T::kI32:
    case T::kF32:
      return 4;
    case T::kU64:
    case T::kI64:
    case T::kF64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// Walks the header; every length is compared with what is left of the file before anything is allocated.
class GgufReader {
 public:
  GgufReader(Gguf& g, std::span<const std::byte> bytes, const std::string& path) : g_(g), bytes_(bytes), path_(path) {}

  void run() {
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0)
      fail_input("{}: is not a GGUF file (its first bytes are not \"GGUF\")", path_);
    at_ = 4;
    g_.version_ = take<uint32_t>();
    if (g_.version_ != 0 && (g_.version_ & 0xffff) == 0)
      fail_input("{}: is a big-endian GGUF file, which is not read here", path_);
    if (g_.version_ != 2 && g_.version_ != 3)
      fail_input("{}: GGUF version {} is not read here (2 and 3 are): convert it with a current llama.cpp", path_,
                 g_.version_);
    const uint64_t tensors = take<uint64_t>(), pairs = take<uint64_t>();
    // The smallest pair takes 13 bytes (empty key, type, one byte), the smallest tensor 24.
    if (tensors > kMaxItems || tensors > left() / 24)
      fail_input("{}: {} tensors cannot be in a file of {} bytes", path_, tensors, bytes_.size());
    if (pairs > kMaxItems || pairs > left() / 13)
      fail_input("{}: {} metadata values cannot be in a file of {} bytes", path_, pairs, bytes_.size());
    for (uint64_t i = 0; i < pairs; ++i) read_pair();
    read_alignment();
    for (uint64_t i = 0; i < tensors; ++i) read_tensor();
    place_tensors();
  }

 private:
  uint64_t left() const { return bytes_.size() - at_; }

  template <typename T>
  T take() {
    if (left() < sizeof(T)) fail_input("{}: ends inside its header: the file is cut off, fetch it again", path_);
    T v;
    std::memcpy(&v, bytes_.data() + at_, sizeof v);
    at_ += sizeof v;
    return v;
  }

  std::string take_string(const char* what, uint64_t limit) {
    const uint64_t n = take<uint64_t>();
    if (n > limit) fail_input("{}: {} of {} bytes is over the limit of {}", path_, what, n, limit);
    if (n > left()) fail_input("{}: {} of {} bytes runs past the end of the file", path_, what, n);
    std::string s(reinterpret_cast<const char*>(bytes_.data()) + at_, n);
    at_ += n;
    return s;
  }

  std::string take_name(const char* what) {
    std::string s = take_string(what, kMaxKey);
    bool clean = is_valid_utf8(s);
    for (char c : s) clean = clean && static_cast<unsigned char>(c) >= 0x20;
    if (!clean) fail_input("{}: {} is not plain UTF-8 text", path_, what);
    return s;
  }

  void read_scalar(GgufValue& v, GgufValueType t) {
    using T = GgufValueType;
    switch (t) {
      case T::kU8:
        v.value = uint64_t{take<uint8_t>()};
        return;
      case T::kU16:
        v.value = uint64_t{take<uint16_t>()};
        return;
      case T::kU32:
        v.value = uint64_t{take<uint32_t>()};
        return;
      case T::kU64:
        v.value = take<uint64_t>();
        return;
      case T::kI8:
        v.value = int64_t{take<int8_t>()};
        return;
      case T::kI16:
        v.value = int64_t{take<int16_t>()};
        return;
      case T::kI32:
        v.value = int64_t{take<int32_t>()};
        return;
      case T::kI64:
        v.value = take<int64_t>();
        return;
      case T::kF32:
        v.value = double{take<float>()};
        return;
      case T::kF64:
        v.value = take<double>();
        return;
      case T::kBool: {
        const uint8_t b = take<uint8_t>();
        if (b > 1) fail_input("{}: key \"{}\": {} is not a bool", path_, key_, b);
        v.value = b == 1;
        return;
      }
      default:
        fail_input("{}: key \"{}\" has value type {}, which does not exist", path_, key_, static_cast<uint32_t>(t));
    }
  }

  template <typename T, typename Wide>
  void read_numbers(GgufValue& v, uint64_t n) {
    std::vector<Wide> out(n);
    for (auto& x : out) x = static_cast<Wide>(take<T>());
    v.value = std::move(out);
  }

  void read_array(GgufValue& v) {
    using T = GgufValueType;
    v.element = static_cast<T>(take<uint32_t>());
    const uint64_t n = take<uint64_t>();
    if (v.element == T::kArray) fail_input("{}: key \"{}\": lists inside lists are not read", path_, key_);
    const size_t each = v.element == T::kString ? 8 : scalar_size(v.element);
    if (each == 0)
      fail_input("{}: key \"{}\" has value type {}, which does not exist", path_, key_,
                 static_cast<uint32_t>(v.element));
    if (n > left() / each) fail_input("{}: key \"{}\": {} items run past the end of the file", path_, key_, n);
    list_items_ += n;
    if (list_items_ > kMaxListItems)
      fail_input("{}: key \"{}\": more than {} list items in the metadata", path_, key_, kMaxListItems);
    switch (v.element) {
      case T::kU8:
      case T::kBool:
        return read_numbers<uint8_t, uint64_t>(v, n);
      case T::kU16:
        return read_numbers<uint16_t, uint64_t>(v, n);
      case T::kU32:
        return read_numbers<uint32_t, uint64_t>(v, n);
      case T::kU64:
        return read_numbers<uint64_t, uint64_t>(v, n);
      case T::kI8:
        return read_numbers<int8_t, int64_t>(v, n);
      case T::kI16:
        return read_numbers<int16_t, int64_t>(v, n);
      case T::kI32:
        return read_numbers<int32_t, int64_t>(v, n);
      case T::kI64:
        return read_numbers<int64_t, int64_t>(v, n);
      case T::kF32:
        return read_numbers<float, double>(v, n);
      case T::kF64:
        return read_numbers<double, double>(v, n);
      default:
        break;
    }
    std::vector<std::string> out;
    out.reserve(n);
    for (uint64_t i = 0; i < n; ++i) out.push_back(take_string("a text", bytes_.size()));
    v.value = std::move(out);
  }

  void read_pair() {
    key_ = take_name("a key");
    GgufValue v;
    v.type = static_cast<GgufValueType>(take<uint32_t>());
    if (v.type == GgufValueType::kString)
      v.value = take_string("a text", bytes_.size());
    else if (v.type == GgufValueType::kArray)
      read_array(v);
    else
      read_scalar(v, v.type);
    if (!g_.value_index_.emplace(key_, g_.metadata_.size()).second)
      fail_input("{}: key \"{}\" stands twice", path_, key_);
    g_.metadata_.emplace_back(key_, std::move(v));
  }

  void read_alignment() {
    const GgufValue* v = g_.find_value("general.alignment");
    if (!v) return;
    if (v->type != GgufValueType::kU32) fail_input("{}: general.alignment is not a 32-bit number", path_);
    g_.alignment_ = std::get<uint64_t>(v->value);
    if (!std::has_single_bit(g_.alignment_) || g_.alignment_ > kMaxAlignment)
      fail_input("{}: general.alignment {} is not a power of two: the file is damaged", path_, g_.alignment_);
  }

  void read_tensor() {
    GgufTensor t;
    t.name = take_name("a tensor name");
    const uint32_t dims = take<uint32_t>();
    if (dims > kMaxDims) fail_input("{}: tensor \"{}\" has {} dimensions, more than {}", path_, t.name, dims, kMaxDims);
    uint64_t count = 1;
    for (uint32_t d = 0; d < dims; ++d) {
      const uint64_t n = take<uint64_t>();
      if (n == 0 || n > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail_input("{}: tensor \"{}\": dimension {} is out of range", path_, t.name, static_cast<int64_t>(n));
      if (__builtin_mul_overflow(count, n, &count) ||
          count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail_input("{}: tensor \"{}\": the product of its dimensions overflows", path_, t.name);
      t.dims.push_back(static_cast<int64_t>(n));
    }
    const uint32_t type = take<uint32_t>();
    const GgmlTypeInfo* info = ggml_type_info(static_cast<GgmlType>(type));
    if (!info)
      fail_input("{}: tensor \"{}\" has type {}, which is not known here", path_, t.name, static_cast<int32_t>(type));
    t.type = info->type;
    if (t.columns() % info->block != 0)
      fail_input("{}: tensor \"{}\": rows of {} values do not fit {}'s blocks of {}", path_, t.name, t.columns(),
                 info->name, info->block);
    if (__builtin_mul_overflow(count / info->block, uint64_t{info->bytes}, &t.bytes))
      fail_input("{}: tensor \"{}\": its size overflows", path_, t.name);
    t.offset = take<uint64_t>();  // relative until place_tensors
    if (t.offset % g_.alignment_ != 0)
      fail_input("{}: tensor \"{}\": offset {} is not a multiple of the alignment {}", path_, t.name, t.offset,
                 g_.alignment_);
    if (!g_.tensor_index_.emplace(t.name, g_.tensors_.size()).second)
      fail_input("{}: tensor \"{}\" stands twice", path_, t.name);
    g_.tensors_.push_back(std::move(t));
  }

  void place_tensors() {
    if (g_.tensors_.empty()) return;
    const uint64_t start = (at_ + g_.alignment_ - 1) / g_.alignment_ * g_.alignment_;
    const uint64_t room = start <= bytes_.size() ? bytes_.size() - start : 0;
    std::vector<const GgufTensor*> order;
    for (GgufTensor& t : g_.tensors_) {
      if (t.bytes > room || t.offset > room - t.bytes)
        fail_input("{}: tensor \"{}\" runs past the end of the file: it is cut off, fetch it again", path_, t.name);
      t.offset += start;
      order.push_back(&t);
    }
    std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes)
        fail_input("{}: tensors \"{}\" and \"{}\" overlap", path_, order[i - 1]->name, order[i]->name);
  }

  Gguf& g_;
  std::span<const std::byte> bytes_;
  const std::string& path_;
  uint64_t at_ = 0, list_items_ = 0;
  std::string key_;
};

Gguf Gguf::open(const std::string& path) {
  MappedFile map(path);
  Gguf g = parse(map.bytes(), path);
  g.map_ = std::move(map);
  g.open_parts();
  return g;
}

// Keys of gguf-split: split.count on every part, split.no from 0, split.tensors.count of all parts together.
void Gguf::open_parts() {
  const int64_t count = integer("split.count").value_or(1);
  if (count <= 1) return;
  constexpr int64_t kMostParts = 4096;
  const std::string mark = fmt::format("-of-{:05}.gguf", count);
  if (count > kMostParts || !path_.ends_with("-00001" + mark))
    fail_input("{}: is one of {} parts of a model: name the first, …-00001{}, with all others beside it", path_, count,
               mark);
  const std::string stem = path_.substr(0, path_.size() - mark.size() - 6);
  for (int64_t i = 1; i < count; ++i) {
    const std::string path = fmt::format("{}-{:05}{}", stem, i + 1, mark);
    std::error_code ec;
    if (!fs::exists(path, ec)) fail_input("{}: the part {} is not beside it: fetch it too", path_, path);
    MappedFile map(path);
    auto part = std::make_unique<Gguf>(parse(map.bytes(), path));
    part->map_ = std::move(map);
    if (part->integer("split.count") != count || part->integer("split.no") != i)
      fail_input("{}: says of itself that it is another part: it does not belong to {}", path, path_);
    for (GgufTensor t : part->tensors_) {
      t.file = static_cast<size_t>(i);
      if (!tensor_index_.emplace(t.name, tensors_.size()).second)
        fail_input("{}: tensor \"{}\" is also in another part", path, t.name);
      tensors_.push_back(std::move(t));
    }
    parts_.push_back(std::move(part));
  }
  if (const auto all = integer("split.tensors.count"); all && *all != static_cast<int64_t>(tensors_.size()))
    fail_input("{}: its parts hold {} tensors, {} are named: fetch them again", path_, tensors_.size(), *all);
}

std::vector<std::string> Gguf::files() const {
  std::vector<std::string> out{path_};
  for (const auto& part : parts_) out.push_back(part->path_);
  return out;
}

void Gguf::drop_pages() const {
  map_.drop_pages();
  for (const auto& part : parts_) part->map_.drop_pages();
}

Gguf Gguf::parse(std::span<const std::byte> bytes, std::string_view source) {
  Gguf g;
  g.path_ = source;
  g.data_ = bytes;
  GgufReader(g, bytes, g.path_).run();
  return g;
}

int64_t GgufTensor::rows() const {
  int64_t n = 1;
  for (size_t i = 1; i < dims.size(); ++i) n *= dims[i];
  return n;
}

std::vector<int64_t> GgufTensor::shape() const { return {dims.rbegin(), dims.rend()}; }

const GgufValue* Gguf::find_value(std::string_view key) const {
  const auto it = value_index_.find(std::string(key));
  return it == value_index_.end() ? nullptr : &metadata_[it->second].second;
}

const GgufTensor* Gguf::find(std::string_view name) const {
  const auto it = tensor_index_.find(std::string(name));
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

std::span<const std::byte> Gguf::bytes(const GgufTensor& t) const {
  return (t.file == 0 ? data_ : parts_[t.file - 1]->data_).subspan(t.offset, t.bytes);
}

std::optional<int64_t> Gguf::integer(std::string_view key) const {
  const GgufValue* v = find_value(key);
  if (!v) return std::nullopt;
  if (const auto* i = std::get_if<int64_t>(&v->value)) return *i;
  if (const auto* u = std::get_if<uint64_t>(&v->value))
    if (*u <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return static_cast<int64_t>(*u);
  fail_input("{}: key \"{}\" is not a whole number in range", path_, key);
}

std::optional<double> Gguf::number(std::string_view key) const {
  const GgufValue* v = find_value(key);
  if (!v) return std::nullopt;
  if (const auto* d = std::get_if<double>(&v->value)) {
    if (v->type != GgufValueType::kF32) return *d;
    // The file holds the f32 next to what its author wrote: give back what was written (1e-05, not 9.99999974e-06).
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(*d)).ptr;
    double out = *d;
    std::from_chars(text, end, out);
    return out;
  }
  if (const auto* i = std::get_if<int64_t>(&v->value)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&v->value)) return static_cast<double>(*u);
  fail_input("{}: key \"{}\" is not a number", path_, key);
}

std::optional<bool> Gguf::boolean(std::string_view key) const {
  const GgufValue* v = find_value(key);
  if (!v) return std::nullopt;
  if (const auto* b = std::get_if<bool>(&v->value)) return *b;
  fail_input("{}: key \"{}\" is not true or false", path_, key);
}

const std::string* Gguf::text(std::string_view key) const {
  const GgufValue* v = find_value(key);
  if (!v) return nullptr;
  if (const auto* s = std::get_if<std::string>(&v->value)) return s;
  fail_input("{}: key \"{}\" is not text", path_, key);
}

const std::vector<std::string>* Gguf::strings(std::string_view key) const {
  const GgufValue* v = find_value(key);
  if (!v) return nullptr;
  if (const auto* s = std::get_if<std::vector<std::string>>(&v->value)) return s;
  fail_input("{}: key \"{}\" is not a list of texts", path_, key);
}

std::optional<std::vector<int64_t>> Gguf::integers(std::string_view key) const {
  const GgufValue* v = find_value(key);
  if (!v) return std::nullopt;
  if (const auto* i = std::get_if<std::vector<int64_t>>(&v->value)) return *i;
  if (const auto* u = std::get_if<std::vector<uint64_t>>(&v->value)) {
    std::vector<int64_t> out;
    for (uint64_t x : *u) {
      if (x > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail_input("{}: key \"{}\": {} is out of range", path_, key, x);
      out.push_back(static_cast<int64_t>(x));
    }
    return out;
  }
  fail_input("{}: key \"{}\" is not a list of whole numbers", path_, key);
}

void Gguf::dequantize(const GgufTensor& t, float* out, int64_t row_begin, int64_t row_end) const {
  const GgmlTypeInfo& info = *ggml_type_info(t.type);
  if (!info.can_decode)
    fail_missing(
        "{}: tensor \"{}\" is stored as {}, which is not read here: use a file of type Q8_0, Q4_K_M, F16 or the like",
        path_, t.name, info.name);
  const int64_t rows = t.rows();
  if (row_end < 0) row_end = rows;
  MXT_ASSERT(0 <= row_begin && row_begin <= row_end && row_end <= rows);
  const size_t row_bytes = static_cast<size_t>(t.columns()) / info.block * info.bytes;
  ggml_dequantize(t.type, bytes(t).data() + static_cast<size_t>(row_begin) * row_bytes, row_end - row_begin,
                  t.columns(), out);
}

}  // namespace mxt::formats

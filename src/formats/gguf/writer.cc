#include <cstring>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "formats/gguf.h"

namespace mxt::formats {
namespace {

template <typename T>
void put(std::string& out, T v) {
  char b[sizeof v];
  std::memcpy(b, &v, sizeof v);
  out.append(b, sizeof b);
}

void put_text(std::string& out, std::string_view s) {
  put<uint64_t>(out, s.size());
  out += s;
}

// One number of the file's own width. `v` is one of the wide types that GgufValue holds.
template <typename V>
void put_number(std::string& out, GgufValueType t, V v) {
  using T = GgufValueType;
  switch (t) {
    case T::kU8:
    case T::kBool:
      return put(out, static_cast<uint8_t>(v));
    case T::kI8:
      return put(out, static_cast<int8_t>(v));
    case T::kU16:
      return put(out, static_cast<uint16_t>(v));
    case T::kI16:
      return put(out, static_cast<int16_t>(v));
    case T::kU32:
      return put(out, static_cast<uint32_t>(v));
    case T::kI32:
      return put(out, static_cast<int32_t>(v));
    case T::kU64:
      return put(out, static_cast<uint64_t>(v));
    case T::kI64:
      return put(out, static_cast<int64_t>(v));
    case T::kF32:
      return put(out, static_cast<float>(v));
    case T::kF64:
      return put(out, static_cast<double>(v));
    default:
      MXT_ASSERT(!"GgufWriter: not a number type");
  }
}

void put_value(std::string& out, const GgufValue& v) {
  put(out, static_cast<uint32_t>(v.type));
  const bool array = v.type == GgufValueType::kArray;
  if (array) put(out, static_cast<uint32_t>(v.element));
  std::visit(
      [&](const auto& x) {
        using X = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<X, std::string>) {
          MXT_ASSERT(v.type == GgufValueType::kString);
          put_text(out, x);
        } else if constexpr (std::is_same_v<X, std::vector<std::string>>) {
          MXT_ASSERT(array && v.element == GgufValueType::kString);
          put<uint64_t>(out, x.size());
          for (const auto& s : x) put_text(out, s);
        } else if constexpr (std::is_arithmetic_v<X>) {
          put_number(out, v.type, x);
        } else {
          MXT_ASSERT(array);
          put<uint64_t>(out, x.size());
          for (auto n : x) put_number(out, v.element, n);
        }
      },
      v.value);
}

}  // namespace

struct GgufWriter::State {
  struct Tensor {
    std::string name;
    GgmlType type;
    std::vector<int64_t> shape;
    uint64_t bytes = 0, offset = 0;
    int64_t columns = 1;
  };
  std::string path;
  uint64_t alignment;
  std::string metadata;
  std::set<std::string> keys, names;
  std::vector<Tensor> tensors;
  uint64_t total = 0;  // of the data, padded
  std::unique_ptr<AtomicFile> file;
  size_t current = 0;
  uint64_t done = 0;

  uint64_t padded(uint64_t n) const { return (n + alignment - 1) / alignment * alignment; }

  void start() {
    std::string h = "GGUF";
    put<uint32_t>(h, 3);
    put<uint64_t>(h, tensors.size());
    put<uint64_t>(h, keys.size());
    h += metadata;
    for (const Tensor& t : tensors) {
      put_text(h, t.name);
      put<uint32_t>(h, static_cast<uint32_t>(t.shape.size()));
      for (auto d = t.shape.rbegin(); d != t.shape.rend(); ++d) put<uint64_t>(h, static_cast<uint64_t>(*d));
      put(h, static_cast<uint32_t>(t.type));
      put(h, t.offset);
    }
    h.resize(padded(h.size()), '\0');
    if (const uint64_t room = free_disk_bytes(fs::path(path).parent_path().string()); room < h.size() + total)
      fail_input("{}: {} are needed but only {} are free: free some, or write elsewhere", path,
                 human_bytes(h.size() + total), human_bytes(room));
    file = std::make_unique<AtomicFile>(path);
    file->write(h);
  }

  void write(std::string_view name, const void* data, size_t bytes) {
    if (!file) start();
    MXT_ASSERT(current < tensors.size() && tensors[current].name == name && bytes <= tensors[current].bytes - done);
    file->write(data, bytes);
    done += bytes;
    if (done < tensors[current].bytes) return;
    file->write(std::string(padded(done) - done, '\0'));
    done = 0;
    ++current;
  }
};

GgufWriter::GgufWriter(const std::string& path, uint32_t alignment) : s_(std::make_unique<State>()) {
  MXT_ASSERT(alignment >= 8 && (alignment & (alignment - 1)) == 0);
  s_->path = path;
  s_->alignment = alignment;
  if (alignment != 32) add("general.alignment", GgufValue::u32(alignment));
}

GgufWriter::~GgufWriter() = default;

void GgufWriter::add(std::string key, GgufValue value) {
  MXT_ASSERT(!s_->file && key.size() <= 65'535);
  put_text(s_->metadata, key);
  put_value(s_->metadata, value);
  MXT_ASSERT(s_->keys.insert(std::move(key)).second);
}

void GgufWriter::declare(std::string name, GgmlType type, const std::vector<int64_t>& shape) {
  const GgmlTypeInfo& info = *ggml_type_info(type);
  MXT_ASSERT(!s_->file && !shape.empty() && shape.size() <= 4 && shape.back() % info.block == 0);
  MXT_ASSERT(name.size() < 64 && s_->names.insert(name).second);  // ggml's limit on names
  State::Tensor t{std::move(name), type, shape};
  t.columns = shape.back();
  uint64_t blocks = static_cast<uint64_t>(t.columns) / info.block;
  for (size_t i = 0; i + 1 < shape.size(); ++i) blocks *= static_cast<uint64_t>(shape[i]);
  t.bytes = blocks * info.bytes;
  t.offset = s_->total;
  s_->total += s_->padded(t.bytes);
  s_->tensors.push_back(std::move(t));
}

void GgufWriter::append_raw(std::string_view name, const void* data, size_t bytes) { s_->write(name, data, bytes); }

void GgufWriter::append(std::string_view name, const float* data, int64_t rows) {
  MXT_ASSERT(s_->current < s_->tensors.size());
  const State::Tensor& t = s_->tensors[s_->current];
  const GgmlTypeInfo& info = *ggml_type_info(t.type);
  if (t.type == GgmlType::kF32) return s_->write(name, data, static_cast<size_t>(rows * t.columns) * 4);
  const size_t row_bytes = static_cast<size_t>(t.columns) / info.block * info.bytes;
  const int64_t columns = t.columns, step = std::max<int64_t>(1, (1 << 22) / columns);
  const GgmlType type = t.type;
  std::string out;
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t n = std::min(step, rows - r);
    out.resize(static_cast<size_t>(n) * row_bytes);
    ggml_quantize(type, data + r * columns, n, columns, out.data());
    s_->write(name, out.data(), out.size());
  }
}

void GgufWriter::commit() {
  if (!s_->file) s_->start();
  MXT_ASSERT(s_->current == s_->tensors.size());
  s_->file->commit();
}

}  // namespace mxt::formats

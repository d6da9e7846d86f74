// GGUF, the file of llama.cpp: header, typed metadata, tensor table, aligned tensor data. Versions 2 and 3, little
// endian. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; block layouts: ggml-common.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/files.h"
#include "base/types.h"

namespace mxt::formats {

// Numbers of ggml_type. A type outside this list is refused; one without a decoder here opens, but cannot be read.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
};

struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;  // "Q4_K"
  uint32_t block;         // elements of one block; the first dimension must be a multiple of it
  uint32_t bytes;         // of one block
  bool can_decode;        // dequantize works
  bool can_encode;        // GgufWriter and ggml_quantize work
};
const GgmlTypeInfo* ggml_type_info(GgmlType type);          // null where unknown
const GgmlTypeInfo* ggml_type_info(std::string_view name);  // "q4_k" and "Q4_K"; null where unknown

// `rows` rows of `columns` values (a multiple of the block) to fp32, bit by bit as gguf-py and ggml's reference do.
// On several threads. `type` must have can_decode.
void ggml_dequantize(GgmlType type, const void* in, int64_t rows, int64_t columns, float* out);
// 32 values in a row: value k = scale[k / 16]·q[k] + least, rounded once: the product is exact where least is not 0.
struct GgmlPart {
  float scale[2] = {0, 0}, least = 0;
  int8_t q[32] = {};
};
// Whether every value of a type has that form here: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K.
bool ggml_has_parts(GgmlType type);
// A row of `columns` values (a multiple of the block) as columns/32 parts.
void ggml_parts(GgmlType type, const void* in, int64_t columns, GgmlPart* out);
// The reference encoders of ggml (no importance matrix). On several threads. `type` must have can_encode.
void ggml_quantize(GgmlType type, const float* in, int64_t rows, int64_t columns, void* out);

enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// A metadata value. Whole numbers of every width are held in 64 bits, floats as double; `type` (and `element` of an
// array) remember what the file says, so that a value can be written back as it was.
struct GgufValue {
  GgufValueType type = GgufValueType::kU32;
  GgufValueType element = GgufValueType::kU32;  // of kArray
  std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<uint64_t>, std::vector<int64_t>,
               std::vector<double>, std::vector<std::string>>
      value;  // an array of bools is a vector of uint64_t

  static GgufValue u32(uint32_t v) { return {GgufValueType::kU32, {}, uint64_t{v}}; }
  static GgufValue i32(int32_t v) { return {GgufValueType::kI32, {}, int64_t{v}}; }
  static GgufValue u64(uint64_t v) { return {GgufValueType::kU64, {}, v}; }
  static GgufValue f32(float v) { return {GgufValueType::kF32, {}, double{v}}; }
  static GgufValue boolean(bool v) { return {GgufValueType::kBool, {}, v}; }
  static GgufValue text(std::string v) { return {GgufValueType::kString, {}, std::move(v)}; }
  static GgufValue strings(std::vector<std::string> v) {
    return {GgufValueType::kArray, GgufValueType::kString, std::move(v)};
  }
  static GgufValue i32s(std::vector<int64_t> v) { return {GgufValueType::kArray, GgufValueType::kI32, std::move(v)}; }
  static GgufValue f32s(std::vector<double> v) { return {GgufValueType::kArray, GgufValueType::kF32, std::move(v)}; }
};

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> dims;  // as in the file: the fastest dimension first (the reverse of a PyTorch shape)
  uint64_t offset = 0;        // from the start of its file
  uint64_t bytes = 0;
  size_t file = 0;  // of Gguf::files()

  int64_t columns() const { return dims.empty() ? 1 : dims[0]; }
  int64_t rows() const;                // product of the other dimensions
  std::vector<int64_t> shape() const;  // PyTorch's order
};

// Mapped read-only; everything is checked at open. Errors (kBadInput): not GGUF, another version, big endian, counts or
// lengths past the end of the file, duplicate keys or tensors, nested arrays, unknown value or tensor types, dimensions
// that overflow or do not fit the block, alignment that is 0 or no power of two, tensors outside the file or
// overlapping.
// A file that llama.cpp's gguf-split cut (name-00001-of-00003.gguf, metadata in the first) is opened by its first part,
// with all others beside it.
class Gguf {
 public:
  static Gguf open(const std::string& path);
  // The same from bytes already in memory, which must outlive the result; `source` is for messages.
  static Gguf parse(std::span<const std::byte> bytes, std::string_view source);

  const std::string& path() const { return path_; }
  std::vector<std::string> files() const;  // one, or all parts
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }

  // Metadata in file order; find gives null where there is none.
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const { return metadata_; }
  const GgufValue* find_value(std::string_view key) const;
  // Typed access: empty where the key is absent, kBadInput where it has another type. Integers of any width are taken
  // where they fit; a float key also takes an integer.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // an f32 gives the shortest decimal that means it: 1e-05
  std::optional<bool> boolean(std::string_view key) const;
  const std::string* text(std::string_view key) const;
  const std::vector<std::string>* strings(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view name) const;
  std::span<const std::byte> bytes(const GgufTensor&) const;
  // Rows [begin, end) (end < 0: all) to fp32, columns() values each. kMissing for a type without a decoder.
  void dequantize(const GgufTensor&, float* out, int64_t row_begin = 0, int64_t row_end = -1) const;
  void drop_pages() const;

 private:
  void open_parts();
  MappedFile map_;
  std::vector<std::unique_ptr<Gguf>> parts_;  // the second and later ones of a split file
  std::string path_;
  std::span<const std::byte> data_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::unordered_map<std::string, size_t> value_index_, tensor_index_;
  std::vector<GgufTensor> tensors_;
  friend class GgufReader;
};

// Writes version 3, the same bytes for the same input. Add metadata (in the order it shall have) and declare tensors,
// then append their data in that order; commit() makes the file appear.
class GgufWriter {
 public:
  explicit GgufWriter(const std::string& path, uint32_t alignment = 32);
  ~GgufWriter();
  GgufWriter(const GgufWriter&) = delete;
  void add(std::string key, GgufValue value);                                        // a second value for a key asserts
  void declare(std::string name, GgmlType type, const std::vector<int64_t>& shape);  // shape in PyTorch's order
  void append_raw(std::string_view name, const void* data, size_t bytes);            // already in the declared type
  void append(std::string_view name, const float* data, int64_t rows);               // encoded here; pieces of rows
  void commit();

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace mxt::formats

// safetensors: 8 bytes little-endian header length, a JSON header, then the tensors' bytes without gaps.
// Format and limits: https://huggingface.co/docs/safetensors (its Rust reference reader).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "base/types.h"

namespace mxt::formats {

struct TensorInfo {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;  // empty = a scalar; a dimension may be 0
  uint64_t offset = 0;         // from the start of the file
  uint64_t bytes = 0;
  int file = 0;  // index into Safetensors::files()

  int64_t count() const;  // product of the shape
};

// One file, or a folder with model.safetensors or its shards (model.safetensors.index.json). Mapped read-only.
// Everything is checked at open, so what the accessors give is always inside the mapping. Errors (kBadInput) name the
// file and what is wrong with it: header shorter than 2 bytes, over 100 MB or past the end, not starting with `{`, not
// UTF-8 or JSON, duplicate names, __metadata__ that is not text, unknown dtype, shape × dtype unequal to the span or
// overflowing, gaps and overlaps, more than 100,000 tensors; for shards: an index that names files outside the folder,
// or tensors that are not in them.
class Safetensors {
 public:
  static Safetensors open(const std::string& file_or_folder);
  // The same from bytes already in memory, which must outlive the result; `source` is for messages.
  static Safetensors parse(std::span<const std::byte> bytes, std::string_view source);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // by file, then by offset
  const TensorInfo* find(std::string_view name) const;                 // null where there is none
  const TensorInfo& at(std::string_view name) const;                   // kBadInput where there is none
  void rename(std::string_view from, const std::string& to);           // `from` is there, `to` is not
  // The raw bytes; their address need not be a multiple of the element size (old writers did not align).
  std::span<const std::byte> bytes(const TensorInfo&) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }  // of the first file that has any
  const std::vector<std::string>& files() const { return files_; }                  // paths as opened
  // Lets the kernel forget the pages of what was read; they are read again if touched.
  void drop_pages() const;

 private:
  void add_file(std::span<const std::byte> bytes, const std::string& path);
  void open_shards(const std::string& folder, const std::string& index_path);
  void index_names();

  std::vector<MappedFile> maps_;
  std::vector<std::span<const std::byte>> data_;
  std::vector<std::string> files_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

struct TensorSpec {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
};

// Writes the same bytes for the same declarations and data, always. Everything is written beside the target and
// renamed by commit(); without it nothing appears. Declare all tensors, then append their data in the same order.
class SafetensorsWriter {
 public:
  struct Options {
    std::map<std::string, std::string> metadata{{"format", "pt"}};  // transformers refuses files without "format"
    // 0 = one file. Else tensors go to a new shard when this one would pass the limit (a larger tensor stands alone),
    // and `NAME.safetensors.index.json` is written beside the shards NAME-00001-of-0000N.safetensors.
    uint64_t max_shard_bytes = 0;
  };

  // `path` ends in .safetensors; with more than one shard its stem is the shards' stem.
  SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors, Options options);
  SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;

  // The order in which Hugging Face's writer lays tensors out: wide element types first, then by name. It keeps every
  // tensor aligned to its element size, so prefer it.
  static std::vector<TensorSpec> usual_order(std::vector<TensorSpec> tensors);

  // The next `bytes` of the data; pieces may cut tensors anywhere but may not run over the end of one.
  void append(const void* data, size_t bytes);
  // A whole tensor: checks that it is the one whose turn it is.
  void append_tensor(std::string_view name, const void* data, size_t bytes);
  void commit();
  const std::vector<std::string>& files() const;  // paths that commit() makes appear, index last

 private:
  struct State;
  std::unique_ptr<State> s_;
};

// Product of the shape times the element size; empty where it overflows or a dimension is negative.
std::optional<uint64_t> tensor_bytes(std::span<const int64_t> shape, DType type);

}  // namespace mxt::formats

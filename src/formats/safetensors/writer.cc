#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "formats/safetensors.h"

namespace mxt::formats {
namespace {

std::string quoted(const std::string& s) { return OrderedJson(s).dump(-1, ' ', false); }

// The header as Hugging Face's writer spells it: no white space, padded with spaces so that the data starts at a
// multiple of 8.
std::string header_of(std::span<const TensorSpec> tensors, const std::map<std::string, std::string>& metadata) {
  std::string h = "{";
  if (!metadata.empty()) {
    h += "\"__metadata__\":{";
    for (const auto& [k, v] : metadata) h += quoted(k) + ":" + quoted(v) + ",";
    h.back() = '}';
    h += ',';
  }
  uint64_t at = 0;
  for (const TensorSpec& t : tensors) {
    const uint64_t bytes = *tensor_bytes(t.shape, t.type);
    h += quoted(t.name) + ":{\"dtype\":\"" + std::string(name_of(t.type)) + "\",\"shape\":[";
    for (size_t i = 0; i < t.shape.size(); ++i) h += fmt::format("{}{}", i ? "," : "", t.shape[i]);
    h += fmt::format("],\"data_offsets\":[{},{}]}},", at, at + bytes);
    at += bytes;
  }
  if (h.back() == ',') h.pop_back();
  h += '}';
  h.append((8 - h.size() % 8) % 8, ' ');
  return h;
}

// The order of the reference's enumeration of types, which its writer sorts by (descending).
int rank(DType t) {
  switch (t) {
    case DType::kBool:
      return 0;
    case DType::kU8:
      return 1;
    case DType::kI8:
      return 2;
    case DType::kF8E4M3:
      return 3;
    case DType::kF16:
      return 4;
    case DType::kBF16:
      return 5;
    case DType::kI32:
      return 6;
    case DType::kF32:
      return 7;
    case DType::kF64:
      return 8;
    case DType::kI64:
      return 9;
  }
  return 0;
}

}  // namespace

struct SafetensorsWriter::State {
  struct Shard {
    std::string path, header;
    size_t begin = 0, end = 0;  // tensors
    uint64_t bytes = 0;
    std::unique_ptr<AtomicFile> file;
  };
  std::string path;
  std::vector<TensorSpec> tensors;
  std::vector<Shard> shards;
  std::vector<std::string> files;
  std::string index;  // text of the index file, empty for one shard
  size_t tensor = 0, shard = 0;
  uint64_t done = 0;  // bytes of the current tensor

  uint64_t bytes_of(size_t i) const { return *tensor_bytes(tensors[i].shape, tensors[i].type); }

  void open_shard() {
    Shard& s = shards[shard];
    s.file = std::make_unique<AtomicFile>(s.path);
    const uint64_t n = s.header.size();
    unsigned char length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(n >> (8 * i));
    s.file->write(length, 8);
    s.file->write(s.header);
  }

  // Steps over tensors that are complete (empty ones at once) and opens the shard of the next one.
  void advance() {
    while (tensor < tensors.size() && done == bytes_of(tensor)) {
      ++tensor;
      done = 0;
      if (tensor == shards[shard].end && shard + 1 < shards.size()) {
        ++shard;
        open_shard();
      }
    }
  }
};

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors)
    : SafetensorsWriter(path, std::move(tensors), Options{}) {}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors, Options options)
    : s_(std::make_unique<State>()) {
  constexpr std::string_view kSuffix = ".safetensors";
  MXT_ASSERT(path.ends_with(kSuffix));
  s_->path = path;
  s_->tensors = std::move(tensors);
  std::set<std::string_view> names;
  uint64_t total = 0;
  s_->shards.emplace_back();
  for (size_t i = 0; i < s_->tensors.size(); ++i) {
    const TensorSpec& t = s_->tensors[i];
    MXT_ASSERT(tensor_bytes(t.shape, t.type).has_value() && is_valid_utf8(t.name) && t.name != "__metadata__");
    MXT_ASSERT(names.insert(t.name).second);
    const uint64_t bytes = s_->bytes_of(i);
    if (options.max_shard_bytes > 0 && s_->shards.back().bytes > 0 &&
        s_->shards.back().bytes + bytes > options.max_shard_bytes) {
      s_->shards.emplace_back();
      s_->shards.back().begin = i;
    }
    s_->shards.back().bytes += bytes;
    s_->shards.back().end = i + 1;
    total += bytes;
  }
  if (const uint64_t room = free_disk_bytes(fs::path(path).parent_path().string()); room < total)
    fail_input("{}: {} are needed but only {} are free: free some, or write elsewhere", path, human_bytes(total),
               human_bytes(room));

  const std::string stem = path.substr(0, path.size() - kSuffix.size());
  const size_t n = s_->shards.size();
  OrderedJson index;
  std::map<std::string, std::string> weight_map;
  for (size_t i = 0; i < n; ++i) {
    auto& shard = s_->shards[i];
    shard.path = n == 1 ? path : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, n);
    shard.header = header_of(std::span(s_->tensors).subspan(shard.begin, shard.end - shard.begin), options.metadata);
    s_->files.push_back(shard.path);
    for (size_t t = shard.begin; t < shard.end; ++t)
      weight_map[s_->tensors[t].name] = fs::path(shard.path).filename().string();
  }
  if (n > 1) {
    index["metadata"]["total_size"] = total;
    index["weight_map"] = weight_map;
    s_->index = index.dump(2) + "\n";
    s_->files.push_back(path + ".index.json");
  }
  s_->open_shard();
  s_->advance();
}

SafetensorsWriter::~SafetensorsWriter() = default;

std::vector<TensorSpec> SafetensorsWriter::usual_order(std::vector<TensorSpec> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return rank(a.type) != rank(b.type) ? rank(a.type) > rank(b.type) : a.name < b.name;
  });
  return tensors;
}

void SafetensorsWriter::append(const void* data, size_t bytes) {
  if (bytes == 0) return;
  MXT_ASSERT(s_->tensor < s_->tensors.size() && bytes <= s_->bytes_of(s_->tensor) - s_->done);
  s_->shards[s_->shard].file->write(data, bytes);
  s_->done += bytes;
  s_->advance();
}

void SafetensorsWriter::append_tensor(std::string_view name, const void* data, size_t bytes) {
  if (bytes == 0) return;  // an empty tensor's turn is over already
  MXT_ASSERT(s_->tensor < s_->tensors.size() && s_->tensors[s_->tensor].name == name && s_->done == 0 &&
             bytes == s_->bytes_of(s_->tensor));
  append(data, bytes);
}

void SafetensorsWriter::commit() {
  MXT_ASSERT(s_->tensor == s_->tensors.size());
  for (auto& shard : s_->shards) shard.file->commit();
  if (!s_->index.empty()) write_file_atomic(s_->path + ".index.json", s_->index);
}

const std::vector<std::string>& SafetensorsWriter::files() const { return s_->files; }

}  // namespace mxt::formats

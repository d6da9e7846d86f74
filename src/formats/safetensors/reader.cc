#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "formats/safetensors.h"

namespace mxt::formats {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference reader's limit
constexpr size_t kMaxTensors = 100'000;

struct Entry {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

// Takes the header apart as it is parsed. The grammar is so narrow that whatever leaves it is refused on the spot, and
// no document is ever built: memory stays in proportion to the tensors.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::string_view source, std::vector<Entry>& entries, std::map<std::string, std::string>& metadata)
      : source_(source), entries_(entries), metadata_(metadata) {}

  bool start_object(size_t) override {
    if (where_ == Where::kStart)
      where_ = Where::kTop;
    else if (where_ == Where::kEntry && key_.empty() && !in_entry_) {
      in_entry_ = true;
    } else if (where_ == Where::kMetadata && !in_entry_) {
      in_entry_ = true;
    } else {
      bad("an object where none belongs");
    }
    return true;
  }

  bool key(string_t& k) override {
    if (where_ == Where::kTop) {
      for (char c : k)
        if (static_cast<unsigned char>(c) < 0x20) fail_input("{}: a tensor name holds control characters", source_);
      if (!names_.insert(k).second) fail_input("{}: tensor name \"{}\" stands twice in the header", source_, k);
      if (k == "__metadata__") {
        where_ = Where::kMetadata;
        return true;
      }
      if (entries_.size() >= kMaxTensors) fail_input("{}: more than {} tensors in the header", source_, kMaxTensors);
      where_ = Where::kEntry;
      entries_.emplace_back().name = std::move(k);
      seen_ = 0;
      key_.clear();
      return true;
    }
    if (where_ == Where::kMetadata) {
      if (metadata_.contains(k)) fail_input("{}: key \"{}\" stands twice in __metadata__", source_, printable(k));
      key_ = std::move(k);
      have_key_ = true;
      return true;
    }
    const unsigned bit = k == "dtype" ? 1u : k == "shape" ? 2u : k == "data_offsets" ? 4u : 0u;
    if (bit == 0) bad("unknown key \"" + printable(k) + "\"");
    if (seen_ & bit) bad("key \"" + k + "\" stands twice");
    seen_ |= bit;
    key_ = std::move(k);
    return true;
  }

  bool string(string_t& v) override {
    if (where_ == Where::kMetadata && in_entry_ && have_key_) {
      metadata_[key_] = std::move(v);
      have_key_ = false;
      return true;
    }
    if (where_ != Where::kEntry || key_ != "dtype" || array_) bad("text where none belongs");
    if (!dtype_from_name(v, &entries_.back().type))
      fail_input("{}: tensor \"{}\" has dtype \"{}\", which is not supported: convert it to F32, F16, BF16 or F8_E4M3",
                 source_, entries_.back().name, printable(v));
    key_.clear();
    return true;
  }

  bool number_unsigned(number_unsigned_t v) override {
    if (where_ != Where::kEntry || !array_) bad("a number where none belongs");
    Entry& e = entries_.back();
    if (key_ == "shape") {
      if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) bad("a dimension that is out of range");
      e.shape.push_back(static_cast<int64_t>(v));
    } else {
      if (offsets_ == 0)
        e.begin = v;
      else if (offsets_ == 1)
        e.end = v;
      else
        bad("data_offsets with more than two numbers");
      ++offsets_;
    }
    return true;
  }

  bool start_array(size_t) override {
    if (where_ != Where::kEntry || array_ || (key_ != "shape" && key_ != "data_offsets"))
      bad("a list where none belongs");
    array_ = true;
    offsets_ = 0;
    return true;
  }
  bool end_array() override {
    array_ = false;
    if (key_ == "data_offsets" && offsets_ != 2) bad("data_offsets without two numbers");
    key_.clear();
    return true;
  }
  bool end_object() override {
    if (where_ == Where::kEntry) {
      if (seen_ != 7) bad("one of dtype, shape and data_offsets is missing");
    } else if (where_ == Where::kTop) {
      where_ = Where::kDone;
      return true;
    }
    where_ = Where::kTop;
    in_entry_ = false;
    return true;
  }

  bool null() override { bad("null where none belongs"); }
  bool boolean(bool) override { bad("true or false where none belongs"); }
  bool number_integer(number_integer_t) override { bad("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { bad("a number that is not a whole one in range"); }
  bool binary(binary_t&) override { bad("binary data"); }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    fail_input("{}: the header is not valid JSON at byte {}: the file is damaged, fetch it again", source_, at + 8);
  }

 private:
  static std::string printable(std::string_view s) {
    std::string out(s.substr(0, 80));
    for (char& c : out)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    return replace_invalid_utf8(out);
  }
  [[noreturn]] void bad(const std::string& what) const {
    if (where_ == Where::kMetadata) fail_input("{}: __metadata__ must hold text only", source_);
    if (where_ == Where::kEntry) fail_input("{}: tensor \"{}\": {}", source_, entries_.back().name, what);
    fail_input("{}: the header has {}", source_, what);
  }

  enum class Where { kStart, kTop, kEntry, kMetadata, kDone } where_ = Where::kStart;
  std::string_view source_;
  std::vector<Entry>& entries_;
  std::map<std::string, std::string>& metadata_;
  std::unordered_set<std::string> names_;
  std::string key_;
  unsigned seen_ = 0;
  int offsets_ = 0;
  bool array_ = false, in_entry_ = false, have_key_ = false;
};

uint64_t load_u64(const std::byte* p) {
  uint64_t v = 0;
  for (int i = 7; i >= 0; --i) v = v << 8 | static_cast<uint8_t>(p[i]);
  return v;
}

// Entries must tile the data exactly, in some order.
void check_layout(std::vector<Entry>& entries, uint64_t data_bytes, std::string_view source) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.end != b.end ? a.end < b.end : a.name < b.name;
  });
  uint64_t at = 0;
  for (const Entry& e : entries) {
    if (e.begin > e.end || e.end > data_bytes)
      fail_input("{}: tensor \"{}\": bytes {}..{} are outside of the data ({} bytes): the file is cut off or damaged",
                 source, e.name, e.begin, e.end, data_bytes);
    if (e.begin < at) fail_input("{}: tensor \"{}\" overlaps the one before it", source, e.name);
    if (e.begin > at) fail_input("{}: {} unused bytes before tensor \"{}\"", source, e.begin - at, e.name);
    const auto want = tensor_bytes(e.shape, e.type);
    if (!want) fail_input("{}: tensor \"{}\": the shape's size overflows", source, e.name);
    if (*want != e.end - e.begin)
      fail_input("{}: tensor \"{}\": its shape needs {} bytes but {} are given", source, e.name, *want,
                 e.end - e.begin);
    at = e.end;
  }
  if (at != data_bytes) fail_input("{}: {} bytes after the last tensor belong to none", source, data_bytes - at);
}

}  // namespace

int64_t TensorInfo::count() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

std::optional<uint64_t> tensor_bytes(std::span<const int64_t> shape, DType type) {
  uint64_t n = size_of(type);
  bool zero = false;
  for (int64_t d : shape) {
    if (d < 0) return std::nullopt;
    if (d == 0)
      zero = true;
    else if (__builtin_mul_overflow(n, static_cast<uint64_t>(d), &n))
      return std::nullopt;
  }
  if (n > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return zero ? 0 : n;
}

void Safetensors::add_file(std::span<const std::byte> bytes, const std::string& path) {
  if (bytes.size() < 8)
    fail_input("{}: is not a safetensors file: {} bytes are too few for its header", path, bytes.size());
  const uint64_t header = load_u64(bytes.data());
  if (header > kMaxHeader)
    fail_input("{}: the header's length {} is over {} bytes: not a safetensors file, or damaged", path, header,
               kMaxHeader);
  if (header < 2) fail_input("{}: the header's length {} is too short for one", path, header);
  if (header > bytes.size() - 8)
    fail_input("{}: the header's length {} runs past the end of the file: it is cut off, fetch it again", path, header);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header);
  if (text[0] != '{') fail_input("{}: the header does not start with '{{': not a safetensors file", path);
  if (!is_valid_utf8(text)) fail_input("{}: the header is not valid UTF-8", path);

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  HeaderReader reader(path, entries, metadata);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  check_layout(entries, bytes.size() - 8 - header, path);

  const int file = static_cast<int>(files_.size());
  for (Entry& e : entries)
    tensors_.push_back({std::move(e.name), e.type, std::move(e.shape), 8 + header + e.begin, e.end - e.begin, file});
  if (metadata_.empty()) metadata_ = std::move(metadata);
  data_.push_back(bytes);
  files_.push_back(path);
}

void Safetensors::index_names() {
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [at, fresh] = by_name_.emplace(tensors_[i].name, i);
    if (!fresh)
      fail_input("{}: tensor \"{}\" is also in {}: a tensor must stand in one shard",
                 files_[static_cast<size_t>(tensors_[i].file)], tensors_[i].name,
                 files_[static_cast<size_t>(tensors_[at->second].file)]);
  }
}

void Safetensors::open_shards(const std::string& folder, const std::string& index_path) {
  const Json index = read_json_file(index_path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object() ||
      index["weight_map"].empty())
    fail_input("{}: has no \"weight_map\" of tensor names to files", index_path);
  std::map<std::string, int> shards;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) fail_input("{}: weight_map[\"{}\"] is not a file name", index_path, name);
    const std::string f = file.get<std::string>();
    if (f.empty() || f.find('/') != std::string::npos || f.find('\\') != std::string::npos ||
        f.find('\0') != std::string::npos || f == "." || f == "..")
      fail_input("{}: weight_map[\"{}\"] names \"{}\": shards must stand in the same folder", index_path, name, f);
    shards.emplace(f, 0);
  }
  for (auto& [name, number] : shards) {
    const std::string path = folder + "/" + name;
    if (!fs::is_regular_file(path))
      fail_input("{}: names the shard {}, which is not there: fetch the model again", index_path, path);
    number = static_cast<int>(files_.size());
    maps_.emplace_back(path);
    add_file(maps_.back().bytes(), path);
  }
  index_names();
  for (const auto& [name, file] : index["weight_map"].items()) {
    const TensorInfo* t = find(name);
    // Some writers list a head that is tied to the embedding and was not stored twice. Where it is not tied, what reads
    // the model misses it by name.
    if (!t && name == "lm_head.weight") continue;
    if (!t || t->file != shards.at(file.get<std::string>()))
      fail_input("{}: tensor \"{}\" is not in {}: index and shards do not belong together", index_path, name,
                 file.get<std::string>());
  }
}

Safetensors Safetensors::open(const std::string& path) {
  Safetensors s;
  std::error_code ec;
  if (!fs::is_directory(path, ec)) {
    if (!fs::exists(path, ec)) fail_input("{}: no such file or folder", path);
    s.maps_.emplace_back(path);
    s.add_file(s.maps_.back().bytes(), path);
    s.index_names();
    return s;
  }
  const std::string single = path + "/model.safetensors", index = single + ".index.json";
  if (fs::exists(single, ec)) return open(single);
  if (fs::exists(index, ec)) {
    s.open_shards(path, index);
    return s;
  }
  if (fs::exists(path + "/pytorch_model.bin", ec) || fs::exists(path + "/pytorch_model.bin.index.json", ec))
    fail_input("{}: holds PyTorch pickles only, which can run code and are not read: convert them to model.safetensors",
               path);
  for (const auto& file : fs::directory_iterator(path, ec))
    if (const std::string name = file.path().filename(); name.starts_with("model-") && name.ends_with(".safetensors"))
      fail_input("{}: holds {}, but not model.safetensors.index.json, which says what is in each: fetch it, too", path,
                 name);
  fail_input("{}: holds neither model.safetensors nor model.safetensors.index.json", path);
}

Safetensors Safetensors::parse(std::span<const std::byte> bytes, std::string_view source) {
  Safetensors s;
  s.add_file(bytes, std::string(source));
  s.index_names();
  return s;
}

const TensorInfo* Safetensors::find(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

const TensorInfo& Safetensors::at(std::string_view name) const {
  if (const TensorInfo* t = find(name)) return *t;
  std::vector<std::string> names;
  if (tensors_.size() <= 2000)
    for (const auto& t : tensors_) names.push_back(t.name);
  const std::string near = nearest(name, names);
  fail_input("{}: has no tensor \"{}\"{}", files_.empty() ? "" : files_[0], name,
             near.empty() ? std::string() : " (nearest: \"" + near + "\")");
}

void Safetensors::rename(std::string_view from, const std::string& to) {
  auto node = by_name_.extract(std::string(from));
  MXT_ASSERT(!node.empty() && !by_name_.contains(to));
  tensors_[node.mapped()].name = node.key() = to;
  by_name_.insert(std::move(node));
}

std::span<const std::byte> Safetensors::bytes(const TensorInfo& t) const {
  return data_[static_cast<size_t>(t.file)].subspan(t.offset, t.bytes);
}

void Safetensors::drop_pages() const {
  for (const auto& m : maps_) m.drop_pages();
}

}  // namespace mxt::formats

#include "data/source/parquet_pages.h"

#include <zlib.h>

#include <cstdint>

namespace mxt::data {
namespace {

// Apache Thrift's compact protocol, as far as a page's header has it: its own fields are numbers, those of structs in
// it are passed over. Nothing is read beyond the bytes, and `bad` says that they are none of a header.
class Compact {
 public:
  explicit Compact(std::span<const std::byte> bytes) : bytes_(bytes) {}

  enum Type : uint8_t { kStop, kTrue, kFalse, kByte, kInt16, kInt32, kInt64, kDouble, kBinary, kStruct = 12 };

  Type field(int64_t* id) {
    const uint8_t head = byte();
    if (bad || (head & 15) == kStop) return kStop;
    *id = head >> 4 ? *id + (head >> 4) : integer();
    return static_cast<Type>(head & 15);
  }
  int64_t integer() {
    const uint64_t v = varint();
    return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
  }
  void skip(Type t, int depth = 0) {
    if (t == kByte) byte();
    if (t >= kInt16 && t <= kInt64) varint();
    if (t == kDouble) pass(8);
    if (t == kBinary) pass(varint());
    if (t == kStruct && depth < 4) {
      int64_t id = 0;
      for (Type inner; (inner = field(&id)) != kStop;) skip(inner, depth + 1);
    } else if (t > kBinary) {
      bad = true;  // lists and maps: a page's header has none
    }
  }
  size_t at() const { return at_; }
  bool bad = false;

 private:
  uint8_t byte() {
    bad = bad || at_ == bytes_.size();
    return bad ? 0 : static_cast<uint8_t>(bytes_[at_++]);
  }
  uint64_t varint() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t b = byte();
      v |= static_cast<uint64_t>(b & 127) << shift;
      if (b < 128) return v;
    }
    bad = true;
    return 0;
  }
  void pass(uint64_t n) {
    bad = bad || n > bytes_.size() - at_;
    if (!bad) at_ += n;
  }
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

struct PageHeader {
  size_t bytes = 0;        // of the header itself; 0: there is none
  int64_t page_bytes = 0;  // that follow it, as they stand in the file
  std::optional<uint32_t> crc;
};

// parquet.thrift, PageHeader: 3 compressed_page_size, 4 crc.
PageHeader read_header(std::span<const std::byte> at) {
  Compact c(at);
  PageHeader h;
  int64_t id = 0;
  for (Compact::Type t; (t = c.field(&id)) != Compact::kStop && !c.bad;) {
    if (t == Compact::kInt32 && id == 3)
      h.page_bytes = c.integer();
    else if (t == Compact::kInt32 && id == 4)
      h.crc = static_cast<uint32_t>(c.integer());
    else
      c.skip(t);
  }
  h.bytes = c.bad ? 0 : c.at();
  return h;
}

}  // namespace

std::optional<size_t> damaged_page(std::span<const std::byte> chunk) {
  for (size_t at = 0; at < chunk.size();) {
    const auto rest = chunk.subspan(at);
    const PageHeader h = read_header(rest);
    if (h.bytes == 0 || h.page_bytes < 0 || static_cast<uint64_t>(h.page_bytes) > rest.size() - h.bytes) break;
    const auto page = rest.subspan(h.bytes, static_cast<size_t>(h.page_bytes));
    if (h.crc && crc32_z(0, reinterpret_cast<const Bytef*>(page.data()), page.size()) != *h.crc) return at;
    at += h.bytes + page.size();
  }
  return std::nullopt;
}

}  // namespace mxt::data

#include "formats/torch/zip.h"

#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace mxt::formats {
namespace {

constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kCentral = 0x02014b50,
                   kLocal = 0x04034b50;
constexpr size_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kCentralBytes = 46, kLocalBytes = 30;
constexpr uint64_t kMostEntries = 200'000;

class Reader {
 public:
  Reader(std::span<const std::byte> file, std::string_view path) : file_(file), path_(path) {}

  std::map<std::string, std::span<const std::byte>> entries() {
    const size_t end = find_end();
    uint64_t count = u16(end + 10), at = u32(end + 16);
    if (end >= kLocatorBytes && u32(end - kLocatorBytes) == kLocator64) {
      const uint64_t end64 = u64(end - kLocatorBytes + 8);
      need(end64, kEnd64Bytes);
      if (u32(end64) != kEnd64) bad("its 64-bit end is not where it should be");
      count = u64(end64 + 32), at = u64(end64 + 48);
    }
    if (count > kMostEntries) bad("it has too many entries");
    std::map<std::string, std::span<const std::byte>> out;
    for (uint64_t i = 0; i < count; ++i) {
      need(at, kCentralBytes);
      if (u32(at) != kCentral) bad("its directory is damaged");
      const uint64_t name = u16(at + 28), extra = u16(at + 30), comment = u16(at + 32);
      need(at + kCentralBytes, name + extra + comment);
      std::string key(reinterpret_cast<const char*>(&file_[at + kCentralBytes]), name);
      if (!out.emplace(key, data_of(at, at + kCentralBytes + name, extra, key)).second) bad("an entry stands twice");
      at += kCentralBytes + name + extra + comment;
    }
    return out;
  }

 private:
  [[noreturn]] void bad(const char* what) const {
    fail_input("{}: is no checkpoint of torch.save, or a cut one: {}", path_, what);
  }
  void need(uint64_t at, uint64_t bytes) const {
    if (at > file_.size() || bytes > file_.size() - at) bad("something lies past its end");
  }
  template <typename T>
  T number(uint64_t at) const {
    need(at, sizeof(T));
    T v;
    std::memcpy(&v, &file_[at], sizeof v);
    return v;
  }
  uint64_t u16(uint64_t at) const { return number<uint16_t>(at); }
  uint64_t u32(uint64_t at) const { return number<uint32_t>(at); }
  uint64_t u64(uint64_t at) const { return number<uint64_t>(at); }

  // The last record, behind which at most a comment of 64 KiB stands.
  size_t find_end() const {
    if (file_.size() < kEndBytes) bad("it is too short");
    const size_t last = file_.size() - kEndBytes;
    for (size_t back = 0; back <= std::min<size_t>(last, 0xffff); ++back)
      if (u32(last - back) == kEnd) return last - back;
    bad("it has no zip directory at its end");
  }

  std::span<const std::byte> data_of(uint64_t central, uint64_t extra_at, uint64_t extra,
                                     const std::string& name) const {
    const uint64_t flags = u16(central + 8), method = u16(central + 10);
    uint64_t packed = u32(central + 20), plain = u32(central + 24), local = u32(central + 42);
    // Sizes and place that do not fit 32 bits stand in the extra field 1, in this order.
    for (uint64_t at = extra_at; at + 4 <= extra_at + extra;) {
      const uint64_t id = u16(at), n = u16(at + 2);
      if (at + 4 + n > extra_at + extra) bad("an entry's extra field is damaged");
      if (id == 1) {
        uint64_t p = at + 4;
        for (uint64_t* v : {&plain, &packed, &local})
          if (*v == 0xffffffff) {
            if (p + 8 > at + 4 + n) bad("an entry's 64-bit sizes are damaged");
            *v = u64(p);
            p += 8;
          }
      }
      at += 4 + n;
    }
    if ((flags & 1) || method != 0 || packed != plain)
      fail_input("{}: its entry {} is compressed or encrypted: torch.save stores tensors as they are", path_, name);
    need(local, kLocalBytes);
    if (u32(local) != kLocal) bad("an entry is not where the directory says");
    const uint64_t data = local + kLocalBytes + u16(local + 26) + u16(local + 28);
    need(data, plain);
    return file_.subspan(data, plain);
  }

  std::span<const std::byte> file_;
  std::string_view path_;
};

}  // namespace

std::map<std::string, std::span<const std::byte>> zip_entries(std::span<const std::byte> file, std::string_view path) {
  return Reader(file, path).entries();
}

}  // namespace mxt::formats

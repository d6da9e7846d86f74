#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "train/metrics.h"

namespace mxt::train {
namespace {

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;
    t[i] = c;
  }
  return t;
}();

// Protocol buffers, the few wire forms that an Event needs.
void varint(std::string& s, uint64_t v) {
  while (v >= 128) {
    s += static_cast<char>(v | 128);
    v >>= 7;
  }
  s += static_cast<char>(v);
}
void field_bytes(std::string& s, int number, const std::string& bytes) {
  varint(s, static_cast<uint64_t>(number) << 3 | 2);
  varint(s, bytes.size());
  s += bytes;
}
void field_varint(std::string& s, int number, uint64_t v) {
  varint(s, static_cast<uint64_t>(number) << 3);
  varint(s, v);
}
template <typename T>
void field_fixed(std::string& s, int number, T v) {
  varint(s, static_cast<uint64_t>(number) << 3 | (sizeof(T) == 8 ? 1 : 5));
  s.append(reinterpret_cast<const char*>(&v), sizeof v);
}

uint32_t masked_crc(const void* data, size_t bytes) {
  const uint32_t c = crc32c(data, bytes);
  return ((c >> 15) | (c << 17)) + 0xa282ead8u;
}

}  // namespace

uint32_t crc32c(const void* data, size_t bytes) {
  uint32_t c = ~0u;
  for (size_t i = 0; i < bytes; ++i) c = kCrcTable[(c ^ static_cast<const uint8_t*>(data)[i]) & 255] ^ (c >> 8);
  return ~c;
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder, int64_t first_step) {
  make_folders(folder);
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  // Files are read in the order of their names, also those of one second.
  const std::string path = fmt::format("{}/events.out.tfevents.{:.6f}.mindxtrain.{}", folder, now, getpid());
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_input("{}: cannot be written: {}", path, std::strerror(errno));
  std::string event;
  field_fixed(event, 1, now);
  field_bytes(event, 3, "brain.Event:2");
  record(event);
  std::string start;
  field_varint(start, 1, 1);  // SessionLog.START
  event.clear();
  field_fixed(event, 1, now);
  field_varint(event, 2, static_cast<uint64_t>(first_step));
  field_bytes(event, 7, start);
  record(event);
}

TensorBoardWriter::~TensorBoardWriter() {
  if (fd_ >= 0) close(fd_);
}

void TensorBoardWriter::scalars(int64_t step, double wall_time,
                                const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, v] : values) {
    std::string value;
    field_bytes(value, 1, tag);
    field_fixed(value, 2, static_cast<float>(v));
    field_bytes(summary, 1, value);
  }
  std::string event;
  field_fixed(event, 1, wall_time);
  field_varint(event, 2, static_cast<uint64_t>(step));
  field_bytes(event, 5, summary);
  record(event);
}

void TensorBoardWriter::record(const std::string& event) {
  std::string out;
  const uint64_t n = event.size();
  out.append(reinterpret_cast<const char*>(&n), 8);
  const uint32_t head = masked_crc(&n, 8), tail = masked_crc(event.data(), event.size());
  out.append(reinterpret_cast<const char*>(&head), 4);
  out += event;
  out.append(reinterpret_cast<const char*>(&tail), 4);
  const ssize_t written = ::write(fd_, out.data(), out.size());
  if (written != static_cast<ssize_t>(out.size()))
    fail_input("TensorBoard events cannot be written: {}",
               written < 0 ? std::strerror(errno) : "the disk is full");  // a part of it went there
}

}  // namespace mxt::train

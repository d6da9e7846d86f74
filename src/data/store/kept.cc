#include "data/store/kept.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"

namespace mxt::data {

void Kept::put(const std::string& name, std::span<const std::string_view> bytes) const {
  make_folders(folder_);
  // Nothing waits for the disk: blocks come many times a second, and after a power cut the digest tells which are
  // whole.
  const std::string path = (fs::path(folder_) / name).string(), temp = fmt::format("{}.{}.tmp", path, ::getpid());
  std::FILE* file = std::fopen(temp.c_str(), "wbe");
  Blake3 check;
  bool ok = file != nullptr;
  const auto write = [&](const void* data, size_t n) { ok = ok && (n == 0 || std::fwrite(data, 1, n, file) == n); };
  for (std::string_view b : bytes) {
    write(b.data(), b.size());
    check.update(b);
  }
  const Digest d = check.digest();
  write(d.data(), d.size());
  if (file) ok = std::fclose(file) == 0 && ok;
  if (ok && std::rename(temp.c_str(), path.c_str()) == 0) return;
  const int why = errno;
  ::unlink(temp.c_str());
  fail_input("{}: cannot be written: {}; free some space, or check its permissions", path, std::strerror(why));
}

std::optional<std::string> Kept::find(const std::string& name) const {
  const std::string path = (fs::path(folder_) / name).string();
  std::error_code ec;
  if (!fs::is_regular_file(path, ec)) return std::nullopt;
  std::string bytes = read_file(path);
  if (bytes.size() < sizeof(Digest)) return std::nullopt;
  const size_t n = bytes.size() - sizeof(Digest);
  Blake3 check;
  check.update(bytes.data(), n);
  const Digest wanted = check.digest();
  if (std::memcmp(wanted.data(), bytes.data() + n, sizeof wanted) != 0) return std::nullopt;
  bytes.resize(n);
  return bytes;
}

}  // namespace mxt::data

#include "data/store/kept.h"

#include <cstring>

#include "base/files.h"
#include "base/hash.h"

namespace mxt::data {

void Kept::put(const std::string& name, std::span<const std::string_view> bytes) const {
  make_folders(folder_);
  AtomicFile file((fs::path(folder_) / name).string());
  Blake3 check;
  for (std::string_view b : bytes) {
    file.write(b);
    check.update(b);
  }
  const Digest d = check.digest();
  file.write(d.data(), d.size());
  file.commit();
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

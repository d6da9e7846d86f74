// Files: whole reads, atomic writes, mapping, locks. All errors name the path and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mxt {

namespace fs = std::filesystem;

std::string read_file(const std::string& path);

// Writes beside the target, flushes to disk, then renames: a reader sees the old file or the new one, never a part.
// Full disk or a read-only folder: kBadInput, the old file is untouched and no piece is left behind.
void write_file_atomic(const std::string& path, std::string_view bytes);

// The same for a file too large for memory: append pieces, then commit(). Without commit() nothing appears.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, size_t bytes);
  void write(std::string_view s) { write(s.data(), s.size()); }
  uint64_t size() const { return written_; }
  void commit();

 private:
  std::string path_, temp_;
  int fd_ = -1;
  uint64_t written_ = 0;
  std::vector<char> buffer_;
  void flush();
};

// Removes what killed processes had begun with the two above in `folder` and below it, dot folders left out. Only for
// who holds the folder: another process may be writing there. Until then such files are dot files, which list_files()
// does not see.
void remove_unfinished(const std::string& folder);

// A new folder beside `target`, for what shall take its place by replace_folder(): nobody else's, whatever stands
// there. Those that killed processes left are removed. Errors (kBadInput): `target` is no folder, or has no name of its
// own.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(const std::string& target);
  ~UnfinishedFolder();  // removes it, unless it has taken its place
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Replaces the folder `target` by the finished folder `temp` (both on one file system), so that a reader sees either
// the whole old folder or the whole new one.
void replace_folder(const std::string& temp, const std::string& target);

// Read-only mapping of a whole file. Pages are shared with the file cache and count as resident only when touched.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& o) noexcept;
  MappedFile& operator=(MappedFile&& o) noexcept;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  std::string_view text() const { return {static_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }
  // Tells the kernel that the pages are no longer needed (they are read again if touched).
  void drop_pages() const;

 private:
  std::string path_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// One process per folder: holds an exclusive lock on `folder`/.lock until destroyed. A second holder: kBadInput.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;

 private:
  int fd_ = -1;
  std::string path_;
};

void make_folders(const std::string& path);
uint64_t free_disk_bytes(const std::string& path);
// Regular files below `folder`, paths relative to it, sorted by byte value; dot files and symbolic links to outside
// are left out.
std::vector<std::string> list_files(const std::string& folder);
// Everything below `folder` that is no folder, paths relative to it, sorted by byte value: dot files too, links not
// followed.
std::vector<std::string> list_entries(const std::string& folder);
// Files that match a shell pattern with `*`, `?`, `[…]`, `{a,b}` and `**` (any depth); sorted. A plain path matches
// itself. Errors (kBadInput): braces that stand for more than 10,000 patterns.
std::vector<std::string> glob_files(const std::string& pattern);

}  // namespace mxt

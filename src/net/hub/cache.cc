#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "net/hub/internal.h"

namespace mxt::net {
namespace {

// The folder of a file of the cache.
void make_place_of(const std::string& file) {
  try {
    make_folders(fs::path(file).parent_path().string());
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}; HF_HOME names another cache", e.what()));
  }
}

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

std::string replace_slashes(std::string s) {
  for (size_t at; (at = s.find('/')) != std::string::npos;) s.replace(at, 1, "--");
  return s;
}

}  // namespace

// As huggingface_hub's validate_repo_id.
bool is_repo_id(std::string_view id) {
  if (id.empty() || id.size() > 96 || id.find("--") != std::string_view::npos ||
      id.find("..") != std::string_view::npos || id.ends_with(".git"))
    return false;
  const auto parts = split(id, '/');
  if (parts.size() > 2) return false;
  for (std::string_view p : parts) {
    if (p.empty() || !is_word(p.front()) || !is_word(p.back())) return false;
    for (char c : p)
      if (!is_word(c) && c != '-' && c != '.') return false;
  }
  return true;
}

RepoName repo_name(const std::string& id, RepoType type) {
  if (!is_repo_id(id)) fail_input("\"{}\" is not a Hub id: it must read name or organisation/name", id.substr(0, 120));
  return {id, type};
}

std::string RepoName::folder() const {
  return (type == RepoType::kModel ? "models--" : "datasets--") + replace_slashes(id);
}

bool is_commit(std::string_view s) {
  if (s.size() != 40) return false;
  for (char c : s)
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  return true;
}

bool is_etag(std::string_view s) {
  if (s.empty() || s.size() > 128 || s.front() == '.') return false;
  for (char c : s)
    if (!is_word(c) && c != '-' && c != '.') return false;
  return !s.ends_with(".incomplete") && !s.ends_with(".lock");
}

void check_path(std::string_view path, std::string_view source) {
  bool good = !path.empty() && path.size() <= 1024 && path.front() != '/' && is_valid_utf8(path);
  for (char c : path) good = good && c != '\\' && static_cast<unsigned char>(c) >= 0x20;
  for (std::string_view part : split(path, '/')) good = good && !part.empty() && part != "." && part != "..";
  if (!good)
    fail_input("{}: the file name \"{}\" is not one that may be written", source,
               replace_invalid_utf8(path.substr(0, 80)));
}

void check_revision(const std::string& revision) {
  bool good = !revision.empty() && revision.size() <= 256 && revision.front() != '/' && revision.front() != '-';
  for (char c : revision) good = good && (is_word(c) || c == '-' || c == '.' || c == '/');
  if (!good || revision.find("..") != std::string::npos || revision.find("//") != std::string::npos)
    fail_input("\"{}\" is not a revision: it must be a branch, a tag or a commit", revision.substr(0, 80));
}

bool matches(const std::string& path, const std::vector<std::string>& allow, const std::vector<std::string>& ignore) {
  const auto any = [&](const std::vector<std::string>& patterns) {
    for (const std::string& p : patterns)
      if (fnmatch((p.ends_with('/') ? p + "*" : p).c_str(), path.c_str(), FNM_NOESCAPE) == 0) return true;
    return false;
  };
  return (allow.empty() || any(allow)) && !any(ignore);
}

RepoCache::RepoCache(const std::string& cache_dir, const RepoName& repo)
    : root_(cache_dir + "/" + repo.folder()), locks_(cache_dir + "/.locks/" + repo.folder()) {
  if (cache_dir.empty()) fail_input("no cache folder for the Hub is set: set HF_HOME or HF_HUB_CACHE");
}

std::string RepoCache::find_commit(const std::string& revision) const {
  std::error_code ec;
  const std::string ref = root_ + "/refs/" + revision;
  if (fs::is_regular_file(ref, ec)) {
    const std::string commit(trim(read_file(ref)));
    if (is_commit(commit)) return commit;
  }
  return is_commit(revision) && fs::is_directory(snapshot(revision), ec) ? revision : "";
}

void RepoCache::write_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit || find_commit(revision) == commit) return;
  const std::string ref = root_ + "/refs/" + revision;
  make_place_of(ref);
  write_file_atomic(ref, commit);
}

std::string RepoCache::find_file(const std::string& commit, const std::string& path) const {
  std::error_code ec;
  const std::string e = entry(commit, path);
  return fs::is_regular_file(e, ec) ? e : "";
}

void RepoCache::link(const std::string& commit, const std::string& path, const std::string& etag) const {
  const std::string e = entry(commit, path);
  make_place_of(e);
  std::string target = "../../blobs/" + etag;
  for (char c : path)
    if (c == '/') target = "../" + target;
  static std::atomic<unsigned> counter{0};
  const std::string temp = fmt::format("{}.{}.{}.tmp", e, getpid(), counter++);
  std::error_code ec;
  fs::create_symlink(target, temp, ec);
  if (!ec) fs::rename(temp, e, ec);  // in one step: another process may be reading the entry
  if (ec) {
    std::error_code ignored;
    fs::remove(temp, ignored);
    fail_input("{}: cannot be written: {}", e, ec.message());
  }
}

BlobLock::BlobLock(const std::string& path, const std::atomic<bool>* cancel) {
  make_place_of(path);
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_input("{}: cannot be written: {}", path, std::strerror(errno));
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (cancel && cancel->load()) {
      close(fd_);
      throw Error(Exit::kInterrupted, path + ": interrupted while another process downloads the file");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

BlobLock::~BlobLock() { close(fd_); }

}  // namespace mxt::net

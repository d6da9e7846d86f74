#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/text.h"
#include "net/hub/internal.h"

namespace mxt::net {
namespace {

// A file being fetched: appended to across runs, renamed when whole.
class PartialFile {
 public:
  explicit PartialFile(const std::string& path) : path_(path) {
    make_folders(fs::path(path).parent_path().string());
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail_input("{}: cannot be written: {}", path, std::strerror(errno));
    const off_t end = lseek(fd_, 0, SEEK_END);
    size_ = end > 0 ? static_cast<uint64_t>(end) : 0;
  }
  ~PartialFile() {
    if (fd_ >= 0) close(fd_);
  }
  PartialFile(const PartialFile&) = delete;

  uint64_t size() const { return size_; }
  void restart() {
    if (ftruncate(fd_, 0) != 0 || lseek(fd_, 0, SEEK_SET) != 0)
      fail_input("{}: cannot be written: {}", path_, std::strerror(errno));
    size_ = 0;
  }
  void append(std::string_view s) {
    while (!s.empty()) {
      const ssize_t n = ::write(fd_, s.data(), s.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == ENOSPC)
        fail_input("{}: no space left on the disk: free some; the part that is here will be used", path_);
      if (n < 0) fail_input("{}: cannot be written: {}", path_, std::strerror(errno));
      size_ += static_cast<uint64_t>(n);
      s.remove_prefix(static_cast<size_t>(n));
    }
  }
  void finish(const std::string& target) {
    if (fsync(fd_) != 0) fail_input("{}: cannot be written: {}", path_, std::strerror(errno));
    if (rename(path_.c_str(), target.c_str()) != 0)
      fail_input("{}: cannot be renamed: {}", path_, std::strerror(errno));
  }

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

bool is_sha256(std::string_view s) {
  return s.size() == 64 &&
         std::all_of(s.begin(), s.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// A 206 must go on exactly where we stopped.
bool continues_at(const Headers& headers, uint64_t at) {
  const std::string* range = find_header(headers, "Content-Range");
  return range && range->starts_with(fmt::format("bytes {}-", at));
}

}  // namespace

void HubClient::fetch_blob(const Remote& remote, const std::string& blob, const RepoName& repo,
                           const std::string& path) {
  const std::string temp = blob + ".incomplete";
  PartialFile file(temp);
  if (remote.has_size && file.size() > remote.size) file.restart();
  if (remote.has_size && free_disk_bytes(temp) < remote.size - file.size())
    fail_input("{}: {} needs {} but only {} are free below {}: free some, or set HF_HOME elsewhere", repo.id, path,
               human_bytes(remote.size - file.size()), human_bytes(free_disk_bytes(temp)),
               fs::path(temp).parent_path().string());
  // A dropped connection goes on from where it stopped, as long as each attempt brings something.
  for (int idle = 0; !remote.has_size || file.size() < remote.size;) {
    const uint64_t before = file.size();
    HttpRequest q;
    q.url = remote.location;
    q.headers = auth_for(q.url);
    q.headers.emplace_back("Accept-Encoding", "identity");
    q.max_bytes = remote.has_size ? remote.size : uint64_t{1} << 50;
    if (before > 0) q.range_begin = before;
    q.on_headers = [&](int status, const Headers& headers) {
      if (status == 200 && file.size() > 0) file.restart();  // the server knows no ranges
      if (status == 206 && !continues_at(headers, file.size()))
        fail_input("{}: the server answered another part than was asked for", q.url);
    };
    q.on_data = [&](std::string_view piece) {
      if (remote.has_size && piece.size() > remote.size - file.size())
        fail_input("{}: {} is longer than the {} bytes that the Hub promised", repo.id, path, remote.size);
      file.append(piece);
      if (settings_.progress) settings_.progress(path, file.size(), remote.size);
    };
    try {
      const HttpResponse r = http_.send(q);
      if (r.status == 416 && before > 0) {
        file.restart();
        if (++idle > 4) refuse(r, repo, path);
        continue;
      }
      if (r.status != 200 && r.status != 206) refuse(r, repo, path);
      if (!remote.has_size) break;
    } catch (const Error& e) {
      const bool lost = e.code() == Exit::kMissing && file.size() != before;
      if (!lost && ++idle > 4) throw;
      if (e.code() != Exit::kMissing) throw;
    }
    if (file.size() > before)
      idle = 0;
    else if (++idle > 4)
      fail_missing("{}: {} stops after {} of {} bytes: try again later", repo.id, path, file.size(), remote.size);
  }
  if (is_sha256(remote.etag)) {
    const std::string got = hash_file(temp).sha256;
    if (got != remote.etag) {
      file.restart();
      fail_verify("{}: {} has sha256 {} but the Hub promised {}: it was damaged on its way and is removed, try again",
                  repo.id, path, got, remote.etag);
    }
  }
  file.finish(blob);
}

std::string HubClient::fetch(const RepoCache& cache, const RepoName& repo, const std::string& revision,
                             std::string commit, const std::string& path) {
  check_path(path, repo.id);
  if (!commit.empty())
    if (std::string have = cache.find_file(commit, path); !have.empty()) return have;
  const Remote remote = head(repo, commit.empty() ? revision : commit, path);
  if (commit.empty()) commit = remote.commit;
  if (remote.commit != commit) fail_input("{}: the Hub answered commit {} for {}", repo.id, remote.commit, commit);
  cache.write_ref(revision, commit);
  if (std::string have = cache.find_file(commit, path); !have.empty()) return have;
  const std::string blob = cache.blob(remote.etag);
  {
    BlobLock lock(cache.lock(remote.etag), settings_.cancel);
    std::error_code ec;
    if (!fs::is_regular_file(blob, ec)) fetch_blob(remote, blob, repo, path);
    cache.link(commit, path, remote.etag);
  }
  return cache.entry(commit, path);
}

struct Hub::State {
  HubSettings settings;
  std::unique_ptr<HubClient> client;  // made when first used: offline needs none

  HubClient& online(const std::string& what) {
    if (settings.offline) fail_missing("{}: the Hub is not asked while offline (HF_HUB_OFFLINE): unset it", what);
    if (!client) client = std::make_unique<HubClient>(settings);
    return *client;
  }
  [[noreturn]] void not_cached(const std::string& what, const RepoName& repo) const {
    fail_missing(
        "{} is not in the cache {} and the Hub is not asked while offline: unset HF_HUB_OFFLINE, or fetch it where "
        "there is a network with \"hf download {}{}\"",
        what, settings.cache_dir, repo.id, repo.type == RepoType::kDataset ? " --repo-type dataset" : "");
  }
};

Hub::Hub(HubSettings settings) : s_(std::make_unique<State>()) { s_->settings = std::move(settings); }
Hub::~Hub() = default;

HubRepo Hub::info(const std::string& repo, RepoType type, const std::string& revision) {
  const RepoName name = repo_name(repo, type);
  check_revision(revision);
  return s_->online(repo).info(name, revision);
}

std::vector<HubFile> Hub::tree(const std::string& repo, RepoType type, const std::string& revision) {
  const RepoName name = repo_name(repo, type);
  check_revision(revision);
  return s_->online(repo).tree(name, revision);
}

std::string Hub::download_file(const std::string& repo, RepoType type, const std::string& revision,
                               const std::string& path) {
  const RepoName name = repo_name(repo, type);
  check_revision(revision);
  check_path(path, repo);
  const RepoCache cache(s_->settings.cache_dir, name);
  if (s_->settings.offline || is_commit(revision)) {
    const std::string commit = cache.find_commit(revision);
    const std::string have = commit.empty() ? "" : cache.find_file(commit, path);
    if (!have.empty()) return have;
    if (s_->settings.offline) s_->not_cached(fmt::format("{} of {}", path, repo), name);
  }
  return s_->online(repo).fetch(cache, name, revision, "", path);
}

std::string Hub::download_snapshot(const std::string& repo, RepoType type, const std::string& revision,
                                   const std::vector<std::string>& allow, const std::vector<std::string>& ignore) {
  const RepoName name = repo_name(repo, type);
  check_revision(revision);
  const RepoCache cache(s_->settings.cache_dir, name);
  if (s_->settings.offline) {
    const std::string commit = cache.find_commit(revision);
    std::error_code ec;
    if (commit.empty() || !fs::is_directory(cache.snapshot(commit), ec)) s_->not_cached(repo, name);
    return cache.snapshot(commit);
  }
  HubClient& client = s_->online(repo);
  const std::string commit = is_commit(revision) ? revision : client.info(name, revision).commit;
  std::vector<std::string> wanted;
  for (const HubFile& f : client.tree(name, commit))
    if (matches(f.path, allow, ignore)) wanted.push_back(f.path);
  if (wanted.empty()) fail_input("{}: none of its files match what is asked for", repo);
  cache.write_ref(revision, commit);

  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto guarded = [&](auto&& f) {
    try {
      f();
    } catch (...) {
      const std::lock_guard hold(mutex);
      if (!failure) failure = std::current_exception();
      next = wanted.size();
    }
  };
  const auto work = [&](HubClient& own) {
    for (size_t i; (i = next++) < wanted.size();) own.fetch(cache, name, revision, commit, wanted[i]);
  };
  std::vector<std::thread> threads;
  const size_t extra =
      std::min<size_t>(wanted.size(), static_cast<size_t>(std::clamp(s_->settings.connections, 1, 16))) - 1;
  for (size_t i = 0; i < extra; ++i)
    threads.emplace_back([&] {
      guarded([&] {
        HubClient own(s_->settings);
        work(own);
      });
    });
  guarded([&] { work(client); });
  for (auto& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
  return cache.snapshot(commit);
}

std::string download_snapshot(const HubSettings& settings, const std::string& repo, RepoType type,
                              const std::string& revision, const std::vector<std::string>& allow) {
  return Hub(settings).download_snapshot(repo, type, revision, allow);
}

}  // namespace mxt::net

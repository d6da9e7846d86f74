#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "net/file.h"
#include "net/hub/internal.h"
#include "net/unreachable.h"

namespace mxt::net {
namespace {

bool is_sha256(std::string_view s) {
  return s.size() == 64 &&
         std::all_of(s.begin(), s.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

void HubClient::fetch_blob(const Remote& remote, const std::string& blob, const RepoName& repo,
                           const std::string& path) {
  FileFetch f;
  f.url = remote.location;
  f.headers = auth_for(f.url);
  f.what = fmt::format("{}: {}", repo.id, path);
  f.promiser = "the Hub";
  f.elsewhere = "set HF_HOME elsewhere";
  if (remote.has_size) f.size = remote.size;
  if (is_sha256(remote.etag)) f.sha256 = remote.etag;
  if (settings_.progress) f.progress = [&](uint64_t done) { settings_.progress(path, done, remote.size); };
  f.refuse = [&](const HttpResponse& r) { refuse(r, repo, path); };
  fetch_file(http_, f, blob);
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

namespace {

// Where the network is gone, what an earlier download left may do.
template <typename Ask>
std::string asked(const Ask& ask, const HubSettings& settings, const std::function<bool()>& is_cached) {
  try {
    return ask();
  } catch (const Unreachable& e) {
    if (!is_cached()) throw;
    throw Unreachable(
        fmt::format("{}, or set HF_HUB_OFFLINE=1 to work from what the cache {} holds", e.what(), settings.cache_dir));
  }
}

}  // namespace

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
  const auto cached = [&] {
    const std::string commit = cache.find_commit(revision);
    return commit.empty() ? std::string() : cache.find_file(commit, path);
  };
  if (s_->settings.offline || is_commit(revision)) {
    if (std::string have = cached(); !have.empty()) return have;
    if (s_->settings.offline) s_->not_cached(fmt::format("{} of {}", path, repo), name);
  }
  return asked([&] { return s_->online(repo).fetch(cache, name, revision, "", path); }, s_->settings,
               [&] { return !cached().empty(); });
}

std::string Hub::download_snapshot(const std::string& repo, RepoType type, const std::string& revision,
                                   const std::vector<std::string>& allow, const std::vector<std::string>& ignore) {
  const RepoName name = repo_name(repo, type);
  check_revision(revision);
  const RepoCache cache(s_->settings.cache_dir, name);
  const auto cached = [&] {
    const std::string commit = cache.find_commit(revision);
    std::error_code ec;
    return !commit.empty() && fs::is_directory(cache.snapshot(commit), ec) ? cache.snapshot(commit) : "";
  };
  if (s_->settings.offline) {
    const std::string have = cached();
    if (have.empty()) s_->not_cached(repo, name);
    return have;
  }
  HubClient& client = s_->online(repo);
  const std::string commit = is_commit(revision) ? revision
                                                 : asked([&] { return client.info(name, revision).commit; },
                                                         s_->settings, [&] { return !cached().empty(); });
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

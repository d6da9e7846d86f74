// The Hugging Face Hub: its HTTP protocol and the cache that its tools share.
//
// Cache: CACHE/models--ORG--NAME/{refs/REV, blobs/ETAG, snapshots/COMMIT/PATH → ../../blobs/ETAG} and
// CACHE/.locks/models--ORG--NAME/ETAG.lock, as huggingface_hub lays it out: what one tool fetched, the other finds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/http.h"

namespace mxt::net {

enum class RepoType { kModel, kDataset };

struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT
  std::string token;                                // HF_TOKEN; sent to the endpoint's origin only
  std::string cache_dir;                            // HF_HUB_CACHE, or HF_HOME/hub
  bool offline = false;                             // HF_HUB_OFFLINE
  int connections = 4;                              // files fetched at once
  std::string ca_file;
  Proxies proxies;
  double retry_base_seconds = 0.5;
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(const std::string& path, uint64_t done, uint64_t total)> progress;  // called from several threads
};

struct HubFile {
  std::string path;
  uint64_t size = 0;
  std::string oid;     // git's id of the blob
  std::string sha256;  // of a file in large-file storage, else empty
};

struct HubRepo {
  std::string id, commit;  // 40 hex digits
  bool is_private = false, gated = false;
};

// Errors: kMissing where the server cannot be reached, a token is missing or refused, access is gated (each with what
// to do), or an offline cache lacks the thing; kBadInput for a repository, revision or file that does not exist, bad
// names, and answers that make no sense; kVerifyFailed where a file's digest is not what the Hub promised.
class Hub {
 public:
  explicit Hub(HubSettings settings);
  ~Hub();
  Hub(const Hub&) = delete;

  HubRepo info(const std::string& repo, RepoType type, const std::string& revision = "main");
  // All files of a revision, every page, sorted by path.
  std::vector<HubFile> tree(const std::string& repo, RepoType type, const std::string& revision = "main");
  // One file into the cache; the path of its entry in the snapshot. Resumes what another run began.
  std::string download_file(const std::string& repo, RepoType type, const std::string& revision,
                            const std::string& path);
  // Every file that matches one of `allow` (shell patterns over the whole path, `*` crosses folders; none = all) and
  // none of `ignore`; the snapshot's folder. Offline: what the cache has of that revision.
  std::string download_snapshot(const std::string& repo, RepoType type, const std::string& revision = "main",
                                const std::vector<std::string>& allow = {},
                                const std::vector<std::string>& ignore = {});

 private:
  struct State;
  std::unique_ptr<State> s_;
};

// "name" or "org/name" as the Hub allows them.
bool is_repo_id(std::string_view id);
std::string download_snapshot(const HubSettings& settings, const std::string& repo, RepoType type,
                              const std::string& revision = "main", const std::vector<std::string>& allow = {});

}  // namespace mxt::net

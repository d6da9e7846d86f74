// What the Hub's parts share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "net/http.h"
#include "net/hub.h"
#include "net/url.h"

namespace mxt::net {

// A repository, checked, with the spellings of its name.
struct RepoName {
  std::string id;
  RepoType type;
  std::string api() const { return type == RepoType::kModel ? "models/" + id : "datasets/" + id; }
  std::string page() const { return type == RepoType::kModel ? id : "datasets/" + id; }
  std::string folder() const;  // models--org--name
};
RepoName repo_name(const std::string& id, RepoType type);

bool is_commit(std::string_view s);  // 40 lower-case hex digits
bool is_etag(std::string_view s);    // fit to be a file's name in blobs/
void check_revision(const std::string& revision);
void check_path(std::string_view path, std::string_view source);  // a relative path that stays below its folder
bool matches(const std::string& path, const std::vector<std::string>& allow, const std::vector<std::string>& ignore);

// The cache of one repository.
class RepoCache {
 public:
  RepoCache(const std::string& cache_dir, const RepoName& repo);
  std::string snapshot(const std::string& commit) const { return root_ + "/snapshots/" + commit; }
  std::string blob(const std::string& etag) const { return root_ + "/blobs/" + etag; }
  std::string lock(const std::string& etag) const { return locks_ + "/" + etag + ".lock"; }
  std::string find_commit(const std::string& revision) const;  // by ref or as it is; "" where not cached
  void write_ref(const std::string& revision, const std::string& commit) const;
  std::string entry(const std::string& commit, const std::string& path) const { return snapshot(commit) + "/" + path; }
  void link(const std::string& commit, const std::string& path, const std::string& etag) const;  // entry → blob
  std::string find_file(const std::string& commit, const std::string& path) const;               // "" where not cached

 private:
  std::string root_, locks_;
};

// Holds the lock file that huggingface_hub uses too (flock); waits for another holder.
class BlobLock {
 public:
  BlobLock(const std::string& path, const std::atomic<bool>* cancel);
  ~BlobLock();
  BlobLock(const BlobLock&) = delete;

 private:
  int fd_ = -1;
};

std::string text_of(const Json& j, const char* key);  // "" where it is no text

Url hub_endpoint(const HubSettings& settings);  // kBadInput where it is none
// The token, or the user and password of a mirror's address; "" where there is neither.
std::string hub_authorization(const HubSettings& settings, const Url& endpoint);
HttpOptions hub_http_options(const HubSettings& settings);

// One thread's way to the Hub.
class HubClient {
 public:
  explicit HubClient(const HubSettings& settings);
  HubRepo info(const RepoName& repo, const std::string& revision);
  std::vector<HubFile> tree(const RepoName& repo, const std::string& revision);
  // Fetches one file of a commit or revision into the cache; its snapshot entry. `commit` "": taken from the answer.
  std::string fetch(const RepoCache& cache, const RepoName& repo, const std::string& revision, std::string commit,
                    const std::string& path);

 private:
  struct Remote {
    std::string commit, etag, location;
    uint64_t size = 0;
    bool has_size = false;
  };
  HttpResponse get(const std::string& url, uint64_t max_bytes, const RepoName& repo, const std::string& what);
  Remote head(const RepoName& repo, const std::string& revision, const std::string& path);
  void fetch_blob(const Remote& remote, const std::string& blob, const RepoName& repo, const std::string& path);
  [[noreturn]] void refuse(const HttpResponse& r, const RepoName& repo, const std::string& what) const;
  Headers auth_for(const std::string& url) const;
  std::string resolve_url_of(const RepoName& repo, const std::string& revision, const std::string& path) const;

  const HubSettings& settings_;
  Url endpoint_;
  std::string base_;  // the endpoint without a slash at its end
  HttpClient http_;
};

}  // namespace mxt::net

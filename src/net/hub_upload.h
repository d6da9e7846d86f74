// Files into a repository of the Hub: create, preupload, large files by LFS (basic and multipart), NDJSON commits.
// Sources: huggingface_hub's HTTP calls, git-lfs's batch API, Hub docs ("backward compatibility with LFS").
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "net/hub.h"

namespace mxt::net {

struct UploadFile {
  std::string path;    // in the repository
  std::string source;  // where it lies; "" = its bytes are `text`
  std::string text;
  uint64_t size = 0;
  std::string sha256;  // hex; computed where it is empty
};

struct UploadResult {
  std::string commit;  // head of the branch, 40 hex digits
  size_t sent = 0;     // files; 0 = everything was there
  uint64_t sent_bytes = 0;
};

struct UploadSettings {
  bool is_private = false;  // of a repository that is made
  std::string summary = "Upload";
  // Limits of one commit: base64 of regular files, and entries.
  uint64_t commit_bytes = 100u << 20;
  size_t commit_files = 250;
  // What is remembered of a multipart upload, so that another process goes on with it: parts by object. Set before,
  // kept by `save` after each part.
  Json parts;
  std::function<void(const Json& parts)> save;
  std::function<void(const std::string& line)> progress;  // a line for people
};

// Makes the repository where it is not there, sends what its head does not hold with these very digests, and checks the
// head against them. The order of files is that of the commits: what must be seen last stands last. A commit whose
// answer was lost is recognised by asking again. Errors: kMissing where the Hub cannot be reached; kBadInput where it
// refuses, with its words; kVerifyFailed where it says that it holds other bytes.
UploadResult upload_files(const HubSettings& hub, const std::string& repo, RepoType type,
                          const std::vector<UploadFile>& files, const UploadSettings& settings);
// What the Hub says of a README's front matter: kBadInput with its errors. Warnings are returned.
std::vector<std::string> validate_card(const HubSettings& hub, const std::string& text, RepoType type);

}  // namespace mxt::net

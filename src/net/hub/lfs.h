// git-lfs's batch API as the Hub speaks it: one PUT (basic), or parts and their ETags (multipart).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "net/hub/session.h"
#include "net/hub_upload.h"

namespace mxt::net {

class LfsUploader {
 public:
  // `url`: HUB/REPO.git/info/lfs
  LfsUploader(HubSession& session, std::string url, const UploadSettings& settings)
      : session_(session), url_(std::move(url)), settings_(settings), parts_(settings.parts) {
    if (!parts_.is_object()) parts_ = Json::object();
  }
  // Sends what the store does not have. The bytes sent.
  uint64_t send(const std::vector<const UploadFile*>& files);

 private:
  uint64_t send_object(const UploadFile& file, const Json& object);
  void put_whole(const UploadFile& file, const std::string& href);
  uint64_t put_parts(const UploadFile& file, const std::string& href, const Json& header);
  void require_whole(const UploadFile& file, const HttpResponse& answer);
  std::string put(const UploadFile& file, const std::string& href, uint64_t offset, uint64_t bytes);  // its ETag
  void save();

  HubSession& session_;
  std::string url_;
  const UploadSettings& settings_;
  Json parts_;
};

}  // namespace mxt::net

// A Hub that takes uploads, as strict as the real one where it matters: create, validate-yaml, preupload, LFS batch
// (basic, and multipart from `multipart_from` bytes on), verify, NDJSON commits, revision, tree and files.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/json.h"
#include "net/test_server.h"

namespace mxt::net {

class FakeUploadHub {
 public:
  FakeUploadHub();
  std::string url() const { return hub_->url(); }
  TestServer& hub() { return *hub_; }
  TestServer& store() { return *store_; }

  struct Entry {
    std::string content;
    bool lfs = false;
  };
  std::map<std::string, Entry> files;          // of the head of org/model
  std::map<std::string, std::string> objects;  // large-file storage, by SHA-256
  bool exists = false;
  int commits = 0;
  std::string token = "secret", head = std::string(40, '0');
  size_t multipart_from = std::string::npos, chunk = 1000;
  std::string upload_id = "one";
  // Asked before each request is answered; a status other than 0 is the answer.
  std::function<int(const ServerRequest&)> refuse;
  std::string refuse_body = R"({"error":"refused by the test"})";
  std::vector<std::pair<std::string, std::string>> refuse_headers;
  std::set<std::string> lose_answer;  // parts of targets: the connection breaks once the request has been done
  std::string address;                // that it gives of itself where something stands before it; "" = its own
  std::string wrong_head;             // a path that the tree gives another id
  Json odd_upload{};                  // in the place of what says where a file goes

 private:
  ServerResponse answer(const ServerRequest& r);
  std::string at(const std::string& target) const { return address.empty() ? hub_->url(target) : address + target; }
  ServerResponse done(const ServerRequest& r);
  ServerResponse store_answer(const ServerRequest& r);
  ServerResponse preupload(const Json& body);
  ServerResponse batch(const Json& body);
  ServerResponse complete(const Json& body);
  ServerResponse commit(const std::string& body);
  ServerResponse tree();
  ServerResponse resolve(const ServerRequest& r, const std::string& at);
  std::map<std::string, std::map<int, std::string>> parts_;
  std::recursive_mutex mutex_;
  std::unique_ptr<TestServer> store_, hub_;
};

}  // namespace mxt::net

// A Hub as its clients see it: revision, tree (in pages) and paths-info API, HEAD and GET of files, large files on
// another origin.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "net/test_server.h"

namespace mxt::net {

class FakeHub {
 public:
  FakeHub();
  std::string url() const { return hub_->url(); }
  TestServer& hub() { return *hub_; }
  TestServer& store() { return *store_; }

  // org/model as a model, or as a dataset of the same name.
  void serve_dataset() { api_ = "/api/datasets/org/model", page_ = "/datasets/org/model"; }

  std::map<std::string, std::string> files;  // of the one repository, org/model
  std::set<std::string> large;               // those in large-file storage
  std::string commit = std::string(40, 'a');
  std::string token;  // wanted, where not empty
  bool gated = false;
  size_t page = 1000;                          // files a page of the tree
  size_t cut_store_after = std::string::npos;  // the store's connection breaks after so many bytes of each answer
  bool store_knows_ranges = true;
  std::string corrupt;                                // a file whose bytes arrive changed
  std::map<std::string, std::string> replace_header;  // of HEAD and GET on files

 private:
  ServerResponse answer(const ServerRequest& r);
  ServerResponse file_answer(const ServerRequest& r, const std::string& path);
  ServerResponse store_answer(const ServerRequest& r);
  ServerResponse tree_answer(const std::string& folder, const std::string& query);
  ServerResponse paths_answer(const std::string& form);
  std::string api_ = "/api/models/org/model", page_ = "/org/model";
  std::unique_ptr<TestServer> store_, hub_;
};

std::string etag_of(const std::string& content, bool large);

}  // namespace mxt::net

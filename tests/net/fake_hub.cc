#include "net/fake_hub.h"

#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/json.h"

namespace mxt::net {
namespace {

ServerResponse error(int status, const std::string& code, const std::string& message) {
  ServerResponse r;
  r.status = status;
  if (!code.empty()) r.headers = {{"X-Error-Code", code}, {"X-Error-Message", message}};
  r.body = Json{{"error", message}}.dump();
  return r;
}

ServerResponse json(const Json& j) {
  ServerResponse r;
  r.headers = {{"Content-Type", "application/json"}};
  r.body = j.dump();
  return r;
}

}  // namespace

// A large file's tag is its sha256; a small one's has 40 digits (git's sha1 on the real Hub; any will do here).
std::string etag_of(const std::string& content, bool large) {
  const std::string h = sha256_hex(content);
  return large ? h : h.substr(0, 40);
}

FakeHub::FakeHub() {
  store_ = std::make_unique<TestServer>([this](const ServerRequest& r) { return store_answer(r); });
  hub_ = std::make_unique<TestServer>([this](const ServerRequest& r) { return answer(r); });
}

ServerResponse FakeHub::answer(const ServerRequest& r) {
  const auto auth = r.headers.find("authorization");
  if (!token.empty() && (auth == r.headers.end() || auth->second != "Bearer " + token))
    return error(401, "RepoNotFound", "Repository not found");
  const std::string path = percent_decode(r.target.substr(0, r.target.find('?')));
  const std::string query = r.target.find('?') == std::string::npos ? "" : r.target.substr(r.target.find('?') + 1);
  const std::string api = api_ + "/";
  const auto is_revision = [&](const std::string& s) { return s == "main" || s == commit; };
  if (path.starts_with(api + "revision/")) {
    if (!is_revision(path.substr(api.size() + 9))) return error(404, "RevisionNotFound", "Invalid rev id");
    Json siblings = Json::array();
    for (const auto& [name, content] : files) siblings.push_back({{"rfilename", name}});
    return json({{"id", "org/model"},
                 {"modelId", "org/model"},
                 {"sha", commit},
                 {"private", false},
                 {"gated", gated ? Json("manual") : Json(false)},
                 {"siblings", siblings},
                 {"tags", Json::array()},
                 {"downloads", 0},
                 {"likes", 0}});
  }
  if (path.starts_with(api + "tree/")) {
    if (!is_revision(path.substr(api.size() + 5))) return error(404, "RevisionNotFound", "Invalid rev id");
    return tree_answer(query);
  }
  const std::string resolve = page_ + "/resolve/";
  if (path.starts_with(resolve)) {
    const size_t slash = path.find('/', resolve.size());
    if (slash == std::string::npos || !is_revision(path.substr(resolve.size(), slash - resolve.size())))
      return error(404, "RevisionNotFound", "Invalid rev id");
    return file_answer(r, path.substr(slash + 1));
  }
  return error(404, "RepoNotFound", "Repository not found");
}

ServerResponse FakeHub::tree_answer(const std::string& query) {
  size_t from = 0;
  if (const size_t at = query.find("cursor="); at != std::string::npos) from = std::stoul(query.substr(at + 7));
  Json out = Json::array();
  size_t i = 0;
  out.push_back({{"type", "directory"}, {"oid", std::string(40, 'd')}, {"size", 0}, {"path", "sub"}});
  for (const auto& [name, content] : files) {
    if (i++ < from || i > from + page) continue;
    const bool big = large.contains(name);
    Json e{{"type", "file"}, {"oid", etag_of(content, false)}, {"size", content.size()}, {"path", name}};
    if (big) e["lfs"] = {{"oid", etag_of(content, true)}, {"size", content.size()}, {"pointerSize", 134}};
    out.push_back(e);
  }
  ServerResponse r = json(out);
  if (from + page < files.size())
    r.headers.emplace_back(
        "Link", "<" +
                    hub_->url(api_ + "/tree/main?recursive=true&cursor=" + std::to_string(from + page)) +
                    ">; rel=\"next\"");
  return r;
}

ServerResponse FakeHub::file_answer(const ServerRequest& r, const std::string& path) {
  const auto f = files.find(path);
  if (gated) return error(403, "GatedRepo", "Access to model org/model is restricted");
  if (f == files.end()) return error(404, "EntryNotFound", "Entry not found");
  ServerResponse a;
  const bool big = large.contains(path);
  const std::string etag = "\"" + etag_of(f->second, big) + "\"";
  a.headers = {{"X-Repo-Commit", commit}, {"Accept-Ranges", "bytes"}};
  if (big) {
    a.status = 302;
    a.headers.insert(a.headers.end(), {{"X-Linked-Etag", etag},
                                       {"X-Linked-Size", std::to_string(f->second.size())},
                                       {"Location", store_->url("/store/" + path, "localhost")},
                                       {"ETag", "\"of-the-pointer\""}});
  } else {
    a.headers.insert(a.headers.end(), {{"ETag", etag}, {"Content-Length", std::to_string(f->second.size())}});
    if (r.method == "GET") a.body = f->second;
  }
  for (auto& [k, v] : a.headers)
    if (replace_header.contains(k)) v = replace_header[k];
  return a;
}

ServerResponse FakeHub::store_answer(const ServerRequest& r) {
  const std::string path = percent_decode(r.target.substr(7));
  const auto f = files.find(path);
  if (f == files.end()) return error(404, "", "no");
  std::string content = f->second;
  if (path == corrupt) content[0] = static_cast<char>(content[0] ^ 1);
  ServerResponse a;
  a.cut_after = cut_store_after;
  const auto range = r.headers.find("range");
  if (range == r.headers.end() || !store_knows_ranges) {
    a.body = content;
  } else {
    const size_t from = std::stoul(range->second.substr(6));
    if (from >= content.size()) return error(416, "", "range");
    a.status = 206;
    a.body = content.substr(from);
    a.headers = {{"Content-Range", "bytes " + std::to_string(from) + "-" + std::to_string(content.size() - 1) + "/" +
                                       std::to_string(content.size())}};
  }
  if (a.cut_after != std::string::npos && a.cut_after >= a.body.size()) a.cut_after = std::string::npos;
  return a;
}

}  // namespace mxt::net

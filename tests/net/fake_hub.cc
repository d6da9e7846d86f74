#include "net/fake_hub.h"

#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/json.h"
#include "net/url.h"

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

namespace {

Json file_entry(const std::string& name, const std::string& content, bool big) {
  Json e{{"type", "file"}, {"oid", etag_of(content, false)}, {"size", content.size()}, {"path", name}};
  if (big) e["lfs"] = {{"oid", etag_of(content, true)}, {"size", content.size()}, {"pointerSize", 134}};
  return e;
}

}  // namespace

// The form lists paths=…&paths=…; files and folders that are there are answered, the others are not.
ServerResponse FakeHub::paths_answer(const std::string& form) {
  Json out = Json::array();
  for (size_t at = 0; at < form.size();) {
    const size_t end = std::min(form.find('&', at), form.size());
    if (form.compare(at, 6, "paths=") == 0) {
      const std::string path = percent_decode(form.substr(at + 6, end - at - 6)).value();
      const auto f = files.find(path);
      if (f != files.end())
        out.push_back(file_entry(path, f->second, large.contains(path)));
      else if (const auto below = files.lower_bound(path + "/");
               below != files.end() && below->first.starts_with(path + "/"))
        out.push_back({{"type", "directory"}, {"oid", std::string(40, 'd')}, {"size", 0}, {"path", path}});
    }
    at = end + 1;
  }
  return json(out);
}

FakeHub::FakeHub() {
  store_ = std::make_unique<TestServer>([this](const ServerRequest& r) { return store_answer(r); });
  hub_ = std::make_unique<TestServer>([this](const ServerRequest& r) { return answer(r); });
}

ServerResponse FakeHub::answer(const ServerRequest& r) {
  const auto auth = r.headers.find("authorization");
  if (!token.empty() && (auth == r.headers.end() || auth->second != "Bearer " + token))
    return error(401, "RepoNotFound", "Repository not found");
  const std::string path = percent_decode(r.target.substr(0, r.target.find('?'))).value();
  const std::string query = r.target.find('?') == std::string::npos ? "" : r.target.substr(r.target.find('?') + 1);
  const std::string api = api_ + "/";
  const auto is_revision = [&](const std::string& s) { return s == "main" || s == commit; };
  if (path == api_ || path.starts_with(api + "revision/")) {
    if (path != api_ && !is_revision(path.substr(api.size() + 9)))
      return error(404, "RevisionNotFound", "Invalid rev id");
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
    const std::string rest = path.substr(api.size() + 5), revision = rest.substr(0, rest.find('/'));
    if (!is_revision(revision)) return error(404, "RevisionNotFound", "Invalid rev id");
    return tree_answer(rest.substr(std::min(rest.size(), revision.size() + 1)), query);
  }
  if (path.starts_with(api + "paths-info/")) {
    if (!is_revision(path.substr(api.size() + 11))) return error(404, "RevisionNotFound", "Invalid rev id");
    return paths_answer(r.body);
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

ServerResponse FakeHub::tree_answer(const std::string& folder, const std::string& query) {
  const bool recursive =
      query.find("recursive=true") != std::string::npos || query.find("recursive=True") != std::string::npos;
  const std::string below = folder.empty() ? "" : folder + "/";
  std::set<std::string> folders;
  std::vector<std::string> names;
  for (const auto& [name, content] : files) {
    if (!name.starts_with(below)) continue;
    bool direct = true;
    for (size_t at = name.find('/', below.size()); at != std::string::npos; at = name.find('/', at + 1)) {
      if (direct || recursive) folders.insert(name.substr(0, at));
      direct = false;
    }
    if (direct || recursive) names.push_back(name);
  }
  if (names.empty() && folders.empty() && !folder.empty()) return error(404, "EntryNotFound", "Entry not found");
  size_t from = 0;
  if (const size_t at = query.find("cursor="); at != std::string::npos) from = std::stoul(query.substr(at + 7));
  Json out = Json::array();
  if (from == 0)
    for (const std::string& f : folders)
      out.push_back({{"type", "directory"}, {"oid", std::string(40, 'd')}, {"size", 0}, {"path", f}});
  for (size_t i = from; i < std::min(names.size(), from + page); ++i)
    out.push_back(file_entry(names[i], files.at(names[i]), large.contains(names[i])));
  ServerResponse r = json(out);
  if (from + page < names.size())
    r.headers.emplace_back(
        "Link",
        "<" + hub_->url(api_ + "/tree/main?recursive=true&cursor=" + std::to_string(from + page)) + ">; rel=\"next\"");
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
  const std::string path = percent_decode(r.target.substr(7)).value();
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

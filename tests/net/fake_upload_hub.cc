#include "net/fake_upload_hub.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/hash.h"
#include "base/text.h"
#include "net/hub/git_oid.h"
#include "net/url.h"

namespace mxt::net {
namespace {

ServerResponse json(const Json& j, int status = 200) {
  return {status, {{"Content-Type", "application/json"}}, j.dump()};
}

std::string header(const ServerRequest& r, const char* name) {
  const auto it = r.headers.find(name);
  return it == r.headers.end() ? "" : it->second;
}

}  // namespace

FakeUploadHub::FakeUploadHub() {
  store_ = std::make_unique<TestServer>([this](const ServerRequest& r) { return store_answer(r); });
  hub_ = std::make_unique<TestServer>([this](const ServerRequest& r) { return answer(r); });
}

ServerResponse FakeUploadHub::answer(const ServerRequest& r) {
  const std::lock_guard lock(mutex_);
  if (refuse)
    if (const int status = refuse(r)) return {status, refuse_headers, refuse_body};
  if (header(r, "authorization") != "Bearer " + token) return json({{"error", "Invalid token"}}, 401);
  ServerResponse out = done(r);
  for (auto it = lose_answer.begin(); it != lose_answer.end(); ++it)
    if (r.target.find(*it) != std::string::npos) {
      lose_answer.erase(it);
      out.headers.emplace_back("Content-Length", "1000000");
      out.cut_after = 0;
      return out;
    }
  return out;
}

ServerResponse FakeUploadHub::done(const ServerRequest& r) {
  const std::string& t = r.target;
  if (r.method == "POST" && t == "/api/repos/create") {
    const Json b = Json::parse(r.body);
    if (b.at("name") != "model" || b.at("organization") != "org" || !b.contains("visibility"))
      return json({{"error", "name"}}, 400);
    if (exists) return json({{"url", "there"}}, 409);
    exists = true;
    files[".gitattributes"] = {"*.safetensors filter=lfs\n", false};
    return json({{"url", "there"}, {"id", "org/model"}});
  }
  if (r.method == "POST" && t == "/api/validate-yaml") {
    if (Json::parse(r.body).at("content").get<std::string>().find("license: bad") != std::string::npos)
      return json({{"errors", {{{"message", "\"license\" must be one of"}}}}, {"warnings", Json::array()}}, 400);
    return json({{"errors", Json::array()}, {"warnings", Json::array()}});
  }
  if (!exists) return json({{"error", "Repository not found"}}, 404);
  if (t == "/api/models/org/model") return json({{"id", "org/model"}});
  if (t.starts_with("/api/models/org/model/revision/")) return json({{"sha", head}, {"id", "org/model"}});
  if (t.starts_with("/api/models/org/model/tree/")) return tree();
  if (const std::string at = "/org/model/resolve/"; t.starts_with(at)) return resolve(r, t.substr(at.size()));
  if (r.method != "POST") return json({{"error", "method"}}, 405);
  if (t == "/api/models/org/model/preupload/main") return preupload(Json::parse(r.body));
  if (t == "/org/model.git/info/lfs/objects/batch") return batch(Json::parse(r.body));
  if (t.starts_with("/complete/")) return complete(Json::parse(r.body));
  if (t == "/verify") {
    const Json b = Json::parse(r.body);
    const auto it = objects.find(b.at("oid").get<std::string>());
    return json({}, it != objects.end() && it->second.size() == b.at("size").get<size_t>() ? 200 : 404);
  }
  if (t == "/api/models/org/model/commit/main") return commit(r.body);
  return json({{"error", "no such route"}}, 404);
}

ServerResponse FakeUploadHub::preupload(const Json& body) {
  if (body.at("files").size() > 256) return json({{"error", "too many"}}, 400);
  Json out = Json::array();
  for (const Json& f : body.at("files")) {
    const std::string path = f.at("path");
    const uint64_t size = f.at("size");
    if (!from_base64(f.at("sample").get<std::string>()) || from_base64(f.at("sample").get<std::string>())->size() > 512)
      return json({{"error", "sample"}}, 400);
    Json o = {{"path", path},
              {"uploadMode", path.ends_with(".safetensors") && size > 0 ? "lfs" : "regular"},
              {"shouldIgnore", false}};
    if (const auto it = files.find(path); it != files.end())
      o["oid"] = it->second.lfs ? sha256_hex(it->second.content) : git_blob_oid(it->second.content);
    out.push_back(o);
  }
  return json({{"files", out}});
}

ServerResponse FakeUploadHub::batch(const Json& body) {
  Json out = Json::array();
  for (const Json& o : body.at("objects")) {
    const std::string oid = o.at("oid");
    const uint64_t size = o.at("size");
    Json answer = {{"oid", oid}, {"size", size}};
    if (!objects.contains(oid)) {
      Json upload = {{"href", store_->url("/put/" + oid + "?signed=1")}};
      if (size >= multipart_from) {
        upload = {{"href", at("/complete/" + oid + "?upload=" + upload_id)},
                  {"header", {{"chunk_size", std::to_string(chunk)}}}};
        for (size_t n = 1; (n - 1) * chunk < size; ++n)
          upload["header"][std::string(5 - std::to_string(n).size(), '0') + std::to_string(n)] =
              store_->url("/part/" + oid + "/" + std::to_string(n) + "?signed=" + std::to_string(commits + n));
      }
      answer["actions"] = {{"upload", odd_upload.is_null() ? upload : odd_upload},
                           {"verify", {{"href", at("/verify")}}}};
    }
    out.push_back(answer);
  }
  return json({{"transfer", "basic"}, {"objects", out}});
}

ServerResponse FakeUploadHub::store_answer(const ServerRequest& r) {
  const std::lock_guard lock(mutex_);
  if (refuse)
    if (const int status = refuse(r)) return json({}, status);
  if (!header(r, "authorization").empty()) return {400, {}, "Only one auth mechanism allowed"};
  if (r.method != "PUT" || header(r, "content-length").empty()) return {411, {}, "a length is required"};
  const auto words = split(std::string_view(r.target).substr(1, r.target.find('?') - 1), '/');
  const std::string oid(words.at(1));
  if (words[0] == "put") {
    if (sha256_hex(r.body) != oid) return {400, {}, "digest"};
    objects[oid] = r.body;
    return {200, {{"ETag", "\"whole\""}}, ""};
  }
  const int n = std::stoi(std::string(words.at(2)));
  parts_[oid][n] = r.body;
  return {200, {{"ETag", "\"etag-" + std::to_string(n) + "\""}}, ""};
}

ServerResponse FakeUploadHub::complete(const Json& body) {
  const std::string oid = body.at("oid");
  std::string all;
  int n = 0;
  for (const Json& p : body.at("parts")) {
    if (p.at("partNumber") != ++n || p.at("etag") != "\"etag-" + std::to_string(n) + "\"")
      return json({{"error", "etag"}}, 400);
    all += parts_[oid][n];
  }
  if (sha256_hex(all) != oid) return json({{"error", "digest"}}, 400);
  objects[oid] = all;
  return json({});
}

ServerResponse FakeUploadHub::commit(const std::string& body) {
  std::map<std::string, Entry> next = files;
  int line_number = 0;
  for (const std::string_view line : split(body, '\n')) {
    if (line.empty()) continue;
    const Json j = Json::parse(line), &v = j.at("value");
    const std::string key = j.at("key");
    if ((line_number++ == 0) != (key == "header")) return json({{"error", "header first"}}, 400);
    if (key == "header" && v.contains("parentCommit") && v["parentCommit"] != Json(head))
      return json({{"error", "moved"}}, 412);
    if (key == "file")
      next[v.at("path").get<std::string>()] = {*from_base64(v.at("content").get<std::string>()), false};
    if (key == "lfsFile") {
      if (!objects.contains(v.at("oid").get<std::string>())) return json({{"error", "no such object"}}, 400);
      next[v.at("path").get<std::string>()] = {objects[v.at("oid").get<std::string>()], true};
    }
  }
  files = next;
  ++commits;
  head = sha256_hex(std::to_string(commits)).substr(0, 40);
  return json({{"success", true}, {"commitOid", head}, {"commitUrl", "x"}, {"hookOutput", ""}});
}

// REVISION/PATH: a file of the head, itself, or its size and digest where it is asked by HEAD.
ServerResponse FakeUploadHub::resolve(const ServerRequest& r, const std::string& at) {
  const auto path = percent_decode(at.substr(at.find('/') + 1, std::min(at.find('?'), at.size()) - at.find('/') - 1));
  const auto f = files.find(path.value_or(""));
  if (f == files.end()) return json({{"error", "Entry not found"}}, 404);
  const std::string& content = f->second.content;
  const std::string id = f->second.lfs ? sha256_hex(content) : git_blob_oid(content);
  return {200,
          {{"X-Repo-Commit", head}, {"ETag", "\"" + id + "\""}, {"Content-Length", std::to_string(content.size())}},
          r.method == "GET" ? content : ""};
}

ServerResponse FakeUploadHub::tree() {
  Json out = Json::array();
  for (const auto& [path, f] : files) {
    Json e = {{"type", "file"}, {"path", path}, {"size", f.content.size()}, {"oid", git_blob_oid(f.content)}};
    if (f.lfs) e["lfs"] = {{"oid", sha256_hex(f.content)}, {"size", f.content.size()}, {"pointerSize", 130}};
    if (path == wrong_head) e["oid"] = std::string(40, 'f');
    out.push_back(e);
  }
  return json(out);
}

}  // namespace mxt::net

#include "net/hub/lfs.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "net/hub/internal.h"

namespace mxt::net {
namespace {

constexpr size_t kObjectsACall = 100;
const Headers kLfsHeaders = {{"Accept", "application/vnd.git-lfs+json"},
                             {"Content-Type", "application/vnd.git-lfs+json"}};

std::optional<uint64_t> number_of(std::string_view s) {
  uint64_t v = 0;
  const auto r = std::from_chars(s.data(), s.data() + s.size(), v);
  return r.ec == std::errc() && r.ptr == s.data() + s.size() && !s.empty() ? std::optional(v) : std::nullopt;
}

// A chunk size is text or a number.
uint64_t chunk_size_of(const Json& header) {
  const Json v = header.value("chunk_size", Json());
  if (v.is_number_unsigned()) return v.get<uint64_t>();
  return v.is_string() ? number_of(v.get<std::string>()).value_or(0) : 0;
}

// A refusal of who asks, or of when, says nothing of the parts that arrived: they may do the next time.
bool is_about_parts(int status) {
  return status / 100 == 4 && status != 401 && status != 403 && status != 408 && status != 429;
}

}  // namespace

uint64_t LfsUploader::send(const std::vector<const UploadFile*>& files) {
  std::map<std::string, const UploadFile*> by_oid;  // equal files are one object
  for (const UploadFile* f : files) by_oid.emplace(f->sha256, f);
  std::vector<const UploadFile*> all;
  for (const auto& [oid, f] : by_oid) all.push_back(f);
  uint64_t sent = 0;
  for (size_t begin = 0; begin < all.size(); begin += kObjectsACall) {
    Json objects = Json::array();
    for (size_t i = begin; i < std::min(all.size(), begin + kObjectsACall); ++i)
      objects.push_back({{"oid", all[i]->sha256}, {"size", all[i]->size}});
    const Json answer = session_.json(session_.post_json(url_ + "/objects/batch",
                                                         {{"operation", "upload"},
                                                          {"transfers", {"basic", "multipart"}},
                                                          {"objects", objects},
                                                          {"hash_algo", "sha256"},
                                                          {"ref", {{"name", "main"}}}},
                                                         true, kLfsHeaders),
                                      url_);
    size_t answered = 0;
    if (answer.is_object() && answer.contains("objects") && answer["objects"].is_array())
      for (const Json& o : answer["objects"]) {
        const auto it = by_oid.find(text_of(o, "oid"));
        if (it == by_oid.end()) fail_input("{}: wants a file that was not offered", url_);
        sent += send_object(*it->second, o);
        ++answered;
      }
    if (answered < objects.size())
      fail_input("{}: does not say how to send {} of the files", url_, objects.size() - answered);
  }
  return sent;
}

uint64_t LfsUploader::send_object(const UploadFile& f, const Json& o) {
  if (o.contains("error"))
    fail_input("{}: refuses {}: {}", url_, f.path, printable(text_of(o["error"], "message").substr(0, 300)));
  if (!o.contains("actions") || !o["actions"].is_object() || !o["actions"].contains("upload")) return 0;  // is there
  const Json& upload = o["actions"]["upload"];
  const std::string href = upload.is_object() ? text_of(upload, "href") : "";
  if (href.empty()) fail_input("{}: does not say where {} goes", url_, f.path);
  const Json header = upload.value("header", Json::object());
  if (settings_.progress) settings_.progress(fmt::format("sends {} ({})", f.path, human_bytes(f.size)));
  uint64_t sent = f.size;
  if (header.is_object() && header.contains("chunk_size"))
    sent = put_parts(f, href, header);
  else
    put_whole(f, href);
  if (const auto at = "/actions/verify/href"_json_pointer; o.contains(at) && o.at(at).is_string())
    require_whole(f, session_.post_json(o.at(at), {{"oid", f.sha256}, {"size", f.size}}, true, kLfsHeaders));
  if (parts_.erase(f.sha256)) save();
  return sent;
}

std::string LfsUploader::put(const UploadFile& f, const std::string& href, uint64_t offset, uint64_t bytes) {
  HttpRequest q;
  q.method = "PUT";
  q.url = href;
  q.repeatable = true;
  if (f.source.empty())
    q.parts = {{f.text.substr(offset, bytes), "", 0, 0}};
  else
    q.parts = {{"", f.source, offset, bytes}};
  const HttpResponse r = session_.send(q, false);
  if (r.status < 200 || r.status >= 300)
    fail_input("{}: the store answers {} to its upload: {}", f.path, r.status, printable(r.body.substr(0, 200)));
  const std::string* etag = r.header("ETag");
  return etag ? *etag : "";
}

void LfsUploader::put_whole(const UploadFile& f, const std::string& href) { put(f, href, 0, f.size); }

// The store's addresses change, that of the completion names the upload: parts of the same one are not sent again.
uint64_t LfsUploader::put_parts(const UploadFile& f, const std::string& href, const Json& header) {
  const uint64_t chunk = chunk_size_of(header);
  std::map<uint64_t, std::string> urls;
  for (const auto& [key, value] : header.items())
    if (const auto n = number_of(key); n && value.is_string()) urls[*n] = value.get<std::string>();
  if (chunk == 0 || urls.size() != (f.size + chunk - 1) / chunk)
    fail_input("{}: gives {} addresses for the parts of {}, whose {} bytes do not make so many of {}", url_,
               urls.size(), f.path, f.size, chunk);
  const std::string upload = blake3_hex(href);
  Json& kept = parts_[f.sha256];
  if (!kept.is_object() || kept.value("upload", Json()) != Json(upload))
    kept = {{"upload", upload}, {"etags", Json::object()}};
  Json done = Json::array();
  uint64_t offset = 0, sent = 0;
  for (const auto& [number, url] : urls) {
    const uint64_t bytes = std::min(chunk, f.size - offset);
    const std::string key = std::to_string(number);
    if (!kept["etags"].contains(key)) {
      const std::string etag = put(f, url, offset, bytes);
      if (etag.empty()) fail_input("{}: the store names no ETag of part {}", f.path, number);
      kept["etags"][key] = etag;
      sent += bytes;
      save();
    }
    done.push_back({{"partNumber", number}, {"etag", kept["etags"][key]}});
    offset += bytes;
  }
  require_whole(f, session_.post_json(href, {{"oid", f.sha256}, {"parts", done}}, true, kLfsHeaders));
  return sent;
}

// Both may say so, the end of an upload in parts and the look at it afterwards.
void LfsUploader::require_whole(const UploadFile& f, const HttpResponse& r) {
  if (r.status / 100 == 2) return;
  if (is_about_parts(r.status) && parts_.erase(f.sha256)) save();  // whatever the store has of it, it is not whole
  session_.refuse(r, f.path);
}

void LfsUploader::save() {
  if (settings_.save) settings_.save(parts_);
}

}  // namespace mxt::net

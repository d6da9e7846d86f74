#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "net/hub/internal.h"
#include "net/patience.h"

namespace mxt::net {
namespace {

constexpr uint64_t kMaxAnswer = 64u << 20;
constexpr size_t kMaxPages = 10'000, kMaxFiles = 1'000'000;

// The target of `<…>; rel="next"` in a Link header.
std::string next_link(std::string_view link) {
  while (!link.empty()) {
    const size_t open = link.find('<'), close = link.find('>');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) return "";
    const size_t end = std::min(link.find(",", close), link.size());
    const std::string_view rest = link.substr(close + 1, end - close - 1);
    if (rest.find("rel=\"next\"") != std::string_view::npos || rest.find("rel=next") != std::string_view::npos)
      return std::string(link.substr(open + 1, close - open - 1));
    link.remove_prefix(std::min(end + 1, link.size()));
  }
  return "";
}

// Git's form of an entity tag: no quotes, no W/.
std::string plain_etag(std::string_view s) {
  if (s.starts_with("W/")) s.remove_prefix(2);
  if (s.size() >= 2 && s.front() == '"' && s.back() == '"') s = s.substr(1, s.size() - 2);
  return std::string(s);
}

std::string shown(std::string_view s) {
  std::string out(s.substr(0, 200));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return replace_invalid_utf8(out);
}

}  // namespace

std::string text_of(const Json& j, const char* key) {
  return j.is_object() && j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : "";
}

Url hub_endpoint(const HubSettings& settings) {
  const auto url = parse_url(settings.endpoint);
  if (!url)
    fail_input("the Hub's endpoint \"{}\" is not an http or https URL: check HF_ENDPOINT",
               shown_url(settings.endpoint));
  return *url;
}

std::string hub_authorization(const HubSettings& s, const Url& endpoint) {
  return s.token.empty() ? endpoint.basic_authorization() : "Bearer " + s.token;
}

HttpOptions hub_http_options(const HubSettings& s) {
  HttpOptions o;
  o.user_agent = "mindxtrain; hf_hub";
  o.ca_file = s.ca_file;
  o.proxies = s.proxies;
  o.retry_base_seconds = s.retry_base_seconds;
  o.cancel = s.cancel;
  return o;
}

HubClient::HubClient(const HubSettings& s)
    : settings_(s), endpoint_(hub_endpoint(s)), base_(endpoint_.text()), http_(hub_http_options(s)) {
  while (base_.ends_with('/')) base_.pop_back();
}

Headers HubClient::auth_for(const std::string& url) const {
  const auto u = parse_url(url);
  const std::string value = hub_authorization(settings_, endpoint_);
  if (value.empty() || !u || !u->same_origin(endpoint_)) return {};
  return {{"Authorization", value}};
}

std::string HubClient::resolve_url_of(const RepoName& repo, const std::string& revision,
                                      const std::string& path) const {
  return fmt::format("{}/{}/resolve/{}/{}", base_, repo.page(), percent_encode(revision), percent_encode(path, "/"));
}

// What went wrong, in the Hub's own terms (X-Error-Code) where it says so.
void HubClient::refuse(const HttpResponse& r, const RepoName& repo, const std::string& what) const {
  const std::string* code = r.header("X-Error-Code");
  const std::string* message = r.header("X-Error-Message");
  const std::string why = code ? *code : "";
  const std::string page = base_ + "/" + repo.page();
  if (why == "GatedRepo")
    fail_missing("{}: access is gated: accept its terms at {} and set HF_TOKEN to a token of that account", repo.id,
                 page);
  if (why == "RevisionNotFound") fail_input("{}: has no such revision: {}", repo.id, what);
  if (why == "EntryNotFound") fail_input("{}: has no such file: {}", repo.id, what);
  if (why == "RepoNotFound" || (r.status == 404 && why.empty()))
    fail_input("{}: is not on {}{}", repo.id, base_,
               settings_.token.empty() ? ", or it is private: check the name, or set HF_TOKEN"
                                       : ": check the name, and that HF_TOKEN may read it");
  if (r.status == 401)
    fail_missing("{}: {} wants a token: {}", repo.id, base_,
                 settings_.token.empty() ? "set HF_TOKEN" : "HF_TOKEN is not valid there, set another one");
  if (r.status == 403)
    fail_missing("{}: access is refused{}: use a token (HF_TOKEN) that may read it", repo.id,
                 message ? " (" + shown(*message) + ")" : "");
  if (r.status == 404) fail_input("{}: not found: {}", repo.id, what);
  if (r.status == 429 || r.status >= 500)
    fail_missing("{}: {} answered {} for {}: try again later", repo.id, base_, r.status, what);
  fail_input("{}: {} answered {} for {}", repo.id, base_, r.status, what);
}

HttpResponse HubClient::get(const std::string& url, uint64_t max_bytes, const RepoName& repo, const std::string& what) {
  HttpRequest q;
  q.url = url;
  q.headers = auth_for(url);
  q.max_bytes = max_bytes;
  q.answer_seconds = kAnswerComesSeconds;
  HttpResponse r = http_.send(q);
  if (r.status != 200) refuse(r, repo, what);
  return r;
}

HubRepo HubClient::info(const RepoName& repo, const std::string& revision) {
  const std::string url = fmt::format("{}/api/{}/revision/{}", base_, repo.api(), percent_encode(revision));
  const HttpResponse r = get(url, kMaxAnswer, repo, "revision " + revision);
  const Json j = parse_json(r.body, url);
  HubRepo out;
  out.id = repo.id;
  if (j.is_object()) {
    out.commit = text_of(j, "sha");
    const auto flag = [&](const char* key) {
      return j.contains(key) && !(j[key].is_boolean() && !j[key].get<bool>()) && !j[key].is_null();
    };
    out.is_private = flag("private");
    out.gated = flag("gated");
  }
  if (!is_commit(out.commit)) fail_input("{}: its answer names no commit: is this a Hub?", url);
  return out;
}

std::vector<HubFile> HubClient::tree(const RepoName& repo, const std::string& revision) {
  std::string url =
      fmt::format("{}/api/{}/tree/{}?recursive=true&expand=false", base_, repo.api(), percent_encode(revision));
  std::vector<HubFile> out;
  for (size_t page = 0; !url.empty(); ++page) {
    if (page >= kMaxPages) fail_input("{}: its file list has more than {} pages", repo.id, kMaxPages);
    const HttpResponse r = get(url, kMaxAnswer, repo, "revision " + revision);
    const Json j = parse_json(r.body, url);
    if (!j.is_array()) fail_input("{}: its answer is no list of files: is this a Hub?", url);
    for (const Json& e : j) {
      if (!e.is_object() || text_of(e, "type") != "file") continue;
      HubFile f;
      f.path = text_of(e, "path");
      check_path(f.path, repo.id);
      f.oid = text_of(e, "oid");
      if (e.contains("size") && e["size"].is_number_unsigned()) f.size = e["size"].get<uint64_t>();
      if (e.contains("lfs") && e["lfs"].is_object()) f.sha256 = text_of(e["lfs"], "oid");
      out.push_back(std::move(f));
      if (out.size() > kMaxFiles) fail_input("{}: holds more than {} files", repo.id, kMaxFiles);
    }
    const std::string* link = r.header("Link");
    const std::string next = link ? next_link(*link) : "";
    url.clear();
    if (!next.empty()) {
      const auto target = resolve_url(*parse_url(r.url), next);
      if (!target || !target->same_origin(endpoint_))
        fail_input("{}: its file list goes on at another server: {}", repo.id, shown(next));
      url = target->text();
    }
  }
  std::sort(out.begin(), out.end(), [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  return out;
}

// The Hub answers HEAD on /resolve with what the file is, and a redirect to where large files are stored; that redirect
// leaves the Hub and is not followed here, since its headers are those of the store.
HubClient::Remote HubClient::head(const RepoName& repo, const std::string& revision, const std::string& path) {
  HttpRequest q;
  q.method = "HEAD";
  q.url = resolve_url_of(repo, revision, path);
  q.headers = auth_for(q.url);
  q.headers.emplace_back("Accept-Encoding", "identity");
  q.leave_origin = false;
  const HttpResponse r = http_.send(q);
  const bool redirected = r.status >= 300 && r.status < 400;
  if (r.status != 200 && !redirected) refuse(r, repo, fmt::format("{} (revision {})", path, revision));
  Remote out;
  if (const auto* h = r.header("X-Repo-Commit")) out.commit = *h;
  const auto* etag = r.header("X-Linked-Etag");
  if (!etag) etag = r.header("ETag");
  if (etag) out.etag = plain_etag(*etag);
  const auto* size = r.header("X-Linked-Size");
  if (!size && !redirected) size = r.header("Content-Length");
  if (size) {
    const auto end = size->data() + size->size();
    const auto parsed = std::from_chars(size->data(), end, out.size);
    out.has_size = parsed.ec == std::errc() && parsed.ptr == end;
  }
  if (!is_commit(out.commit) || !is_etag(out.etag))
    fail_input("{}: {} does not say which commit and version it is: is this a Hub? Check HF_ENDPOINT", repo.id, q.url);
  out.location = r.url;
  if (redirected) {
    const auto* location = r.header("Location");
    const auto next = location ? resolve_url(*parse_url(r.url), *location) : std::nullopt;
    if (!next) fail_input("{}: {} redirects nowhere", repo.id, q.url);
    out.location = next->text();
  }
  return out;
}

}  // namespace mxt::net

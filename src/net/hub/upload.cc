#include "net/hub_upload.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/base64.h"
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/text.h"
#include "net/hub/git_oid.h"
#include "net/hub/internal.h"
#include "net/hub/lfs.h"
#include "net/hub/session.h"

namespace mxt::net {
namespace {

constexpr size_t kFilesACall = 256, kSample = 512;
constexpr int kCommitTries = 4;

std::string read_range(const UploadFile& f, uint64_t bytes) {
  if (f.source.empty()) return f.text.substr(0, bytes);
  return std::string(MappedFile(f.source).text().substr(0, bytes));
}

std::string git_oid_of(const UploadFile& f) {
  return f.source.empty() ? git_blob_oid(f.text) : git_blob_oid(MappedFile(f.source).text());
}

// One file that the head does not hold as it is.
struct Pending {
  const UploadFile* file = nullptr;
  bool lfs = false;
};

class Uploader {
 public:
  Uploader(const HubSettings& hub, const std::string& repo, RepoType type, const UploadSettings& settings)
      : session_(hub), client_(hub), repo_(repo_name(repo, type)), settings_(settings) {}

  UploadResult run(const std::vector<UploadFile>& files) {
    ensure_repo();
    UploadResult result;
    for (int tries = 0;; ++tries) {
      const auto pending = preupload(files);
      if (pending.empty()) break;
      if (tries == kCommitTries) {
        if (refused_) session_.refuse(*refused_, page());
        fail_input("{}: takes commits and holds nothing of them: is this a Hub?", page());
      }
      send_large(pending, result);
      if (commit_all(pending, result)) break;
    }
    check_head(files, result);
    return result;
  }

 private:
  std::string page() const { return session_.base() + "/" + repo_.page(); }
  std::string api(const std::string& call) const {
    return fmt::format("{}/api/{}/{}", session_.base(), repo_.api(), call);
  }
  void say(const std::string& line) const {
    if (settings_.progress) settings_.progress(line);
  }

  // True where the repository is there for us. One that all can read is not written where the recipe wants it private.
  bool is_there() {
    HttpRequest q;
    q.url = fmt::format("{}/api/{}", session_.base(), repo_.api());
    const HttpResponse r = session_.send(q);
    if (r.status == 200) {
      const Json said = Json::parse(r.body, nullptr, false);
      if (settings_.is_private && said.is_object() && said.value("private", Json()) == Json(false))
        fail_input(
            "{}: is there and everybody can read it, and publish.hf.private asks for the contrary: make it "
            "private there, or write private: false",
            page());
      return true;
    }
    if (r.status == 401 || r.status == 403 || r.status == 404) return false;
    session_.refuse(r, page());
  }

  // Made, or there already: 409 says so, unless it is that somebody else is just making it.
  void ensure_repo() {
    Json body = {{"type", repo_.type == RepoType::kModel ? "model" : "dataset"}};
    const size_t slash = repo_.id.find('/');
    body["name"] = slash == std::string::npos ? repo_.id : repo_.id.substr(slash + 1);
    if (slash != std::string::npos) body["organization"] = repo_.id.substr(0, slash);
    body["visibility"] = settings_.is_private ? "private" : "public";
    HttpResponse r;
    for (int tries = 0; tries < 5; ++tries) {
      r = session_.post_json(session_.base() + "/api/repos/create", body, true);
      if (r.status / 100 == 2) return say("made " + page());
      if (r.status != 409) break;
      const std::string* said = r.header("X-Error-Message");
      if ((r.body + (said ? *said : "")).find("conflicting operation") == std::string::npos) {
        if (settings_.is_private) is_there();
        return;
      }
      session_.wait(0.5 * (1 << tries));
    }
    // A token that may write to this repository need not be one that may make repositories.
    if ((r.status == 401 || r.status == 402 || r.status == 403) && is_there()) return;
    session_.refuse(r, page());
  }

  std::vector<Pending> preupload(const std::vector<UploadFile>& files) {
    std::vector<Pending> out;
    for (size_t begin = 0; begin < files.size(); begin += kFilesACall) {
      Json list = Json::array();
      std::map<std::string, const UploadFile*> asked;
      for (size_t i = begin; i < std::min(files.size(), begin + kFilesACall); ++i) {
        list.push_back(
            {{"path", files[i].path}, {"size", files[i].size}, {"sample", to_base64(read_range(files[i], kSample))}});
        asked[files[i].path] = &files[i];
      }
      const Json answer = session_.json(session_.post_json(api("preupload/main"), {{"files", list}}, true), page());
      std::map<std::string, Json> said;
      if (answer.is_object() && answer.contains("files") && answer["files"].is_array())
        for (const Json& f : answer["files"]) said[text_of(f, "path")] = f;
      for (size_t i = begin; i < std::min(files.size(), begin + kFilesACall); ++i) {
        const UploadFile& f = files[i];
        const Json& s = said[f.path];
        const std::string mode = text_of(s, "uploadMode");
        if (mode != "lfs" && mode != "regular")
          fail_input("{}: does not say how it wants {}: is this a Hub?", page(), f.path);
        if (s.value("shouldIgnore", Json()) == Json(true))
          fail_input("{}: its .gitignore leaves {} out: take that line away there", page(), f.path);
        const bool lfs = mode == "lfs" && f.size > 0;
        const std::string oid = text_of(s, "oid");
        if (!oid.empty() && oid == (lfs ? f.sha256 : git_oid_of(f))) continue;
        out.push_back({&f, lfs});
      }
    }
    return out;
  }

  void send_large(const std::vector<Pending>& pending, UploadResult& result) {
    std::vector<const UploadFile*> large;
    for (const Pending& p : pending)
      if (p.lfs) large.push_back(p.file);
    LfsUploader lfs(session_, fmt::format("{}/{}.git/info/lfs", session_.base(), repo_.page()), settings_);
    result.sent_bytes += lfs.send(large);
  }

  // False where an answer was lost or the head has moved: what it holds now must be asked again.
  bool commit_all(const std::vector<Pending>& pending, UploadResult& result) {
    for (size_t i = 0; i < pending.size();) {
      std::vector<Pending> now;
      uint64_t bytes = 0;
      for (; i < pending.size() && now.size() < settings_.commit_files; ++i) {
        const uint64_t add = pending[i].lfs ? 0 : pending[i].file->size / 3 * 4 + 4;
        if (!now.empty() && bytes + add > settings_.commit_bytes) break;
        bytes += add;
        now.push_back(pending[i]);
      }
      if (!commit(now)) return false;
      result.sent += now.size();
      for (const Pending& p : now)
        if (!p.lfs) result.sent_bytes += p.file->size;
    }
    return true;
  }

  bool commit(const std::vector<Pending>& files) {
    Json header = {{"summary", settings_.summary}, {"description", ""}};
    if (const std::string parent = client_.info(repo_, "main").commit; !parent.empty()) header["parentCommit"] = parent;
    std::string body = Json{{"key", "header"}, {"value", header}}.dump() + "\n";
    for (const Pending& p : files) {
      const UploadFile& f = *p.file;
      Json value = {{"path", f.path}};
      if (p.lfs)
        value.update({{"algo", "sha256"}, {"oid", f.sha256}, {"size", f.size}});
      else
        value.update({{"content", to_base64(read_range(f, f.size))}, {"encoding", "base64"}});
      body += Json{{"key", p.lfs ? "lfsFile" : "file"}, {"value", value}}.dump() + "\n";
    }
    HttpRequest q;
    q.method = "POST";
    q.url = api("commit/main");
    q.headers = {{"Content-Type", "application/x-ndjson"}};
    q.body = std::move(body);
    HttpResponse r;
    try {
      r = session_.send(q);
    } catch (const Error& e) {
      if (e.code() != Exit::kMissing) throw;
      say("no answer to a commit: asking what the repository holds");
      return false;
    }
    // Another's commit came between, is under way, or it is busy.
    if (r.status == 409 || r.status == 412 || r.status == 429 || r.status >= 500) {
      session_.wait_as_asked(r, 1, page());
      refused_ = std::move(r);
      return false;
    }
    refused_.reset();
    const Json answer = session_.json(r, page());
    if (!is_commit(text_of(answer, "commitOid"))) fail_input("{}: its answer to a commit names none", page());
    say(fmt::format("committed {} file{}", files.size(), files.size() == 1 ? "" : "s"));
    return true;
  }

  // What the head holds must be what was meant.
  void check_head(const std::vector<UploadFile>& files, UploadResult& result) {
    result.commit = client_.info(repo_, "main").commit;
    std::map<std::string, HubFile> there;
    for (HubFile& f : client_.tree(repo_, result.commit)) there[f.path] = f;
    for (const UploadFile& f : files) {
      const auto it = there.find(f.path);
      if (it == there.end()) fail_verify("{}: does not hold {} after it was committed", page(), f.path);
      const HubFile& h = it->second;
      if (h.size != f.size || (h.sha256.empty() ? h.oid != git_oid_of(f) : h.sha256 != f.sha256))
        fail_verify("{}: holds other bytes as {} than were sent", page(), f.path);
    }
  }

  HubSession session_;
  HubClient client_;
  RepoName repo_;
  const UploadSettings& settings_;
  std::optional<HttpResponse> refused_;  // the newest commit, and why
};

}  // namespace

UploadResult upload_files(const HubSettings& hub, const std::string& repo, RepoType type,
                          const std::vector<UploadFile>& files, const UploadSettings& settings) {
  std::vector<UploadFile> all = files;
  for (UploadFile& f : all) {
    check_path(f.path, repo);
    f.size = f.source.empty() ? f.text.size() : fs::file_size(f.source);
    if (f.sha256.empty()) f.sha256 = f.source.empty() ? sha256_hex(f.text) : hash_file(f.source).sha256;
  }
  return Uploader(hub, repo, type, settings).run(all);
}

std::vector<std::string> validate_card(const HubSettings& hub, const std::string& text, RepoType type) {
  HubSession session(hub);
  const Json body = {{"content", text}, {"repoType", type == RepoType::kModel ? "model" : "dataset"}};
  const HttpResponse r = session.post_json(session.base() + "/api/validate-yaml", body, true);
  const Json j =
      r.status == 400 || r.status == 200 ? Json::parse(r.body, nullptr, false) : session.json(r, session.base());
  std::vector<std::string> messages[2];
  for (const int warning : {0, 1})
    if (const char* key = warning ? "warnings" : "errors"; j.is_object() && j.contains(key) && j[key].is_array())
      for (const Json& m : j[key]) messages[warning].push_back(printable(text_of(m, "message").substr(0, 300)));
  if (r.status == 400 || !messages[0].empty())
    fail_input("{}: refuses the model card: {}", session.base(),
               messages[0].empty() ? printable(r.body.substr(0, 200)) : messages[0].front());
  return messages[1];
}

}  // namespace mxt::net

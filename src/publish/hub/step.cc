#include "publish/hub/step.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "net/hub_upload.h"
#include "provenance/manifest.h"
#include "publish/service.h"

namespace mxt::publish {
namespace {

// SHA-256 of the run's files as the manifest states them; they have just been verified.
std::map<std::string, std::string> stated_digests(const Run& run) {
  std::map<std::string, std::string> out;
  const auto add = [&](const Json& f) {
    out[run.folder + "/" + f.at("path").get<std::string>()] = f.at("sha256").get<std::string>();
  };
  for (const auto& [name, subject] : run.manifest.at("predicate").at("subjects").items())
    if (subject.contains("files"))
      for (const Json& f : subject.at("files")) add(f);
  return out;
}

// Last what makes the copy complete: a commit that is the last of several brings manifest and card.
int turn_of(const std::string& path) {
  if (path == "README.md") return 2;
  return path.starts_with(std::string(provenance::kPublishedFolder) + "/manifest.") ? 1 : 0;
}

class HubStep : public Step {
 public:
  HubStep(const config::HfPublish& s, const Run& run, const Surroundings& around)
      : settings_(s), run_(run), endpoint_(service_url(around.hub.endpoint, "HF_ENDPOINT")) {
    if (!net::is_repo_id(s.repo) || s.repo.find('/') == std::string::npos)
      fail_input("publish.hf.repo: \"{}\" is not owner/name", printable(s.repo.substr(0, 120)));
  }
  std::string name() const override { return "hf"; }
  std::string target() const override { return endpoint_ + "/" + settings_.repo; }
  void check(const StepContext& c) const override {
    if (c.around.hub.token.empty())
      fail_missing("hf: HF_TOKEN is not set: make a token that may write at {}/settings/tokens", endpoint_);
    if (c.around.hub.offline) fail_missing("hf: HF_HUB_OFFLINE is set: unset it to publish");
  }

  OrderedJson preview(const StepContext&) const override {
    OrderedJson list = OrderedJson::array();
    uint64_t bytes = 0;
    for (const net::UploadFile& f : files()) {
      const uint64_t n = f.source.empty() ? f.text.size() : fs::file_size(f.source);
      list.push_back({{"path", f.path}, {"bytes", n}});
      bytes += n;
    }
    return {{"repo", settings_.repo}, {"url", target()}, {"private", settings_.is_private},
            {"bytes", bytes},         {"files", list},   {"card", card().text}};
  }

  Json run(const StepContext& c) const override {
    check(c);
    try {
      for (const std::string& w : net::validate_card(c.around.hub, card().text, net::RepoType::kModel))
        log::warn("hf: the model card: {}", without_secrets({c.around.hub.token}, w));
      net::UploadSettings u;
      u.is_private = settings_.is_private;
      u.summary = "mindxtrain: " + run_.recipe.meta.run_name;
      u.parts = c.state();
      u.save = [&](const Json& parts) { c.save(parts); };
      u.progress = [](const std::string& line) { log::info("hf: {}", line); };
      const auto all = files();
      const net::UploadResult r = net::upload_files(c.around.hub, settings_.repo, net::RepoType::kModel, all, u);
      return {{"repo", settings_.repo}, {"url", target()}, {"commit", r.commit},
              {"files", all.size()},    {"sent", r.sent},  {"sent_bytes", r.sent_bytes}};
    } catch (const Error& e) {  // what is missing was checked before: the Hub is down, or hides what it refuses
      if (e.code() != Exit::kMissing) throw;
      fail_input("{}; what was done is kept, the same command goes on", e.what());
    }
  }

 private:
  net::UploadFile card() const {
    for (const TreeEntry& e : run_.files)
      if (e.kind == TreeEntry::Kind::kText) return {e.path, "", e.source};
    fail_input("{}: has no model card", run_.folder);
  }
  std::vector<net::UploadFile> files() const {
    const auto digests = stated_digests(run_);
    std::vector<net::UploadFile> out;
    for (const TreeEntry& e : run_.files) {
      if (e.kind == TreeEntry::Kind::kText) {
        out.push_back({e.path, "", e.source});
        continue;
      }
      const auto it = digests.find(e.source);
      out.push_back({e.path, e.source, "", 0, it == digests.end() ? "" : it->second});
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const auto& a, const auto& b) { return turn_of(a.path) < turn_of(b.path); });
    return out;
  }

  const config::HfPublish& settings_;
  const Run& run_;
  std::string endpoint_;
};

}  // namespace

std::unique_ptr<Step> hub_step(const config::HfPublish& settings, const Run& run, const Surroundings& around) {
  return std::make_unique<HubStep>(settings, run, around);
}

}  // namespace mxt::publish

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "publish/ipfs/steps.h"
#include "publish/ipfs/upload.h"
#include "publish/service.h"

namespace mxt::publish {
namespace {

constexpr const char* kLighthouse = "run";
constexpr const char *kUpload = "https://upload.lighthouse.storage", *kApi = "https://api.lighthouse.storage";

class LighthouseStep : public Step {
 public:
  LighthouseStep(const config::LighthousePublish& s, const Run& run, const Surroundings& around)
      : run_(run),
        key_env_(s.api_key_env),
        base_(service_url(kUpload, "lighthouse", around.variable("LIGHTHOUSE_ENDPOINT"), "LIGHTHOUSE_ENDPOINT")) {}
  std::string name() const override { return "lighthouse"; }
  std::string target() const override { return base_; }
  void check(const StepContext& c) const override {
    if (c.around.variable(key_env_).empty())
      fail_missing("lighthouse: {} is not set: export your Lighthouse API key in it", key_env_);
  }

  OrderedJson preview(const StepContext& c) const override {
    OrderedJson cids;
    for (const DagRoot& r : roots(c)) cids[std::string(r.profile->name)] = r.text();
    return {{"accepts", cids}, {"files", run_.files.size()}, {"sends", "POST " + url()}};
  }

  Json run(const StepContext& c) const override {
    check(c);
    const auto expected = roots(c);
    Service lighthouse("Lighthouse at " + base_, c.around.http);
    if (c.state().is_object())  // an upload has begun whose answer nobody has heard
      for (const DagRoot& root : expected)
        if (is_there(c, root)) return result_of(root);
    refuse_again(c, "Lighthouse at " + base_, url(), expected[0].text());
    c.save({{"sending", expected[0].text()}});
    FormBody form = folder_form(run_.files, kLighthouse, false);
    net::HttpRequest q;
    q.method = "POST";
    q.url = url();
    q.headers = {{"Content-Type", form.content_type}, {"Authorization", "Bearer " + c.around.variable(key_env_)}};
    q.parts = std::move(form.parts);
    const net::HttpResponse r = lighthouse.send(q);
    if (r.status == 401 || r.status == 403)
      fail_input("Lighthouse at {}: refuses the key in {} ({})", base_, key_env_, r.status);
    if (r.status != 200) lighthouse.refuse(r, q.url);
    c.save({});  // it is heard, whatever it says
    require_whole(r, "Lighthouse at " + base_);
    std::string got;
    for (const std::string_view line : split(r.body, '\n'))  // one object; a node behind it may send one a file
      if (const Json j = Json::parse(line, nullptr, false);
          j.is_object() && j.contains("Hash") && j["Hash"].is_string() &&
          (got.empty() || j.value("Name", Json()) == Json(kLighthouse)))
        got = j["Hash"].get<std::string>();
    if (got.empty()) fail_input("Lighthouse at {}: its answer names no id", base_);
    for (const DagRoot& root : expected)
      if (got == root.text()) return result_of(root);
    named_another(c, url(), expected[0].text(),
                  fmt::format("Lighthouse at {}: says that the run is {}, and it is {} ({}) or {} ({})", base_,
                              printable(got.substr(0, 100)), expected[0].text(), expected[0].profile->name,
                              expected[1].text(), expected[1].profile->name));
  }

 private:
  static Json result_of(const DagRoot& root) {
    return {{"cid", root.text()}, {"profile", root.profile->name}, {"bytes", root.file_bytes}};
  }
  // Whatever else it says, or does not, is no: the run is sent then.
  bool is_there(const StepContext& c, const DagRoot& root) const {
    const std::string api = base_ == kUpload ? kApi : base_;
    net::HttpRequest q;
    q.url = api + "/api/lighthouse/file_info?cid=" + root.text();
    q.retries = 1;
    try {
      const net::HttpResponse r = Service("Lighthouse at " + api, c.around.http).send(q);
      const Json j = Json::parse(r.body, nullptr, false);
      const auto cid = "/data/cid"_json_pointer;
      return r.status == 200 && j.is_object() && j.contains(cid) && j.at(cid) == Json(root.text());
    } catch (const Error& e) {
      if (e.code() == Exit::kInterrupted) throw;
      return false;
    }
  }
  std::string url() const { return base_ + "/api/v0/add?wrap-with-directory=false&cid-version=1"; }
  std::vector<DagRoot> roots(const StepContext& c) const {
    return import_tree(run_.files, {&unixfs_profile("kubo-v1"), &unixfs_profile("unixfs-v1-2025")}, {}, c.around.stop);
  }

  const Run& run_;
  std::string key_env_, base_;
};

}  // namespace

std::unique_ptr<Step> lighthouse_step(const config::LighthousePublish& settings, const Run& run,
                                      const Surroundings& around) {
  return std::make_unique<LighthouseStep>(settings, run, around);
}

}  // namespace mxt::publish

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "publish/ipfs/car.h"
#include "publish/ipfs/steps.h"
#include "publish/ipfs/upload.h"
#include "publish/service.h"

namespace mxt::publish {
namespace {

constexpr const char* kRoot = "run";  // the folder's name while it is sent; no part of its id

class KuboStep : public Step {
 public:
  KuboStep(const config::IpfsPublish& s, const Run& run)
      : run_(run),
        profile_(unixfs_profile(s.profile, "publish.ipfs.profile: ")),
        car_(s.car),
        base_(service_url(s.api_url, "publish.ipfs.api_url")) {}
  std::string name() const override { return "ipfs"; }
  std::string target() const override { return fmt::format("{} {}", base_, profile_.name); }
  void check(const StepContext&) const override {}

  OrderedJson preview(const StepContext& c) const override {
    const DagRoot root = import_tree(run_.files, {&profile_}, {}, c.around.stop).front();
    return {{"cid", root.text()},
            {"profile", profile_.name},
            {"bytes", root.file_bytes},
            {"files", run_.files.size()},
            {"sends", "POST " + (car_ ? import_url() : add_url())}};
  }

  Json run(const StepContext& c) const override {
    Service kubo("Kubo at " + base_, c.around.http);
    const std::string car = run_.folder + "/.publish.car";
    const struct Removed {
      const std::string& path;
      ~Removed() {
        std::error_code ec;
        fs::remove(path, ec);
      }
    } removed{car};  // whatever becomes of it: it is as large as the model, and made again
    const DagRoot root = computed(c, car);
    const Json result = {{"cid", root.text()}, {"profile", profile_.name}, {"bytes", root.file_bytes}};
    if (is_pinned(kubo, root)) return result;
    const std::string url = car_ ? import_url() : add_url();
    refuse_again(c, "Kubo at " + base_, url, root.text());
    const std::string got = car_ ? import_car(kubo, url, car) : add_files(kubo, url);
    if (got.empty()) fail_input("Kubo at {}: its answer names no root: nothing is known of what it did", base_);
    if (got != root.text())
      named_another(
          c, url, root.text(),
          fmt::format("Kubo at {}: says that the run is {}, and it is {} ({}): it did not get these bytes, or "
                      "cuts them otherwise (publish.ipfs.car: true sends blocks instead of files)",
                      base_, printable(got.substr(0, 100)), root.text(), profile_.name));
    return result;
  }

 private:
  DagRoot computed(const StepContext& c, const std::string& car) const {
    if (!car_) return import_tree(run_.files, {&profile_}, {}, c.around.stop).front();
    CarWriter writer(car, profile_.cid_version);
    const DagRoot root = import_tree(
                             run_.files, {&profile_},
                             [&](const net::Cid& cid, std::string_view b) { writer.add(cid, b); }, c.around.stop)
                             .front();
    writer.commit(root.cid);
    return root;
  }

  // Every parameter is stated: the node's configuration may say otherwise.
  std::string add_url() const {
    return fmt::format(
        "{}/api/v0/add?cid-version={}&raw-leaves={}&chunker=size-{}&max-file-links={}&hash=sha2-256&trickle=false&"
        "inline=false&pin=true&wrap-with-directory=false&progress=false",
        base_, profile_.cid_version, profile_.raw_leaves, profile_.chunk, profile_.links);
  }
  std::string import_url() const { return base_ + "/api/v0/dag/import?pin-roots=true"; }

  bool is_pinned(Service& kubo, const DagRoot& root) const {
    net::HttpRequest q;
    q.method = "POST";
    q.url = fmt::format("{}/api/v0/pin/ls?arg={}&type=recursive", base_, root.text());
    q.repeatable = true;
    q.retries = 0;  // 500 is how it says no
    const net::HttpResponse r = kubo.send(q);
    if (r.status != 200 && r.status != 500) kubo.refuse(r, q.url);
    const Json j = Json::parse(r.body, nullptr, false);
    const Json pins = j.is_object() ? j.value("Keys", Json()) : Json();
    return r.status == 200 && pins.is_object() && pins.contains(root.text());
  }

  net::HttpResponse post(Service& kubo, const std::string& url, FormBody form) const {
    net::HttpRequest q;
    q.method = "POST";
    q.url = url;
    q.headers = {{"Content-Type", form.content_type}};
    q.parts = std::move(form.parts);
    net::HttpResponse r = kubo.send(q);
    if (r.status != 200) kubo.refuse(r, url);
    require_whole(r, "Kubo at " + base_);
    return r;
  }

  // Both: the root that it names, "" where it names none. One JSON a line; what it says of the root comes last.
  std::string add_files(Service& kubo, const std::string& url) const {
    const net::HttpResponse r = post(kubo, url, folder_form(run_.files, kRoot, true));
    std::string got;
    for (const std::string_view line : split(r.body, '\n')) {
      const Json j = Json::parse(line, nullptr, false);
      if (j.is_object() && j.value("Name", Json()) == Json(kRoot) && j.contains("Hash") && j["Hash"].is_string())
        got = j["Hash"].get<std::string>();
    }
    return got;
  }

  std::string import_car(Service& kubo, const std::string& url, const std::string& car) const {
    const net::HttpResponse r = post(kubo, url, file_form(car, fs::file_size(car)));
    std::string got;
    for (const std::string_view line : split(r.body, '\n')) {
      const Json j = Json::parse(line, nullptr, false);
      const auto cid = "/Root/Cid/~1"_json_pointer, error = "/Root/PinErrorMsg"_json_pointer;
      if (!j.is_object() || !j.contains(cid) || !j.at(cid).is_string()) continue;
      got = j.at(cid).get<std::string>();
      if (j.contains(error) && j.at(error).is_string() && !j.at(error).get<std::string>().empty())
        fail_input("Kubo at {}: did not pin {}: {}", base_, printable(got.substr(0, 100)),
                   printable(j.at(error).get<std::string>().substr(0, 300)));
    }
    return got;
  }

  const Run& run_;
  const UnixFsProfile& profile_;
  bool car_;
  std::string base_;
};

}  // namespace

std::unique_ptr<Step> kubo_step(const config::IpfsPublish& settings, const Run& run) {
  return std::make_unique<KuboStep>(settings, run);
}

}  // namespace mxt::publish

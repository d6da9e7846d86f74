#include "publish/register/asset.h"

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/text.h"
#include "publish/service.h"

namespace mxt::publish {
namespace {

std::string raw_sha256(std::string_view bytes) {
  const std::string hex = sha256_hex(bytes);
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

class AssetStep final : public Step {
 public:
  AssetStep(const config::AlgorandPublish& s, const Run& run, const Surroundings& around)
      : run_(run),
        id_(s.asa_id),
        base_(service_url(s.algod_url, "publish.algorand.algod_url", around.variable(kAlgodVariable), kAlgodVariable)) {
  }
  std::string name() const override { return "algorand"; }
  std::string target() const override { return base_ + " asset " + (id_ ? std::to_string(*id_) : "?"); }
  void check(const StepContext&) const override {
    if (!id_)
      fail_missing(
          "publish.algorand.asa_id: is not set: an asset is never made here; make one whose metadata hash is the "
          "SHA-256 of manifest.json (`publish --dry-run` prints it), and name it");
  }
  OrderedJson preview(const StepContext&) const override {
    return {{"reads", "GET " + url()}, {"metadata_hash", to_base64(digest())}};
  }

  Json run(const StepContext& c) const override {
    Service service("algod at " + base_, c.around.http);
    net::HttpRequest q;
    q.url = url();
    if (const std::string token = c.around.variable(kAlgodToken); !token.empty())
      q.headers.emplace_back("X-Algo-API-Token", token);
    const Json answer = service.json(q);
    const auto text = [&](const char* key) {
      const auto at = Json::json_pointer(std::string("/params/") + key);
      return answer.contains(at) && answer[at].is_string() ? printable(answer[at].get<std::string>().substr(0, 200))
                                                           : std::string();
    };
    if (!answer.is_object() || answer.value("index", Json()) != *id_)
      fail_input("algod at {}: answers with another asset than {}", base_, *id_);
    if (const auto hash = from_base64(text("metadata-hash")); !hash || *hash != digest())
      fail_verify("asset {}: its metadata hash is {}, and the SHA-256 of manifest.json is {}", *id_,
                  text("metadata-hash").empty() ? "not set" : text("metadata-hash"), to_base64(digest()));
    return {{"asset", *id_}, {"name", text("name")}, {"unit", text("unit-name")}, {"creator", text("creator")}};
  }

 private:
  std::string digest() const { return raw_sha256(read_file(run_.folder + "/manifest.json")); }
  std::string url() const { return base_ + "/v2/assets/" + (id_ ? std::to_string(*id_) : ""); }
  const Run& run_;
  std::optional<int64_t> id_;
  std::string base_;
};

}  // namespace

std::unique_ptr<Step> asset_step(const config::AlgorandPublish& s, const Run& run, const Surroundings& around) {
  return std::make_unique<AssetStep>(s, run, around);
}

}  // namespace mxt::publish

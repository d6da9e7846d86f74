#include "publish/register/steps.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "net/url.h"
#include "publish/evm/name.h"
#include "publish/ipfs/import.h"
#include "publish/service.h"

namespace mxt::publish {
namespace {

constexpr const char* kBankonUrl = "https://ens.bankon.pythai.net";

// One POST of one JSON object.
class RegisterStep : public Step {
 public:
  // `variable` replaces `address`, up to its path.
  RegisterStep(std::string name, std::string service, const std::string& variable, const std::string& path,
               const std::string& address, const Run& run, const Surroundings& around)
      : run_(run), name_(std::move(name)), service_(std::move(service)) {
    const std::string other = around.variable(variable);
    url_ = service_url(address, "publish." + name_ + ".api_url", other, variable) + (other.empty() ? "" : path);
  }
  std::string name() const override { return name_; }
  std::string target() const override { return url_; }
  void check(const StepContext&) const override {}
  OrderedJson preview(const StepContext& c) const override {
    OrderedJson j = {{"sends", "POST " + url_}, {"headers", OrderedJson(headers())}, {"body", body(c).dump()}};
    const auto& p = run_.recipe.publish;
    if (name_ == "mindx" && p && p->lighthouse && cid(c).is_null())
      j["known_later"] = "cid: Lighthouse cuts by one of two profiles, and its answer says which";
    return j;
  }

  Json run(const StepContext& c) const override {
    Service service(service_ + " at " + url_, c.around.http);
    net::HttpRequest q;
    q.method = "POST";
    q.url = url_;
    for (const auto& [name, value] : headers()) q.headers.emplace_back(name, value);
    q.body = body(c).dump();
    return result(service.json(q));
  }

 protected:
  std::map<std::string, std::string> headers() const {
    return {{"Content-Type", "application/json"}, {"Idempotency-Key", blake3_hex(name_ + " " + run_.manifest_digest)}};
  }
  virtual OrderedJson body(const StepContext& c) const = 0;
  virtual Json result(const Json& answer) const = 0;

  std::string run_name() const { return run_.recipe.meta.run_name; }
  // Where the run is on the Hub: of its step, else of the recipe; null where it is not published there.
  Json hub_url(const StepContext& c) const {
    if (const Json r = c.result_of("hf"); r.is_object() && r.contains("url")) return r["url"];
    return nullptr;
  }
  Json cid(const StepContext& c) const {
    for (const char* step : {"ipfs", "lighthouse"})
      if (const Json r = c.result_of(step); r.is_object() && r.contains("cid")) return r["cid"];
    return nullptr;
  }
  std::string text_of(const Json& answer, const char* key) const {
    if (!answer.is_object() || !answer.contains(key) || !answer[key].is_string())
      fail_input("{} at {}: its answer has no {}", service_, url_, key);
    return answer[key].get<std::string>();
  }

  const Run& run_;

 private:
  std::string name_, service_, url_;
};

class MindxStep final : public RegisterStep {
 public:
  MindxStep(const config::MindxPublish& s, const Run& run, const Surroundings& around)
      : RegisterStep("mindx", "mindX", "MINDX_API_URL", "/v1/agents", s.api_url, run, around),
        capability_(s.register_as_capability) {}

 private:
  OrderedJson body(const StepContext& c) const override {
    OrderedJson j = {{"run_id", run_name()}, {"hf_url", hub_url(c)}, {"cid", cid(c)}};
    if (capability_) j["capability"] = "chat";
    return j;
  }
  Json result(const Json& answer) const override {
    if (!answer.is_object()) fail_input("{}: its answer is no object", target());
    Json r = Json::object();
    for (const char* key : {"id", "agent_id", "url"})
      if (answer.contains(key) && (answer[key].is_string() || answer[key].is_number())) r[key] = answer[key];
    return r;
  }
  bool capability_;
};

class AgenticPlaceStep final : public RegisterStep {
 public:
  AgenticPlaceStep(const config::AgenticPlacePublish& s, const Run& run, const Surroundings& around)
      : RegisterStep("agenticplace", "AgenticPlace", "AGENTICPLACE_URL", "/v1/listings", s.api_url, run, around) {}

 private:
  OrderedJson body(const StepContext& c) const override {
    OrderedJson j = {{"run_id", run_name()}, {"hf_url", hub_url(c)}, {"title", run_name()}};
    if (const auto& p = run_.recipe.publish; p && p->billing)
      // In decimal, as it is written: 0.00003 × 1000 is 0.030000000000000002 otherwise.
      j["price_usdc_per_million_tokens"] = std::round(p->billing->x402.price_per_1k_tokens * 1e12) / 1e9;
    return j;
  }
  Json result(const Json& answer) const override {
    const std::string url = text_of(answer, "listing_url");
    if (!net::parse_url(url)) fail_input("{}: its listing_url is no address", target());
    return {{"listing_url", url}};
  }
};

class BankonStep final : public RegisterStep {
 public:
  BankonStep(const config::BankonPublish& s, const Run& run, const Surroundings& around)
      : RegisterStep("bankon", "BANKON", "BANKON_ENS_URL", "/v1/subname", std::string(kBankonUrl) + "/v1/subname", run,
                     around),
        parent_(s.ens_parent),
        label_(s.subname) {
    require_labels(s);
  }

 private:
  OrderedJson body(const StepContext&) const override { return {{"parent", parent_}, {"subname", label_}}; }
  Json result(const Json& answer) const override {
    const std::string full = text_of(answer, "full"), wanted = label_ + "." + parent_;
    if (full != wanted)
      fail_verify("BANKON at {}: says that the name is {}, and {} was asked for", target(),
                  printable(full.substr(0, 100)), wanted);
    return {{"name", full}, {"tx", text_of(answer, "tx_id")}};
  }
  std::string parent_, label_;
};

}  // namespace

std::unique_ptr<Step> mindx_step(const config::MindxPublish& s, const Run& run, const Surroundings& around) {
  return std::make_unique<MindxStep>(s, run, around);
}
std::unique_ptr<Step> agenticplace_step(const config::AgenticPlacePublish& s, const Run& run,
                                        const Surroundings& around) {
  return std::make_unique<AgenticPlaceStep>(s, run, around);
}
std::unique_ptr<Step> bankon_step(const config::BankonPublish& s, const Run& run, const Surroundings& around) {
  return std::make_unique<BankonStep>(s, run, around);
}

}  // namespace mxt::publish

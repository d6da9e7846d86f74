#include "publish/evm/domain.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "net/transport.h"
#include "publish/evm/agent.h"
#include "publish/evm/chain.h"

namespace mxt::publish {
namespace {

constexpr const char* kWellKnown = "/.well-known/agent-registration.json";
constexpr uint64_t kMaxFile = 1u << 20;
constexpr double kAnswerSeconds = 30;

bool same_text(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);  // an address in any case
  });
}

class DomainStep final : public Step {
 public:
  DomainStep(const config::EvmPublish& s, const Run& run, const Surroundings& around)
      : settings_(s),
        run_(run),
        root_(*domain_root(around)),
        registry_(chain_target(s, evm::address_setting(*s.identity_registry, "publish.evm.identity_registry"))) {}
  std::string name() const override { return "erc8004_domain"; }
  std::string target() const override {
    return url() + " " + registry_ + (settings_.agent_id ? fmt::format(" agent {}", *settings_.agent_id) : "");
  }
  void check(const StepContext&) const override {}

  OrderedJson preview(const StepContext& c) const override {
    const auto agent = agent_of(c, settings_);
    OrderedJson j = {{"reads", "GET " + url()}, {"writes", path()}};
    j["file"] = agent ? served(c, *agent) : "after the step erc8004 has given an id";
    return j;
  }

  Json run(const StepContext& c) const override {
    const auto agent = agent_of(c, settings_);
    if (!agent) fail_input("erc8004_domain: the step erc8004 has given no agent's id yet: publish without --only");
    write_file_atomic(path(), served(c, *agent));
    require_named(read(c), *agent);
    return {{"domain", root_.host}, {"url", url()}, {"agent_id", evm::decimal(*agent)}, {"agent_registry", registry_}};
  }

 private:
  std::string url() const {
    net::Url u = root_;
    u.target = kWellKnown;
    return u.text();
  }
  std::string path() const { return run_.folder + "/" + kDomainFile; }
  // The agent's own file and, beyond what stands on the chain, the id that the chain gave it.
  std::string served(const StepContext& c, const evm::U256& agent) const {
    OrderedJson file = registration_file(c);
    const bool small = agent <= std::numeric_limits<int64_t>::max();
    file["registrations"] = OrderedJson::array(
        {{{"agentId", small ? OrderedJson(static_cast<int64_t>(agent)) : OrderedJson(evm::decimal(agent))},
          {"agentRegistry", registry_}}});
    return file.dump();
  }

  Json read(const StepContext& c) const {
    const std::string remedy = fmt::format("serve {} at that address, and the same command goes on", path());
    net::HttpRequest q;
    q.url = url();
    q.headers = {{"Accept", "application/json"}};
    q.leave_origin = false;
    q.max_bytes = kMaxFile;
    q.total_seconds = kAnswerSeconds;
    q.retries = 1;
    net::HttpResponse r;
    try {
      r = net::HttpClient(c.around.http).send(q);
    } catch (const Error& e) {
      if (e.code() != Exit::kMissing) throw;
      fail_missing("{}: {}; {}", url(), e.what(), remedy);
    }
    if (r.status >= 500) fail_input("{}: answers with {}: the same command asks again", url(), r.status);
    if (r.status >= 300 && r.status < 400)
      fail_missing("{}: is redirected to another host, which proves nothing of this one: {}", url(), remedy);
    if (r.status != 200) fail_missing("{}: is not there ({}): {}", url(), r.status, remedy);
    Json j = Json::parse(r.body, nullptr, false);
    if (!j.is_object()) fail_missing("{}: what is served there is no registration file: {}", url(), remedy);
    return j;
  }

  void require_named(const Json& file, const evm::U256& agent) const {
    std::string others;
    const Json list = file.value("registrations", Json());
    for (const Json& r : list.is_array() ? list : Json::array()) {
      const Json id = r.is_object() ? r.value("agentId", Json()) : Json(),
                 where = r.is_object() ? r.value("agentRegistry", Json()) : Json();
      if (!where.is_string()) continue;
      const std::string said = id.is_string() ? id.get<std::string>() : id.is_number_unsigned() ? id.dump() : "?";
      if (said == evm::decimal(agent) && same_text(where.get<std::string>(), registry_)) return;
      others += fmt::format("{}agent {} of {}", others.empty() ? "" : ", ", said, where.get<std::string>());
    }
    fail_verify("{}: names {}, and this is agent {} of {}: serve {} there", url(),
                others.empty() ? "no agent" : printable(others.substr(0, 300)), evm::decimal(agent), registry_, path());
  }

  const config::EvmPublish& settings_;
  const Run& run_;
  net::Url root_;
  std::string registry_;  // CAIP-10
};

}  // namespace

std::optional<net::Url> domain_root(const Surroundings& around) {
  const std::string given = around.variable(kDomainVariable);
  if (given.empty()) return std::nullopt;
  const net::Url u =
      net::public_url(given.find("://") == std::string::npos ? "https://" + given : given, kDomainVariable);
  if (u.target != "/")
    fail_input("{}: {} goes on after the domain: leave the path out", kDomainVariable, printable(u.text()));
  if (u.scheme != "https" && !net::is_this_machine(u.host))
    fail_input("{}: {}: what comes over http proves nothing: write https", kDomainVariable, u.text());
  return u;
}

std::unique_ptr<Step> domain_step(const config::EvmPublish& s, const Run& run, const Surroundings& around) {
  return std::make_unique<DomainStep>(s, run, around);
}

}  // namespace mxt::publish

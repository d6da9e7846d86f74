#include "publish/evm/anchor.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/host.h"
#include "base/text.h"
#include "evm/abi.h"
#include "publish/evm/chain.h"
#include "publish/ipfs/import.h"

namespace mxt::publish {
namespace {

using evm::AbiValue;

constexpr const char* kAnchor = "anchor(bytes32,bytes32,string)";
constexpr const char* kEntryOf = "entryOf(address,bytes32)";
constexpr const char* kAnchored = "Anchored(address,bytes32,bytes32,string)";

Digest run_id_of(const Json& manifest) {
  const auto at = "/predicate/integrity/blake3"_json_pointer;
  const auto id = manifest.contains(at) && manifest[at].is_string()
                      ? evm::digest_from_hex("0x" + manifest[at].get<std::string>())
                      : std::nullopt;
  if (!id) fail_verify("the manifest states no digest of itself");
  return *id;
}

Digest sha256_of(std::string_view bytes) { return *evm::digest_from_hex("0x" + sha256_hex(bytes)); }

// The same files have an id for each way to cut them: any of them is theirs.
std::vector<std::string> all_cids(const std::vector<TreeEntry>& files, StopFlag stop) {
  std::vector<const UnixFsProfile*> profiles;
  for (const UnixFsProfile& p : unixfs_profiles()) profiles.push_back(&p);
  std::vector<std::string> out;
  for (const DagRoot& r : import_tree(files, profiles, {}, stop)) out.push_back(r.text());
  return out;
}

// What differs, "" where nothing does.
std::string difference(const Entry& e, const Digest& digest, const std::vector<std::string>& cids) {
  if (e.digest != digest)
    return fmt::format("is anchored with digest {}, and the manifest's SHA-256 is {}", evm::hex(e.digest),
                       evm::hex(digest));
  if (!e.cid.empty() && std::find(cids.begin(), cids.end(), e.cid) == cids.end())
    return fmt::format("is anchored with CID {}, and these files are {}", printable(e.cid.substr(0, 100)),
                       cids.front());
  return "";
}

class AnchorStep : public Step {
 public:
  AnchorStep(const config::EvmPublish& s, const Run& run, const Surroundings& around)
      : settings_(s),
        run_(run),
        chain_(std::make_unique<EvmChain>(s, around)),
        registry_(evm::address_setting(*s.registry, "publish.evm.registry")) {}
  std::string name() const override { return "anchor"; }
  std::string target() const override { return chain_target(settings_, registry_); }
  void check(const StepContext&) const override { chain_->key(); }

  OrderedJson preview(const StepContext& c) const override {
    OrderedJson j = {{"chain_id", settings_.chain_id},
                     {"to", evm::text_of(registry_)},
                     {"run_id", evm::hex(run_id())},
                     {"digest", evm::hex(digest())}};
    const std::string cid = cid_of(c);
    j["cid"] = cid;
    j["data"] = evm::hex(call(cid));
    if (!c.around.variable(settings_.key_env).empty()) j["from"] = evm::text_of(chain_->key().address());
    return j;
  }

  Json run(const StepContext& c) const override {
    const evm::Address publisher = chain_->key().address();
    chain_->require(registry_, "publish.evm.registry");
    Json result = {{"chain_id", settings_.chain_id},
                   {"registry", evm::text_of(registry_)},
                   {"publisher", evm::text_of(publisher)},
                   {"run_id", evm::hex(run_id())},
                   {"digest", evm::hex(digest())}};
    const auto cids = all_cids(run_.files, c.around.stop);
    std::optional<Entry> there = read_entry(chain_->rpc(), registry_, publisher, run_id());
    // An entry that an attempt of ours made counts when it is deep enough: the attempt is followed to its end.
    if (!there || c.state().is_object()) {
      const evm::Sent sent = chain_->send(c, "anchor", registry_, call(cid_of(c)));
      result["tx"] = evm::hex(sent.hash);
      result["block"] = sent.receipt.block;
      there = read_entry(chain_->rpc(), registry_, publisher, run_id());
      if (!there)
        fail_verify("{}: transaction {} succeeded, and {} holds no such entry: this is not mindxtrain_registry",
                    chain_->rpc().name(), evm::hex(sent.hash), evm::text_of(registry_));
    }
    if (const std::string why = difference(*there, digest(), cids); !why.empty())
      fail_verify("run {} of {} {}: an anchor cannot be changed", evm::hex(run_id()), evm::text_of(publisher), why);
    result["cid"] = there->cid;
    result["time"] = there->time;
    return result;
  }

 private:
  Digest run_id() const { return run_id_of(run_.manifest); }
  Digest digest() const { return *evm::digest_from_hex("0x" + manifest_sha256(run_)); }
  // As the folder was sent to IPFS, else as publish.ipfs would.
  std::string cid_of(const StepContext& c) const {
    for (const char* step : {"ipfs", "lighthouse"})
      if (const Json r = c.result_of(step); r.is_object() && r.contains("cid") && r["cid"].is_string())
        return r["cid"].get<std::string>();
    const auto& ipfs = run_.recipe.publish ? run_.recipe.publish->ipfs : std::nullopt;
    const UnixFsProfile& profile = unixfs_profile(ipfs ? std::string_view(ipfs->profile) : kDefaultProfile);
    return import_tree(run_.files, {&profile}, {}, c.around.stop).front().text();
  }
  std::string call(const std::string& cid) const {
    return evm::abi_call(kAnchor, {AbiValue::word(run_id()), AbiValue::word(digest()), AbiValue::bytes(cid)});
  }

  const config::EvmPublish& settings_;
  const Run& run_;
  std::unique_ptr<EvmChain> chain_;
  evm::Address registry_;
};

// Everybody may anchor everything: who did is what counts.
std::vector<evm::Address> publishers_of(evm::Rpc& rpc, const evm::Address& registry, const Json& manifest) {
  std::vector<evm::Address> out;
  std::vector<evm::Log> logs;
  try {
    logs = rpc.logs(registry, {evm::topic(kAnchored), std::nullopt, run_id_of(manifest)}, earliest_trace(manifest));
  } catch (const evm::NodeError& e) {
    fail_input("{}: does not search its past: name who anchored it with --publisher 0x…", e.what());
  }
  for (const evm::Log& l : logs) out.push_back(evm::AbiReader(evm::bytes_of(l.topics[1]), rpc.name()).address(0));
  return out;
}

}  // namespace

std::optional<Entry> read_entry(evm::Rpc& rpc, const evm::Address& registry, const evm::Address& publisher,
                                const Digest& run_id) {
  const std::string answer =
      rpc.eth_call(registry, evm::abi_call(kEntryOf, {AbiValue::address(publisher), AbiValue::word(run_id)}));
  const evm::AbiReader r(answer, rpc.name() + ": entryOf");
  Entry e;
  e.digest = r.digest(0);
  if (e.digest == Digest{}) return std::nullopt;
  e.time = static_cast<uint64_t>(r.number(1));
  e.cid = r.bytes(2);
  return e;
}

std::unique_ptr<Step> anchor_step(const config::EvmPublish& s, const Run& run, const Surroundings& around) {
  return std::make_unique<AnchorStep>(s, run, around);
}

AnchorCheck check_anchor(const std::string& manifest_path, evm::Rpc& rpc, const evm::Address& registry,
                         const std::optional<evm::Address>& publisher, StopFlag stop) {
  AnchorCheck out;
  const std::string text = read_file(manifest_path);
  const Json manifest = parse_json(text, manifest_path);
  const Digest run_id = run_id_of(manifest), digest = sha256_of(text);
  const std::string place = fmt::format("anchor in {}", evm::text_of(registry));
  if (!rpc.has_code(registry)) {
    out.findings.push_back({place, fmt::format("{}: there is no contract at that address", rpc.name())});
    return out;
  }
  const auto who = publisher ? std::vector{*publisher} : publishers_of(rpc, registry, manifest);
  const auto cids = all_cids(published_files(manifest_path, stop), stop);
  std::vector<provenance::Finding> wrong;
  for (const evm::Address& a : who) {
    const auto entry = read_entry(rpc, registry, a, run_id);
    const std::string why = entry ? difference(*entry, digest, cids) : "has anchored no such run";
    if (!why.empty())
      wrong.push_back({place, fmt::format("{} by {}", why, evm::text_of(a))});
    else
      out.lines.push_back(fmt::format("anchor: by {} at {}{}", evm::text_of(a),
                                      utc_text(static_cast<int64_t>(entry->time)),
                                      entry->cid.empty() ? "" : ", CID " + entry->cid));
  }
  if (who.empty()) out.findings.push_back({place, fmt::format("nobody has anchored run {}", evm::hex(run_id))});
  if (out.lines.empty()) out.findings.insert(out.findings.end(), wrong.begin(), wrong.end());
  return out;
}

}  // namespace mxt::publish

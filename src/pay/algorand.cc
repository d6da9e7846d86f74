#include "pay/algorand.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace mxt::pay {
namespace {

using Clock = std::chrono::steady_clock;

// Circle's own list: USDC is an asset of two networks, which are known by their genesis hashes.
constexpr struct {
  const char* genesis;
  uint64_t usdc;
} kUsdcOf[] = {{"wGHE2Pwdvd7S12BL5FaOP20EGYesN73ktiC1qzkkit8=", 31566704},
               {"SGO1GKSzyE7IEPItTxCByw9x8FmnrCDexi9/cOUJOiI=", 10458941}};

constexpr uint64_t kMostFee = 5000;  // microalgos a transaction of a group, as the specification bounds them

uint64_t asset_of(const std::string& asset, const std::string& genesis_hash, const std::string& node) {
  if (asset == "USDC") {
    if (const auto id = usdc_on(genesis_hash)) return *id;
    fail_input("publish.billing.x402.asset: {} is of a network that has no USDC known here: give the asset's id", node);
  }
  uint64_t id = 0;
  const auto r = std::from_chars(asset.data(), asset.data() + asset.size(), id);
  if (r.ec != std::errc() || r.ptr != asset.data() + asset.size() || id == 0)
    fail_input("publish.billing.x402.asset: \"{}\" is neither USDC nor an asset's id on Algorand",
               printable(asset.substr(0, 100)));
  return id;
}

std::string payment_problem(const algorand::Transaction& t, const AlgorandTerms& terms, const evm::U256& amount) {
  if (t.type() != "axfer") return "invalid_exact_avm_not_asset_transfer";
  if (t.number("xaid") != terms.asset) return "invalid_exact_avm_asset_mismatch";
  if (t.number("aamt") != amount) return "invalid_exact_avm_amount_mismatch";
  if (t.address("arcv") != std::optional(terms.pay_to)) return "invalid_exact_avm_receiver_mismatch";
  if (t.has("asnd")) return "invalid_exact_avm_invalid_transaction";  // a clawback: somebody else's money
  if (terms.fee_payer && t.address("snd") == terms.fee_payer) return "invalid_exact_avm_facilitator_transferring";
  if (!t.is_signed()) return "invalid_exact_avm_payment_not_signed";
  return "";
}

// What we are asked to sign may hold nothing but fees.
std::string fee_problem(const AlgorandGroup& g, const algorand::Address& payer) {
  uint64_t left = kMostFee * g.transactions.size();
  for (const algorand::Transaction& t : g.transactions) {
    if (t.is_signed()) continue;
    if (t.address("snd") != payer) return "invalid_exact_avm_unsigned_non_facilitator";
    if (t.type() != "pay" || t.has("amt")) return "invalid_exact_avm_invalid_fee_payer";
    if (t.number("fee") > left) return "invalid_exact_avm_fee_too_high";
    left -= t.number("fee");
  }
  return "";
}

}  // namespace

std::optional<uint64_t> usdc_on(const std::string& genesis_hash) {
  const std::string genesis = to_base64(genesis_hash);
  for (const auto& [hash, id] : kUsdcOf)
    if (genesis == hash) return id;
  return std::nullopt;
}

std::string algorand_network(const std::string& genesis_hash) {
  return "algorand:" + to_base64(genesis_hash).substr(0, 32);
}

AlgorandTerms read_algorand(algorand::Node& node, const std::string& asset, const std::string& pay_to, Token& token) {
  AlgorandTerms t;
  t.genesis_hash = node.genesis_hash();
  t.network = algorand_network(t.genesis_hash);
  t.asset = asset_of(asset, t.genesis_hash, node.name());
  t.pay_to = algorand::address_setting(pay_to, "publish.billing.x402.pay_to");
  const algorand::Asset a = node.asset(t.asset);
  token.name = a.unit.empty() ? a.name : a.unit;
  token.decimals = a.decimals;
  return t;
}

std::string check_algorand(const AlgorandGroup& g, const AlgorandTerms& t, const evm::U256& amount) {
  if (g.index >= g.transactions.size()) return "invalid_exact_avm_payment_index";
  if (const std::string why = payment_problem(g.transactions[g.index], t, amount); !why.empty()) return why;
  const std::string id = algorand::group_id(g.transactions);
  const bool alone = g.transactions.size() == 1 && !g.transactions[0].has("grp");
  for (const algorand::Transaction& one : g.transactions) {
    if (one.bytes("gh") != t.genesis_hash) return "invalid_exact_avm_network_mismatch";
    if (!alone && one.bytes("grp") != id) return "invalid_exact_avm_invalid_group_id";
    if (one.has("rekey") || one.has("close") || one.has("aclose")) return "invalid_exact_avm_invalid_transaction";
    if (!one.is_signed() && !t.fee_payer) return "invalid_exact_avm_unsigned_non_facilitator";
    if (one.is_signed() && !one.is_signed_by_its_sender()) return "invalid_exact_avm_invalid_signature";
  }
  return t.fee_payer ? fee_problem(g, *t.fee_payer) : "";
}

struct AlgorandSettler::Job {
  Record record;
  std::string id, bytes;
  std::function<void(Settlement)> done;
  Clock::time_point born = Clock::now();
};

AlgorandSettler::AlgorandSettler(algorand::Node& node, Store& store, std::string fee_seed, SettleSettings settings)
    : node_(node), store_(store), fee_seed_(std::move(fee_seed)), settings_(settings) {
  for (Record& r : store_.in(State::kSent)) try {
      inbox_.put(job_of(r, nullptr));
    } catch (const Error& e) {
      log::warn("payment {}: {}; it stays as it is", r.key, e.what());
    }
  thread_ = std::thread([this] { run(); });
}

std::string AlgorandSettler::signed_bytes(const AlgorandGroup& g) const {
  std::string out;
  for (algorand::Transaction t : g.transactions) {
    if (!t.is_signed()) {
      if (fee_seed_.empty() || t.address("snd") != algorand::address_of(fee_seed_))
        fail_missing("its fee is paid by {}, whose key is not here", algorand::text_of(*t.address("snd")));
      t.sign(fee_seed_);
    }
    out += t.encoded();
  }
  return out;
}

AlgorandSettler::Job AlgorandSettler::job_of(Record record, std::function<void(Settlement)> done) const {
  const Payment p =
      parse_payment(record.payment.at("header").get<std::string>(), record.payment.at("version").get<int>());
  MXT_ASSERT(p.group);
  Job job;
  job.id = p.group->transactions.at(p.group->index).id();
  job.bytes = signed_bytes(*p.group);
  job.record = std::move(record);
  job.done = std::move(done);
  return job;
}

AlgorandSettler::~AlgorandSettler() { stop(); }

void AlgorandSettler::stop() {
  inbox_.stop();
  if (thread_.joinable()) thread_.join();
}

void AlgorandSettler::submit(Record record, const evm::U256& amount, std::function<void(Settlement)> done) {
  record.amount = evm::decimal(amount);
  inbox_.put(job_of(std::move(record), std::move(done)));
}

void AlgorandSettler::run() {
  std::deque<Job> under_way;
  for (;;) {
    auto fresh = inbox_.take(!under_way.empty(), settings_.poll_seconds);
    if (!fresh) return;
    for (Job& j : *fresh) {
      send(j);
      under_way.push_back(std::move(j));
    }
    std::deque<Job> still;
    for (Job& j : under_way) {
      if (look(j)) continue;
      if (j.done && std::chrono::duration<double>(Clock::now() - j.born).count() > settings_.answer_seconds) {
        j.done({"settlement_pending", j.id});
        j.done = nullptr;
      }
      still.push_back(std::move(j));
    }
    under_way = std::move(still);
  }
}

void AlgorandSettler::send(Job& job) {
  try {
    job.record.state = State::kSent;
    store_.put(job.record);
    node_.send(job.bytes);
  } catch (const algorand::Refused&) {  // look() is told the same, unless it is in the ledger or the pool already
  } catch (const Error& e) {
    log::warn("payment {}: {}", job.record.key, e.what());  // it may have arrived
  }
}

// True where it is over.
bool AlgorandSettler::look(Job& job) {
  try {
    algorand::Pending p = node_.pending(job.id);
    if (!p.known) {
      // Not sent yet, or confirmed so long ago that the node has forgotten how: sent again it says which.
      try {
        node_.send(job.bytes);
        return false;
      } catch (const algorand::Refused& e) {
        if (std::string(e.what()).find("already in ledger") == std::string::npos) {
          log::info("payment {} was refused: {}", job.record.key, e.what());
          finish(job, "invalid_exact_avm_settlement_failed");
          return true;
        }
      }
      p = node_.pending(job.id);
      if (!p.known) p.round = 1;
    }
    if (!p.error.empty()) {
      log::info("payment {} was thrown away: {}", job.record.key, p.error);
      finish(job, "invalid_exact_avm_confirmation_failed");
      return true;
    }
    if (p.round == 0) return false;
    finish(job, "");
    return true;
  } catch (const Error& e) {
    log::warn("payment {}: {}", job.record.key, e.what());
    return false;
  }
}

void AlgorandSettler::finish(Job& job, const std::string& error) {
  job.record.state = error.empty() ? State::kSettled : State::kFailed;
  job.record.transaction = job.id;
  store_.put(job.record);  // where that fails it is looked at again
  if (job.done) job.done({error, job.id});
  job.done = nullptr;
}

}  // namespace mxt::pay

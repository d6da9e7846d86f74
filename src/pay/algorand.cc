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

uint64_t asset_of(const std::string& asset, const std::string& genesis, const std::string& node) {
  if (asset == "USDC") {
    for (const auto& [hash, id] : kUsdcOf)
      if (genesis == hash) return id;
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
  if (!t.is_signed()) return "invalid_exact_avm_payment_not_signed";
  return "";
}

}  // namespace

AlgorandTerms read_algorand(algorand::Node& node, const std::string& asset, const std::string& pay_to, Token& token) {
  AlgorandTerms t;
  t.genesis_hash = node.genesis_hash();
  const std::string genesis = to_base64(t.genesis_hash);
  t.network = "algorand:" + genesis.substr(0, 32);
  t.asset = asset_of(asset, genesis, node.name());
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
    if (!one.is_signed()) return "invalid_exact_avm_unsigned_non_facilitator";  // no fee payer is offered
    if (!one.is_signed_by_its_sender()) return "invalid_exact_avm_invalid_signature";
  }
  return "";
}

struct AlgorandSettler::Job {
  Record record;
  std::string id, bytes;
  std::function<void(Settlement)> done;
  Clock::time_point born = Clock::now();

  Job(Record r, std::function<void(Settlement)> then) : record(std::move(r)), done(std::move(then)) {
    const Payment p =
        parse_payment(record.payment.at("header").get<std::string>(), record.payment.at("version").get<int>());
    MXT_ASSERT(p.group);
    id = p.group->transactions.at(p.group->index).id();
    for (const algorand::Transaction& t : p.group->transactions) bytes += t.encoded();
  }
};

AlgorandSettler::AlgorandSettler(algorand::Node& node, Store& store, SettleSettings settings)
    : node_(node), store_(store), settings_(settings) {
  for (Record& r : store_.in(State::kSent)) inbox_.put(Job(std::move(r), nullptr));
  thread_ = std::thread([this] { run(); });
}

AlgorandSettler::~AlgorandSettler() { stop(); }

void AlgorandSettler::stop() {
  inbox_.stop();
  if (thread_.joinable()) thread_.join();
}

void AlgorandSettler::submit(Record record, const evm::U256& amount, std::function<void(Settlement)> done) {
  record.amount = evm::decimal(amount);
  Job job(std::move(record), std::move(done));
  inbox_.put(std::move(job));
}

void AlgorandSettler::run() {
  std::deque<Job> under_way;
  for (;;) {
    auto fresh = inbox_.take(!under_way.empty(), settings_.poll_seconds);
    if (!fresh) return;
    for (Job& j : *fresh)
      if (send(j)) under_way.push_back(std::move(j));
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

// False where it is over.
bool AlgorandSettler::send(Job& job) {
  try {
    job.record.state = State::kSent;
    store_.put(job.record);
    node_.send(job.bytes);
  } catch (const algorand::Refused& e) {
    if (std::string(e.what()).find("already in ledger") != std::string::npos) return true;  // or waiting in the pool
    log::info("payment {} was refused: {}", job.record.key, e.what());
    finish(job, "invalid_exact_avm_settlement_failed");
    return false;
  } catch (const Error& e) {
    log::warn("payment {}: {}", job.record.key, e.what());  // it may have arrived
  }
  return true;
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
  Settlement s{error, job.id};
  job.record.state = error.empty() ? State::kSettled : State::kFailed;
  job.record.transaction = job.id;
  try {
    store_.put(job.record);
  } catch (const Error& e) {
    log::warn("{}", e.what());
    s.error = "unexpected_settle_error";
  }
  if (job.done) job.done(std::move(s));
  job.done = nullptr;
}

}  // namespace mxt::pay

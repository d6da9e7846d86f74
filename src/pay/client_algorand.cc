// The paying side on Algorand: one transfer of USDC, alone or behind a transaction that pays both fees.
#include <sodium.h>

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/entropy.h"
#include "base/error.h"
#include "base/text.h"
#include "pay/algorand.h"
#include "pay/client.h"
#include "pay/offer.h"

namespace mxt::pay {
namespace {

using algorand::Transaction;

constexpr uint64_t kMostFeePaid = 100'000;  // microalgos that a node may make us pay a transaction
constexpr double kRoundSeconds = 2.8;       // at which Algorand makes blocks
constexpr uint64_t kLeastRounds = 10, kMostRounds = 1000;
constexpr size_t kMoreBytes = 160;  // at most: the signature, the group and the fee itself
constexpr size_t kNoteWords = 4;

Json binary(const algorand::Address& a) { return Json::binary({a.begin(), a.end()}); }
Json binary(const std::string& b) { return Json::binary({b.begin(), b.end()}); }

uint64_t fee_of(const Transaction& t, const algorand::Params& p) {
  const uint64_t size = t.encoded_fields().size() + kMoreBytes;
  if (p.min_fee > kMostFeePaid || p.fee_per_byte > kMostFeePaid / size)
    fail_input("algod asks for a fee of more than {} microalgos", kMostFeePaid);
  return std::max(p.min_fee, p.fee_per_byte * size);
}

// Two payments of one amount within a round would be the same transaction without it.
Json unique_note() {
  std::string note;
  for (size_t i = 0; i < kNoteWords; ++i) {
    const uint32_t n = unguessable();
    note.append(reinterpret_cast<const char*>(&n), sizeof n);
  }
  return binary(note);
}

algorand::Address algorand_at(const Json& j, const char* key) {
  const auto a = algorand::parse_address(text_at(j, key));
  if (!a) fail_input("the offer's {} is no address of Algorand", key);
  return *a;
}

}  // namespace

AlgorandPayer::AlgorandPayer(std::string seed, algorand::Node& node, const evm::U256& budget)
    : Payer(budget), seed_(std::move(seed)), node_(node), genesis_hash_(node.genesis_hash()) {
  asset_ = usdc_on(genesis_hash_);
  what_ = "USDC on " + algorand_network(genesis_hash_);
}

AlgorandPayer::~AlgorandPayer() { sodium_memzero(seed_.data(), seed_.size()); }

bool AlgorandPayer::can_pay(const Json& offer, int version) const {
  const std::string network = text_at(offer, "network");
  return version == 2 && text_at(offer, "scheme") == "exact" && asset_ &&
         text_at(offer, "asset") == std::to_string(*asset_) &&
         (network == algorand_network(genesis_hash_) || network == "algorand:" + to_base64(genesis_hash_));
}

Json AlgorandPayer::sign(const Json& offer, const evm::U256& amount) {
  const algorand::Params p = node_.params();
  if (p.genesis_hash != genesis_hash_) fail_input("{}: is of another network than it was", node_.name());
  if (amount == 0 || (amount >> 62) != 0) fail_input("the offer's amount, {}, is none", evm::decimal(amount));
  const auto rounds = static_cast<uint64_t>(static_cast<double>(seconds_of(offer)) / kRoundSeconds);
  Json common = {{"fv", p.last_round},
                 {"lv", p.last_round + std::clamp(rounds, kLeastRounds, kMostRounds)},
                 {"gh", binary(p.genesis_hash)}};
  if (p.last_round == 0) common.erase("fv");
  if (!p.genesis_id.empty()) common["gen"] = p.genesis_id;
  Json fields = common;
  fields.update({{"type", "axfer"},
                 {"snd", binary(algorand::address_of(seed_))},
                 {"arcv", binary(algorand_at(offer, "payTo"))},
                 {"aamt", static_cast<uint64_t>(amount)},
                 {"note", unique_note()},
                 {"xaid", *asset_}});
  std::vector<Transaction> group;
  const Json extra = offer.value("extra", Json());
  if (!text_at(extra, "feePayer").empty()) {
    Json fees = common;
    const algorand::Address payer = algorand_at(extra, "feePayer");
    fees.update({{"type", "pay"}, {"snd", binary(payer)}, {"rcv", binary(payer)}});
    // The two are of nearly one size.
    fees["fee"] = 2 * fee_of(Transaction(fields), p);
    group = {Transaction(fees), Transaction(fields)};
    const std::string id = algorand::group_id(group);
    for (Transaction& t : group) t.set_group(id);
  } else {
    fields["fee"] = fee_of(Transaction(fields), p);
    group = {Transaction(fields)};
  }
  group.back().sign(seed_);
  Json texts = Json::array();
  for (const Transaction& t : group) texts.push_back(to_base64(t.is_signed() ? t.encoded() : t.encoded_fields()));
  return {{"paymentIndex", group.size() - 1}, {"paymentGroup", texts}};
}

}  // namespace mxt::pay

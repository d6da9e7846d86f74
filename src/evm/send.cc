#include "evm/send.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wait.h"

namespace mxt::evm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

bool says(const NodeError& e, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* w) { return e.said.find(w) != std::string::npos; });
}

class Sending {
 public:
  Sending(Rpc& rpc, const Key& key, const std::optional<Address>& to, const std::string& data, const SendSettings& s,
          Json state, const std::function<void(const Json&)>& keep, StopFlag stop)
      : rpc_(rpc),
        key_(key),
        to_(to),
        data_(data),
        s_(s),
        keep_(keep),
        stop_(stop),
        state_(read(std::move(state), key)) {}

  Sent run() {
    const auto began = Clock::now();
    for (int looks = 1;; ++looks) {
      check_stop(stop_);
      if (const auto mined = find(); mined && deep(*mined)) return *mined;
      if (!found_) step();
      if (seconds_since(began) > s_.patience_seconds)
        fail_input(
            "{}: transaction {} is not {} deep after {:.0f} s: what was sent is kept, the same command looks again",
            rpc_.name(), last_hash(), s_.confirmations, s_.patience_seconds);
      if (looks == 2)  // one that is mined at once is not spoken of
        log::info(
            "waiting for transaction {} to be {} deep, at most {:.0f} s; Ctrl-C keeps what was sent, and the same "
            "command looks again",
            last_hash(), s_.confirmations, s_.patience_seconds);
      wait_for(rpc_.name(), s_.poll_seconds, stop_);
    }
  }

 private:
  // A damaged state says nothing, and another account's attempts are none of this one.
  static Json read(Json j, const Key& key) {
    const Json from = text_of(key.address()), none = {{"from", from}, {"attempts", Json::array()}};
    const bool whole = j.is_object() && j.value("from", from) == from && j.contains("nonce") &&
                       j["nonce"].is_number_unsigned() && j.contains("attempts") && j["attempts"].is_array();
    if (!whole) return none;
    for (const Json& a : j["attempts"])
      for (const char* k : {"hash", "raw", "max_fee", "tip"})
        if (!a.is_object() || !a.contains(k) || !a[k].is_string() || !from_hex(pad(a[k].get<std::string>())))
          return none;
    return j;
  }
  static std::string pad(std::string quantity) {
    if (quantity.size() % 2 != 0 && quantity.starts_with("0x")) quantity.insert(2, "0");
    return quantity;
  }
  Json& attempts() { return state_["attempts"]; }
  std::string last_hash() { return attempts().empty() ? "-" : attempts().back()["hash"].get<std::string>(); }

  std::optional<Sent> find() {
    found_ = false;
    for (const Json& a : attempts()) {
      const auto hash = digest_from_hex(a["hash"].get<std::string>());
      if (!hash) continue;
      if (auto r = rpc_.receipt(*hash)) {
        found_ = true;
        return Sent{*hash, std::move(*r)};
      }
    }
    return std::nullopt;
  }

  // A block that is no longer the chain's holds nothing: the next look finds out.
  bool deep(const Sent& m) {
    const uint64_t head = rpc_.block_number();
    if (head < m.receipt.block || head - m.receipt.block + 1 < s_.confirmations) return false;
    return rpc_.block_hash(m.receipt.block) == m.receipt.block_hash;
  }

  // None of the attempts is mined.
  void step() {
    if (attempts().empty()) return first();
    if (rpc_.nonce(key_.address()) > state_["nonce"].get<uint64_t>()) {
      if (find()) return;  // mined just now
      // A node counts the nonce before it shows the receipt, and another one behind the same address may lag: it is
      // waited for before it is believed that the nonce went to something else (another program with this key).
      if (!missed_) missed_ = Clock::now();
      if (seconds_since(*missed_) < s_.replace_seconds) return;
      attempts().clear();
      missed_.reset();
      return first();
    }
    missed_.reset();
    const Json& last = attempts().back();
    const Fees f = rpc_.fees();
    const U256 offered = *parse_quantity(last["max_fee"].get<std::string>());
    if (f.base > offered && seconds_since(sent_at_) > s_.replace_seconds) return replace(f);
    if (!rpc_.knows(*digest_from_hex(last["hash"].get<std::string>())))
      broadcast(*from_hex(last["raw"].get<std::string>()));
  }

  void first() {
    state_["nonce"] = rpc_.nonce(key_.address(), "pending");
    const Fees f = rpc_.fees();
    attempt(2 * f.base + f.tip, f.tip);
  }

  // Nodes take a replacement that offers an eighth more, of both.
  void replace(const Fees& f) {
    const Json& last = attempts().back();
    const U256 fee = *parse_quantity(last["max_fee"].get<std::string>()) * 9 / 8 + 1,
               tip = *parse_quantity(last["tip"].get<std::string>()) * 9 / 8 + 1;
    const U256 more_tip = std::max(tip, f.tip);
    attempt(std::max<U256>(fee, 2 * f.base + more_tip), more_tip);
  }

  void attempt(U256 max_fee, U256 tip) {
    if (s_.most_fee != 0 && max_fee > s_.most_fee) {
      const Fees now = rpc_.fees();
      if (now.base + tip > s_.most_fee)
        fail_input("{}: gas costs {} gwei now, above the limit of {}: what was done is kept, the same command goes on",
                   rpc_.name(), decimal(U256((now.base + tip) / 1'000'000'000)),
                   decimal(U256(s_.most_fee / 1'000'000'000)));
      max_fee = s_.most_fee;
    }
    tip = std::min(tip, max_fee);
    Transaction t;
    t.chain_id = s_.chain_id;
    t.nonce = state_["nonce"].get<uint64_t>();
    const uint64_t gas = rpc_.estimate_gas(key_.address(), to_, data_);
    t.gas = gas + gas / 5;  // what it costs may grow before it is mined
    t.max_priority_fee = tip;
    t.max_fee = max_fee;
    t.to = to_;
    t.data = data_;
    const SignedTransaction s = sign(t, key_);
    attempts().push_back(
        {{"hash", hex(s.hash)}, {"raw", hex(s.raw)}, {"max_fee", quantity(max_fee)}, {"tip", quantity(tip)}});
    keep_(state_);
    sent_at_ = Clock::now();
    broadcast(s.raw);
  }

  void broadcast(const std::string& raw) {
    try {
      rpc_.send_raw(raw);
    } catch (const NodeError& e) {
      // It is there already, or its nonce is taken: the next look tells by what. What offers too little is replaced.
      if (!says(e, {"already known", "already imported", "known transaction", "nonce too low", "underpriced",
                    "less than block base fee"}))
        throw;
    }
  }

  Rpc& rpc_;
  const Key& key_;
  const std::optional<Address>& to_;
  const std::string& data_;
  const SendSettings& s_;
  const std::function<void(const Json&)>& keep_;
  StopFlag stop_;
  Json state_;
  bool found_ = false;
  Clock::time_point sent_at_ = Clock::now();
  std::optional<Clock::time_point> missed_;  // since when the nonce is used and no receipt is seen
};

}  // namespace

Sent send_transaction(Rpc& rpc, const Key& key, const std::optional<Address>& to, const std::string& data,
                      const SendSettings& settings, Json state, const std::function<void(const Json&)>& keep,
                      StopFlag stop) {
  return Sending(rpc, key, to, data, settings, std::move(state), keep, stop).run();
}

}  // namespace mxt::evm

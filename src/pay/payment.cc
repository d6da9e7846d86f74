#include "pay/payment.h"

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "base/json.h"
#include "evm/abi.h"
#include "pay/algorand.h"

namespace mxt::pay {
namespace {

using V = evm::AbiValue;

constexpr int64_t kSettleSeconds = 6;  // a payment must hold so long from now, or it is over before it is mined

const Json& member(const Json& j, const char* key) {
  if (!j.is_object() || !j.contains(key)) fail_input("the payment has no {}", key);
  return j[key];
}

std::string text(const Json& j, const char* key) {
  const Json& v = member(j, key);
  if (!v.is_string()) fail_input("the payment's {} is no text", key);
  return v.get<std::string>();
}

evm::U256 number(const Json& j, const char* key) {
  const auto n = evm::parse_decimal(text(j, key));
  if (!n) fail_input("the payment's {} is no number in decimal digits", key);
  return *n;
}

// Clients write addresses in any case, not all with a checksum that holds.
evm::Address address(const Json& j, const char* key) {
  const auto b = evm::from_hex(text(j, key));
  if (!b || b->size() != 20) fail_input("the payment's {} is no address", key);
  evm::Address a{};
  std::copy(b->begin(), b->end(), a.begin());
  return a;
}

evm::Authorization authorization(const Json& j) {
  evm::Authorization a;
  a.from = address(j, "from");
  a.to = address(j, "to");
  a.value = number(j, "value");
  a.valid_after = number(j, "validAfter");
  a.valid_before = number(j, "validBefore");
  const auto nonce = evm::digest_from_hex(text(j, "nonce"));
  if (!nonce) fail_input("the payment's nonce is not 32 bytes in hexadecimal");
  a.nonce = *nonce;
  return a;
}

evm::UptoPermit permit(const Json& j, evm::Address& from) {
  evm::UptoPermit p;
  from = address(j, "from");
  p.token = address(member(j, "permitted"), "token");
  p.amount = number(member(j, "permitted"), "amount");
  p.spender = address(j, "spender");
  p.nonce = number(j, "nonce");
  p.deadline = number(j, "deadline");
  const Json& w = member(j, "witness");
  p.to = address(w, "to");
  p.facilitator = address(w, "facilitator");
  p.valid_after = number(w, "validAfter");
  return p;
}

bool signed_by(const evm::Address& who, const Digest& digest, const std::string& signature) {
  const auto s = evm::parse_signature(signature);
  return s && evm::recover(digest, *s) == who;
}

std::string check_exact(const Payment& p, const Terms& t, const evm::U256& amount, int64_t now) {
  const evm::Authorization& a = *p.exact;
  if (a.to != t.pay_to) return "invalid_exact_evm_recipient_mismatch";
  if (a.value != amount) return "invalid_exact_evm_payload_authorization_value_mismatch";
  if (a.valid_before < now + kSettleSeconds) return "invalid_exact_evm_payload_authorization_valid_before";
  if (a.valid_after > now) return "invalid_exact_evm_payload_authorization_valid_after";
  const auto domain = evm::domain_separator(t.token.name, t.token.version, t.network->chain_id, t.token.address);
  if (!signed_by(a.from, evm::typed_digest(domain, evm::struct_hash(a)), p.signature))
    return "invalid_exact_evm_signature";
  return "";
}

std::string check_upto(const Payment& p, const Terms& t, const evm::U256& amount, int64_t now) {
  const evm::UptoPermit& u = *p.upto;
  if (u.spender != *evm::parse_address(evm::kUptoProxy)) return "invalid_permit2_spender";
  if (u.to != t.pay_to) return "invalid_permit2_recipient_mismatch";
  if (u.facilitator != t.facilitator) return "upto_facilitator_mismatch";
  if (u.token != t.token.address) return "permit2_token_mismatch";
  if (u.amount != amount) return "permit2_amount_mismatch";
  if (u.deadline < now + kSettleSeconds) return "permit2_deadline_expired";
  if (u.valid_after > now) return "permit2_not_yet_valid";
  if (!signed_by(p.payer(), evm::typed_digest(evm::permit2_domain(t.network->chain_id), evm::struct_hash(u)),
                 p.signature))
    return "invalid_permit2_signature";
  return "";
}

AlgorandGroup algorand_group(const Json& payload) {
  constexpr size_t kMost = 16;
  AlgorandGroup g;
  const Json& index = member(payload, "paymentIndex");
  const Json& list = member(payload, "paymentGroup");
  if (!index.is_number_unsigned()) fail_input("the payment's paymentIndex is no number");
  if (!list.is_array() || list.empty() || list.size() > kMost)
    fail_input("the payment's paymentGroup is not 1 to {} transactions", kMost);
  if (index.get<uint64_t>() >= list.size()) fail_input("the payment's paymentIndex points outside its group");
  g.index = index.get<size_t>();
  for (const Json& one : list) {
    const auto bytes = one.is_string() ? from_base64(one.get<std::string>()) : std::nullopt;
    if (!bytes) fail_input("the payment's paymentGroup holds what is no base64");
    g.transactions.push_back(algorand::Transaction::parse(*bytes));
  }
  return g;
}

// Older texts write Algorand's networks with the whole genesis hash.
bool same_network(const Payment& p, const Terms& t) {
  if (p.group.has_value() != t.algorand.has_value()) return false;
  return p.network == network_text(t, p.version) ||
         (t.algorand && p.network == "algorand:" + to_base64(t.algorand->genesis_hash));
}

// The offer that a client says it took must be one of ours, as we made it for this request.
bool is_offered(const Payment& p, const Terms& t, const evm::U256& amount) {
  const Json ours = requirement_v2(t, p.scheme, amount);
  for (const char* key : {"scheme", "amount", "asset", "payTo"}) {
    const Json& theirs = p.accepted.value(key, Json());
    if (!theirs.is_string()) return false;
    const auto a = evm::from_hex(theirs.get<std::string>()), b = evm::from_hex(ours[key].get<std::string>());
    if (a && b ? *a != *b : theirs != ours[key]) return false;
  }
  return true;
}

}  // namespace

std::string Payment::payer_text() const {
  if (!group) return evm::text_of(payer_);
  const auto sender =
      group->index < group->transactions.size() ? group->transactions[group->index].address("snd") : std::nullopt;
  return sender ? algorand::text_of(*sender) : "";
}

std::string Payment::key() const {
  if (group) return "algorand:" + group->transactions.at(group->index).id();
  return scheme == Scheme::kExact
             ? fmt::format("eip3009:{}:{}", evm::hex(evm::bytes_of(payer_)), evm::hex(exact->nonce))
             : fmt::format("permit2:{}:{}", evm::hex(evm::bytes_of(payer_)), evm::decimal(upto->nonce));
}

Payment parse_payment(std::string_view header, int version) {
  const auto bytes = from_base64(header);
  if (!bytes) fail_input("the payment is no base64");
  Payment p;
  p.version = version;
  p.whole = parse_json(*bytes, "the payment");
  const Json& said = member(p.whole, "x402Version");
  if (said != version) fail_input("the payment is not of version {}, as its header is", version);
  if (version == 2) p.accepted = member(p.whole, "accepted");
  const Json& where = version == 2 ? p.accepted : p.whole;
  const std::string scheme = text(where, "scheme");
  if (scheme != "exact" && (scheme != "upto" || version == 1))
    fail_input("the payment's scheme is neither exact nor upto");
  p.scheme = scheme == "exact" ? Scheme::kExact : Scheme::kUpto;
  p.network = text(where, "network");
  const Json& payload = member(p.whole, "payload");
  if (p.network.starts_with("algorand:")) {
    if (p.scheme != Scheme::kExact || version != 2) fail_input("Algorand is paid on by version 2's exact alone");
    p.group = algorand_group(payload);
    return p;
  }
  const auto signature = evm::from_hex(text(payload, "signature"));
  if (!signature) fail_input("the payment's signature is no hexadecimal");
  p.signature = *signature;
  if (p.scheme == Scheme::kExact) {
    p.exact = authorization(member(payload, "authorization"));
    p.payer_ = p.exact->from;
  } else {
    p.upto = permit(member(payload, "permit2Authorization"), p.payer_);
  }
  return p;
}

std::string check_payment(const Payment& p, const Terms& t, const evm::U256& amount, int64_t now) {
  if (std::find(t.schemes.begin(), t.schemes.end(), p.scheme) == t.schemes.end()) return "unsupported_scheme";
  if (!same_network(p, t)) {
    if (t.algorand) return "invalid_exact_avm_network_mismatch";
    return p.scheme == Scheme::kExact ? "invalid_exact_evm_network_mismatch" : "invalid_upto_evm_network_mismatch";
  }
  if (p.group) {
    const std::string why = check_algorand(*p.group, *t.algorand, amount);
    return why.empty() && !is_offered(p, t, amount) ? "invalid_payment_requirements" : why;
  }
  const std::string why = p.scheme == Scheme::kExact ? check_exact(p, t, amount, now) : check_upto(p, t, amount, now);
  if (!why.empty()) return why;
  return p.version == 2 && !is_offered(p, t, amount) ? "invalid_payment_requirements" : "";
}

bool is_used(evm::Rpc& rpc, const Payment& p, const Terms& t) {
  if (p.scheme == Scheme::kExact) {
    const std::string answer = rpc.eth_call(
        t.token.address,
        evm::abi_call("authorizationState(address,bytes32)", {V::address(p.payer()), V::word(p.exact->nonce)}));
    return evm::AbiReader(answer, rpc.name() + ": authorizationState").boolean(0);
  }
  // Permit2 keeps a bit for each nonce.
  const std::string answer = rpc.eth_call(
      *evm::parse_address(evm::kPermit2),
      evm::abi_call("nonceBitmap(address,uint256)", {V::address(p.payer()), V::number(p.upto->nonce >> 8)}));
  const evm::U256 word = evm::AbiReader(answer, rpc.name() + ": nonceBitmap").number(0);
  return bit_test(word, static_cast<unsigned>(p.upto->nonce & 255));
}

evm::Address settlement_contract(const Payment& p, const Terms& t) {
  return p.scheme == Scheme::kExact ? t.token.address : *evm::parse_address(evm::kUptoProxy);
}

std::string settlement_call(const Payment& p, const evm::U256& used) {
  if (p.scheme == Scheme::kExact) {
    const evm::Authorization& a = *p.exact;
    const auto s = evm::parse_signature(p.signature);
    MXT_ASSERT(s);
    return evm::abi_call(
        "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)",
        {V::address(a.from), V::address(a.to), V::number(a.value), V::number(a.valid_after), V::number(a.valid_before),
         V::word(a.nonce), V::number(27 + s->y_parity), V::word(s->r), V::word(s->s)});
  }
  const evm::UptoPermit& u = *p.upto;
  return evm::abi_call(
      "settle(((address,uint256),uint256,uint256),uint256,address,(address,address,uint256),bytes)",
      {V::tuple({V::tuple({V::address(u.token), V::number(u.amount)}), V::number(u.nonce), V::number(u.deadline)}),
       V::number(used), V::address(p.payer()),
       V::tuple({V::address(u.to), V::address(u.facilitator), V::number(u.valid_after)}), V::bytes(p.signature)});
}

}  // namespace mxt::pay

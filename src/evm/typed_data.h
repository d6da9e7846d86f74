// EIP-712: typed data that a wallet signs. The messages are those of x402: EIP-3009's TransferWithAuthorization, and
// Permit2's PermitWitnessTransferFrom with the witness of x402's proxies.
#pragma once

#include <string>

#include "evm/types.h"

namespace mxt::evm {

// Of a token's own domain: its name and version are what the token says of itself.
Digest domain_separator(const std::string& name, const std::string& version, const U256& chain_id,
                        const Address& contract);
Digest typed_digest(const Digest& domain, const Digest& message);  // what is signed

struct Authorization {
  Address from{}, to{};
  U256 value, valid_after, valid_before;  // seconds since 1970
  Digest nonce{};
};
Digest struct_hash(const Authorization& a);

inline constexpr const char* kPermit2 = "0x000000000022D473030F116dDEE9F6B43aC78BA3";
inline constexpr const char* kUptoProxy = "0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002";

struct UptoPermit {
  Address token{};
  U256 amount;  // at most
  Address spender{};
  U256 nonce, deadline;
  Address to{}, facilitator{};  // the witness: who is paid, and who may settle
  U256 valid_after;
};
Digest struct_hash(const UptoPermit& p);
Digest permit2_domain(const U256& chain_id);  // without a version

}  // namespace mxt::evm

#include "evm/typed_data.h"

#include "evm/abi.h"
#include "evm/keccak.h"

namespace mxt::evm {
namespace {

using V = AbiValue;

Digest hashed(const std::vector<AbiValue>& members) { return keccak256(abi_encode(members)); }

}  // namespace

Digest domain_separator(const std::string& name, const std::string& version, const U256& chain_id,
                        const Address& contract) {
  return hashed(
      {V::word(keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)")),
       V::word(keccak256(name)), V::word(keccak256(version)), V::number(chain_id), V::address(contract)});
}

Digest permit2_domain(const U256& chain_id) {
  return hashed({V::word(keccak256("EIP712Domain(string name,uint256 chainId,address verifyingContract)")),
                 V::word(keccak256("Permit2")), V::number(chain_id), V::address(*parse_address(kPermit2))});
}

Digest typed_digest(const Digest& domain, const Digest& message) {
  return keccak256("\x19\x01" + bytes_of(domain) + bytes_of(message));
}

Digest struct_hash(const Authorization& a) {
  return hashed({V::word(keccak256("TransferWithAuthorization(address from,address to,uint256 value,uint256 "
                                   "validAfter,uint256 validBefore,bytes32 nonce)")),
                 V::address(a.from), V::address(a.to), V::number(a.value), V::number(a.valid_after),
                 V::number(a.valid_before), V::word(a.nonce)});
}

Digest struct_hash(const UptoPermit& p) {
  const std::string token = "TokenPermissions(address token,uint256 amount)";
  const std::string witness = "Witness(address to,address facilitator,uint256 validAfter)";
  const Digest permitted = hashed({V::word(keccak256(token)), V::address(p.token), V::number(p.amount)});
  const Digest seen =
      hashed({V::word(keccak256(witness)), V::address(p.to), V::address(p.facilitator), V::number(p.valid_after)});
  return hashed({V::word(keccak256("PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 "
                                   "nonce,uint256 deadline,Witness witness)" +
                                   token + witness)),
                 V::word(permitted), V::address(p.spender), V::number(p.nonce), V::number(p.deadline), V::word(seen)});
}

}  // namespace mxt::evm

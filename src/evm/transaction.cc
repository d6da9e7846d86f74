#include "evm/transaction.h"

#include "evm/keccak.h"
#include "evm/rlp.h"

namespace mxt::evm {

SignedTransaction sign(const Transaction& t, const Key& key) {
  std::vector<std::string> fields = {
      rlp_number(t.chain_id), rlp_number(t.nonce), rlp_number(t.max_priority_fee),
      rlp_number(t.max_fee),  rlp_number(t.gas),   rlp_bytes(t.to ? bytes_of(*t.to) : ""),
      rlp_number(t.value),    rlp_bytes(t.data),   rlp_list({})};
  const Signature s = key.sign(keccak256("\x02" + rlp_list(fields)));
  fields.push_back(rlp_number(s.y_parity));
  fields.push_back(rlp_number(number_of(bytes_of(s.r))));
  fields.push_back(rlp_number(number_of(bytes_of(s.s))));
  SignedTransaction out;
  out.raw = "\x02" + rlp_list(fields);
  out.hash = keccak256(out.raw);
  return out;
}

}  // namespace mxt::evm

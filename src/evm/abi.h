// The contract ABI (docs.soliditylang.org, "Contract ABI Specification"): what is sent to a contract, and what it
// answers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evm/types.h"

namespace mxt::evm {

class AbiValue {
 public:
  static AbiValue number(const U256& n);
  static AbiValue address(const Address& a);
  static AbiValue word(const Digest& d);                // bytes32
  static AbiValue word(std::string_view left_aligned);  // bytesN, N ≤ 32
  static AbiValue boolean(bool b);
  static AbiValue bytes(std::string_view b);  // bytes and string
  static AbiValue tuple(std::vector<AbiValue> items);
  static AbiValue array(std::vector<AbiValue> items);  // T[]

  bool is_dynamic() const;
  std::string encoded() const;

 private:
  enum class Kind { kWord, kBytes, kTuple, kArray } kind_ = Kind::kWord;
  std::string bytes_;
  std::vector<AbiValue> items_;
};

std::string abi_encode(const std::vector<AbiValue>& values);
// First four bytes of the Keccak of "name(type,…)".
std::string selector(std::string_view signature);
std::string abi_call(std::string_view signature, const std::vector<AbiValue>& arguments);
// Topic of an event.
Digest topic(std::string_view signature);

// A hostile answer, taken apart by slots of 32 bytes. Errors (kBadInput, naming `source`): too short, offsets that
// point outside, addresses or booleans with other bits set.
class AbiReader {
 public:
  AbiReader(std::string_view data, std::string source) : data_(data), source_(std::move(source)) {}
  U256 number(size_t slot) const { return number_of(word(slot)); }
  Digest digest(size_t slot) const { return *digest_of(word(slot)); }
  Address address(size_t slot) const;
  bool boolean(size_t slot) const;
  std::string bytes(size_t slot) const;  // bytes or string, whose offset stands in the slot

 private:
  std::string_view word(size_t slot) const;
  std::string_view data_;
  std::string source_;
};

}  // namespace mxt::evm

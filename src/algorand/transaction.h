// Transactions of Algorand (developer.algorand.org, "Transactions" and "Atomic transfers"; ARC-2 of their encoding):
// msgpack with sorted keys, smallest integers, and no value that is zero or empty. Bytes are std::string.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace mxt::algorand {

using Address = std::array<uint8_t, 32>;  // an Ed25519 public key

// Base32 of the key and of the last 4 bytes of its SHA-512/256, without padding: 58 letters.
std::string text_of(const Address& a);
std::optional<Address> parse_address(std::string_view text);  // empty where it is none or the checksum does not hold
// The same for a setting: kBadInput names it.
Address address_setting(std::string_view text, std::string_view name);

std::string sha512_256(std::string_view bytes);  // 32 bytes

// One payment (type "pay") or transfer of an asset ("axfer"), signed by one key or by none.
class Transaction {
 public:
  // The fields without zero and empty values; byte strings are msgpack's binary.
  explicit Transaction(Json fields, std::string signature = {});
  // `bytes`: {"sig", "txn"} or the fields alone. Errors (kBadInput): what is not canonical msgpack, other types of
  // transaction, fields that are none, multisignatures and programs, more than 4,096 bytes.
  static Transaction parse(std::string_view bytes);

  std::string type() const { return text("type"); }
  std::string text(const char* field) const;   // "" where it is not there
  uint64_t number(const char* field) const;    // 0 where it is not there
  std::string bytes(const char* field) const;  // "" where it is not there
  std::optional<Address> address(const char* field) const;
  bool has(const char* field) const { return fields_.contains(field); }
  bool is_signed() const { return !signature_.empty(); }
  // By the sender's own key; one that was given to another (rekeyed) is not known here.
  bool is_signed_by_its_sender() const;
  void sign(const std::string& seed);        // 32 bytes
  void set_group(const std::string& group);  // takes a signature away

  std::string encoded() const;         // as it is sent
  std::string encoded_fields() const;  // what is signed, behind "TX"
  std::string id() const;              // 52 letters

 private:
  Json fields_;
  std::string signature_;
};

// Of transactions that succeed or fail together: 32 bytes, whatever group they say they are of.
std::string group_id(const std::vector<Transaction>& group);

// The sender of who holds a seed.
Address address_of(const std::string& seed);

}  // namespace mxt::algorand

// Numbers, addresses and hashes of an EVM chain, and how JSON-RPC writes them. Bytes are std::string.
#pragma once

#include <array>
#include <boost/multiprecision/cpp_int.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"

namespace mxt::evm {

using U256 = boost::multiprecision::uint256_t;
using Address = std::array<uint8_t, 20>;

std::string bytes_of(const Address& a);
std::string bytes_of(const Digest& d);
std::string word_of(const U256& n);                       // 32 bytes, big endian
std::string minimal_bytes(const U256& n);                 // big endian without leading zeros; 0 = no byte
U256 number_of(std::string_view big_endian);              // at most 32 bytes
std::optional<Digest> digest_of(std::string_view bytes);  // exactly 32

std::string hex(std::string_view bytes);  // "0x…", lower case
inline std::string hex(const Digest& d) { return hex(bytes_of(d)); }
// Empty where it is no "0x" and an even number of hexadecimal digits.
std::optional<std::string> from_hex(std::string_view text);
std::optional<Digest> digest_from_hex(std::string_view text);

// EIP-55: upper and lower case are a checksum.
std::string text_of(const Address& a);
// Empty where it is no address, or its case is mixed and the checksum does not hold.
std::optional<Address> parse_address(std::string_view text);
// The same for a setting: kBadInput names it.
Address address_setting(std::string_view text, std::string_view name);

std::string quantity(const U256& n);  // JSON-RPC's "0x1f"
std::optional<U256> parse_quantity(std::string_view text);
std::string decimal(const U256& n);
std::optional<U256> parse_decimal(std::string_view text);  // digits alone, no leading zeros, below 2^256

}  // namespace mxt::evm

#include "evm/types.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"
#include "evm/keccak.h"

namespace mxt::evm {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

template <size_t N>
std::string text(const std::array<uint8_t, N>& a) {
  return {reinterpret_cast<const char*>(a.data()), a.size()};
}

}  // namespace

std::string bytes_of(const Address& a) { return text(a); }
std::string bytes_of(const Digest& d) { return text(d); }

std::string minimal_bytes(const U256& n) {
  std::string out;
  if (n != 0) export_bits(n, std::back_inserter(out), 8);
  return out;
}

std::string word_of(const U256& n) {
  const std::string b = minimal_bytes(n);
  return std::string(32 - b.size(), '\0') + b;
}

U256 number_of(std::string_view b) {
  MXT_ASSERT(b.size() <= 32);
  U256 n = 0;
  for (const char c : b) n = (n << 8) | static_cast<uint8_t>(c);
  return n;
}

std::optional<Digest> digest_of(std::string_view b) {
  Digest d{};
  if (b.size() != d.size()) return std::nullopt;
  std::copy(b.begin(), b.end(), d.begin());
  return d;
}

std::string hex(std::string_view b) { return "0x" + to_hex({reinterpret_cast<const uint8_t*>(b.data()), b.size()}); }

std::optional<std::string> from_hex(std::string_view t) {
  if (!t.starts_with("0x") || t.size() % 2 != 0) return std::nullopt;
  std::string out;
  out.reserve(t.size() / 2 - 1);
  for (size_t i = 2; i < t.size(); i += 2) {
    const int high = digit(t[i]), low = digit(t[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<char>(high * 16 + low));
  }
  return out;
}

std::optional<Digest> digest_from_hex(std::string_view t) {
  const auto b = from_hex(t);
  return b ? digest_of(*b) : std::nullopt;
}

std::string text_of(const Address& a) {
  std::string out = hex(bytes_of(a));
  const Digest sum = keccak256(std::string_view(out).substr(2));
  for (size_t i = 0; i < 40; ++i)
    if (const int nibble = i % 2 == 0 ? sum[i / 2] >> 4 : sum[i / 2] & 15; nibble >= 8)
      out[2 + i] = static_cast<char>(std::toupper(out[2 + i]));
  return out;
}

std::optional<Address> parse_address(std::string_view t) {
  const auto b = from_hex(t);
  if (!b || b->size() != 20) return std::nullopt;
  Address a{};
  std::copy(b->begin(), b->end(), a.begin());
  const auto has = [&](auto in) { return std::any_of(t.begin() + 2, t.end(), in); };
  const bool mixed =
      has([](char c) { return c >= 'a' && c <= 'f'; }) && has([](char c) { return c >= 'A' && c <= 'F'; });
  if (mixed && text_of(a) != t) return std::nullopt;
  return a;
}

Address address_setting(std::string_view t, std::string_view name) {
  const auto a = parse_address(t);
  if (!a)
    fail_input("{}: \"{}\" is no address: 0x and 40 hexadecimal digits, whose mixed case must be its checksum", name,
               printable(t.substr(0, 100)));
  return *a;
}

std::string quantity(const U256& n) { return fmt::format("0x{}", n.str(0, std::ios_base::hex)); }

std::optional<U256> parse_quantity(std::string_view t) {
  if (!t.starts_with("0x") || t.size() < 3 || t.size() > 66) return std::nullopt;
  U256 n = 0;
  for (const char c : t.substr(2)) {
    if (digit(c) < 0) return std::nullopt;
    n = n * 16 + digit(c);
  }
  return n;
}

std::string decimal(const U256& n) { return n.str(); }

std::optional<U256> parse_decimal(std::string_view t) {
  if (t.empty() || t.size() > 78 || (t.size() > 1 && t[0] == '0')) return std::nullopt;
  boost::multiprecision::cpp_int n = 0;
  for (const char c : t) {
    if (c < '0' || c > '9') return std::nullopt;
    n = n * 10 + (c - '0');
  }
  if (n > std::numeric_limits<U256>::max()) return std::nullopt;
  return U256(n);
}

}  // namespace mxt::evm

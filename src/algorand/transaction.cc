#include "algorand/transaction.h"

#include <openssl/evp.h>
#include <sodium.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace mxt::algorand {
namespace {

constexpr size_t kMostBytes = 4096, kChecksum = 4, kAddressLetters = 58;
constexpr char kBase32[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

std::string base32(std::string_view bytes) {
  std::string out;
  uint32_t bits = 0;
  int held = 0;
  for (const unsigned char c : bytes) {
    bits = bits << 8 | c;
    held += 8;
    while (held >= 5) out += kBase32[bits >> (held -= 5) & 31];
  }
  if (held > 0) out += kBase32[bits << (5 - held) & 31];
  return out;
}

// The kinds of value that a field has.
enum class Kind { kAddress, kWord, kNumber, kText, kNote };

const std::map<std::string, Kind>& fields_of(const std::string& type) {
  static const std::map<std::string, Kind> common = {
      {"type", Kind::kText}, {"snd", Kind::kAddress},   {"fee", Kind::kNumber}, {"fv", Kind::kNumber},
      {"lv", Kind::kNumber}, {"gen", Kind::kText},      {"gh", Kind::kWord},    {"grp", Kind::kWord},
      {"lx", Kind::kWord},   {"rekey", Kind::kAddress}, {"note", Kind::kNote}};
  static const auto with = [](std::map<std::string, Kind> more) {
    more.insert(common.begin(), common.end());
    return more;
  };
  static const std::map<std::string, Kind> pay =
      with({{"amt", Kind::kNumber}, {"rcv", Kind::kAddress}, {"close", Kind::kAddress}});
  static const std::map<std::string, Kind> transfer = with({{"aamt", Kind::kNumber},
                                                            {"arcv", Kind::kAddress},
                                                            {"asnd", Kind::kAddress},
                                                            {"aclose", Kind::kAddress},
                                                            {"xaid", Kind::kNumber}});
  if (type == "pay") return pay;
  if (type == "axfer") return transfer;
  fail_input("the transaction's type is \"{}\": pay and axfer are taken", printable(type.substr(0, 20)));
}

std::string binary(const Json& v) {
  const auto& b = v.get_binary();
  return {b.begin(), b.end()};
}

Json binary_of(std::string_view bytes) { return Json::binary({bytes.begin(), bytes.end()}); }

std::string packed(const Json& j) {
  const std::vector<uint8_t> bytes = Json::to_msgpack(j);
  return {bytes.begin(), bytes.end()};
}

// A value of the right shape that is not the one that is left out.
bool fits(const Json& v, Kind kind) {
  const size_t n = v.is_binary() ? v.get_binary().size() : 0;
  switch (kind) {
    case Kind::kNumber:
      return v.is_number_unsigned() ? v.get<uint64_t>() > 0 : v.is_number_integer() && v.get<int64_t>() > 0;
    case Kind::kText:
      return v.is_string() && !v.get_ref<const std::string&>().empty();
    case Kind::kNote:
      return n > 0 && n <= 1024;
    case Kind::kAddress:
    case Kind::kWord:
      return n == 32 && binary(v).find_first_not_of('\0') != std::string::npos;
  }
  return false;
}

void check_fields(const Json& fields) {
  if (!fields.is_object() || !fields.contains("type") || !fields["type"].is_string())
    fail_input("the transaction has no type");
  const auto& known = fields_of(fields["type"].get<std::string>());
  for (const auto& [key, value] : fields.items()) {
    const auto k = known.find(key);
    if (k == known.end()) fail_input("the transaction has a field \"{}\" that is none", printable(key.substr(0, 20)));
    if (!fits(value, k->second)) fail_input("the transaction's {} has the wrong shape", key);
  }
  if (!fields.contains("snd")) fail_input("the transaction has no sender");
}

}  // namespace

std::string sha512_256(std::string_view bytes) {
  std::string out(32, '\0');
  unsigned n = 0;
  const int good = EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.data()), &n,
                              EVP_sha512_256(), nullptr);
  MXT_ASSERT(good == 1 && n == 32);
  return out;
}

std::string text_of(const Address& a) {
  const std::string key(a.begin(), a.end());
  return base32(key + sha512_256(key).substr(32 - kChecksum));
}

std::optional<Address> parse_address(std::string_view text) {
  if (text.size() != kAddressLetters) return std::nullopt;
  Address a{};
  uint32_t bits = 0;
  int held = 0;
  size_t n = 0;
  for (const char c : text) {
    const size_t v = std::string_view(kBase32).find(c);
    if (c == '\0' || v == std::string_view::npos) return std::nullopt;
    bits = bits << 5 | static_cast<uint32_t>(v);
    held += 5;
    if (held >= 8 && n < a.size()) a[n++] = static_cast<uint8_t>(bits >> (held -= 8));
    if (held >= 8) held -= 8;
  }
  return text_of(a) == text ? std::optional(a) : std::nullopt;  // the checksum is in the text
}

Address address_setting(std::string_view text, std::string_view name) {
  const auto a = parse_address(text);
  if (!a)
    fail_input("{}: \"{}\" is no address of Algorand: 58 letters and digits whose checksum holds are wanted", name,
               printable(text.substr(0, 100)));
  return *a;
}

Transaction::Transaction(Json fields, std::string signature)
    : fields_(std::move(fields)), signature_(std::move(signature)) {
  check_fields(fields_);
}

Transaction Transaction::parse(std::string_view bytes) {
  if (bytes.size() > kMostBytes) fail_input("the transaction has more than {} bytes", kMostBytes);
  const Json j = Json::from_msgpack(bytes.begin(), bytes.end(), true, false);
  if (!j.is_object()) fail_input("the transaction is no msgpack");
  std::string signature;
  const bool whole = j.contains("txn");
  if (whole) {
    for (const auto& [key, value] : j.items())
      if (key != "txn" && key != "sig")
        fail_input("the transaction is signed by \"{}\": one key's signature is taken", printable(key.substr(0, 20)));
    if (j.contains("sig")) {
      if (!j["sig"].is_binary() || j["sig"].get_binary().size() != crypto_sign_BYTES)
        fail_input("the transaction's signature is not {} bytes", int{crypto_sign_BYTES});
      signature = binary(j["sig"]);
    }
  }
  Transaction t(whole ? j["txn"] : j, std::move(signature));
  if ((whole ? t.encoded() : t.encoded_fields()) != bytes) fail_input("the transaction's encoding is not canonical");
  return t;
}

std::string Transaction::text(const char* field) const {
  return fields_.contains(field) ? fields_[field].get<std::string>() : "";
}
uint64_t Transaction::number(const char* field) const {
  return fields_.contains(field) ? fields_[field].get<uint64_t>() : 0;
}
std::string Transaction::bytes(const char* field) const {
  return fields_.contains(field) ? binary(fields_[field]) : "";
}
std::optional<Address> Transaction::address(const char* field) const {
  if (!fields_.contains(field)) return std::nullopt;
  Address a{};
  const std::string b = binary(fields_[field]);
  std::copy(b.begin(), b.end(), a.begin());
  return a;
}

std::string Transaction::encoded_fields() const { return packed(fields_); }

std::string Transaction::encoded() const {
  Json j = {{"txn", fields_}};
  if (is_signed()) j["sig"] = binary_of(signature_);
  return packed(j);
}

std::string Transaction::id() const { return base32(sha512_256("TX" + encoded_fields())); }

bool Transaction::is_signed_by_its_sender() const {
  const auto sender = address("snd");
  const std::string message = "TX" + encoded_fields();
  return is_signed() && sender &&
         crypto_sign_verify_detached(reinterpret_cast<const unsigned char*>(signature_.data()),
                                     reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                                     sender->data()) == 0;
}

void Transaction::sign(const std::string& seed) {
  MXT_ASSERT(seed.size() == crypto_sign_SEEDBYTES);
  unsigned char pub[crypto_sign_PUBLICKEYBYTES], secret[crypto_sign_SECRETKEYBYTES];
  crypto_sign_seed_keypair(pub, secret, reinterpret_cast<const unsigned char*>(seed.data()));
  const std::string message = "TX" + encoded_fields();
  signature_.assign(crypto_sign_BYTES, '\0');
  crypto_sign_detached(reinterpret_cast<unsigned char*>(signature_.data()), nullptr,
                       reinterpret_cast<const unsigned char*>(message.data()), message.size(), secret);
  sodium_memzero(secret, sizeof secret);
}

void Transaction::set_group(const std::string& group) {
  fields_["grp"] = binary_of(group);
  signature_.clear();
}

std::string group_id(const std::vector<Transaction>& group) {
  Json list = Json::array();
  for (const Transaction& t : group) {
    Json fields = Json::from_msgpack(t.encoded_fields());
    fields.erase("grp");
    list.push_back(binary_of(sha512_256("TX" + packed(fields))));
  }
  return sha512_256("TG" + packed({{"txlist", list}}));
}

Address address_of(const std::string& seed) {
  MXT_ASSERT(seed.size() == crypto_sign_SEEDBYTES);
  unsigned char secret[crypto_sign_SECRETKEYBYTES];
  Address a{};
  crypto_sign_seed_keypair(a.data(), secret, reinterpret_cast<const unsigned char*>(seed.data()));
  sodium_memzero(secret, sizeof secret);
  return a;
}

}  // namespace mxt::algorand

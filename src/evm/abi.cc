#include "evm/abi.h"

#include <algorithm>

#include "base/error.h"
#include "evm/keccak.h"

namespace mxt::evm {
namespace {

constexpr size_t kWord = 32;

std::string padded(std::string b) {
  b.resize((b.size() + kWord - 1) / kWord * kWord, '\0');
  return b;
}

}  // namespace

AbiValue AbiValue::number(const U256& n) {
  AbiValue v;
  v.bytes_ = word_of(n);
  return v;
}
AbiValue AbiValue::address(const Address& a) {
  AbiValue v;
  v.bytes_ = std::string(12, '\0') + bytes_of(a);
  return v;
}
AbiValue AbiValue::word(const Digest& d) { return word(bytes_of(d)); }
AbiValue AbiValue::word(std::string_view b) {
  MXT_ASSERT(b.size() <= kWord);
  AbiValue v;
  v.bytes_ = std::string(b);
  v.bytes_.resize(kWord, '\0');
  return v;
}
AbiValue AbiValue::boolean(bool b) { return number(b ? 1 : 0); }
AbiValue AbiValue::bytes(std::string_view b) {
  AbiValue v;
  v.kind_ = Kind::kBytes;
  v.bytes_ = std::string(b);
  return v;
}
AbiValue AbiValue::tuple(std::vector<AbiValue> items) {
  AbiValue v;
  v.kind_ = Kind::kTuple;
  v.items_ = std::move(items);
  return v;
}
AbiValue AbiValue::array(std::vector<AbiValue> items) {
  AbiValue v = tuple(std::move(items));
  v.kind_ = Kind::kArray;
  return v;
}

bool AbiValue::is_dynamic() const {
  if (kind_ == Kind::kTuple)
    return std::any_of(items_.begin(), items_.end(), [](const AbiValue& i) { return i.is_dynamic(); });
  return kind_ != Kind::kWord;
}

std::string AbiValue::encoded() const {
  switch (kind_) {
    case Kind::kWord:
      return bytes_;
    case Kind::kBytes:
      return word_of(bytes_.size()) + padded(bytes_);
    case Kind::kTuple:
      return abi_encode(items_);
    case Kind::kArray:
      return word_of(items_.size()) + abi_encode(items_);
  }
  MXT_ASSERT(false);
  return {};
}

// Static values stand in place; of a dynamic one its offset does, and it follows behind all of them.
std::string abi_encode(const std::vector<AbiValue>& values) {
  size_t heads = 0;
  for (const AbiValue& v : values) heads += v.is_dynamic() ? kWord : v.encoded().size();
  std::string head, tail;
  for (const AbiValue& v : values) {
    if (v.is_dynamic()) {
      head += word_of(heads + tail.size());
      tail += v.encoded();
    } else {
      head += v.encoded();
    }
  }
  return head + tail;
}

Digest topic(std::string_view signature) { return keccak256(signature); }
std::string selector(std::string_view signature) { return bytes_of(keccak256(signature)).substr(0, 4); }
std::string abi_call(std::string_view signature, const std::vector<AbiValue>& arguments) {
  return selector(signature) + abi_encode(arguments);
}

std::string_view AbiReader::word(size_t slot) const {
  if (slot >= data_.size() / kWord)
    fail_input("{}: its answer has {} bytes, too few for what was asked", source_, data_.size());
  return data_.substr(slot * kWord, kWord);
}

Address AbiReader::address(size_t slot) const {
  const std::string_view w = word(slot);
  if (w.substr(0, 12).find_first_not_of('\0') != std::string_view::npos)
    fail_input("{}: its answer holds no address where one is due", source_);
  Address a{};
  std::copy(w.begin() + 12, w.end(), a.begin());
  return a;
}

bool AbiReader::boolean(size_t slot) const {
  const U256 n = number(slot);
  if (n > 1) fail_input("{}: its answer holds no boolean where one is due", source_);
  return n == 1;
}

std::string AbiReader::bytes(size_t slot) const {
  const U256 at = number(slot);
  const bool whole = at % kWord == 0 && at / kWord < data_.size() / kWord;
  const U256 size = whole ? number(static_cast<size_t>(at / kWord)) : U256(0);
  if (!whole || size > data_.size() - static_cast<size_t>(at) - kWord)
    fail_input("{}: its answer points outside itself", source_);
  return std::string(data_.substr(static_cast<size_t>(at) + kWord, static_cast<size_t>(size)));
}

}  // namespace mxt::evm

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "net/ipfs.h"

namespace mxt::net {
namespace {

constexpr std::string_view kBase32 = "abcdefghijklmnopqrstuvwxyz234567";
constexpr std::string_view kBase58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
constexpr uint64_t kSha256 = 0x12;

std::string shown_path(std::string_view text) {
  std::string s(text.substr(0, 100));
  for (char& c : s)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return s;
}

// "" where a character does not belong.
std::string decode_bits(std::string_view text, std::string_view alphabet, int bits) {
  std::string out;
  uint32_t held = 0;
  int n = 0;
  for (char c : text) {
    const size_t v = alphabet.find(c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c);
    if (v == std::string_view::npos) return "";
    held = (held << bits) | static_cast<uint32_t>(v);
    n += bits;
    if (n >= 8) {
      n -= 8;
      out += static_cast<char>(held >> n & 0xff);
    }
  }
  // What is left over is padding: less than a character, and zero. One text for each id.
  if (n >= bits || (held & ((1u << n) - 1)) != 0) return "";
  return out;
}

std::string decode_base58(std::string_view text) {
  std::string bytes;  // little-endian
  for (char c : text) {
    const size_t v = kBase58.find(c);
    if (v == std::string_view::npos) return "";
    uint32_t carry = static_cast<uint32_t>(v);
    for (char& b : bytes) {
      carry += 58u * static_cast<unsigned char>(b);
      b = static_cast<char>(carry & 0xff);
      carry >>= 8;
    }
    if (carry) bytes += static_cast<char>(carry);
  }
  for (size_t i = 0; i < text.size() && text[i] == '1'; ++i) bytes += '\0';
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

std::string encode_base58(std::string_view bytes) {
  std::string digits;  // little-endian
  for (char b : bytes) {
    uint32_t carry = static_cast<unsigned char>(b);
    for (char& d : digits) {
      carry += static_cast<uint32_t>(d) << 8;
      d = static_cast<char>(carry % 58);
      carry /= 58;
    }
    for (; carry; carry /= 58) digits += static_cast<char>(carry % 58);
  }
  for (size_t i = 0; i < bytes.size() && bytes[i] == '\0'; ++i) digits += '\0';
  std::reverse(digits.begin(), digits.end());
  for (char& d : digits) d = kBase58[static_cast<unsigned char>(d)];
  return digits;
}

// LEB128; false where it ends early or is longer than 63 bits.
bool read_varint(std::string_view* s, uint64_t* out) {
  *out = 0;
  for (int shift = 0; shift < 63 && !s->empty(); shift += 7) {
    const unsigned char c = static_cast<unsigned char>(s->front());
    s->remove_prefix(1);
    *out |= static_cast<uint64_t>(c & 0x7f) << shift;
    if (c < 0x80) return true;
  }
  return false;
}

// One field of a protobuf message: numbers in `value`, bytes in `bytes`. False at the end.
bool read_field(std::string_view* s, uint64_t* number, uint64_t* value, std::string_view* bytes,
                std::string_view source) {
  if (s->empty()) return false;
  uint64_t key, n;
  if (!read_varint(s, &key)) fail_input("{}: is a broken dag-pb block", source);
  *number = key >> 3;
  *bytes = {};
  *value = 0;
  if ((key & 7) == 0) {
    if (!read_varint(s, value)) fail_input("{}: is a broken dag-pb block", source);
  } else if ((key & 7) == 2) {
    if (!read_varint(s, &n) || n > s->size()) fail_input("{}: is a broken dag-pb block", source);
    *bytes = s->substr(0, n);
    s->remove_prefix(n);
  } else {
    fail_input("{}: is a broken dag-pb block", source);
  }
  return true;
}

}  // namespace

std::string Cid::binary(int version) const {
  MXT_ASSERT(version == 1 || (version == 0 && codec == Codec::kDagPb));
  if (version == 0) return "\x12\x20" + digest;
  std::string s{'\x01', static_cast<char>(codec), '\x12', '\x20'};
  return s + digest;
}

std::string Cid::text(int version) const {
  const std::string bytes = binary(version);
  if (version == 0) return encode_base58(bytes);
  std::string out = "b";
  uint32_t held = 0;
  int n = 0;
  for (char c : bytes) {
    held = (held << 8) | static_cast<unsigned char>(c);
    for (n += 8; n >= 5; n -= 5) out += kBase32[held >> (n - 5) & 31];
    held &= 31;  // fewer than five bits are left over
  }
  if (n > 0) out += kBase32[held << (5 - n) & 31];
  return out;
}

bool Cid::holds(std::string_view block) const {
  Sha256 h;
  h.update(block);
  const Digest d = h.digest();
  return std::string_view(reinterpret_cast<const char*>(d.data()), d.size()) == digest;
}

Cid read_binary_cid(std::string_view* s) {
  Cid c;
  if (s->size() >= 34 && (*s)[0] == '\x12' && (*s)[1] == '\x20') {  // version 0 is the bare multihash
    c.codec = Codec::kDagPb;
    c.digest = s->substr(2, 32);
    s->remove_prefix(34);
    return c;
  }
  uint64_t version, codec, hash, n;
  if (!read_varint(s, &version) || version != 1 || !read_varint(s, &codec) || !read_varint(s, &hash) ||
      !read_varint(s, &n) || n > s->size())
    fail_input("a content id is broken");
  if (codec != static_cast<uint64_t>(Codec::kRaw) && codec != static_cast<uint64_t>(Codec::kDagPb))
    fail_input("a content id is of codec {:#x}; files are raw (0x55) or dag-pb (0x70)", codec);
  if (hash != kSha256 || n != 32)
    fail_input("a content id has hash {:#x}; SHA-256 (0x12) is what can be checked", hash);
  c.codec = static_cast<Codec>(codec);
  c.digest = s->substr(0, n);
  s->remove_prefix(n);
  return c;
}

Cid parse_cid(std::string_view text) {
  std::string bytes;
  if (text.size() == 46 && text.starts_with("Qm"))
    bytes = decode_base58(text);
  else if (!text.empty() && text.size() < 200) {
    const std::string_view rest = text.substr(1);
    if (text[0] == 'b' || text[0] == 'B') bytes = decode_bits(rest, kBase32, 5);
    if (text[0] == 'z') bytes = decode_base58(rest);
    if (text[0] == 'f' || text[0] == 'F') bytes = decode_bits(rest, "0123456789abcdef", 4);
  }
  if (bytes.empty()) fail_input("\"{}\" is no content id; they begin with Qm, bafy or bafk", shown_path(text));
  std::string_view s = bytes;
  try {
    const Cid c = read_binary_cid(&s);
    if (s.empty()) return c;
  } catch (const Error& e) {
    fail_input("\"{}\": {}", shown_path(text), e.what());
  }
  fail_input("\"{}\" is no content id: it is too long", shown_path(text));
}

UnixFsNode parse_unixfs(std::string_view block, std::string_view source) {
  UnixFsNode node;
  uint64_t number, value;
  std::string_view bytes, data;
  bool has_data = false;
  while (read_field(&block, &number, &value, &bytes, source)) {
    if (number == 1) {
      data = bytes;
      has_data = true;
    } else if (number == 2) {
      UnixFsNode::Link link;
      std::string_view rest = bytes, hash;
      while (read_field(&rest, &number, &value, &bytes, source)) {
        if (number == 1) hash = bytes;
        if (number == 2) link.name = bytes;
      }
      link.cid = read_binary_cid(&hash);
      node.links.push_back(std::move(link));
    }
  }
  if (!has_data) fail_input("{}: is a dag-pb block without UnixFS data; it is no file", source);
  uint64_t type = 99;
  while (read_field(&data, &number, &value, &bytes, source)) {
    if (number == 1) type = value;
    if (number == 2) node.data = bytes;
  }
  if (type == 1)
    node.kind = UnixFsNode::Kind::kDirectory;
  else if (type != 0 && type != 2)  // raw, file
    fail_input("{}: is a UnixFS node of type {}; files and plain directories can be read{}", source, type,
               type == 5 ? ", sharded directories cannot: name a file by its own id" : "");
  return node;
}

}  // namespace mxt::net

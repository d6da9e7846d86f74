#include "base/hash.h"

#include <blake3.h>
#include <sodium.h>

#include "base/files.h"

namespace mxt {

std::string to_hex(std::span<const uint8_t> bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (uint8_t b : bytes) {
    out += kHex[b >> 4];
    out += kHex[b & 15];
  }
  return out;
}

struct Blake3::State {
  blake3_hasher h;
};
Blake3::Blake3() : s_(std::make_unique<State>()) { blake3_hasher_init(&s_->h); }
Blake3::~Blake3() = default;
void Blake3::update(const void* data, size_t bytes) { blake3_hasher_update(&s_->h, data, bytes); }
Digest Blake3::digest() const {
  Digest d;
  blake3_hasher_finalize(&s_->h, d.data(), d.size());
  return d;
}

struct Sha256::State {
  crypto_hash_sha256_state h;
};
Sha256::Sha256() : s_(std::make_unique<State>()) { crypto_hash_sha256_init(&s_->h); }
Sha256::~Sha256() = default;
void Sha256::update(const void* data, size_t bytes) {
  crypto_hash_sha256_update(&s_->h, static_cast<const unsigned char*>(data), bytes);
}
Digest Sha256::digest() const {
  Digest d;
  auto copy = s_->h;  // finalising ends a state; digest() may be asked again
  crypto_hash_sha256_final(&copy, d.data());
  return d;
}

std::string blake3_hex(std::string_view bytes) {
  Blake3 h;
  h.update(bytes);
  return h.hex();
}
std::string sha256_hex(std::string_view bytes) {
  Sha256 h;
  h.update(bytes);
  return h.hex();
}

FileDigests hash_file(const std::string& path) {
  MappedFile f(path);
  Blake3 b;
  Sha256 s;
  constexpr size_t kStep = 1 << 20;  // both hashes read a piece while it is in the cache
  const std::string_view all = f.text();
  for (size_t i = 0; i < all.size(); i += kStep) {
    const std::string_view piece = all.substr(i, kStep);
    b.update(piece);
    s.update(piece);
    if (i % (4 * kStep) == 0) f.drop_pages();  // a large file does not count as this program's memory
  }
  return {b.hex(), s.hex(), all.size()};
}

}  // namespace mxt

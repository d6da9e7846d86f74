#include "base/hash.h"

#include <blake3.h>
#include <openssl/evp.h>

#include "base/error.h"
#include "base/files.h"
#include "base/hash_files.h"
#include "base/threads.h"

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

// OpenSSL's, which uses the processor's own instructions where it has them.
struct Sha256::State {
  EVP_MD_CTX* h = EVP_MD_CTX_new();
  State() { MXT_ASSERT(h && EVP_DigestInit_ex(h, EVP_sha256(), nullptr) == 1); }
  ~State() { EVP_MD_CTX_free(h); }
};
Sha256::Sha256() : s_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
void Sha256::update(const void* data, size_t bytes) { EVP_DigestUpdate(s_->h, data, bytes); }
Digest Sha256::digest() const {
  Digest d;
  const State copy;  // finalising ends a state; digest() may be asked again
  EVP_MD_CTX_copy_ex(copy.h, s_->h);
  EVP_DigestFinal_ex(copy.h, d.data(), nullptr);
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

FileDigests hash_file(const std::string& path) { return hash_file(path, nullptr); }

FileDigests hash_file(const std::string& path, StopFlag stop) {
  MappedFile f(path);
  Blake3 b;
  Sha256 s;
  constexpr size_t kStep = 2 << 20;  // both hashes, side by side, read a piece while it is in the cache
  const std::string_view all = f.text();
  for (size_t i = 0; i < all.size(); i += kStep) {
    check_stop(stop);
    const std::string_view piece = all.substr(i, kStep);
    const int64_t together = piece.size() < (128 << 10) ? 2 : 1;  // waking a thread takes longer than a small file
    parallel_for(0, 2, together, [&](int64_t begin, int64_t end) {
      for (int64_t which = begin; which < end; ++which) which == 0 ? b.update(piece) : s.update(piece);
    });
    if (i % (2 * kStep) == 0) f.drop_pages();  // a large file does not count as this program's memory
  }
  return {b.hex(), s.hex(), all.size()};
}

}  // namespace mxt

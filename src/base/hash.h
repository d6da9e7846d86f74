// Digests: BLAKE3 (the project's own) and SHA-256 (what in-toto, OCI and safetensors tools know).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mxt {

using Digest = std::array<uint8_t, 32>;
std::string to_hex(std::span<const uint8_t> bytes);

class Blake3 {
 public:
  Blake3();
  ~Blake3();
  Blake3(const Blake3&) = delete;
  void update(const void* data, size_t bytes);
  void update(std::string_view s) { update(s.data(), s.size()); }
  Digest digest() const;
  std::string hex() const { return to_hex(digest()); }

 private:
  struct State;
  std::unique_ptr<State> s_;
};

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  void update(const void* data, size_t bytes);
  void update(std::string_view s) { update(s.data(), s.size()); }
  Digest digest() const;
  std::string hex() const { return to_hex(digest()); }

 private:
  struct State;
  std::unique_ptr<State> s_;
};

std::string blake3_hex(std::string_view bytes);
std::string sha256_hex(std::string_view bytes);

struct FileDigests {
  std::string blake3, sha256;  // lower-case hex
  uint64_t bytes = 0;
};
FileDigests hash_file(const std::string& path);

}  // namespace mxt

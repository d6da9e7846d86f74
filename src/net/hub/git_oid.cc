#include "net/hub/git_oid.h"

#include <openssl/evp.h>

#include <array>
#include <memory>

#include "base/error.h"
#include "base/hash.h"

namespace mxt::net {

std::string git_blob_oid(std::string_view bytes) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> h(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  const std::string head = fmt::format("blob {}", bytes.size());
  std::array<uint8_t, 20> d{};
  MXT_ASSERT(h && EVP_DigestInit_ex(h.get(), EVP_sha1(), nullptr) == 1);
  EVP_DigestUpdate(h.get(), head.c_str(), head.size() + 1);  // with its NUL
  EVP_DigestUpdate(h.get(), bytes.data(), bytes.size());
  EVP_DigestFinal_ex(h.get(), d.data(), nullptr);
  return to_hex(d);
}

}  // namespace mxt::net

#include "base/base64.h"

#include <sodium.h>

namespace mxt {

std::string to_base64(std::string_view bytes) {
  constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL;
  std::string out(sodium_base64_ENCODED_LEN(bytes.size(), kVariant), '\0');
  sodium_bin2base64(out.data(), out.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                    kVariant);
  out.pop_back();  // its NUL
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  const bool url_safe = text.find_first_of("-_") != std::string_view::npos, padded = text.ends_with('=');
  const int variant = url_safe ? (padded ? sodium_base64_VARIANT_URLSAFE : sodium_base64_VARIANT_URLSAFE_NO_PADDING)
                               : (padded ? sodium_base64_VARIANT_ORIGINAL : sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
  std::string out(text.size() / 4 * 3 + 3, '\0');
  size_t bytes = 0;
  const char* end = nullptr;
  if (sodium_base642bin(reinterpret_cast<unsigned char*>(out.data()), out.size(), text.data(), text.size(), nullptr,
                        &bytes, &end, variant) != 0 ||
      end != text.data() + text.size())
    return std::nullopt;
  out.resize(bytes);
  return out;
}

}  // namespace mxt

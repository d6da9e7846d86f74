// The few things a client must know of URLs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mxt::net {

struct Url {
  std::string scheme;  // lower case: http or https
  std::string host;    // lower case; an IPv6 address in brackets
  int port = 0;        // always set
  std::string target;  // path and query, at least "/"

  std::string origin() const;  // scheme://host:port
  std::string text() const;
  bool same_origin(const Url& o) const { return scheme == o.scheme && host == o.host && port == o.port; }
};

// Empty where the text is not an absolute http(s) URL, holds white space or control characters, or user:password@.
std::optional<Url> parse_url(std::string_view text);
// What `reference` means on the page `base`: absolute, //host/…, /path, or relative to the folder.
std::optional<Url> resolve_url(const Url& base, std::string_view reference);
// Percent-encodes all but letters, digits, "-._~" and the characters of `keep`.
std::string percent_encode(std::string_view s, std::string_view keep = "");
// Empty where a % is not followed by two hexadecimal digits. The bytes are whatever was encoded: not checked for UTF-8.
std::optional<std::string> percent_decode(std::string_view s);

}  // namespace mxt::net

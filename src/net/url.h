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
  std::string user;    // USER:PASSWORD, decoded; a secret: no part of origin() and text()

  std::string origin() const;  // scheme://host:port
  std::string text() const;
  std::string basic_authorization() const;  // the header's value of `user` (RFC 7617); empty where there is none
  bool same_origin(const Url& o) const { return scheme == o.scheme && host == o.host && port == o.port; }
};

// Empty where the text is not an absolute http(s) URL, or holds white space or control characters.
std::optional<Url> parse_url(std::string_view text);
// The address that a recipe or an argument gives under `name`. Errors: kBadInput where it is none, or where it holds
// USER:PASSWORD@: what stands in a recipe is kept, shown and published.
Url public_url(std::string_view text, std::string_view name);
// What `reference` means on the page `base`: absolute, //host/…, /path, or relative to the folder.
std::optional<Url> resolve_url(const Url& base, std::string_view reference);
// What a message may show of an address, whether it is one or not: at most 200 characters, without USER:PASSWORD@.
std::string shown_url(std::string_view text);
// Percent-encodes all but letters, digits, "-._~" and the characters of `keep`.
std::string percent_encode(std::string_view s, std::string_view keep = "");
// Empty where a % is not followed by two hexadecimal digits. The bytes are whatever was encoded: not checked for UTF-8.
std::optional<std::string> percent_decode(std::string_view s);

}  // namespace mxt::net

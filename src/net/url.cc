#include "net/url.h"

#include <charconv>

#include "base/base64.h"
#include "base/error.h"
#include "base/text.h"

namespace mxt::net {
namespace {

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool is_host(std::string_view h) {
  if (h.empty()) return false;
  const bool bracketed = h.front() == '[';
  if (bracketed && (h.size() < 4 || h.back() != ']')) return false;
  for (char c : bracketed ? h.substr(1, h.size() - 2) : h) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.';
    if (!(word || (bracketed ? c == ':' : (c == '-' || c == '_')))) return false;
  }
  return true;
}

// RFC 3986, 5.2.4: /a/./b/../c?q is /a/c?q.
std::string without_dots(std::string_view target) {
  const size_t end = std::min(target.find('?'), target.size());
  const std::string_view path = target.substr(0, end);
  std::string out;
  for (size_t at = 0; at < path.size();) {
    const size_t next = std::min(path.find('/', at + 1), path.size());
    const std::string_view part = path.substr(at, next - at);
    if (part == "/..")
      out.resize(std::min(out.rfind('/'), out.size()));
    else if (part != "/.")
      out += part;
    if ((part == "/.." || part == "/.") && next == path.size()) out += '/';
    at = next;
  }
  return (out.empty() ? "/" : out) + std::string(target.substr(end));
}

}  // namespace

std::string Url::origin() const { return scheme + "://" + host + ":" + std::to_string(port); }

std::string Url::text() const {
  const bool usual = port == (scheme == "https" ? 443 : 80);
  return scheme + "://" + host + (usual ? "" : ":" + std::to_string(port)) + target;
}

std::string Url::basic_authorization() const { return user.empty() ? "" : "Basic " + to_base64(user); }

std::optional<Url> parse_url(std::string_view s) {
  if (s.size() > 16'384) return std::nullopt;
  for (char c : s)
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f || c == '\\') return std::nullopt;
  const size_t colon = s.find("://");
  if (colon == std::string_view::npos) return std::nullopt;
  Url u;
  u.scheme = lower(s.substr(0, colon));
  if (u.scheme != "http" && u.scheme != "https") return std::nullopt;
  s.remove_prefix(colon + 3);
  const size_t end = std::min(s.find_first_of("/?#"), s.size());
  std::string_view authority = s.substr(0, end);
  if (const size_t at = authority.rfind('@'); at != std::string_view::npos) {
    const auto user = percent_decode(authority.substr(0, at));
    if (!user) return std::nullopt;
    u.user = *user;
    authority.remove_prefix(at + 1);
  }
  u.port = u.scheme == "https" ? 443 : 80;
  const size_t bracket = authority.rfind(']');
  const size_t port = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (port != std::string_view::npos) {
    const std::string_view digits = authority.substr(port + 1);
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), u.port);
    if (r.ec != std::errc() || r.ptr != digits.data() + digits.size() || u.port < 1 || u.port > 65535)
      return std::nullopt;
    authority = authority.substr(0, port);
  }
  u.host = lower(authority);
  if (!is_host(u.host)) return std::nullopt;
  std::string_view rest = s.substr(end);
  rest = rest.substr(0, std::min(rest.find('#'), rest.size()));
  u.target = rest.empty() || rest.front() != '/' ? "/" + std::string(rest) : std::string(rest);
  return u;
}

Url public_url(std::string_view text, std::string_view name) {
  const auto url = parse_url(text);
  if (!url) fail_input("{}: \"{}\" is no http or https URL", name, printable(shown_url(text)));
  if (!url->user.empty())
    fail_input("{}: {} is written with a user and a password, and they would be kept and shown with it: leave them out",
               name, url->origin());
  return *url;
}

std::optional<Url> resolve_url(const Url& base, std::string_view reference) {
  if (reference.starts_with("//")) return parse_url(base.scheme + ":" + std::string(reference));
  const size_t scheme = reference.find("://");
  if (scheme != std::string_view::npos && scheme < std::min(reference.find_first_of("/?#"), reference.size()) + 1)
    return parse_url(reference);
  if (reference.starts_with("/")) return parse_url(base.origin() + std::string(reference));
  std::string path = base.target.substr(0, std::min(base.target.find('?'), base.target.size()));
  if (reference.starts_with("?")) return parse_url(base.origin() + path + std::string(reference));
  path.resize(path.rfind('/') + 1);
  return parse_url(base.origin() + without_dots(path + std::string(reference)));
}

std::string shown_url(std::string_view s) {
  const size_t scheme = s.find("://"), start = scheme == std::string_view::npos ? 0 : scheme + 3;
  const size_t end = std::min(s.find_first_of("/?#", start), s.size());
  const size_t at = s.substr(0, end).rfind('@');
  const bool user = at != std::string_view::npos && at >= start;
  return (std::string(s.substr(0, start)) + std::string(s.substr(user ? at + 1 : start))).substr(0, 200);
}

std::string percent_encode(std::string_view s, std::string_view keep) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (char c : s) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~';
    if (plain || keep.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += '%';
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
    }
  }
  return out;
}

std::optional<std::string> percent_decode(std::string_view s) {
  const auto digit = [](char c) {
    const char small = static_cast<char>(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '%') {
      out += s[i];
      continue;
    }
    if (s.size() - i < 3 || digit(s[i + 1]) < 0 || digit(s[i + 2]) < 0) return std::nullopt;
    out += static_cast<char>(digit(s[i + 1]) * 16 + digit(s[i + 2]));
    i += 2;
  }
  return out;
}

}  // namespace mxt::net

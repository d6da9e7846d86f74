#include "serve/coach/access.h"

#include <algorithm>
#include <string>

namespace mxt::serve {
namespace {

ApiError refusal(int status, const char* type, const char* code, std::string message) {
  ApiError e;
  e.status = status;
  e.type = type;
  e.code = code;
  e.message = std::move(message);
  return e;
}

// "http://host:port" → "host:port"; "" where it is something else ("null" of a sandboxed page).
std::string_view host_of_origin(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.starts_with(scheme)) return origin.substr(scheme.size());
  return "";
}

}  // namespace

bool is_loopback_host(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end != std::string_view::npos && host.substr(0, end + 1) == "[::1]" &&
           (end + 1 == host.size() || host[end + 1] == ':');
  }
  const size_t colon = host.find(':');
  std::string name(host.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name == "localhost") return true;
  // 127.0.0.0/8 in digits only: "127.0.0.1.example.org" is a name.
  return name.starts_with("127.") && std::count(name.begin(), name.end(), '.') == 3 &&
         name.find_first_not_of("0123456789.") == std::string::npos;
}

std::optional<ApiError> check_coach_access(const HttpRequest& r, const KeyRing& keys, bool local, bool api) {
  const std::string* host = r.header("Host");
  const std::string named = host ? *host : "";
  if (keys.open()) {
    if (!local)
      return refusal(403, "permission_error", "token_required",
                     "Coach beyond this machine needs a token: start the server with --api-keys or MINDXTRAIN_API_KEY");
    if (!is_loopback_host(named))
      return refusal(403, "permission_error", "foreign_host",
                     "without a token Coach answers as localhost alone: open http://127.0.0.1, or start the server "
                     "with --api-keys");
  }
  if (!api) return std::nullopt;
  if (r.method != "GET" && r.method != "HEAD") {
    const std::string* origin = r.header("Origin");
    if (origin && (named.empty() || host_of_origin(*origin) != named))
      return refusal(403, "permission_error", "foreign_origin", "the request comes from another site");
    if (const std::string* site = r.header("Sec-Fetch-Site"); site && *site != "same-origin" && *site != "none")
      return refusal(403, "permission_error", "foreign_origin", "the request comes from another site");
    // A form of another site cannot send this type without asking first, and is never told yes.
    const std::string* type = r.header("Content-Type");
    if (!type || !type->starts_with("application/json"))
      return refusal(415, "invalid_request_error", "", "Content-Type must be application/json");
  }
  if (keys.open()) return std::nullopt;
  const int key = keys.find(r.header("Authorization"));
  if (key < 0)
    return refusal(401, "authentication_error", "invalid_api_key",
                   "no valid token: Coach asks for one of the server's keys");
  if (!keys[key].jobs)
    return refusal(403, "permission_error", "", "this key may not run training jobs, which Coach does");
  return std::nullopt;
}

}  // namespace mxt::serve

// Who may see and use Coach. With keys: those that may run jobs. Without: whoever sits at this machine, which a
// browser's other pages do not: they are told apart by Host (DNS rebinding) and Origin (cross-site requests).
#pragma once

#include <optional>
#include <string_view>

#include "serve/api_error.h"
#include "serve/http/server.h"
#include "serve/keys.h"

namespace mxt::serve {

// "localhost", "127.0.0.1:8000", "[::1]": a name that a foreign site cannot have.
bool is_loopback_host(std::string_view host);

// Empty: it may pass. `local`: the server listens on loopback alone. `api`: /coach/api, not the page itself, which is
// no secret.
std::optional<ApiError> check_coach_access(const HttpRequest& request, const KeyRing& keys, bool local, bool api);

}  // namespace mxt::serve

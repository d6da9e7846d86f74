// How long a service may take over a request that changes something there.
#pragma once

#include "net/http.h"

namespace mxt::net {

// For an answer that has begun and is not work on what was sent.
constexpr double kAnswerComesSeconds = 30;

// Sets the times by the size of the body. A service says nothing, or little, while it works on what it was sent: a node
// pins a model, a store joins its parts, and a request that is given up undoes that.
void give_time(HttpRequest& request);

}  // namespace mxt::net

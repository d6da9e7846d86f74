// How long a service may take over a request that changes something there.
#pragma once

#include "net/http.h"

namespace mxt::net {

// Sets both times by the size of the body. A service says nothing while it works on what it was sent: a node pins a
// model, a store joins its parts, and a request that is given up undoes that.
void give_time(HttpRequest& request);

}  // namespace mxt::net

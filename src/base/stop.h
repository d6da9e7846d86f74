// Long work ends early when it is asked to: by a flag that the program's signal handler sets.
#pragma once

#include <atomic>

#include "base/error.h"

namespace mxt {

using StopFlag = const std::atomic<bool>*;  // null: never

// kInterrupted where the flag is set. For work that leaves nothing half done behind: callers look between its pieces.
inline void check_stop(StopFlag stop) {
  if (stop && stop->load())
    throw Error(Exit::kInterrupted, "interrupted; nothing half done is left behind, the same command goes on");
}

}  // namespace mxt

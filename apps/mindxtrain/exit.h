// How a verb ends, for files that need no command line's header (CLI11 takes seconds to compile).
#pragma once

#include <atomic>

namespace mxt::app {

// Exit code of the verb that ran; a callback sets it where it is not 0.
extern int g_exit;
// Set by SIGINT and SIGTERM.
extern std::atomic<bool> g_stop;

}  // namespace mxt::app

#include "exit.h"

namespace mxt::app {

int g_exit = 0;
std::atomic<bool> g_stop{false};

}  // namespace mxt::app

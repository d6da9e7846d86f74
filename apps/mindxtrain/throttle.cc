#include "throttle.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/threads.h"
#include "model_files.h"
#include "probe.h"

namespace mxt::app {

void apply_throttle(const config::Recipe& recipe, int asked) {
  set_threads(asked);
  if (!recipe.hardware.cpu_lane()) return;
  const auto& t = recipe.train.cpu_throttle;
  if (!threads_given(asked)) set_num_threads(std::max(1, static_cast<int>(num_threads() * t.percent / 100)));
  if (t.nice_level == 0) return;
  if (setpriority(PRIO_PROCESS, 0, static_cast<int>(t.nice_level)) != 0)
    fail_missing(
        "train.cpu_throttle.nice_level: {}: {}; a level below 0 wants root or: setcap cap_sys_nice=ep mindxtrain",
        t.nice_level, std::strerror(errno));
}

}  // namespace mxt::app

// The CPU backend with each instruction set that this machine has, down to plain code.
#include <hwy/targets.h>

#include "kernels/harness.h"

namespace mxt::kernels::test {

std::vector<Backend> backends() {
  std::vector<Backend> out;
  const struct {
    const char* name;
    int64_t target;
  } targets[] = {{"cpu_avx512", HWY_AVX3}, {"cpu_avx2", HWY_AVX2}, {"cpu_neon", HWY_NEON}, {"cpu_plain", HWY_SCALAR}};
  const int64_t here = hwy::SupportedTargets();
  for (const auto& t : targets) {
    if (!(HWY_TARGETS & t.target)) continue;  // arm64 has no plain code: NEON is always there
    if (t.target != HWY_SCALAR && !(here & t.target)) continue;
    out.push_back({t.name, &cpu_ops(), &host_memory(), [target = t.target] { hwy::SetSupportedTargetsForTest(target); },
                   [] { hwy::SetSupportedTargetsForTest(0); }, true});
  }
  return out;
}

}  // namespace mxt::kernels::test

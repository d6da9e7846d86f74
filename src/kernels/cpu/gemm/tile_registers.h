// AMX's instructions by name, so that no file needs a compiler option for them. Only where amx_here() says yes.
#pragma once

#include <cstdint>

namespace mxt::kernels::cpu {

struct TileRegisters {
  struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t columns[16] = {};  // bytes
    uint8_t rows[16] = {};
  };
  static_assert(sizeof(Configuration) == 64);

  static void configure(const Configuration& c) { asm volatile("ldtilecfg %0" ::"m"(c) : "memory"); }
  static void release() { asm volatile("tilerelease" ::: "memory"); }
  template <int kR>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kR));
  }
  template <int kR>
  static void load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kR) : "memory");
  }
  template <int kR>
  static void store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(kR) : "memory");
  }
  template <int kC, int kA, int kB>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace mxt::kernels::cpu

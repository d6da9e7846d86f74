// The functions of NVML and ROCm SMI that tell of energy, over counters of the test's own: GPU 0 uses 7,200 J between
// two readings, GPU 1 and "GPU-b" half of it, and nothing knows of another.
#include <cstdint>
#include <cstring>

namespace {
uint64_t millijoules[2] = {5'000, 1'000'000'000'000};
int handles[2];
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index > 1) return 2;
  *device = &handles[index];
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (std::strcmp(uuid, "GPU-b") != 0) return 6;
  *device = &handles[1];
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* energy) {
  const int n = device == &handles[0] ? 0 : 1;
  *energy = millijoules[n];
  millijoules[n] += n == 0 ? 7'200'000 : 3'600'000;
  return 0;
}
int rsmi_init(uint64_t) { return 0; }
int rsmi_dev_energy_count_get(uint32_t index, uint64_t* counter, float* resolution, uint64_t* time) {
  if (index > 1) return 1;
  *resolution = 15.3F;
  *counter = millijoules[index] / 153 * 10'000;
  *time = 1;
  millijoules[index] += index == 0 ? 7'200'000 : 3'600'000;
  return 0;
}
}

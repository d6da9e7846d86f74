#include "provenance/energy.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace mxt::provenance {
namespace {

using Part = EnergyMeter::Part;
using Counter = EnergyMeter::Counter;

bool read_number(const std::string& path, uint64_t& value) {
  try {
    const std::string text = read_file(path);
    const std::string_view digits = trim(text);
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return r.ec == std::errc() && r.ptr == digits.data() + digits.size();
  } catch (const Error&) {
    return false;  // not there, or for root alone
  }
}

Part processors(const std::string& root) {
  Part part{"rapl", "processor package", {}, ""};
  bool seen = false;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(root, ec)) {
    const std::string name = entry.path().filename().string();
    // "intel-rapl:0" is a package, "intel-rapl:0:1" a part of it, "psys" the platform.
    if (!name.starts_with("intel-rapl:") || name.find(':') != name.rfind(':')) continue;
    try {
      if (!trim(read_file(entry.path().string() + "/name")).starts_with("package")) continue;
    } catch (const Error&) {
      continue;
    }
    seen = true;
    Counter c;
    c.read = [path = entry.path().string() + "/energy_uj"](uint64_t& v) { return read_number(path, v); };
    if (!c.read(c.begin)) continue;
    read_number(entry.path().string() + "/max_energy_range_uj", c.range);
    part.counters.push_back(std::move(c));
  }
  if (part.counters.empty())
    part.why_not = seen ? fmt::format("the counters under {} are readable for root alone", root)
                        : fmt::format("{} has no package counter", root);
  return part;
}

// The functions of a library, or why it cannot be asked. It stays open: drivers do not like to be closed.
class Library {
 public:
  explicit Library(const std::string& name) : name_(name), handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) why_not = fmt::format("{} cannot be opened", name_);
  }
  template <class F>
  F* get(const char* symbol) {
    auto* f = handle_ ? reinterpret_cast<F*>(dlsym(handle_, symbol)) : nullptr;
    if (!f && why_not.empty()) why_not = fmt::format("{} has no {}", name_, symbol);
    return f;
  }
  std::string why_not;

 private:
  std::string name_;
  void* handle_;
};

std::optional<unsigned> ordinal(const std::string& text) {
  unsigned v = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  return r.ec == std::errc() && r.ptr == text.data() + text.size() ? std::optional(v) : std::nullopt;
}

// nvml.h: every function returns 0 for success; a device is a pointer.
Part nvidia(const EnergySources& s) {
  Part part{"nvml", "GPU", {}, ""};
  Library l(s.nvml);
  using Device = void*;
  auto* init = l.get<int()>("nvmlInit_v2");
  auto* by_index = l.get<int(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2");
  auto* by_uuid = l.get<int(const char*, Device*)>("nvmlDeviceGetHandleByUUID");
  auto* energy = l.get<int(Device, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
  part.why_not = l.why_not;
  if (part.why_not.empty() && init() != 0) part.why_not = s.nvml + " finds no driver";
  if (!part.why_not.empty()) return part;
  for (const std::string& gpu : s.gpus) {
    Device d = nullptr;
    const auto n = ordinal(gpu);
    const bool found = (n ? by_index(*n, &d) : by_uuid(gpu.c_str(), &d)) == 0;
    Counter c;
    c.joules = 1e-3;
    c.read = [energy, d](uint64_t& v) {
      unsigned long long mj = 0;
      const bool good = energy(d, &mj) == 0;
      v = mj;
      return good;
    };
    if (!found || !c.read(c.begin)) {
      part.why_not = fmt::format("GPU {} does not say what it has used", printable(gpu));
      return part;
    }
    part.counters.push_back(std::move(c));
  }
  return part;
}

// rocm_smi.h: 0 is success; the counter times its resolution is microjoules.
Part amd(const EnergySources& s) {
  Part part{"rocm_smi", "GPU", {}, ""};
  Library l(s.rocm_smi);
  auto* init = l.get<int(uint64_t)>("rsmi_init");
  auto* energy = l.get<int(uint32_t, uint64_t*, float*, uint64_t*)>("rsmi_dev_energy_count_get");
  part.why_not = l.why_not;
  if (part.why_not.empty() && init(0) != 0) part.why_not = s.rocm_smi + " finds no driver";
  if (!part.why_not.empty()) return part;
  for (const std::string& gpu : s.gpus) {
    const auto n = ordinal(gpu);
    float resolution = 0;
    uint64_t time = 0;
    Counter c;
    if (!n || energy(*n, &c.begin, &resolution, &time) != 0 || !(resolution > 0)) {
      part.why_not = fmt::format("GPU {} does not say what it has used", printable(gpu));
      return part;
    }
    c.joules = static_cast<double>(resolution) * 1e-6;
    c.read = [energy, n](uint64_t& v) {
      float unit = 0;
      uint64_t at = 0;
      return energy(*n, &v, &unit, &at) == 0;
    };
    part.counters.push_back(std::move(c));
  }
  return part;
}

}  // namespace

EnergyMeter::EnergyMeter(const EnergySources& s) {
  if (!s.gpus.empty()) parts_.push_back(s.amd ? amd(s) : nvidia(s));
  parts_.push_back(processors(s.powercap));
}

Json EnergyMeter::reading() const {
  double joules = 0;
  std::string method;
  for (const Part& p : parts_) {
    std::string why_not = p.why_not;
    double of_part = 0;
    for (const Counter& c : p.counters) {
      uint64_t now = 0;
      if (!c.read(now)) why_not = fmt::format("{} could not be read at the end", p.name);
      const uint64_t used = now >= c.begin ? now - c.begin : c.range - c.begin + now;
      of_part += static_cast<double>(used) * c.joules;
    }
    if (!why_not.empty() && method.empty()) return {{"kwh", nullptr}, {"method", "not available: " + why_not}};
    if (!method.empty()) method += "; ";
    if (!why_not.empty()) {
      method += fmt::format("processors not counted: {}", why_not);
      continue;
    }
    const size_t n = p.counters.size();
    method += fmt::format("{}, {} {}{}", p.name, n, p.of, n == 1 ? "" : "s");
    joules += of_part;
  }
  return {{"kwh", joules / 3.6e6}, {"method", method}};
}

}  // namespace mxt::provenance

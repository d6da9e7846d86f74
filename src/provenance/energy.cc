#include "provenance/energy.h"

#include <fmt/format.h>
#include <charconv>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace mxt::provenance {
namespace {

std::optional<uint64_t> read_number(const std::string& path) {
  try {
    const std::string text = read_file(path);
    const std::string_view digits = trim(text);
    uint64_t v = 0;
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), v);
    if (r.ec == std::errc() && r.ptr == digits.data() + digits.size()) return v;
  } catch (const Error&) {
    // Not there, or for root alone.
  }
  return std::nullopt;
}

}  // namespace

EnergyMeter::EnergyMeter(std::string root) {
  bool seen = false;
  std::error_code ec;
  std::vector<std::string> packages;
  for (const auto& entry : fs::directory_iterator(root, ec)) {
    const std::string name = entry.path().filename().string();
    // "intel-rapl:0" is a package, "intel-rapl:0:1" a part of it, "psys" the platform.
    if (!name.starts_with("intel-rapl:") || name.find(':') != name.rfind(':')) continue;
    try {
      if (!trim(read_file(entry.path().string() + "/name")).starts_with("package")) continue;
    } catch (const Error&) {
      continue;
    }
    packages.push_back(entry.path().string());
  }
  for (const std::string& p : packages) {
    seen = true;
    const auto now = read_number(p + "/energy_uj"), range = read_number(p + "/max_energy_range_uj");
    if (now) counters_.push_back({p + "/energy_uj", *now, range.value_or(0)});
  }
  if (counters_.empty())
    why_not_ = seen ? fmt::format("not available: the counters under {} are readable for root alone", root)
                    : fmt::format("not available: {} has no package counter", root);
}

Json EnergyMeter::reading() const {
  if (counters_.empty()) return {{"kwh", nullptr}, {"method", why_not_}};
  double joules = 0;
  for (const Counter& c : counters_) {
    const auto now = read_number(c.path);
    if (!now)
      return {{"kwh", nullptr}, {"method", fmt::format("not available: {} could not be read at the end", c.path)}};
    const uint64_t used = *now >= c.begin ? *now - c.begin : c.range - c.begin + *now;
    joules += static_cast<double>(used) * 1e-6;
  }
  return {{"kwh", joules / 3.6e6},
          {"method", fmt::format("rapl, {} processor package{}", counters_.size(), counters_.size() == 1 ? "" : "s")}};
}

}  // namespace mxt::provenance

// What `plan` assumes about money, and about devices that are not here: recipes/assumptions/prices.yaml, strict as a
// recipe is.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mxt::config {

struct DevicePrice {
  std::string title;        // as its maker calls it
  std::string arch;         // its instruction set: sm_89, gfx942; "" for the processor
  double usd_per_hour = 0;  // of one device; 0: a machine of one's own, which costs its electricity
  std::string price_source;
  double peak_tflops = 0;                               // published, bf16, dense; 0: not published, the probe measures
  double peak_tflops_float32 = 0, peak_tflops_fp8 = 0;  // published, dense; 0: not known, or the device has none
  double bandwidth_tb_s = 0;
  double memory_gb = 0;
  double host_link_gb_s = 0;  // published, each way; 0: not known
  double watts = 0;           // under load; 0: not known
  double utilisation = 0;     // part of the peak that model operations are assumed to reach
  std::string source;         // of the published figures

  bool has_figures() const { return peak_tflops > 0 && bandwidth_tb_s > 0 && memory_gb > 0 && utilisation > 0; }
};

struct Prices {
  std::string date;  // of the table
  double usd_per_kwh = 0;
  std::map<std::string, DevicePrice> devices;  // by the name that `plan --device` takes
  std::string file;                            // where it was read

  const DevicePrice* find(const std::string& device) const;  // null where the table lacks it
  std::vector<std::string> names() const;                    // cpu first
};

// The table in `text` over `base`: what it says of a device replaces what `base` says, key by key, and further devices
// are added. Errors as a recipe's: file, line, column, key.
Prices parse_prices(std::string_view text, std::string_view source, Prices base = {});
Prices builtin_prices();  // the table that ships with the program

}  // namespace mxt::config

#include "config/prices.h"

#include "base/error.h"
#include "config/field.h"
#include "config/yaml.h"

namespace mxt::config {

extern const std::string_view kBuiltinPrices;  // generated from the file

Section declare(const DevicePrice*) {
  Declaration<DevicePrice> d("One kind of device.");
  d.field("usd_per_hour", &DevicePrice::usd_per_hour, "Price of one device for an hour.").min(0).required();
  d.field("price_source", &DevicePrice::price_source, "Who asks that price.").required();
  d.field("peak_tflops", &DevicePrice::peak_tflops, "Published peak in bf16, dense, 1e12 operations a second.")
      .min(0)
      .required();
  d.field("peak_tflops_float32", &DevicePrice::peak_tflops_float32, "The same in float32; 0: not known.").min(0);
  d.field("peak_tflops_fp8", &DevicePrice::peak_tflops_fp8, "The same in FP8; 0: not known.").min(0);
  d.field("bandwidth_tb_s", &DevicePrice::bandwidth_tb_s, "Published memory bandwidth, 1e12 bytes a second.")
      .min(0)
      .required();
  d.field("memory_gb", &DevicePrice::memory_gb, "Memory of one device, 1e9 bytes.").min(0).required();
  d.field("host_link_gb_s", &DevicePrice::host_link_gb_s,
          "Published rate of the link to the host, each way, 1e9 bytes a second; 0: not known.")
      .min(0);
  d.field("watts", &DevicePrice::watts, "Draw under load.").min(0).required();
  d.field("utilisation", &DevicePrice::utilisation, "Part of the peak that is assumed to be reached.")
      .range(0, 1)
      .required();
  d.field("source", &DevicePrice::source, "Where the published figures stand.").required();
  return d.take();
}

Section declare(const Prices::Devices*) {
  Declaration<Prices::Devices> d("The devices that `plan --device` knows.");
  d.field("h100", &Prices::Devices::h100, "NVIDIA H100 SXM.");
  d.field("mi300x", &Prices::Devices::mi300x, "AMD Instinct MI300X.");
  d.field("cpu", &Prices::Devices::cpu, "This machine.");
  return d.take();
}

Section declare(const Prices*) {
  Declaration<Prices> d("Assumptions about money and about devices that are not here.");
  d.field("date", &Prices::date, "When the table was written.").required();
  d.field("usd_per_kwh", &Prices::usd_per_kwh, "Price of electricity.").min(0).required();
  d.field("devices", &Prices::devices, "The devices.");
  return d.take();
}

Prices parse_prices(std::string_view text, std::string_view source) {
  Reader reader{std::string(source)};
  const YamlResult yaml = parse_yaml(text);
  for (const auto& p : yaml.problems) reader.issue(p.mark, p.key, p.what);
  Prices prices;
  if (yaml.parsed) declare(static_cast<const Prices*>(nullptr)).read(&prices, yaml.root, "", reader);
  if (!reader.issues().empty()) fail_input("{}", reader.issues().front().text());
  prices.file = source;
  return prices;
}

Prices builtin_prices() { return parse_prices(kBuiltinPrices, "recipes/assumptions/prices.yaml"); }

}  // namespace mxt::config

#include "cost.h"

#include "base/error.h"
#include "base/files.h"
#include "run_record.h"

namespace mxt::app {

std::optional<double> Rate::usd(double seconds, std::optional<double> kwh) const {
  if (price.usd_per_hour > 0) return seconds / 3600 * price.usd_per_hour * static_cast<double>(devices);
  if (!kwh && watts() > 0) kwh = watts() / 1000 * seconds / 3600;
  if (!kwh) return std::nullopt;
  return *kwh * usd_per_kwh;
}

std::string priced_device(const config::Recipe& r) {
  return r.hardware.cpu_lane() ? "cpu" : std::string(config::text_of(r.hardware.name));
}

std::optional<Rate> rate_of(const config::Recipe& r, const std::string& device, const config::Prices& prices) {
  const bool own_price =
      device == config::text_of(r.hardware.name) && r.is_given("hardware.usd_per_hour") && r.hardware.usd_per_hour;
  const config::DevicePrice* listed = prices.find(device);
  if (!listed && !own_price) return std::nullopt;
  Rate rate;
  if (listed) rate.price = *listed;
  if (own_price)
    rate.price.usd_per_hour = *r.hardware.usd_per_hour, rate.price.price_source = r.source + ": hardware.usd_per_hour";
  if (device != "cpu") rate.devices = std::max<int64_t>(1, r.hardware.gpus) * r.hardware.nodes;
  rate.usd_per_kwh = prices.usd_per_kwh;
  return rate;
}

std::string own_prices_path() { return (fs::path(registry_path()).parent_path() / "prices.yaml").string(); }

config::Prices price_table(const std::string& file) {
  config::Prices prices = config::builtin_prices();
  std::string own;
  try {
    own = own_prices_path();
  } catch (const Error&) {
    // No home: no table of one's own.
  }
  if (!own.empty() && fs::is_regular_file(own)) prices = config::parse_prices(read_file(own), own, std::move(prices));
  if (!file.empty()) prices = config::parse_prices(read_file(file), file, std::move(prices));
  return prices;
}

}  // namespace mxt::app

// What time on a device costs: `plan` says it beforehand, the receipt afterwards.
#pragma once

#include <optional>
#include <string>

#include "config/prices.h"
#include "config/recipe.h"

namespace mxt::app {

struct Rate {
  config::DevicePrice price;  // of one device
  int64_t devices = 1;
  double usd_per_kwh = 0;

  double watts() const { return price.watts * static_cast<double>(devices); }
  // By the hour; a machine of one's own (usd_per_hour 0) by its electricity: what was measured, else price.watts. None
  // where neither is known.
  std::optional<double> usd(double seconds, std::optional<double> kwh = {}) const;
};

// The device that a recipe's price and energy are of: cpu, or hardware.name.
std::string priced_device(const config::Recipe& recipe);
// `device`: a name of the table. hardware.usd_per_hour wins for the recipe's own device. None for a device that the
// table lacks and the recipe gives no price of.
std::optional<Rate> rate_of(const config::Recipe& recipe, const std::string& device, const config::Prices& prices);

// The table that ships, with the user's own over it (own_prices_path(), where it is there) and `file` over both ("":
// none). Errors: as parse_prices.
config::Prices price_table(const std::string& file = {});
std::string own_prices_path();  // prices.yaml beside the registry of runs

}  // namespace mxt::app

#include "config/prices.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/field.h"
#include "config/yaml.h"

namespace mxt::config {

extern const std::string_view kBuiltinPrices;  // generated from the file

Section declare(const DevicePrice*) {
  Declaration<DevicePrice> d("One kind of device.");
  d.field("title", &DevicePrice::title, "As its maker calls it.");
  d.field("arch", &DevicePrice::arch, "Its instruction set, as sm_89 or gfx942.");
  d.field("usd_per_hour", &DevicePrice::usd_per_hour,
          "Price of one device for an hour; 0: a machine of one's own, which costs its electricity.")
      .min(0);
  d.field("price_source", &DevicePrice::price_source, "Who asks that price.");
  d.field("peak_tflops", &DevicePrice::peak_tflops, "Published peak in bf16, dense, 1e12 operations a second.").min(0);
  d.field("peak_tflops_float32", &DevicePrice::peak_tflops_float32, "The same in float32; 0: not known.").min(0);
  d.field("peak_tflops_fp8", &DevicePrice::peak_tflops_fp8, "The same in FP8; 0: not known, or none.").min(0);
  d.field("bandwidth_tb_s", &DevicePrice::bandwidth_tb_s, "Published memory bandwidth, 1e12 bytes a second.").min(0);
  d.field("memory_gb", &DevicePrice::memory_gb, "Memory of one device, 1e9 bytes.").range(0, 1e6);
  d.field("host_link_gb_s", &DevicePrice::host_link_gb_s,
          "Published rate of the link to the host, each way, 1e9 bytes a second; 0: not known.")
      .min(0);
  d.field("watts", &DevicePrice::watts, "Draw under load; 0: not known.").min(0);
  d.field("utilisation", &DevicePrice::utilisation, "Part of the peak that is assumed to be reached.").range(0, 1);
  d.field("source", &DevicePrice::source, "Where the published figures stand.");
  return d.take();
}

Section declare(const Prices*) {
  Declaration<Prices> d("Assumptions about money and about devices that are not here.");
  d.field("date", &Prices::date, "When the table was written.");
  d.field("usd_per_kwh", &Prices::usd_per_kwh, "Price of electricity.").min(0);
  return d.take();
}

namespace {

// A device's name is what a command line takes.
bool is_name(std::string_view s) {
  return !s.empty() && s.size() <= 40 && std::all_of(s.begin(), s.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// As NVIDIA and AMD spell them. One that is misspelt would be counted as a device that this build has no kernels for.
bool is_arch(std::string_view s) {
  const auto all = [](std::string_view digits, std::string_view of) {
    return !digits.empty() && digits.find_first_not_of(of) == std::string_view::npos;
  };
  return s.empty() || (s.starts_with("sm_") && all(s.substr(3), "0123456789")) ||
         (s.starts_with("gfx") && all(s.substr(3), "0123456789abcdef"));
}

void read_devices(const YamlNode& map, Prices* prices, Reader& reader) {
  if (map.kind != YamlNode::Kind::kMap)
    return reader.issue(map.mark, "devices", fmt::format("is {}: write a map of devices", map.kind_name()));
  const Section section = declare(static_cast<const DevicePrice*>(nullptr));
  for (const auto& e : map.entries) {
    const std::string key = "devices." + e.key;
    if (!is_name(e.key))
      reader.issue(e.mark, key, "is no device's name: lower-case letters, digits, _ and - make one");
    else
      section.read(&prices->devices[e.key], e.value, key, reader);
    if (const YamlNode* arch = e.value.find("arch"); arch && !is_arch(arch->text))
      reader.issue(arch->mark, key + ".arch",
                   fmt::format("is `{}`: write sm_80, sm_86, sm_89 … or gfx942 …", arch->text));
  }
}

}  // namespace

const DevicePrice* Prices::find(const std::string& device) const {
  const auto at = devices.find(device);
  return at == devices.end() ? nullptr : &at->second;
}

std::vector<std::string> Prices::names() const {
  std::vector<std::string> out;
  for (const auto& [name, d] : devices) out.insert(name == "cpu" ? out.begin() : out.end(), name);
  return out;
}

Prices parse_prices(std::string_view text, std::string_view source, Prices prices) {
  const auto says_nothing = [](std::string_view line) { return trim(line).empty() || trim(line).starts_with("#"); };
  const auto lines = split(text, '\n');
  if (std::all_of(lines.begin(), lines.end(), says_nothing)) return prices;  // nothing differs
  Reader reader{std::string(source)};
  YamlResult yaml = parse_yaml(text);
  for (const auto& p : yaml.problems) reader.issue(p.mark, p.key, p.what);
  if (yaml.parsed) {
    // The devices' names are not declared: whoever edits the table adds some.
    if (const YamlNode* devices = yaml.root.find("devices")) read_devices(*devices, &prices, reader);
    for (const auto& e : yaml.root.entries)
      if (e.key != "devices" && e.key != "date" && e.key != "usd_per_kwh")
        reader.issue(e.mark, e.key, "is not a key of a price table: it has date, usd_per_kwh and devices");
    std::erase_if(yaml.root.entries, [](const auto& e) { return e.key != "date" && e.key != "usd_per_kwh"; });
    declare(static_cast<const Prices*>(nullptr)).read(&prices, yaml.root, "", reader);
  }
  if (!reader.issues().empty()) fail_input("{}", reader.issues().front().text());
  prices.file = source;
  return prices;
}

Prices builtin_prices() { return parse_prices(kBuiltinPrices, "recipes/assumptions/prices.yaml"); }

}  // namespace mxt::config

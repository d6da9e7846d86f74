#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "config/model_table.h"
#include "device/memory.h"
#include "help.h"
#include "kernels/backend.h"
#include "machine.h"
#include "model_files.h"

namespace mxt::app {
namespace {

// What stands on the device however long the rows are; `plan` counts the rest. LoRA: the base in bf16. Full: the
// computing copy in bf16, its fp32 master and gradient, and AdamW's two moments.
constexpr double kLoraBytes = 2, kFullBytes = 2 + 4 + 4 + 8;

uint64_t device_memory() {
  return this_machine() == config::GpuName::kCpu ? device::total_host_bytes()
                                                 : kernels::cuda_backend().device->properties().memory;
}

OrderedJson models_answer() {
  const double room = 0.95 * static_cast<double>(device_memory());
  OrderedJson list = OrderedJson::array();
  for (const config::KnownModel& m : config::known_models()) {
    const double lora = m.parameters * 1e9 * kLoraBytes, full = m.parameters * 1e9 * kFullBytes;
    const std::string lacking = architecture_lacking(m.architecture);
    bool here = true;
    try {
      resolve_model(m.id, std::nullopt, Fetch::kNever);
    } catch (const Error&) {
      here = false;
    }
    list.push_back({{"name", m.name},
                    {"id", m.id},
                    {"revision", m.revision.empty() ? OrderedJson(nullptr) : OrderedJson(m.revision)},
                    {"license", m.license},
                    {"gated", m.gated},
                    {"architecture", m.architecture},
                    {"parameters", std::llround(m.parameters * 1e9)},
                    {"here", here},
                    {"lora_bytes", std::llround(lora)},
                    {"full_bytes", std::llround(full)},
                    {"lora_fits", lacking.empty() && lora < room},
                    {"full_fits", lacking.empty() && full < room},
                    {"missing", lacking}});
  }
  return list;
}

}  // namespace

void add_models(CLI::App& app) {
  auto* c = app.add_subcommand("models",
                               "short names for models of the Hub, and what each takes on this machine\nexample: "
                               "mindxtrain models");
  auto json = std::make_shared<bool>(false);
  c->add_flag("--json", *json, "machine-readable answer");
  c->callback([json] {
    const OrderedJson list = models_answer();
    if (*json) {
      std::printf("%s\n", list.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
      return;
    }
    std::printf("%-23s %-40s %-11s %-12s %-12s\n", "name", "on the Hub", "license", "LoRA", "full");
    for (const auto& m : list) {
      const auto text = [&](const char* key) { return m[key].get<std::string>(); };
      const auto room = [&](const char* bytes, const char* fits) {
        return human_bytes(m[bytes].get<uint64_t>()) + (m[fits].get<bool>() ? "" : " –");
      };
      std::string note = m["here"].get<bool>() ? "here" : m["gated"].get<bool>() ? "gated: HF_TOKEN" : "";
      if (const std::string missing = text("missing"); !missing.empty()) note = "not in this build";
      std::printf("%-23s %-40s %-11s %-12s %-12s %s\n", text("name").c_str(), text("id").c_str(),
                  text("license").c_str(), room("lora_bytes", "lora_fits").c_str(),
                  room("full_bytes", "full_fits").c_str(), note.c_str());
    }
    std::printf(
        "\nLoRA, full: memory that weights, gradients and AdamW's states take, of %s here (%s); – does not fit.\n"
        "Activations come on top: `mindxtrain plan RECIPE` counts them.\n",
        human_bytes(device_memory()).c_str(), std::string(config::text_of(this_machine())).c_str());
  });
}

}  // namespace mxt::app

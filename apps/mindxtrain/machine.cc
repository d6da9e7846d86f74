#include "machine.h"

#include <dlfcn.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "config/builtin.h"
#include "config/model_table.h"
#include "config/recipe_file.h"
#include "data/source/absent.h"
#include "formats/model_config.h"
#include "kernels/api.h"
#include "kernels/backend.h"
#include "model_files.h"
#include "models/model.h"
#include "shipped.h"
#include "train/setup.h"
#include "train/supported.h"

namespace mxt::app {
namespace {

using config::GpuName;

bool driver_is_here() {
  void* h = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (h) dlclose(h);
  return h != nullptr;
}

GpuName find_machine() {
  if (!driver_is_here()) return GpuName::kCpu;
  try {
    const std::string name = kernels::cuda_backend().device->properties().name;
    // (Of names that stand within others, the longer one first.)
    static constexpr std::pair<std::string_view, GpuName> kNames[] = {
        {"H200", GpuName::kH200},        {"H100", GpuName::kH100},
        {"B200", GpuName::kB200},        {"A100", GpuName::kA100},
        {"L40S", GpuName::kL40s},        {"NVIDIA L4", GpuName::kL4},
        {"RTX 3090", GpuName::kRtx3090}, {"RTX 4090", GpuName::kRtx4090},
        {"RTX 5090", GpuName::kRtx5090}, {"RTX 6000 Ada", GpuName::kRtx6000Ada}};
    for (const auto& [part, gpu] : kNames)
      if (name.find(part) != std::string::npos) return gpu;
    return GpuName::kCuda;
  } catch (const Error& e) {
    log::info("the GPU of this machine is not used: {}", e.what());
    return GpuName::kCpu;
  }
}

// Error's words where `f` fails for what this build lacks; any other failure is of the recipe and its files, which
// whoever runs it is told.
template <typename F>
std::string lacking(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    if (e.code() == Exit::kMissing) return e.what();
  } catch (const std::exception&) {
  }
  return "";
}

// The graph that scores: what is to be trained has no part in it.
void build_graph(const formats::ModelConfig& c) {
  models::BuildOptions o;
  o.purpose = models::Purpose::kScore;
  o.positions = 64;
  models::build(c, o);
}

}  // namespace

// Asks for the graph of the smallest model of that architecture.
std::string architecture_lacking(const std::string& model_type) {
  return lacking([&] {
    const OrderedJson one_layer = {{"model_type", model_type}, {"num_hidden_layers", 1}, {"n_layer", 1}};
    build_graph(formats::parse_model_config(one_layer, model_type));
  });
}

namespace {

// As far as what is on this machine tells: the model's own configuration, else the table's architecture.
std::string model_lacking(const config::Recipe& recipe) {
  const config::Recipe r = as_planned(recipe);
  if (r.model.init == config::Init::kRandom) return lacking([&] { build_graph(train::random_config(r, 1 << 16)); });
  std::string folder;
  if (const std::string why = lacking([&] { folder = resolve_model(r, Fetch::kNever, Parts::kNoWeights); });
      why.empty() && !folder.empty() && !folder.ends_with(".gguf"))
    return lacking([&] { build_graph(formats::read_model_config(folder)); });
  const config::KnownModel* known = config::model_of_id(r.model.name);
  return known ? architecture_lacking(known->architecture) : "";
}

}  // namespace

GpuName this_machine() {
  static const GpuName kFound = find_machine();
  return kFound;
}

std::string slow_processor() {
#if defined(__x86_64__)
  if (kernels::cpu_features().vector_target == "SCALAR")
    return "this processor has no AVX2 (or a virtual machine hides it): everything runs, many times slower; take one "
           "of "
           "2013 or later, or give the machine its host's processor (qemu: -cpu host)";
#endif
  return "";
}

std::string recipe_text(const std::string& path) {
  std::error_code ec;
  if (path.find_first_of("/.") == std::string::npos && !fs::exists(path, ec))
    return std::string(config::builtin_recipe(path).text);
  return config::read_recipe_file(path);
}

config::Recipe load_recipe(const std::string& path) { return parse_recipe(recipe_text(path), path); }

config::Recipe parse_recipe(std::string_view text, std::string_view source) {
  return config::parse_recipe(text, source, this_machine);
}

namespace {

// Rows and tasks: those of the recipe, then of recipes that run before it.
std::string files_lacking(const config::Recipe& r, int depth = 0) {
  std::string out;
  const auto say = [&](const std::string& key, const std::string& path) {
    const std::string get = data::how_to_get(path);
    out += fmt::format("{}{}: {} is not here{}", out.empty() ? "" : "; ", key, path,
                       get.empty() ? " (it is relative to the working folder)" : ": " + get);
  };
  for (const data::AbsentFile& f : data::absent_files(r.data, shipped_file)) say(f.key, f.path);
  const auto look = [&](const char* key, const std::optional<std::string>& path, bool ships = false) {
    std::error_code ec;
    if (path && !fs::exists(ships ? shipped_file(*path) : *path, ec)) say(key, *path);
  };
  look("train.rollouts.path", r.train.rollouts.path);
  if (r.eval) look("eval.perplexity_path", r.eval->perplexity_path, true);
  if (r.eval && !r.eval->harness.tasks.empty()) look("eval.harness.task_path", r.eval->harness.task_path);
  if (!out.empty() || depth == kMostBefore) return out;
  for (const std::string& name : recipes_before(r))
    if (const std::string why = files_lacking(load_recipe(name), depth + 1); !why.empty())
      return fmt::format("recipe:{}, which runs first: {}", name, why);
  return "";
}

// The base where it can neither be found nor fetched.
std::string base_lacking(const config::Recipe& recipe) {
  const config::Recipe r = as_planned(recipe);
  if (r.model.init == config::Init::kRandom) return "";
  const bool shipped = !shipped_weights_id(r.model.name).empty();
  const bool fetched = shipped ? !package_index().empty() : fs::path(r.model.name).extension() != ".gguf";
  if (fetched && !hub_settings().offline) return "";
  if (lacking([&] { resolve_model(r, Fetch::kNever); }).empty()) return "";
  return fmt::format("model.name: {} is not here{}", r.model.name,
                     hub_settings().offline ? ": unset HF_HUB_OFFLINE so that it is fetched"
                     : shipped              ? ": set PIP_INDEX_URL (as pip's --index-url), and the first run fetches it"
                                            : "");
}

}  // namespace

Trainable trainable_here(const config::Recipe& r) {
  Trainable t;
  if (std::string why = lacking([&] { train::require_supported(r); }); !why.empty()) return {false, true, true, why};
  if (std::string why = model_lacking(r); !why.empty()) return {false, true, true, why};
  const auto say = [&](bool* part, const std::string& why) {
    if (why.empty()) return;
    *part = false;
    t.reason += (t.reason.empty() ? "" : "; ") + why;
  };
  if (!r.hardware.cpu_lane() && this_machine() == GpuName::kCpu)
    say(&t.machine, fmt::format("hardware.name {}: no such GPU that this build can use is here; without its hardware "
                                "section the recipe is for this machine",
                                config::text_of(r.hardware.name)));
  say(&t.files, base_lacking(r));
  say(&t.files, files_lacking(r));
  return t;
}

}  // namespace mxt::app

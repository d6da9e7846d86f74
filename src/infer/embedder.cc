#include "infer/embedder.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "checkpoint/weights.h"
#include "infer/alone.h"
#include "models/model.h"

namespace mxt::infer {
namespace {

constexpr int64_t kMaxLength = 512;  // where the folder does not say
constexpr int64_t kRowsPerPass = 2048;

// What sentence-transformers' files ask for beside the model: only what is computed here is accepted. The longest row,
// 0 = not said.
int64_t read_modules(const std::string& folder) {
  std::error_code ec;
  if (!fs::exists(folder + "/modules.json", ec)) return 0;
  const std::string file = folder + "/modules.json";
  const Json modules = read_json_file(file);
  if (!modules.is_array()) fail_input("{}: must be a list of modules", file);
  int64_t length = 0;
  for (const Json& m : modules) {
    const auto text = [&](const char* key) {
      return m.is_object() && m.contains(key) && m[key].is_string() ? m[key].get<std::string>() : std::string();
    };
    const std::string type = text("type"), kind = type.substr(type.rfind('.') + 1), path = text("path");
    if (path.find("..") != std::string::npos || path.starts_with("/"))
      fail_input("{}: \"path\": {} leaves the folder", file, path);
    if (kind == "Transformer") {
      const std::string settings = folder + "/sentence_bert_config.json";
      if (!fs::exists(settings, ec)) continue;
      const Json j = read_json_file(settings);
      if (j.is_object() && j.contains("max_seq_length") && j["max_seq_length"].is_number_integer())
        length = j["max_seq_length"].get<int64_t>();
      if (j.is_object() && j.contains("do_lower_case") && j["do_lower_case"] == true)
        fail_missing("{}: do_lower_case is not supported: the tokenizer's own normaliser decides", settings);
    } else if (kind == "Pooling") {
      const std::string settings = folder + "/" + path + "/config.json";
      const Json j = read_json_file(settings);
      bool mean = false;
      if (!j.is_object()) fail_input("{}: must be an object", settings);
      for (const auto& [key, value] : j.items()) {
        if (!key.starts_with("pooling_mode_") || value != true) continue;
        if (key != "pooling_mode_mean_tokens")
          fail_missing("{}: {}: this build pools by the mean of the tokens; name another embedding model", settings,
                       key);
        mean = true;
      }
      if (j.value("pooling_mode", "") == "mean") mean = true;
      if (!mean)
        fail_missing(
            "{}: does not pool by the mean of the tokens, which is what this build has; name another embedding model",
            settings);
    } else if (kind != "Normalize") {
      fail_missing(
          "{}: module {} is not in this build (it has Transformer, Pooling by the mean, Normalize); name another "
          "embedding model",
          file, type);
    }
  }
  return length;
}

}  // namespace

Embedder::Embedder(const std::string& path, DType type, kernels::Ops& ops)
    : source_(formats::WeightSource::open(path)) {
  const formats::ModelConfig& config = source_->config();
  const int64_t said = read_modules(path);
  max_length_ = std::clamp<int64_t>(said > 0 ? said : kMaxLength, 1, config.max_positions);
  max_tokens_ = std::max(kRowsPerPass, max_length_);
  models::BuildOptions o;
  o.type = type;
  o.purpose = models::Purpose::kEmbed;
  o.positions = max_length_;
  graph_ = models::build(config, o);
  params_ = std::make_unique<runtime::ParamStore>(graph_, false, ops.device());
  checkpoint::load_base(graph_, *params_, *source_);
  const runtime::ProgramSettings settings{max_tokens_, 0, false, max_length_};
  plan_ = plan_alone(graph_, ops, settings);
  program_ = std::make_unique<runtime::Program>(graph_, plan_, ops, settings);
  program_->allocate(*params_);
}

Embedder::~Embedder() = default;

// Rows lie side by side without padding, so their lengths need no sorting.
void Embedder::embed(std::span<const std::vector<int32_t>> rows, float* out) {
  std::vector<int32_t> ids, positions, cu;
  const auto w = static_cast<size_t>(width());
  for (size_t first = 0; first < rows.size();) {
    ids.clear();
    positions.clear();
    cu.assign(1, 0);
    size_t last = first;
    for (; last < rows.size(); ++last) {
      const auto& r = rows[last];
      const auto n = static_cast<int64_t>(r.size());
      MXT_ASSERT(n > 0 && n <= max_length_);
      if (static_cast<int64_t>(ids.size()) + n > max_tokens_) break;
      for (int32_t t = 0; t < n; ++t) {
        if (const int32_t id = r[static_cast<size_t>(t)]; id < 0 || id >= source_->config().vocab_size)
          fail_input("{}: token id {} is outside the model's vocabulary of {}: the tokenizer is another model's",
                     source_->path(), id, source_->config().vocab_size);
        positions.push_back(t);
      }
      ids.insert(ids.end(), r.begin(), r.end());
      cu.push_back(static_cast<int32_t>(ids.size()));
    }
    runtime::Batch b;
    b.tokens = static_cast<int64_t>(ids.size());
    b.ids = ids.data();
    b.positions = positions.data();
    b.cu_seqlens = cu.data();
    b.documents = static_cast<int64_t>(cu.size()) - 1;
    b.pooled = out + first * w;
    program_->run(b);
    for (size_t i = first; i < last; ++i) {
      double sum = 0;
      for (size_t k = 0; k < w; ++k) sum += static_cast<double>(out[i * w + k]) * static_cast<double>(out[i * w + k]);
      const double scale = 1.0 / std::max(std::sqrt(sum), 1e-12);  // torch.nn.functional.normalize's floor
      for (size_t k = 0; k < w; ++k) out[i * w + k] = static_cast<float>(static_cast<double>(out[i * w + k]) * scale);
    }
    first = last;
  }
}

}  // namespace mxt::infer

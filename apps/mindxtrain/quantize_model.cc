#include "quantize_model.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/weights.h"
#include "exit.h"
#include "formats/weight_source.h"
#include "held_out_text.h"
#include "infer/compare.h"
#include "models/model.h"
#include "quantize/quantize.h"
#include "train/memory.h"
#include "train/setup.h"

namespace mxt::app {
namespace {

constexpr const char* kReport = "quantization.json";
constexpr int64_t kParametersInFloat32 = 1'000'000'000;  // two models of 4 GB

uint64_t weight_bytes(const std::string& path) {
  if (!fs::is_directory(path)) return fs::file_size(path);
  uint64_t n = 0;
  for (const auto& f : list_files(path))
    if (f.ends_with(".safetensors") && f.find('/') == std::string::npos) n += fs::file_size(path + "/" + f);
  return n;
}

std::string_view rounding_text(formats::InputRounding r) {
  switch (r) {
    case formats::InputRounding::kFp8Token:
      return "fp8, one scale a token";
    case formats::InputRounding::kFp8Group128:
      return "fp8, one scale for 128 columns of a token";
    case formats::InputRounding::kMxfp4:
      return "mxfp4, one scale for 32 columns of a token";
    default:
      return "none";
  }
}

DType report_type(config::QuantScheme scheme, int64_t parameters, DType held) {
  const bool precise = quantize::is_gguf_scheme(scheme) && parameters <= kParametersInFloat32;
  return precise || held != DType::kBF16 ? DType::kF32 : DType::kBF16;
}

OrderedJson compare_models(const QuantizeJob& job, const TokenizerBundle& side, const quantize::Written& written) {
  const DType held = formats::WeightSource::open(job.model)->held_type(),
              type = job.type.value_or(report_type(job.settings.scheme, written.parameters, held));
  const std::string text = job.text.empty() ? std::string(kHeldOutText) : read_file(job.text);
  const std::vector<int32_t> ids = side.tok->encode(text);
  if (ids.size() < 2) fail_input("{}: too short to measure a model on", job.text);
  infer::Model a(job.model, job.adapter, type, job.window, kernels::cpu_ops(), infer::Weights::kForMany);
  infer::Model b(written.model, "", type, job.window, kernels::cpu_ops(), infer::Weights::kForMany);
  const infer::Comparison c = infer::compare(a, b, ids, job.window, &g_stop);
  const auto source = formats::WeightSource::open(written.model);
  formats::InputRounding rounding = formats::InputRounding::kNone;
  for (const auto& name : source->names()) rounding = std::max(rounding, source->input_rounding(name));
  OrderedJson j;
  j["text"] = {{"file", job.text.empty() ? "built-in" : fs::path(job.text).filename().string()},
               {"blake3", blake3_hex(text)},
               {"tokens", ids.size()},
               {"window", job.window}};
  j["computed_in"] = type == DType::kF32 ? "float32" : "bfloat16";
  j["input_rounding"] = rounding_text(rounding);  // simulated exactly where the layout has it
  j["perplexity"] = {{"original", c.perplexity_a},
                     {"quantized", c.perplexity_b},
                     {"change_pct", 100 * (c.perplexity_b / c.perplexity_a - 1)}};
  j["kl"] = c.kl;
  j["same_top_token"] = c.same_top;
  return j;
}

// What is written names the configuration's sizes, so the tensors must have them. Where this build has no graph of an
// architecture (its folders can be quantized all the same) nothing says what the sizes should be.
void check_sizes(const formats::WeightSource& source) {
  graph::Graph g;
  try {
    g = models::build(source.config(), {.purpose = models::Purpose::kScore});
  } catch (const Error& e) {
    if (e.code() != Exit::kMissing) throw;
    return;
  }
  checkpoint::check_base(g, source);
}

// The folder that is written takes the place of what stands there.
void keep_sources(const QuantizeJob& job) {
  std::error_code ec;
  const std::string out = (fs::weakly_canonical(job.out, ec) / "").string();
  for (const std::string& given : {job.model, job.adapter})
    if (!given.empty() && (fs::weakly_canonical(given, ec) / "").string().starts_with(out))
      fail_input("--out {}: the copy would take the place of what it is made of: choose another folder", job.out);
}

// Of a recipe that starts from another the model that the first of them starts from: what is trained keeps its family.
// None where it is not here, or nobody can read it, which is said elsewhere.
std::optional<formats::ModelConfig> known_config(const config::Recipe& first) try {
  constexpr int64_t kAnyVocabulary = 1 << 24;
  if (first.model.init == config::Init::kRandom) return train::random_config(first, kAnyVocabulary);
  const std::string folder = resolve_model(first, Fetch::kNever, Parts::kNoWeights);
  return formats::is_gguf(folder) ? formats::WeightSource::open(folder)->config() : formats::read_model_config(folder);
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace

void require_layout(const config::Recipe& recipe) {
  const auto& q = recipe.quantize;
  if (!q || !q->enabled || q->scheme == config::QuantScheme::kNone) return;
  quantize::check_scheme(q->scheme);
  const config::Recipe first = as_planned(recipe);
  if (const auto config = known_config(first)) quantize::check_layout(q->scheme, *config, true, first.model.name);
}

int64_t report_bytes(const train::Setup& s, uint64_t free) {
  const auto& quantize = s.recipe.quantize;
  if (!quantize || !quantize->enabled || quantize->scheme == config::QuantScheme::kNone) return 0;
  int64_t parameters = 0;
  for (const graph::Param& p : models::build(s.model, {.purpose = models::Purpose::kScore}).params)
    parameters += p.rows * p.cols;
  DType held = s.type;  // of what is trained whole
  if (s.has_lora) held = s.weights ? s.weights->held_type() : s.model.dtype.value_or(DType::kBF16);
  const DType type = s.type == DType::kF32 ? DType::kF32 : report_type(quantize->scheme, parameters, held);
  return infer::comparison_bytes(s.model, type, QuantizeJob{}.window, free, kernels::cpu_ops());
}

void require_report_fits(const train::Setup& s) {
  const int64_t least = report_bytes(s, 0);
  const auto needed = static_cast<uint64_t>(least + train::process_bytes());
  if (least == 0 || needed <= train::host_memory()) return;
  fail_input(
      "{}: quantize: comparing the trained model with its copy takes {} of the host's memory, {} may be used: {}",
      s.recipe.source, human_bytes(needed), human_bytes(train::host_memory()), kQuantizeLater);
}

OrderedJson quantize_model(const QuantizeJob& job, const TokenizerBundle& side) {
  if (fs::is_directory(job.out) && !fs::exists(job.out + "/" + kReport) && !fs::is_empty(job.out))
    fail_input("{}: this folder holds something else: choose another --out", job.out);
  keep_sources(job);
  std::string out = job.out;
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  const UnfinishedFolder folder(out);
  const std::string& temp = folder.path();
  std::unique_ptr<formats::WeightSource> source = formats::WeightSource::open(job.model);
  check_sizes(*source);
  if (!job.adapter.empty()) source = formats::WeightSource::with_adapter(std::move(source), job.adapter);
  const quantize::Written w = quantize::write_quantized(*source, side.tok.get(), job.settings, job.name, temp, &g_stop);
  if (!w.tokenizer_inside) {
    if (job.own_text_side && fs::is_directory(job.model))
      copy_text_files(job.model, temp);
    else if (side.tok)
      save_text_side(side, temp);
  }
  OrderedJson report;
  report["scheme"] = config::text_of(job.settings.scheme);
  if (job.settings.scheme == config::QuantScheme::kQuarkFp8) report["ptpc"] = job.settings.ptpc;
  report["size"] = {
      {"bytes", w.bytes},
      {"original_bytes", weight_bytes(job.model)},
      {"parameters", w.parameters},
      {"bits_per_weight", 8.0 * static_cast<double>(w.bytes) / static_cast<double>(std::max<int64_t>(w.parameters, 1))},
      {"quantized_tensors", w.quantized},
      {"kept_for_their_shape", w.kept}};
  if (job.report && side.tok)
    report["held_out"] = compare_models(job, side, w);
  else
    report["held_out"] = nullptr;
  write_file_atomic(temp + "/" + kReport, report.dump(2) + "\n");
  replace_folder(temp, out);
  return report;
}

std::string report_text(const OrderedJson& r) {
  const auto& size = r["size"];
  std::string out = fmt::format("{}: {} ({:.2f} bits a weight), the original {}\n", r["scheme"].get<std::string>(),
                                human_bytes(size["bytes"]), size["bits_per_weight"].get<double>(),
                                human_bytes(size["original_bytes"]));
  if (r["held_out"].is_null()) return out + "loss of quality not measured\n";
  const auto& h = r["held_out"];
  out += fmt::format("perplexity {:.4f}, the original {:.4f} ({:+.2f} %); KL {:.3e}; same top token {:.2f} %\n",
                     h["perplexity"]["quantized"].get<double>(), h["perplexity"]["original"].get<double>(),
                     h["perplexity"]["change_pct"].get<double>(), h["kl"].get<double>(),
                     100 * h["same_top_token"].get<double>());
  out += fmt::format(
      "measured in {} on {} tokens of {} text; inputs of products at run time: {}\n",
      h["computed_in"].get<std::string>(), h["text"]["tokens"].get<int64_t>(), h["text"]["file"].get<std::string>(),
      h["input_rounding"] == "none" ? "as they are" : "rounded to " + h["input_rounding"].get<std::string>());
  return out;
}

}  // namespace mxt::app

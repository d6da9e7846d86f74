#include "config/depth.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "config/field.h"
#include "config/recipe.h"

namespace mxt::config {
namespace {

constexpr int64_t kHeadDim = 128, kWidthPerLayer = 64, kReferenceDepth = 12, kMaxDeviceRows = 32;
constexpr double kReferenceTokens = 524288;  // of a step at depth 12

int64_t width_of(int64_t depth) { return (depth * kWidthPerLayer + kHeadDim - 1) / kHeadDim * kHeadDim; }

// Matrices of the blocks (4 C² attention, 8 C² MLP, a gate of 12 channels a head in every other layer, the last among
// them) and the head.
int64_t scaling_parameters(int64_t depth, int64_t vocab_size) {
  const int64_t c = width_of(depth), padded = (vocab_size + 63) / 64 * 64;
  return depth * 12 * c * c + (depth + 1) / 2 * 12 * (c / kHeadDim) + padded * c;
}

std::string model_config(const Recipe& r, const DepthPlan& p) {
  return canonical_json(Json{{"model_type", "nanochat_v2"},
                             {"num_hidden_layers", r.pretrain->depth},
                             {"hidden_size", p.width},
                             {"intermediate_size", 4 * p.width},
                             {"num_attention_heads", p.heads},
                             {"num_key_value_heads", p.heads},
                             {"max_position_embeddings", r.data.seq_len},
                             {"vocab_size", r.pretrain->vocab_size},
                             {"window_pattern", r.pretrain->window_pattern}});
}

// Sequences of a step: as the file gives them, else those that `pretrain` asks for.
void fill_batch(Recipe* r, const Reader& reader, int64_t rows, int64_t devices) {
  Batch& b = r->train.batch;
  if (!reader.is_given("train.batch.per_device")) {
    b.per_device = std::min(kMaxDeviceRows, std::max<int64_t>(1, rows / devices));
    if (reader.is_given("train.batch.grad_accum")) b.per_device = std::max<int64_t>(1, rows / devices / b.grad_accum);
  }
  if (!reader.is_given("train.batch.grad_accum")) b.grad_accum = std::max<int64_t>(1, rows / devices / b.per_device);
}

}  // namespace

DepthPlan plan_depth(int64_t depth, int64_t vocab_size, double tokens_per_parameter, int64_t step_tokens) {
  DepthPlan p;
  p.width = width_of(depth);
  p.heads = p.width / kHeadDim;
  p.scaling_parameters = scaling_parameters(depth, vocab_size);
  const auto reference = static_cast<double>(scaling_parameters(kReferenceDepth, vocab_size));
  const double tokens = std::floor(tokens_per_parameter * static_cast<double>(p.scaling_parameters));
  const double reference_tokens = tokens_per_parameter * reference;
  p.step_tokens = step_tokens;
  if (step_tokens == 0) {
    const double best = kReferenceTokens * std::pow(tokens / reference_tokens, 0.383);
    p.step_tokens = int64_t{1} << static_cast<int>(std::nearbyint(std::log2(best)));
  }
  p.steps = std::max<int64_t>(1, static_cast<int64_t>(tokens) / p.step_tokens);
  p.rate = std::sqrt(static_cast<double>(p.step_tokens) / kReferenceTokens);
  p.width_rate = 1 / std::sqrt(static_cast<double>(p.width) / 768);
  p.weight_decay = 0.28 * p.rate * (reference_tokens / tokens);
  return p;
}

void apply_depth(Recipe* r, Reader& reader) {
  if (!r->pretrain || r->pretrain->depth < 1) return;
  const auto open = [&](const char* key) { return !reader.is_given(key); };
  const auto fill = [&](const char* key, auto& slot, auto value) {
    if (open(key)) slot = value;
  };
  Data& data = r->data;
  fill("data.seq_len", data.seq_len, int64_t{2048});
  if (open("data.packing") && data.sampling == Sampling::kDocuments) {
    fill("data.pack", data.pack, Pack::kBosCrop);
    fill("data.boundaries", data.boundaries, Boundaries::kRow);
  }
  if (open("train.method")) r->train.method = default_method(MethodKind::kPretrain);

  const int64_t devices = std::max<int64_t>(1, r->hardware.gpus) * r->hardware.nodes;
  const Pretrain& pre = *r->pretrain;
  DepthPlan p = plan_depth(pre.depth, pre.vocab_size, pre.tokens_per_parameter);
  fill_batch(r, reader, p.step_tokens / data.seq_len, devices);
  const Batch& b = r->train.batch;
  const int64_t step_tokens = b.per_device * b.grad_accum * devices * data.seq_len;
  const bool given = !open("train.batch.per_device") && !open("train.batch.grad_accum");
  if (step_tokens != p.step_tokens && !given)
    reader.issue(reader.mark_of("pretrain"), "pretrain.depth",
                 fmt::format("asks for {} tokens a step, which is no whole number of {} devices' sequences of {}: set "
                             "train.batch.per_device and grad_accum",
                             p.step_tokens, devices, data.seq_len));
  p = plan_depth(pre.depth, pre.vocab_size, pre.tokens_per_parameter, step_tokens);
  const PathOrInline config{"", model_config(*r, p)};
  if (!open("model.config") && r->model.config.json != config.json)
    reader.issue(reader.mark_of("model.config"), "model.config", "is set by pretrain.depth: leave one of the two out");
  if (!open("model.init") && r->model.init != Init::kRandom)
    reader.issue(reader.mark_of("model.init"), "model.init", "is random with pretrain.depth: leave one of the two out");
  r->model.init = Init::kRandom;
  r->model.config = config;

  Optimizer& o = r->train.optimizer;
  fill("train.optimizer.name", o.name, OptimizerName::kMuon);
  if (o.name == OptimizerName::kMuon) {
    if (!o.muon) o.muon.emplace();
    Muon& m = *o.muon;
    fill("train.optimizer.muon.lr", m.lr, 0.02 * p.rate);
    fill("train.optimizer.muon.weight_decay", m.weight_decay, p.weight_decay);
    fill("train.optimizer.muon.schedule", m.schedule, MuonSchedule::kPretrain);
    fill("train.optimizer.muon.embedding_lr", m.embedding_lr, 0.3 * p.width_rate * p.rate);
    fill("train.optimizer.muon.head_lr", m.head_lr, 0.008 * p.width_rate * p.rate);
    fill("train.optimizer.muon.scalar_lr", m.scalar_lr, 0.5 * p.rate);
    fill("train.optimizer.lr", o.lr, 0.008 * p.width_rate * p.rate);
    fill("train.optimizer.betas", o.betas, std::array<double, 2>{0.8, 0.95});
    fill("train.optimizer.eps", o.eps, 1e-10);
    fill("train.optimizer.weight_decay", o.weight_decay, 0.0);
    fill("train.optimizer.grad_clip", o.grad_clip, 0.0);
  }
  Schedule& s = r->train.schedule;
  if (open("train.schedule.max_steps") && open("train.schedule.epochs")) s.max_steps = p.steps;
  if (open("train.schedule.type")) {
    s.type = ScheduleType::kWsd;
    fill("train.schedule.decay_ratio", s.decay_ratio, 0.65);
    fill("train.schedule.min_lr_ratio", s.min_lr_ratio, 0.05);
    if (open("train.schedule.warmup_ratio")) fill("train.schedule.warmup_steps", s.warmup_steps, int64_t{40});
  }
}

std::string depth_text(const Recipe& r) {
  const Pretrain& pre = *r.pretrain;
  const Batch& b = r.train.batch;
  const int64_t rows = b.per_device * b.grad_accum * std::max<int64_t>(1, r.hardware.gpus) * r.hardware.nodes;
  const DepthPlan p = plan_depth(pre.depth, pre.vocab_size, pre.tokens_per_parameter, rows * r.data.seq_len);
  return fmt::format(
      "pretrain.depth {}: width {}, {} heads; {} tokens a step, {} steps; rates of Muon {:.4g}, decay {:.4g}",
      pre.depth, p.width, p.heads, p.step_tokens, r.train.schedule.max_steps.value_or(p.steps),
      r.train.optimizer.muon ? r.train.optimizer.muon->lr : r.train.optimizer.lr,
      r.train.optimizer.muon ? r.train.optimizer.muon->weight_decay : r.train.optimizer.weight_decay);
}

}  // namespace mxt::config

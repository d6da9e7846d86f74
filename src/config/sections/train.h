// Section `train`: method, optimizer, schedule, batch, numbers and environment.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/enums.h"
#include "config/sections/method.h"

namespace mxt::config {

// Muon updates the matrices of the blocks; embeddings, head, norms and scalars go to AdamW with `optimizer.lr` unless
// they have a rate of their own here.
struct Muon {
  MuonVariant variant = MuonVariant::kNanochat;
  double lr = 0.02, momentum = 0.95, weight_decay = 0;
  MuonSchedule schedule = MuonSchedule::kNone;
  std::optional<double> embedding_lr, head_lr, scalar_lr;
};

struct Optimizer {
  OptimizerName name = OptimizerName::kAdamwTorchFused;
  double lr = 1e-4;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double grad_clip = 1.0;    // 0 = off
  std::optional<Muon> muon;  // filled with its defaults for name muon
};

struct Schedule {
  ScheduleType type = ScheduleType::kCosine;
  double warmup_ratio = 0.03;
  std::optional<int64_t> warmup_steps;  // wins over the ratio
  std::optional<double> decay_ratio;    // wsd; absent = a fifth
  int64_t epochs = 3;
  std::optional<int64_t> max_steps;  // wins over epochs
  double min_lr_ratio = 0;
};

struct Batch {
  int64_t per_device = 8, grad_accum = 4;
};

struct FlashAttention {
  FlashBackend backend = FlashBackend::kCk;  // hint
};

struct Fsdp {
  bool enabled = false, auto_wrap = true;
};

struct CpuThrottle {
  int64_t percent = 100, nice_level = 0;
  bool omp_proc_bind = true;
};

// Given rollouts instead of sampling (grpo, gspo).
struct Rollouts {
  std::optional<std::string> path;  // train/rollouts.h
};

struct Train {
  Backend backend = Backend::kNative;
  Method method;  // lora with its defaults
  Optimizer optimizer;
  Schedule schedule;
  Batch batch;
  Precision precision = Precision::kBFloat16;
  Precision base_precision = Precision::kBFloat16;  // of a frozen base; = torch_dtype where not given
  std::optional<int64_t> micro_batch;               // absent = planned
  bool gradient_checkpointing = true;
  FlashAttention flash_attention;
  Fsdp fsdp;
  CpuThrottle cpu_throttle;
  std::optional<double> neftune_noise_alpha;  // absent = no noise
  Rollouts rollouts;
  std::map<std::string, std::string> env;
  std::optional<int64_t> eval_every;  // absent = no evaluation while training
  std::optional<int64_t> save_every;  // absent = only at the end
  int64_t keep_last = 2;
  int64_t log_every = 1;
  std::vector<Tracker> report_to;  // empty = TensorBoard's files alone, which every run has

  Train();
};

}  // namespace mxt::config

// Training steps of a Qwen3 model's real dimensions with random weights: tokens a second, memory, loss. The engine is
// the product's own (models, graph, runtime, kernels); the data are random tokens in full rows.
//   gpu_step MODEL ROWS SEQ MICRO STEPS [lora|lora:RANK|attention|full|muon] [none|cheap|layer|TENSORS]
//   [bf16|f32|fp8|nf4|mxfp4|e4m3] [joined|apart] [profile|offload]
// MODEL: 0.6b … 32b, or a config.json (bench/gpu/models); attention: adapters there alone; muon: full, as nanochat
// trains. offload: masters and states in the host's memory. fp8: activations in bf16 over a base held in E4M3
// (train.base_precision: fp8_e4m3), in full training train.precision's; nf4, mxfp4, e4m3: over one in four or eight
// bits (kind: qlora)
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/philox.h"
#include "base/text.h"
#include "bench.h"
#include "formats/model_config.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "models/modules.h"
#include "optim/optimizer.h"
#include "runtime/program.h"

namespace mxt {
namespace {

using nlohmann::ordered_json;

// Times every candidate of every product of the program at its shape and keeps the fastest.
kernels::KernelPlan probe(const runtime::Program& program, kernels::Backend& b) {
  kernels::KernelPlan plan;
  const auto names = b.ops->gemm_algorithms();
  device::Accelerator& d = *b.device;
  size_t most = 0;
  for (const auto& t : program.tunables())
    if (const auto* g = std::get_if<kernels::Gemm>(&t.call))
      for (const kernels::ConstMat& m : {g->a, g->b, kernels::ConstMat(g->c), g->tail_a, g->tail_b, g->relu2_of})
        most = std::max(most, static_cast<size_t>(m.rows * m.ld) * size_of(m.type));
  std::vector<uint16_t> noise(size_t{8} << 20);
  uint32_t s = 99;
  for (auto& x : noise)
    x = float_to_bf16(static_cast<float>((s = s * 1664525u + 1013904223u) >> 8) * 0x1p-24f * 0.02f - 0.01f);
  // E4M3 operands: the same normal-ish numbers, two of them in the place of one bf16.
  std::vector<uint8_t> small(noise.size() * 2);
  for (size_t i = 0; i < small.size(); ++i)
    small[i] = float_to_f8e4m3(bf16_to_float(noise[i / 2]) * (i % 2 ? 9000.0f : -11000.0f));
  std::vector<device::Buffer> operands;
  for (int i = 0; i < 3; ++i) {
    operands.push_back(device::Buffer::on(&d, most));
    for (size_t at = 0; at < most; at += noise.size() * 2)
      d.upload(operands.back().bytes_at(at), noise.data(), std::min(most - at, noise.size() * 2));
  }
  for (int i = 0; i < 2; ++i) {
    operands.push_back(device::Buffer::on(&d, most));
    for (size_t at = 0; at < most; at += small.size())
      d.upload(operands.back().bytes_at(at), small.data(), std::min(most - at, small.size()));
  }
  size_t room = 0;
  for (const auto& t : program.tunables())
    if (const auto* g = std::get_if<kernels::Gemm>(&t.call)) room = std::max(room, b.ops->gemm_scratch(*g));
  auto scratch = device::Buffer::on(&d, room), maxima = device::Buffer::on(&d, size_t{1} << 20);
  b.ops->set_scratch(scratch.data(), scratch.size());
  void *from = d.make_mark(), *to = d.make_mark();
  for (const auto& t : program.tunables()) {
    const auto* g = std::get_if<kernels::Gemm>(&t.call);
    if (!g) continue;
    double best = 0, default_us = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      kernels::Gemm call = *g;
      if (b.ops->same_gemm(call, static_cast<int>(i)) != static_cast<int>(i)) continue;
      const size_t first = call.a.type == DType::kF8E4M3 ? 3 : 0;
      if (call.row_absmax) call.row_absmax = static_cast<float*>(maxima.data());
      if (call.relu2_of.cols > 0) call.relu2_of.p = operands[0].data();
      if (call.tail_a.cols > 0) call.tail_a.p = operands[0].data(), call.tail_b.p = operands[1].data();
      call.a.p = operands[first].data(), call.b.p = operands[first + 1].data(), call.c.p = operands[2].data(),
      call.bias = call.bias != nullptr ? operands[0].data() : nullptr, call.a_scale = call.b_scale = nullptr,
      call.algo = static_cast<int>(i);
      // Back to back for about 15 ms: a step keeps the card at its power limit, where clocks are lower and the ranking
      // is another.
      d.mark(from);
      for (int k = 0; k < 2; ++k) b.ops->gemm(call);
      d.mark(to);
      const int repeats = std::clamp(static_cast<int>(15000.0 / (d.elapsed_us(from, to) / 2 + 1)), 3, 100);
      d.mark(from);
      for (int k = 0; k < repeats; ++k) b.ops->gemm(call);
      d.mark(to);
      const double us = d.elapsed_us(from, to) / repeats;
      if (i == 0) default_us = us;
      if (best == 0 || us < best) best = us, plan.choices[t.key] = names[i];
    }
    std::printf("%s\n", ordered_json{{"call", t.key},
                                     {"times", t.count},
                                     {"choice", plan.choices[t.key]},
                                     {"us", std::round(best * 10) / 10},
                                     {"default_us", std::round(default_us * 10) / 10}}
                            .dump()
                            .c_str());
  }
  d.release_mark(from), d.release_mark(to);
  return plan;
}

int run(int argc, char** argv) {
  if (argc < 6)
    fail_input(
        "usage: gpu_step MODEL[@LAYERS] ROWS SEQ MICRO STEPS [lora|full] [none|cheap|layer|TENSORS] [bf16|f32|fp8] "
        "[joined|apart] "
        "[profile]");
  const std::string name = argv[1], method = argc > 6 ? argv[6] : "lora", level = argc > 7 ? argv[7] : "none",
                    type = argc > 8 ? argv[8] : "bf16";
  const std::string last = argc > 10 ? argv[10] : "";
  const auto offload = last == "offload" ? runtime::Offload::kOptimizer : runtime::Offload::kNone;
  const int64_t rows = std::stoll(argv[2]), seq = std::stoll(argv[3]), micro = std::stoll(argv[4]),
                steps = std::stoll(argv[5]), tokens = micro * seq;
  double at = now();
  auto lap = [&](const char* what) {
    std::fprintf(stderr, "%-12s %.2f s\n", what, now() - at);
    at = now();
  };
  kernels::Backend b = kernels::cuda_backend();
  device::Accelerator& d = *b.device;
  lap("open");
  formats::ModelConfig config = model_of(name.substr(0, name.find('@')));
  if (const size_t layers = name.find('@'); layers != name.npos)
    config.num_layers = std::stoll(name.substr(layers + 1));
  models::LoraPlan lora;
  const int64_t rank = method.starts_with("lora:") ? std::stoll(method.substr(5)) : 16;
  lora.target = [rank,
                 attention = method == "attention"](const std::string& module) -> std::optional<models::LoraTarget> {
    if (!models::is_of_layers(module)) return std::nullopt;
    if (attention && module.find("self_attn") == std::string::npos) return std::nullopt;
    return models::LoraTarget{rank, 32, false};
  };
  models::BuildOptions o;
  o.type = type == "f32" ? DType::kF32 : DType::kBF16;
  o.train_base = method == "full" || method == "muon";
  o.lora = o.train_base ? nullptr : &lora;
  o.positions = seq;
  o.head_chunk = 4096;
  o.base = type == "fp8" && !o.train_base ? graph::Storage::kFp8 : graph::Storage::kPlain;
  o.fp8_products = type == "fp8" && o.train_base;
  o.relu2_products = kernels::backend_for("sm_90")->relu2_products(b.device->properties().arch.substr(0, 5));
  models::CodedPlan coded;
  coded.of = [&type](const std::string& weight) {
    if (type == "fp8")  // products in E4M3, but for experts' matrices, which are decoded
      return graph::SegmentCoding{weight.find(".experts.") == std::string::npos ? Coding::kNone : Coding::kE4M3};
    return graph::SegmentCoding{type == "mxfp4" ? Coding::kMxfp4 : type == "e4m3" ? Coding::kE4M3 : Coding::kNf4Double};
  };
  if ((type == "nf4" || type == "mxfp4" || type == "e4m3" || type == "fp8") && !o.train_base) o.coded = &coded;
  o.join_lora = argc <= 9 || std::string(argv[9]) != "apart";
  if (!graph::recompute_from_name(level, &o.recompute))
    fail_input("recompute {}: none, cheap, layer or a number of tensors", level);
  const graph::Graph g = models::build(config, o);
  const runtime::ProgramSettings settings{tokens, micro, false, seq};
  lap("graph");
  kernels::KernelPlan plan;
  {
    const runtime::Program trial(g, plan, *b.ops, settings);
    lap("lower");
    plan = probe(trial, b);
    lap("probe");
  }
  runtime::Program program(g, plan, *b.ops, settings);
  config::Train train;
  train.optimizer.weight_decay = 0;
  train.optimizer.betas[1] = 0.999;
  if (method == "muon") {
    train.optimizer.name = config::OptimizerName::kMuon;
    train.optimizer.muon = config::Muon{.schedule = config::MuonSchedule::kPretrain};
  }
  train.schedule.type = config::ScheduleType::kConstant;
  train.schedule.warmup_ratio = 0;
  const auto optimizer = optim::make_optimizer(train, g);
  const auto pb = runtime::ParamStore::measure(g, true, optimizer->states());
  const auto bytes = program.bytes();
  ordered_json head{
      {"device", d.properties().name},
      {"model", name},
      {"method", method},
      {"rows", rows},
      {"seq", seq},
      {"micro", micro},
      {"recompute", level},
      {"joined", o.join_lora},
      {"type", type},
      {"offload", runtime::offload_name(offload)},
      {"offloaded_GiB", static_cast<double>(pb.offloaded(offload)) / (1 << 30)},
      {"planned_GiB",
       std::round(static_cast<double>(pb.total() - pb.offloaded(offload) + bytes.total()) / (1 << 30) * 100) / 100},
      {"weights_GiB", static_cast<double>(pb.weights) / (1 << 30)},
      {"activations_GiB", static_cast<double>(bytes.activations) / (1 << 30)},
      {"logits_GiB", static_cast<double>(bytes.logits) / (1 << 30)},
      {"workspace_GiB", static_cast<double>(bytes.workspace) / (1 << 30)}};
  std::printf("%s\n", head.dump().c_str());
  std::fflush(stdout);
  const size_t other = d.memory().total - d.memory().free;
  runtime::ParamStore params(g, true, &d, offload, optimizer->states());
  program.allocate(params);
  lap("allocate");
  fill_with_noise(params, g, o.type, d);
  lap("weights");

  optimizer->bind(params, *b.ops);
  std::vector<int32_t> ids(static_cast<size_t>(tokens)), positions(ids.size()), targets(ids.size()), cu;
  for (int64_t i = 0; i <= micro; ++i) cu.push_back(static_cast<int32_t>(i * seq));
  // Losses of a step come into pinned memory and are read at its end, as the trainer does: the host never waits between
  // micro-batches.
  auto* losses = static_cast<float*>(d.allocate_pinned(static_cast<size_t>(rows * seq) * sizeof(float)));
  std::vector<double> seconds;
  const auto vocabulary = static_cast<uint32_t>(std::min<int64_t>(config.vocab_size, 150000));
  const bool profiled = last == "profile";
  for (int64_t step = 0; step < steps; ++step) {
    const double begin = now();
    double loss = 0;
    for (int64_t first = 0; first < rows; first += micro) {
      Philox rng(7, static_cast<uint64_t>((step % 4) * 1000 + first));  // four batches in turn: the loss must fall
      for (int64_t t = 0; t < tokens; ++t) {
        ids[static_cast<size_t>(t)] = static_cast<int32_t>(rng.next_u32() % vocabulary);
        positions[static_cast<size_t>(t)] = static_cast<int32_t>(t % seq);
      }
      for (int64_t t = 0; t < tokens; ++t)
        targets[static_cast<size_t>(t)] =
            t % seq + 1 < seq ? ids[static_cast<size_t>(t + 1)] : ids[static_cast<size_t>(t)];
      runtime::Batch batch;
      batch.tokens = tokens;
      batch.ids = ids.data(), batch.positions = positions.data(), batch.targets = targets.data(),
      batch.cu_seqlens = cu.data();
      batch.documents = micro;
      batch.loss_scale = 1.0f / static_cast<float>(rows * seq);
      batch.first_micro = first == 0;
      batch.step = static_cast<uint64_t>(step);
      if (profiled && step + 1 == steps && first + micro >= rows) {
        for (const auto& t : program.profile(batch))
          std::printf("%s\n",
                      ordered_json{{"profile", t.what}, {"count", t.count}, {"us", std::round(t.us)}}.dump().c_str());
      } else {
        program.run(batch);
      }
      program.copy_nll(losses + first * seq);
    }
    optimizer->update({step + 1, steps});
    const double norm = optimizer->grad_norm();  // waits for the device
    for (int64_t t = 0; t < rows * seq; ++t) loss += static_cast<double>(losses[t]);
    seconds.push_back(now() - begin);
    if (step == 0) lap("first step");
    std::printf("%s\n", ordered_json{{"step", step + 1},
                                     {"loss", loss / static_cast<double>(rows * seq)},
                                     {"grad_norm", norm},
                                     {"tok/s", std::round(static_cast<double>(rows * seq) / seconds.back())}}
                            .dump()
                            .c_str());
    std::fflush(stdout);
  }
  d.release_pinned(losses);
  const size_t warm = std::min<size_t>(3, seconds.size() - 1);
  double total = 0;
  for (size_t i = warm; i < seconds.size(); ++i) total += seconds[i];
  const auto info = d.memory();
  const double speed = static_cast<double>(rows * seq) * static_cast<double>(seconds.size() - warm) / total;
  const double flops = program.flops(seq, seq, seq) / static_cast<double>(seq);
  std::printf(
      "%s\n",
      ordered_json{{"tok/s", std::round(speed)},
                   {"model_TFLOP/s", std::round(speed * flops / 1e10) / 100},
                   {"of_989", std::round(speed * flops / 989e12 * 1000) / 1000},
                   {"allocated_peak_GiB", std::round(static_cast<double>(info.peak) / (1 << 30) * 100) / 100},
                   {"card_used_GiB", std::round(static_cast<double>(info.total - info.free) / (1 << 30) * 100) / 100},
                   {"before_GiB", std::round(static_cast<double>(other) / (1 << 30) * 100) / 100}}
          .dump()
          .c_str());
  return 0;
}

}  // namespace
}  // namespace mxt

int main(int argc, char** argv) { return mxt::guarded(mxt::run, argc, argv); }

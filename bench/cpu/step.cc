// Where a training step's time goes on the CPU: the model of recipes/shakespeare_char.yaml on random tokens, the time
// of every operation summed over a step: the median over the steps, and the least, which tells more where others share
// the processor.
//   cpu_step [f32|bf16] [steps] [threads] [algorithm of every product, or auto] [rows of 64 tokens at once, 12]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/philox.h"
#include "base/threads.h"
#include "formats/model_config.h"
#include "models/model.h"
#include "runtime/program.h"

namespace mxt {
namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

constexpr int64_t kRows = 12, kSeq = 64, kVocab = 65;

void run(DType type, int64_t steps, const std::string& algorithm, int64_t at_once) {
  const int64_t micros = kRows / at_once, tokens = at_once * kSeq;
  const formats::ModelConfig config =
      formats::parse_model_config(nlohmann::ordered_json{{"model_type", "gpt2"},
                                                         {"vocab_size", kVocab},
                                                         {"n_layer", 4},
                                                         {"n_head", 4},
                                                         {"n_embd", 128},
                                                         {"n_positions", kSeq},
                                                         {"bias", false},
                                                         {"activation_function", "gelu"},
                                                         {"resid_pdrop", 0.0},
                                                         {"embd_pdrop", 0.0},
                                                         {"attn_pdrop", 0.0},
                                                         {"tie_word_embeddings", true}},
                                  "shakespeare_char");
  models::BuildOptions o;
  o.type = type;
  o.train_base = true;
  o.positions = kSeq;
  o.head_chunk = tokens;
  const graph::Graph g = models::build(config, o);
  kernels::Ops& ops = kernels::cpu_ops();
  const runtime::ProgramSettings settings{tokens, at_once, false, kSeq};
  kernels::KernelPlan plan;
  if (!algorithm.empty())
    for (const auto& t : runtime::Program(g, plan, ops, settings).tunables())
      if (std::holds_alternative<kernels::Gemm>(t.call)) plan.choices[t.key] = algorithm;
  runtime::Program program(g, plan, ops, settings);
  runtime::ParamStore params(g, true, nullptr);
  program.allocate(params);
  kernels::SquaredNorm norm;
  kernels::AdamW adam;
  for (size_t i = 0; i < g.params.size(); ++i) {
    const auto id = static_cast<graph::ParamId>(i);
    const runtime::ParamSlot& s = params[id];
    {
      Philox rng(1, i);
      const bool vector = g.params[i].kind == graph::ParamKind::kNormWeight;
      const auto a = params.write(id);
      for (int64_t k = 0; k < a->size; ++k) a->master[k] = vector ? 1.0f : rng.normal() * 0.06f;
    }
    params.sync_weights(id);
    norm.grads.push_back(s.grad);
    norm.sizes.push_back(s.size);
    adam.tensors.push_back({s.master, s.grad, s.m, s.v,
                            type == DType::kBF16 ? static_cast<uint16_t*>(s.weight) : nullptr, s.size, 1e-4f, 0.1f});
  }
  std::vector<int32_t> ids(static_cast<size_t>(tokens)), positions(ids.size()), targets(ids.size()), cu;
  for (int64_t i = 0; i <= at_once; ++i) cu.push_back(static_cast<int32_t>(i * kSeq));
  for (int64_t t = 0; t < tokens; ++t) positions[static_cast<size_t>(t)] = static_cast<int32_t>(t % kSeq);
  std::vector<double> whole;
  std::map<std::string, std::vector<double>> parts;
  std::map<std::string, int64_t> counts;
  Philox rng(7, 7);
  for (int64_t step = 0; step < 2 * steps; ++step) {
    const bool apart = step >= steps;  // first whole steps, then with a clock between the operations
    std::map<std::string, double> times;
    const double begin = now_us();
    for (int64_t micro = 0; micro < micros; ++micro) {
      for (auto* x : {&ids, &targets})
        for (int32_t& v : *x) v = static_cast<int32_t>(rng.next_u32() % kVocab);
      runtime::Batch b;
      b.tokens = tokens;
      b.ids = ids.data(), b.positions = positions.data(), b.targets = targets.data(), b.cu_seqlens = cu.data();
      b.documents = at_once;
      b.loss_scale = 1.0f / (kRows * kSeq);
      b.first_micro = micro == 0;
      if (!apart) {
        program.run(b);
        continue;
      }
      for (const auto& t : program.profile(b)) times[t.what] += t.us, counts[t.what] = t.count * micros;
    }
    for (const auto& [what, us] : times) parts[what].push_back(us);
    const double backward = now_us();
    (void)ops.squared_norm(norm);
    const double clipped = now_us();
    adam.step = step + 1;
    ops.adamw(adam);
    const double end = now_us();
    if (!apart) whole.push_back(end - begin);
    parts["squared_norm"].push_back(clipped - backward);
    parts["adamw"].push_back(end - clipped);
  }
  auto least = [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); };
  std::vector<std::pair<double, std::string>> rows;
  double total = 0, total_least = 0;
  for (const auto& [what, us] : parts)
    rows.push_back({median(us), what}), total += median(us), total_least += least(us);
  std::sort(rows.rbegin(), rows.rend());
  for (const auto& [us, what] : rows)
    fmt::print("{:>10.1f} us  {:>10.1f}  {:>3} x  {}\n", us, least(parts[what]), std::max<int64_t>(1, counts[what]),
               what);
  const double flops = program.flops(tokens, kSeq, tokens) * static_cast<double>(micros);
  fmt::print(
      "{:>10.1f} us  {:>10.1f}  together; a step without clocks {:.1f} us, {:.1f} ({:.0f} tok/s; {:.1f} GFLOP/s, "
      "{:.1f})\n",
      total, total_least, median(whole), least(whole), kRows * kSeq / median(whole) * 1e6, flops / median(whole) * 1e-3,
      flops / least(whole) * 1e-3);
}

}  // namespace
}  // namespace mxt

int main(int argc, char** argv) {
  const std::string type = argc > 1 ? argv[1] : "f32";
  if (argc > 3) mxt::set_num_threads(std::atoi(argv[3]));
  const std::string algorithm = argc > 4 ? argv[4] : "auto";
  mxt::run(type == "bf16" ? mxt::DType::kBF16 : mxt::DType::kF32, argc > 2 ? std::atoi(argv[2]) : 40,
           algorithm == "auto" ? "" : algorithm, argc > 5 ? std::atoi(argv[5]) : mxt::kRows);
}

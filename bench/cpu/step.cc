// Where a training step's time goes on the CPU: the model of recipes/shakespeare_char.yaml or SmolLM2-135M's dimensions
// with LoRA on all linears, or nanochat's of depth 4 with Muon, on random tokens and weights; the time of every
// operation summed over a step: the median over the steps, and the least, which tells more where others share the
// processor.
//   cpu_step characters|lora|nanochat [f32|bf16] [steps] [threads] [algorithm of every product, or auto] [rows at once,
//   all]
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
#include "models/modules.h"
#include "optim/optimizer.h"
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

struct Work {
  nlohmann::ordered_json config;
  bool lora;
  int64_t rows, seq;  // of a step
  bool muon = false;
};

Work characters() {
  return {{{"model_type", "gpt2"},
           {"vocab_size", 65},
           {"n_layer", 4},
           {"n_head", 4},
           {"n_embd", 128},
           {"n_positions", 64},
           {"bias", false},
           {"activation_function", "gelu"},
           {"resid_pdrop", 0.0},
           {"embd_pdrop", 0.0},
           {"attn_pdrop", 0.0},
           {"tie_word_embeddings", true}},
          false,
          12,
          64};
}

Work lora() {
  return {{{"model_type", "llama"},
           {"vocab_size", 49152},
           {"hidden_size", 576},
           {"intermediate_size", 1536},
           {"num_hidden_layers", 30},
           {"num_attention_heads", 9},
           {"num_key_value_heads", 3},
           {"max_position_embeddings", 8192},
           {"rms_norm_eps", 1e-5},
           {"rope_theta", 1e5},
           {"hidden_act", "silu"},
           {"tie_word_embeddings", true}},
          true,
          4,
          256};
}

Work nanochat() {
  return {{{"model_type", "nanochat_v2"},
           {"vocab_size", 4096},
           {"hidden_size", 256},
           {"intermediate_size", 1024},
           {"num_hidden_layers", 4},
           {"num_attention_heads", 2},
           {"num_key_value_heads", 2},
           {"max_position_embeddings", 512},
           {"window_pattern", "SSSL"}},
          false,
          8,
          512,
          true};
}

void run(const Work& w, DType type, int64_t steps, const std::string& algorithm, int64_t at_once) {
  if (at_once <= 0) at_once = w.rows;
  const int64_t micros = w.rows / at_once, tokens = at_once * w.seq;
  const formats::ModelConfig config = formats::parse_model_config(w.config, "bench");
  models::LoraPlan lora;
  lora.target = [](const std::string& module) -> std::optional<models::LoraTarget> {
    if (!models::is_of_layers(module)) return std::nullopt;
    return models::LoraTarget{16, 32, false};
  };
  models::BuildOptions o;
  o.type = type;
  o.train_base = !w.lora;
  o.lora = w.lora ? &lora : nullptr;
  o.positions = w.seq;
  o.head_chunk = std::min<int64_t>(tokens, w.lora ? 256 : 1024);  // as a run's (kernels/backend.cc)
  const graph::Graph g = models::build(config, o);
  kernels::Ops& ops = kernels::cpu_ops();
  const runtime::ProgramSettings settings{tokens, at_once, false, w.seq, w.lora};
  kernels::KernelPlan plan;
  if (!algorithm.empty())
    for (const auto& t : runtime::Program(g, plan, ops, settings).tunables())
      if (std::holds_alternative<kernels::Gemm>(t.call)) plan.choices[t.key] = algorithm;
  runtime::Program program(g, plan, ops, settings);
  config::Train train;
  if (w.muon) train.optimizer.name = config::OptimizerName::kMuon;
  const auto optimizer = optim::make_optimizer(train, g);
  runtime::ParamStore params(g, true, nullptr, runtime::Offload::kNone, optimizer->states());
  program.allocate(params);
  for (size_t i = 0; i < g.params.size(); ++i) {
    const auto id = static_cast<graph::ParamId>(i);
    const runtime::ParamSlot& s = params[id];
    {
      Philox rng(1, i);
      const auto& param = g.params[i];
      const auto a = params.write(id);
      auto value = [&] { return param.kind == graph::ParamKind::kNormWeight ? 1.0f : rng.normal() * 0.06f; };
      if (a->master) {
        for (int64_t k = 0; k < a->size; ++k) a->master[k] = value();
      } else if (type == DType::kBF16) {
        for (int64_t k = 0; k < a->size; ++k) static_cast<uint16_t*>(a->weight)[k] = float_to_bf16(value());
      } else {
        for (int64_t k = 0; k < a->size; ++k) static_cast<float*>(a->weight)[k] = value();
      }
    }
    if (!s.master) continue;
    params.sync_weights(id);
  }
  optimizer->bind(params, ops);
  if (w.lora) params.pack_frozen(g, ops);
  std::vector<int32_t> ids(static_cast<size_t>(tokens)), positions(ids.size()), targets(ids.size()), cu;
  for (int64_t i = 0; i <= at_once; ++i) cu.push_back(static_cast<int32_t>(i * w.seq));
  for (int64_t t = 0; t < tokens; ++t) positions[static_cast<size_t>(t)] = static_cast<int32_t>(t % w.seq);
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
        for (int32_t& v : *x) v = static_cast<int32_t>(rng.next_u32() % static_cast<uint32_t>(config.vocab_size));
      runtime::Batch b;
      b.tokens = tokens;
      b.ids = ids.data(), b.positions = positions.data(), b.targets = targets.data(), b.cu_seqlens = cu.data();
      b.documents = at_once;
      b.loss_scale = 1.0f / static_cast<float>(w.rows * w.seq);
      b.first_micro = micro == 0;
      if (!apart) {
        program.run(b);
        continue;
      }
      for (const auto& t : program.profile(b)) times[t.what] += t.us, counts[t.what] = t.count * micros;
    }
    for (const auto& [what, us] : times) parts[what].push_back(us);
    const double backward = now_us();
    optimizer->update({step + 1, 2 * steps});
    const double end = now_us();
    if (!apart) whole.push_back(end - begin);
    parts["clip and optimizer"].push_back(end - backward);
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
  const double flops = program.flops(tokens, w.seq, tokens) * static_cast<double>(micros);
  fmt::print(
      "{:>10.1f} us  {:>10.1f}  together; a step without clocks {:.1f} us, {:.1f} ({:.0f} tok/s; {:.1f} GFLOP/s, "
      "{:.1f})\n",
      total, total_least, median(whole), least(whole), static_cast<double>(w.rows * w.seq) / median(whole) * 1e6,
      flops / median(whole) * 1e-3, flops / least(whole) * 1e-3);
}

}  // namespace
}  // namespace mxt

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "characters", type = argc > 2 ? argv[2] : "f32";
  if (argc > 4) mxt::set_num_threads(std::atoi(argv[4]));
  const std::string algorithm = argc > 5 ? argv[5] : "auto";
  mxt::run(what == "lora"       ? mxt::lora()
           : what == "nanochat" ? mxt::nanochat()
                                : mxt::characters(),
           type == "bf16" ? mxt::DType::kBF16 : mxt::DType::kF32, argc > 3 ? std::atoi(argv[3]) : 40,
           algorithm == "auto" ? "" : algorithm, argc > 6 ? std::atoi(argv[6]) : 0);
}

// One pass of generation at a Qwen3 model's real dimensions with random weights: requests that each add a token to a
// context.
//   gpu_decode_step MODEL CONTEXT PASSES REQUESTS… [lora] [fp8] [logits] [profile]
// lora: adapters of rank 16 on every matrix of the layers, as a policy has them that samples; fp8: the base held in
// E4M3; logits: brought to the host, where the tokens are otherwise drawn on the device, as the scheduler does. For
// each number of requests: the time of a pass, and what reading the weights and the cache once would take at
// the rate of a copy on the device (bytes read and written).
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <set>

#include "bench.h"
#include "infer/cache.h"
#include "infer/states.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "models/modules.h"
#include "runtime/program.h"

namespace mxt {
namespace {

using nlohmann::ordered_json;

double copy_rate(device::Accelerator& d) {
  constexpr size_t kBytes = size_t{2} << 30;
  auto from = device::Buffer::on(&d, kBytes), to = device::Buffer::on(&d, kBytes);
  void *a = d.make_mark(), *b = d.make_mark();
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    d.mark(a);
    d.copy(to.data(), from.data(), kBytes);
    d.mark(b);
    best = std::max(best, 2.0 * static_cast<double>(kBytes) / d.elapsed_us(a, b) * 1e6);
  }
  d.release_mark(a), d.release_mark(b);
  return best;
}

int run(int argc, char** argv) {
  if (argc < 5)
    fail_input("usage: gpu_decode_step MODEL[@LAYERS] CONTEXT PASSES REQUESTS… [lora] [fp8] [logits] [profile]");
  const int64_t context = std::stoll(argv[2]), passes = std::stoll(argv[3]);
  std::vector<int64_t> counts;
  std::set<std::string> with;
  for (int i = 4; i < argc; ++i)
    if (std::isdigit(static_cast<unsigned char>(argv[i][0])))
      counts.push_back(std::stoll(argv[i]));
    else
      with.insert(argv[i]);
  const bool profiled = with.contains("profile"), fp8 = with.contains("fp8");
  for (const std::string& word : with)
    if (word != "lora" && word != "fp8" && word != "logits" && word != "profile")
      fail_input("{}: lora, fp8, logits or profile", word);
  if (fp8 && !with.contains("lora")) fail_input("fp8: a base is held in E4M3 under adapters alone: name lora too");
  kernels::Backend b = kernels::cuda_backend();
  device::Accelerator& d = *b.device;
  const double rate = copy_rate(d);
  const std::string name = argv[1];
  formats::ModelConfig config = model_of(name.substr(0, name.find('@')));
  if (const size_t layers = name.find('@'); layers != name.npos)
    config.num_layers = std::stoll(name.substr(layers + 1));
  models::BuildOptions o;
  o.type = DType::kBF16;
  o.purpose = models::Purpose::kGenerate;
  o.positions = 8192;
  models::LoraPlan lora;
  lora.target = [](const std::string& module) -> std::optional<models::LoraTarget> {
    if (!models::is_of_layers(module)) return std::nullopt;
    return models::LoraTarget{16, 32, false};
  };
  if (with.contains("lora")) o.lora = &lora, o.join_lora = true;  // as the trainer holds them
  if (fp8) o.base = graph::Storage::kFp8;
  const graph::Graph g = models::build(config, o);
  const runtime::ProgramSettings settings{512, 0, true};
  kernels::KernelPlan plan;
  for (const auto& t : runtime::Program(g, plan, *b.ops, settings).tunables()) plan.choices[t.key] = "thin";
  runtime::Program program(g, plan, *b.ops, settings);
  runtime::ParamStore params(g, false, &d);
  program.allocate(params);
  fill_with_noise(params, g, o.type, d);
  // Weights are read once a pass, whatever the number of requests; of experts those that are chosen, as many as differ
  // when all are as likely.
  const auto read_for = [&](int64_t requests) {
    double bytes = 0;
    for (const graph::Param& p : g.params) {
      if (p.kind == graph::ParamKind::kEmbedding && !config.tie_embeddings) continue;
      const double left_out =
          p.experts == 0
              ? 0.0
              : std::pow(1.0 - static_cast<double>(config.experts_per_token) / static_cast<double>(p.experts),
                         static_cast<double>(requests));
      bytes += (p.held == graph::Storage::kFp8 ? 1.0 : 2.0) * static_cast<double>(p.rows * p.cols) * (1.0 - left_out);
    }
    return bytes;
  };
  for (const int64_t requests : counts) {
    const int64_t kPage = infer::PagedCache::kPage, each = (context + kPage - 1) / kPage;
    infer::PagedCache cache(config, o.type, requests * each, &d);
    std::vector<int32_t> ids, positions, cu{0}, contexts, tables, slots, rows;
    for (int64_t r = 0; r < requests; ++r) {
      ids.push_back(static_cast<int32_t>(1000 + 37 * r)), positions.push_back(static_cast<int32_t>(context - 1)),
          cu.push_back(static_cast<int32_t>(r + 1));
      contexts.push_back(static_cast<int32_t>(context)), rows.push_back(static_cast<int32_t>(r));
      for (int64_t p = 0; p < each; ++p) tables.push_back(cache.take());
      slots.push_back(tables.back() * static_cast<int32_t>(kPage) + static_cast<int32_t>((context - 1) % kPage));
    }
    runtime::CacheView view;
    view.k = cache.k(), view.v = cache.v(), view.page = kPage, view.max_pages = each, view.requests = requests;
    view.cu_q = cu.data(), view.context = contexts.data(), view.tables = tables.data(), view.slots = slots.data();
    infer::SequenceStates states(config, o.type, requests, &d);
    std::vector<int32_t> state_slots;
    for (int64_t r = 0; states.any() && r < requests; ++r) state_slots.push_back(states.take());
    states.show(view, state_slots);
    const bool fetched = with.contains("logits");
    auto results = device::Buffer::shared_with(
        &d, static_cast<size_t>(requests * (fetched ? config.vocab_size : 2)) * sizeof(float));
    const std::vector<float> temperature(static_cast<size_t>(requests), 1.0f);
    const std::vector<int32_t> bits(static_cast<size_t>(2 * requests), 1 << 29);
    runtime::Batch batch;
    batch.tokens = requests, batch.ids = ids.data(), batch.positions = positions.data(), batch.logit_rows = rows.data(),
    batch.logit_count = requests;
    batch.cache = &view;
    if (fetched)
      batch.logits = static_cast<float*>(results.data());
    else
      batch.drawn = static_cast<float*>(results.data()), batch.draw_temperature = temperature.data(),
      batch.draw_bits = bits.data();
    for (int k = 0; k < 3; ++k) program.run(batch), batch.first_micro = false;  // as the scheduler: the weights stay
    std::vector<double> us;
    for (int64_t k = 0; k < passes; ++k) {
      const double begin = now();
      program.run(batch);  // waits for the results
      us.push_back((now() - begin) * 1e6);
    }
    std::sort(us.begin(), us.end());
    const double bytes = read_for(requests) +
                         static_cast<double>(infer::PagedCache::bytes(config, o.type, 1)) / static_cast<double>(kPage) *
                             static_cast<double>(context * requests) +
                         2.0 * static_cast<double>(infer::SequenceStates::bytes(config, o.type) * requests),
                 median = us[us.size() / 2];
    std::printf("%s\n", ordered_json{{"device", d.properties().name},
                                     {"model", argv[1]},
                                     {"context", context},
                                     {"requests", requests},
                                     {"tokens", fetched ? "logits to the host" : "drawn on the device"},
                                     {"us", std::round(median)},
                                     {"least_us", std::round(us[0])},
                                     {"tok_s", std::round(1e6 / median * static_cast<double>(requests) * 10) / 10},
                                     {"copy_GB_s", std::round(rate / 1e9)},
                                     {"floor_us", std::round(bytes / rate * 1e6)},
                                     {"of_ceiling", std::round(bytes / rate * 1e9 / median) / 1000}}
                            .dump()
                            .c_str());
    if (profiled)
      for (const auto& t : program.profile(batch))
        std::printf(
            "%s\n",
            ordered_json{{"profile", t.what}, {"count", t.count}, {"us", std::round(t.us * 10) / 10}}.dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace mxt

int main(int argc, char** argv) { return mxt::guarded(mxt::run, argc, argv); }

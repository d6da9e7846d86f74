// Adapters of experts written as PEFT's stacks (target_parameters): what is read again, over the base and beside it, is
// what those of single experts say.
#include <cstdlib>

#include "checkpoint/adapter.h"
#include "formats/family.h"
#include "formats/peft.h"
#include "models/modules.h"
#include "models/tiny.h"

namespace mxt {
namespace {

class StackedAdapters : public testing::TestWithParam<std::string> {};

constexpr int64_t kRank = 3;

std::optional<models::LoraTarget> target(const std::string& module) {
  if (!models::is_of_layers(module) || module.ends_with("router") || module.ends_with("mlp.gate")) return std::nullopt;
  return models::LoraTarget{kRank, 9, false};
}

std::vector<float> logits_of(tiny::Model& m, const tiny::Packed& row) {
  runtime::Batch batch = row.batch();
  std::vector<int32_t> all(row.ids.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  std::vector<float> logits(all.size() * static_cast<size_t>(m.graph.vocab));
  batch.logit_rows = all.data();
  batch.logit_count = static_cast<int64_t>(all.size());
  batch.logits = logits.data();
  m.program.run(batch);
  return logits;
}

TEST_P(StackedAdapters, AreTheSameAsThoseOfSingleExperts) {
  const std::string base = tiny::golden(GetParam()), stacked = testing::TempDir() + "stacked_" + GetParam(),
                    single = testing::TempDir() + "single_" + GetParam();
  models::LoraPlan plan;
  plan.target = target;
  models::BuildOptions o;
  o.type = DType::kF32;
  o.purpose = models::Purpose::kGenerate;
  o.positions = 64;
  o.lora = &plan;
  tiny::Model m(base, o, kernels::cpu_ops());
  checkpoint::init_adapter(m.graph, m.params, 5);
  std::set<std::string> names;
  for (size_t i = 0; i < m.graph.params.size(); ++i) {
    const graph::Param& p = m.graph.params[i];
    if (!p.adapter) continue;
    for (const graph::Segment& s : p.segments) {
      const std::string module = s.name.substr(0, s.name.find(".lora_"));
      names.insert(module.substr(module.rfind('.') + 1));
    }
    auto w = m.params.write(static_cast<graph::ParamId>(i));
    for (int64_t k = 0; k < p.rows * p.cols; ++k)
      static_cast<float*>(w->weight)[k] += 0.03f * static_cast<float>((k * 7 + static_cast<int64_t>(i)) % 11 - 5);
  }
  const formats::Family& family = *m.source->config().family;
  formats::AdapterConfig config;
  config.r = kRank, config.lora_alpha = 9;
  config.target_modules.assign(names.begin(), names.end());
  checkpoint::save_adapter(stacked, m.graph, m.params, config, nullptr, {true, family.turned_experts});
  checkpoint::save_adapter(single, m.graph, m.params, config, nullptr, {false, false});
  const Json said = read_json_file(stacked + "/adapter_config.json");
  EXPECT_EQ(said["target_parameters"], (Json{"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}));
  EXPECT_EQ(said["rank_pattern"], (Json{{"gate_up_proj", 2 * kRank}}));
  EXPECT_EQ(said["alpha_pattern"], (Json{{"gate_up_proj", 18}}));

  const auto of_stacked = formats::WeightSource::with_adapter(formats::WeightSource::open(base), stacked),
             of_single = formats::WeightSource::with_adapter(formats::WeightSource::open(base), single);
  int64_t changed = 0;
  for (const std::string& name : of_single->names()) {
    const auto shape = of_single->shape(name);
    if (shape.size() != 2) continue;
    std::vector<float> a(static_cast<size_t>(shape[0] * shape[1])), b(a.size()), plain(a.size());
    of_stacked->read(name, DType::kF32, a.data());
    of_single->read(name, DType::kF32, b.data());
    m.source->read(name, DType::kF32, plain.data());
    EXPECT_LT(tiny::relative(a.data(), b.data(), a.size()), 1e-7) << name;
    changed += name.find(".experts.") != std::string::npos && b != plain;
  }
  EXPECT_GT(changed, 3 * 5);

  const tiny::Packed row = tiny::read_rows(base, 0, 1);
  const std::vector<float> want = logits_of(m, row);
  for (const std::string& folder : {stacked, single}) {
    models::LoraPlan read = checkpoint::adapter_plan(folder, &family);
    models::BuildOptions beside = o;
    beside.lora = &read;
    tiny::Model again(base, beside, kernels::cpu_ops());
    checkpoint::load_adapter(folder, again.graph, again.params, nullptr, &family);
    const std::vector<float> got = logits_of(again, row);
    EXPECT_LT(tiny::relative(got.data(), want.data(), got.size()), 1e-6) << folder;
  }
  if (std::getenv("MXT_KEEP")) return;
  for (const std::string& folder : {stacked, single}) fs::remove_all(folder);
}

// Adapters of gpt-oss's experts, beside clamped gates and biases: what PEFT says of them.
TEST(AdaptersOfGptOss, SayWhatPeftSays) {
  for (const char* name : {"gpt_oss", "gpt_oss_balanced"}) {
    const std::string base = tiny::golden(name), folder = base + "/adapter";
    models::LoraPlan plan = checkpoint::adapter_plan(folder);
    models::BuildOptions o;
    o.type = DType::kF32;
    o.purpose = models::Purpose::kTrain;
    o.positions = 64;
    o.lora = &plan;
    tiny::Model m(base, o, kernels::cpu_ops());
    checkpoint::load_adapter(folder, m.graph, m.params);
    const double want = read_json_file(base + "/expected.json")["lora_loss"].get<double>();
    EXPECT_NEAR(m.loss(tiny::read_rows(base, 0, 3)), want, 2e-5 * want) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StackedAdapters, testing::Values("qwen3_moe_balanced", "qwen3_5_moe", "gpt_oss"),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace mxt

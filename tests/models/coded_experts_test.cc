// Experts held in codes: what is decoded where it is multiplied trains as the same weights held plainly.
#include <cstring>

#include "checkpoint/adapter.h"
#include "models/modules.h"
#include "models/tiny.h"

namespace mxt {
namespace {

class CodedExperts : public testing::TestWithParam<bool> {
 protected:
  kernels::Ops& ops() { return GetParam() ? kernels::reference_ops() : kernels::cpu_ops(); }
};

models::BuildOptions options(const models::LoraPlan& lora, const models::CodedPlan* coded) {
  models::BuildOptions o;
  o.type = DType::kF32;
  o.train_base = false;
  o.lora = &lora;
  o.coded = coded;
  o.positions = 64;
  o.head_chunk = 16;
  return o;
}

TEST_P(CodedExperts, TrainAsTheirDecodedWeights) {
  models::LoraPlan lora;
  lora.target = [](const std::string& module) -> std::optional<models::LoraTarget> {
    if (!models::is_of_layers(module)) return std::nullopt;
    return models::LoraTarget{3, 6, false};
  };
  for (const Coding coding : {Coding::kNf4, Coding::kNf4Double, Coding::kE4M3})
    for (const char* name : {"qwen3_moe", "qwen3_5_moe"}) {
      SCOPED_TRACE(std::string(name) + " " + std::string(mxt::name_of(coding)));
      const std::string folder = tiny::golden(name);
      models::CodedPlan plan;
      plan.of = [coding](const std::string&) { return graph::SegmentCoding{coding}; };
      tiny::Model held(folder, options(lora, &plan), ops()), plain(folder, options(lora, nullptr), ops());
      int64_t experts = 0;
      for (size_t i = 0; i < held.graph.params.size(); ++i) {
        const graph::Param& p = held.graph.params[i];
        if (p.held != graph::Storage::kCoded) continue;
        experts += p.segments[0].name.find(".experts.") != std::string::npos;
        EXPECT_EQ(p.segments[0].name.find("mlp.gate.weight"), std::string::npos);  // a router's
        const auto id = static_cast<graph::ParamId>(i);
        const auto from = held.params.read(id);
        auto to = plain.params.write(id);
        std::memcpy(to->weight, from->weight, static_cast<size_t>(p.rows * p.cols) * sizeof(float));
      }
      EXPECT_GT(experts, 2);
      checkpoint::init_adapter(held.graph, held.params, 5);
      checkpoint::init_adapter(plain.graph, plain.params, 5);
      // B begins as zeros: another matrix lets every gradient be seen.
      for (tiny::Model* m : {&held, &plain})
        for (size_t i = 0; i < m->graph.params.size(); ++i) {
          const graph::Param& p = m->graph.params[i];
          if (!p.adapter) continue;
          float* w = m->params[static_cast<graph::ParamId>(i)].master;
          for (int64_t k = 0; k < p.rows * p.cols; ++k) w[k] += 0.02f * static_cast<float>(k % 7 - 3);
        }
      const tiny::Packed rows = tiny::read_rows(folder, 0, 3);
      const double want = plain.loss(rows);
      EXPECT_NEAR(held.loss(rows), want, 1e-6 * want);
      for (size_t i = 0; i < held.graph.params.size(); ++i) {
        const graph::Param& p = held.graph.params[i];
        if (!p.adapter) continue;
        const auto id = static_cast<graph::ParamId>(i);
        EXPECT_LT(tiny::relative(held.params[id].grad, plain.params[id].grad, static_cast<size_t>(p.rows * p.cols)),
                  1e-5)
            << p.name;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Backends, CodedExperts, testing::Bool(),
                         [](const auto& i) { return i.param ? "reference" : "cpu"; });

}  // namespace
}  // namespace mxt

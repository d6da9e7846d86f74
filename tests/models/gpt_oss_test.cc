// gpt-oss beside what parity_test.cc asks of every family: experts that a file holds in MXFP4 (tools/golden/
// gpt_oss_mxfp4.py), and the stacks that are written.
#include "formats/coded.h"
#include "models/modules.h"
#include "models/tiny.h"

namespace mxt {
namespace {

class GptOss : public testing::TestWithParam<bool> {
 protected:
  kernels::Ops& ops() { return GetParam() ? kernels::reference_ops() : kernels::cpu_ops(); }
};

models::BuildOptions generation() {
  models::BuildOptions o;
  o.type = DType::kF32;
  o.purpose = models::Purpose::kGenerate;
  o.positions = 64;
  return o;
}

TEST_P(GptOss, Mxfp4ExpertsAreThoseThatTransformersDecodes) {
  for (const char* folder : {"gpt_oss_mxfp4", "gpt_oss_mxfp4/plain"}) {
    tiny::Model m(tiny::golden(folder), generation(), ops());
    tiny::expect_logits(m, tiny::read_rows(tiny::golden("gpt_oss_mxfp4"), 0, 3).batch(), tiny::golden("gpt_oss_mxfp4"));
  }
}

// A frozen base takes the codes as they lie in the file; what stands beside them stays plain.
TEST_P(GptOss, AFrozenBaseKeepsMxfp4AsItIs) {
  models::LoraPlan lora;
  lora.target = [](const std::string& module) -> std::optional<models::LoraTarget> {
    if (!models::is_of_layers(module)) return std::nullopt;
    return models::LoraTarget{3, 6, false};
  };
  const std::string folder = tiny::golden("gpt_oss_mxfp4");
  const auto source = formats::WeightSource::open(folder);
  models::CodedPlan plan;
  plan.of = [&](const std::string& weight) {
    const auto said = formats::config_coding(source->config(), weight);
    return said ? graph::SegmentCoding{said->coding, said->through} : graph::SegmentCoding{};
  };
  models::BuildOptions o = generation();
  o.purpose = models::Purpose::kTrain;
  o.lora = &lora;
  tiny::Model plain(folder, o, ops());
  o.coded = &plan;
  tiny::Model held(folder, o, ops());
  int64_t coded = 0;
  for (const graph::Param& p : held.graph.params) {
    if (p.held != graph::Storage::kCoded) continue;
    EXPECT_NE(p.segments[0].name.find(".experts."), std::string::npos) << p.name;
    coded += p.rows * p.cols;
  }
  EXPECT_EQ(coded, 2 * 3 * (64 * 64 + 64 * 32));
  const tiny::Packed rows = tiny::read_rows(folder, 0, 3);
  EXPECT_NEAR(held.loss(rows), plain.loss(rows), 1e-5);
}

TEST_P(GptOss, WritesTheStacksThatItRead) {
  for (const char* name : {"gpt_oss", "gpt_oss_balanced"}) {
    models::BuildOptions o = generation();
    o.train_base = true;
    tiny::Model m(tiny::golden(name), o, ops());
    const std::string out = testing::TempDir() + "gpt_oss_written_" + (GetParam() ? "r" : "c");
    checkpoint::save_model(out, m.graph, m.params, m.source->config(), DType::kF32);
    const auto before = formats::Safetensors::open(tiny::golden(name)), after = formats::Safetensors::open(out);
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (const auto& t : before.tensors()) {
      const auto& w = after.at(t.name);
      ASSERT_EQ(w.shape, t.shape) << t.name;
      EXPECT_EQ(std::memcmp(before.bytes(t).data(), after.bytes(w).data(), t.bytes), 0) << t.name;
    }
    fs::remove_all(out);
  }
}

INSTANTIATE_TEST_SUITE_P(Both, GptOss, testing::Bool(), [](const auto& i) { return i.param ? "reference" : "cpu"; });

}  // namespace
}  // namespace mxt

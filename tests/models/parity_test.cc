// Our graphs against transformers' fp32 values (tools/golden/models.py): logits, loss, every parameter's gradient, for
// packed documents, on every backend.
#include "base/error.h"
#include "models/tiny.h"

namespace mxt {
namespace {

struct Case {
  std::string model;
  bool reference;
};

class Parity : public testing::TestWithParam<Case> {
 protected:
  kernels::Ops& ops() { return GetParam().reference ? kernels::reference_ops() : kernels::cpu_ops(); }
  std::string folder() { return tiny::golden(GetParam().model); }
};

TEST_P(Parity, LogitsEqualTransformers) {
  models::BuildOptions o;
  o.type = DType::kF32;
  o.purpose = models::Purpose::kGenerate;
  o.positions = 64;
  tiny::Model m(folder(), o, ops());
  const tiny::Packed rows = tiny::read_rows(folder(), 0, 3);
  tiny::expect_logits(m, rows.batch(), folder());
}

TEST_P(Parity, EveryGradientEqualsTransformers) {
  for (const auto level : {graph::Recompute::kNone, graph::Recompute::kCheap, graph::Recompute::kLayer}) {
    models::BuildOptions o;
    o.type = DType::kF32;
    o.train_base = true;
    o.positions = 64;
    o.recompute = level;
    o.head_chunk = 7;  // several chunks
    tiny::Model m(folder(), o, ops());
    m.program.set_poison(true);
    const double loss = m.loss(tiny::read_rows(folder(), 0, 3));
    const Json want = read_json_file(folder() + "/expected.json");
    EXPECT_NEAR(loss, want["loss"].get<double>(), 2e-5 * loss) << graph::recompute_name(level);
    const auto expected = formats::Safetensors::open(folder() + "/expected.safetensors");
    size_t compared = 0;
    for (const graph::Param& p : m.graph.params) {
      const runtime::ParamSlot& slot = m.params[m.graph.value(p.value).param];
      const bool vector = p.kind == graph::ParamKind::kNormWeight || p.kind == graph::ParamKind::kBias ||
                          p.kind == graph::ParamKind::kDecay;
      for (const graph::Segment& s : p.segments) {
        const auto& t = expected.at("grad." + s.name);
        const float* mine = slot.grad + (vector ? s.row : s.row * p.cols);
        const size_t n = static_cast<size_t>(t.count());
        std::vector<float> theirs(n), ours(mine, mine + n);
        std::memcpy(theirs.data(), expected.bytes(t).data(), t.bytes);
        if (s.transposed)
          for (int64_t r = 0; r < s.rows; ++r)
            for (int64_t c = 0; c < p.cols; ++c) ours[static_cast<size_t>(c * s.rows + r)] = mine[r * p.cols + c];
        // A key bias moves every score of a query alike: its gradient is zero but for rounding.
        double norm = 0;
        for (float x : theirs) norm += static_cast<double>(x) * x;
        if (std::sqrt(norm) < 1e-6) continue;
        EXPECT_LT(tiny::relative(ours.data(), theirs.data(), n), 1e-4) << s.name << " " << graph::recompute_name(level);
        ++compared;
      }
    }
    EXPECT_GT(compared, 10u);
  }
}

// What a configuration asks for and no graph here does is refused: never computed as something else.
TEST(ModelGraph, ActivationsThatAreNotBuiltInAreRefused) {
  models::BuildOptions o;
  o.positions = 64;
  for (const auto& [model, key, good, bad] : {std::tuple{"llama_mqa", "hidden_act", "swish", "gelu"},
                                              {"qwen3_tied", "hidden_act", "silu", "relu"},
                                              {"gpt2", "activation_function", "relu2", "quick_gelu"}}) {
    OrderedJson config = parse_ordered_json(read_file(tiny::golden(model) + "/config.json"), model);
    config[key] = good;
    EXPECT_NO_THROW(models::build(formats::parse_model_config(config, model), o)) << model;
    config[key] = bad;
    try {
      models::build(formats::parse_model_config(config, model), o);
      ADD_FAILURE() << model << " with " << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kMissing);
      EXPECT_NE(std::string(e.what()).find(bad), std::string::npos);
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* m : {"llama_mqa", "llama_scaled", "qwen3_tied", "qwen3_gqa", "qwen3_moe", "qwen3_moe_balanced",
                        "qwen3_5", "qwen3_5_moe", "gpt2", "gpt2_scales"})
    for (const bool reference : {true, false}) all.push_back({m, reference});
  for (const char* m : {"mistral", "qwen2", "qwen2_untied", "instella", "instella_bias", "olmo2", "phi3",
                        "phi3_longrope", "gemma3", "gpt_oss", "gpt_oss_balanced", "nanochat", "nanochat_yarn",
                        "nanochat_v2", "nanochat_v2_plain", "nanochat_v2_values"})
    for (const bool reference : {true, false}) all.push_back({m, reference});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Golden, Parity, testing::ValuesIn(cases()),
                         [](const auto& i) { return i.param.model + (i.param.reference ? "_reference" : "_cpu"); });

}  // namespace
}  // namespace mxt

// The twelve recipes that the project began with: each is valid, its real model is planned from its configuration
// alone, and it prepares rows and trains two steps on a model of the same structure, layer by layer, in a small width.
#include <map>
#include <utility>

#include "e2e/cli.h"
#include "folders.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"

namespace mxt {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>"
    "{% endgeneration %}{% else %}{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

// Of a model, its real size and the same structure scaled down; both but for what encloses them.
struct Sizes {
  std::string real, small;
};

Sizes qwen3(int layers, const std::string& real) {
  return {R"({"model_type":"qwen3","vocab_size":151936,"head_dim":128,"max_position_embeddings":40960,)"
          R"("rms_norm_eps":1e-6,"rope_theta":1000000,"tie_word_embeddings":false,)" +
              real + "}",
          fmt::format(R"({{"model_type":"qwen3","vocab_size":VOCAB,"hidden_size":40,"intermediate_size":48,)"
                      R"("num_hidden_layers":{},"num_attention_heads":4,"num_key_value_heads":1,"head_dim":16,)"
                      R"("max_position_embeddings":4096,"rope_theta":1000000,"tie_word_embeddings":false}})",
                      layers)};
}

const Sizes kQwen3_8b = qwen3(36, R"("hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":36,)"
                                  R"("num_attention_heads":32,"num_key_value_heads":8)"),
            kQwen3_32b = qwen3(64, R"("hidden_size":5120,"intermediate_size":25600,"num_hidden_layers":64,)"
                                   R"("num_attention_heads":64,"num_key_value_heads":8)");

const Sizes kInstella = {
    R"({"model_type":"instella","vocab_size":50304,"hidden_size":2560,"intermediate_size":6912,"num_hidden_layers":36,)"
    R"("num_attention_heads":32,"num_key_value_heads":32,"max_position_embeddings":4096,"rope_theta":10000.0,)"
    R"("rms_norm_eps":1e-5,"tie_word_embeddings":false})",
    R"({"model_type":"instella","vocab_size":VOCAB,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":36,)"
    R"("num_attention_heads":4,"num_key_value_heads":4,"max_position_embeddings":4096,"rope_theta":10000.0,)"
    R"("rms_norm_eps":1e-5,"tie_word_embeddings":false})"};

const Sizes kA3b = {
    R"({"model_type":"qwen3_moe","vocab_size":151936,"hidden_size":2048,"intermediate_size":6144,"num_hidden_layers":48,)"
    R"("num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"num_experts":128,"num_experts_per_tok":8,)"
    R"("moe_intermediate_size":768,"norm_topk_prob":true,"decoder_sparse_step":1,"mlp_only_layers":[],)"
    R"("max_position_embeddings":40960,"rope_theta":1000000.0,"tie_word_embeddings":false,"router_aux_loss_coef":0.001})",
    R"({"model_type":"qwen3_moe","vocab_size":VOCAB,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":48,)"
    R"("num_attention_heads":4,"num_key_value_heads":1,"head_dim":16,"num_experts":128,"num_experts_per_tok":8,)"
    R"("moe_intermediate_size":8,"norm_topk_prob":true,"decoder_sparse_step":1,"mlp_only_layers":[],)"
    R"("max_position_embeddings":4096,"rope_theta":1000000.0,"tie_word_embeddings":false,"router_aux_loss_coef":0.001})"};

const Sizes kHybrid = {
    R"({"model_type":"qwen3_5","tie_word_embeddings":false,"text_config":{"model_type":"qwen3_5_text","vocab_size":248320,)"
    R"("hidden_size":5120,"intermediate_size":17408,"num_hidden_layers":64,"num_attention_heads":24,)"
    R"("num_key_value_heads":4,"head_dim":256,"full_attention_interval":4,"linear_num_key_heads":16,)"
    R"("linear_num_value_heads":48,"linear_key_head_dim":128,"linear_value_head_dim":128,"linear_conv_kernel_dim":4,)"
    R"("max_position_embeddings":262144,"rope_parameters":{"rope_type":"default","rope_theta":10000000,)"
    R"("partial_rotary_factor":0.25},"tie_word_embeddings":false}})",
    R"({"model_type":"qwen3_5","tie_word_embeddings":false,"text_config":{"model_type":"qwen3_5_text","vocab_size":VOCAB,)"
    R"("hidden_size":40,"intermediate_size":48,"num_hidden_layers":64,"num_attention_heads":6,"num_key_value_heads":1,)"
    R"("head_dim":16,"full_attention_interval":4,"linear_num_key_heads":2,"linear_num_value_heads":6,)"
    R"("linear_key_head_dim":8,"linear_value_head_dim":8,"linear_conv_kernel_dim":4,"max_position_embeddings":4096,)"
    R"("rope_parameters":{"rope_type":"default","rope_theta":10000000,"partial_rotary_factor":0.25},)"
    R"("tie_word_embeddings":false}})"};

const Sizes kHybridA3b = {
    R"({"model_type":"qwen3_5_moe","tie_word_embeddings":false,"text_config":{"model_type":"qwen3_5_moe_text",)"
    R"("vocab_size":248320,"hidden_size":2048,"num_hidden_layers":40,"num_attention_heads":16,"num_key_value_heads":2,)"
    R"("head_dim":256,"full_attention_interval":4,"linear_num_key_heads":16,"linear_num_value_heads":32,)"
    R"("linear_key_head_dim":128,"linear_value_head_dim":128,"linear_conv_kernel_dim":4,"num_experts":256,)"
    R"("num_experts_per_tok":8,"moe_intermediate_size":512,"shared_expert_intermediate_size":512,)"
    R"("max_position_embeddings":262144,"rope_parameters":{"rope_type":"default","rope_theta":10000000,)"
    R"("partial_rotary_factor":0.25},"tie_word_embeddings":false}})",
    R"({"model_type":"qwen3_5_moe","tie_word_embeddings":false,"text_config":{"model_type":"qwen3_5_moe_text",)"
    R"("vocab_size":VOCAB,"hidden_size":32,"num_hidden_layers":40,"num_attention_heads":8,"num_key_value_heads":1,)"
    R"("head_dim":16,"full_attention_interval":4,"linear_num_key_heads":2,"linear_num_value_heads":4,)"
    R"("linear_key_head_dim":8,"linear_value_head_dim":8,"linear_conv_kernel_dim":4,"num_experts":256,)"
    R"("num_experts_per_tok":8,"moe_intermediate_size":8,"shared_expert_intermediate_size":8,)"
    R"("max_position_embeddings":4096,"rope_parameters":{"rope_type":"default","rope_theta":10000000,)"
    R"("partial_rotary_factor":0.25},"tie_word_embeddings":false}})"};

const Sizes kVl8b = {
    R"({"model_type":"qwen3_vl","tie_word_embeddings":false,"image_token_id":151655,"video_token_id":151656,)"
    R"("vision_start_token_id":151652,"vision_end_token_id":151653,"text_config":{"model_type":"qwen3_vl_text",)"
    R"("vocab_size":151936,"hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":36,"num_attention_heads":32,)"
    R"("num_key_value_heads":8,"head_dim":128,"max_position_embeddings":262144,"rope_theta":5000000,)"
    R"("rope_scaling":{"mrope_interleaved":true,"mrope_section":[24,20,20],"rope_type":"default"}},)"
    R"("vision_config":{"model_type":"qwen3_vl","depth":27,"hidden_size":1152,"intermediate_size":4304,"num_heads":16,)"
    R"("out_hidden_size":4096,"patch_size":16,"spatial_merge_size":2,"temporal_patch_size":2,)"
    R"("num_position_embeddings":2304,"deepstack_visual_indexes":[8,16,24]}})",
    R"({"model_type":"qwen3_vl","tie_word_embeddings":false,"image_token_id":PAD,"video_token_id":VIDEO,)"
    R"("vision_start_token_id":START,"vision_end_token_id":END,"text_config":{"model_type":"qwen3_vl_text",)"
    R"("vocab_size":VOCAB,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":36,"num_attention_heads":4,)"
    R"("num_key_value_heads":1,"head_dim":16,"max_position_embeddings":4096,"rope_theta":5000000,)"
    R"("rope_scaling":{"mrope_interleaved":true,"mrope_section":[4,2,2],"rope_type":"default"}},)"
    R"("vision_config":{"model_type":"qwen3_vl","depth":27,"hidden_size":16,"intermediate_size":24,"num_heads":2,)"
    R"("out_hidden_size":32,"patch_size":16,"spatial_merge_size":2,"temporal_patch_size":2,)"
    R"("num_position_embeddings":2304,"deepstack_visual_indexes":[8,16,24]}})"};

// Rows as the recipe's data set has them.
const std::string kSaid = R"({"messages":[{"role":"user","content":"what is two plus two"},)"
                          R"({"role":"assistant","content":"two plus two is four"}]})",
                  kAlpaca = R"({"instruction":"add two and two","input":"","output":"it is four"})",
                  kText = R"({"text":"two plus two is four, and four plus four is eight"})",
                  kPair = R"({"prompt":"what is two plus two","chosen":"it is four","rejected":"it is five"})",
                  kSum = R"({"question":"what is two plus two","answer":"two and two #### 4"})",
                  kLlava = R"({"id":"1","image":"PHOTO","conversations":[{"from":"human","value":"<image>what is it"},)"
                           R"({"from":"gpt","value":"it is a photo"}]})";

struct Seed {
  const char* name;
  const Sizes& sizes;
  const std::string& row;
  double weights_gb;  // of the plan, in bf16
};
const Seed kSeeds[] = {
    {"instella_3b_lora", kInstella, kAlpaca, 6.2},  {"qwen3_8b_sft_lora", kQwen3_8b, kSaid, 16.4},
    {"qwen3_8b_sft_full", kQwen3_8b, kSaid, 16.4},  {"qwen3_8b_cpt", kQwen3_8b, kText, 16.4},
    {"qwen3_30b_a3b_lora", kA3b, kSaid, 61.1},      {"qwen3_32b_full_fsdp", kQwen3_32b, kSaid, 65.5},
    {"qwen3_32b_dpo", kQwen3_32b, kPair, 65.5},     {"qwen3_32b_orpo", kQwen3_32b, kPair, 65.5},
    {"qwen3_32b_grpo", kQwen3_32b, kSum, 2 * 65.5},  // its reference stands beside it
    {"qwen3_6_27b_lora", kHybrid, kSaid, 53.8},     {"qwen3_6_35b_a3b_lora", kHybridA3b, kSaid, 69.3},
    {"qwen3_vl_8b_sft", kVl8b, kLlava, 17.5}};

void put(std::string& text, const std::string& what, const std::string& in_place) {
  for (size_t at; (at = text.find(what)) != text.npos;) text.replace(at, what.size(), in_place);
}

std::string recipe_of(const Seed& seed) { return read_file(fmt::format("{}/recipes/{}.yaml", kSourceDir, seed.name)); }

// The lines of a section, or of a part of one, as they stand.
std::string block(const std::string& recipe, const std::string& head) {
  const size_t begin = recipe.find("\n" + head + "\n") + 1;
  EXPECT_NE(begin, 0u) << head;
  const size_t depth = head.find_first_not_of(' ');
  size_t end = recipe.find('\n', begin) + 1;
  while (end < recipe.size() && recipe.find_first_not_of(' ', end) - end > depth) end = recipe.find('\n', end) + 1;
  return recipe.substr(begin, end - begin);
}

class Seeds : public testing::TestWithParam<size_t> {
 protected:
  const Seed& seed() const { return kSeeds[GetParam()]; }
};

TEST_P(Seeds, AreValidAndPlannedFromTheRealConfigurationAlone) {
  cli::Folder f(fmt::format("seed_plan_{}", seed().name));
  EXPECT_EQ(cli::run(fmt::format("validate '{}/recipes/{}.yaml'", kSourceDir, seed().name)).code, 0);
  make_folders(f / "model");
  write_file_atomic(f / "model/config.json", seed().sizes.real);
  std::string recipe = recipe_of(seed());
  const size_t name = recipe.find("\n  name: ", recipe.find("\nmodel:")) + 9;
  recipe.replace(name, recipe.find('\n', name) - name, f / "model");
  if (recipe.find("  fsdp:") != recipe.npos) {
    write_file_atomic(f / "r.yaml", recipe);
    const auto r = cli::run("plan " + (f / "r.yaml"));
    EXPECT_EQ(r.code, 3) << r.out;
    EXPECT_NE(r.out.find("train.fsdp"), std::string::npos) << r.out;
    put(recipe, block(recipe, "  fsdp:"), "");
  }
  write_file_atomic(f / "r.yaml", recipe);
  const auto r = cli::run("plan " + (f / "r.yaml") + " --json");
  ASSERT_EQ(r.code, 0) << r.out;
  const Json plan = Json::parse(r.out.substr(r.out.find('{')));
  // Time and cost are the updates' alone, and a policy that samples is told so.
  EXPECT_EQ(plan.contains("sampling"), recipe.find("kind: grpo") != recipe.npos);
  // What trains has a master in fp32 of as many bytes as its gradient; an adapter's matrices stand in bf16 beside it
  // too.
  const bool lora = block(recipe, "  method:").find("kind: lora") != std::string::npos;
  const auto bytes = [&](const char* of) { return plan["categories"][of].get<double>(); };
  const double base = bytes("weights") - (lora ? 1.5 : 1.0) * bytes("gradients");
  EXPECT_NEAR(base / 1e9, seed().weights_gb, 0.01 * seed().weights_gb) << r.out;
}

TEST_P(Seeds, PrepareAndTrainTwoStepsInTheRealStructure) {
  cli::Folder f(fmt::format("seed_train_{}", seed().name));
  tokenizer::TrainOptions o;
  o.vocab_size = 320;
  o.pattern = "gpt2";
  o.special_tokens = {"<|end|>",          "<|user|>",      "<|assistant|>",  "<|system|>",
                      "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>"};
  o.eos_token = "<|end|>";
  o.chat_template = kTemplate;
  bool more = true;
  const auto tok = tokenizer::Tokenizer::from_spec(tokenizer::train_byte_level_bpe(o, [&](std::string_view& t) {
                                                     return t = kText, std::exchange(more, false);
                                                   }).spec);
  tok->save(f / "tokenizer");
  std::string config = seed().sizes.small, row = seed().row;
  put(config, "VOCAB", std::to_string(tok->vocab_size()));
  for (const auto& [word, token] : {std::pair{"PAD", "<|image_pad|>"},
                                    {"VIDEO", "<|video_pad|>"},
                                    {"START", "<|vision_start|>"},
                                    {"END", "<|vision_end|>"}})
    put(config, word, std::to_string(tok->encode(token).at(0)));
  put(row, "PHOTO", std::string(kSourceDir) + "/tests/golden/image/photo.png");
  write_file_atomic(f / "rows.jsonl", row + "\n" + row + "\n" + row + "\n" + row + "\n");
  std::string method = block(recipe_of(seed()), "  method:");
  put(method, "max_new_tokens: 1024", "max_new_tokens: 8");
  const bool packs = recipe_of(seed()).find("packing: true") != std::string::npos;
  write_file_atomic(f / "r.yaml", fmt::format(R"(meta: {{project: test, run_name: {0}}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: {0}, init: random, tokenizer: "{1}/tokenizer", config: {2}}}
data: {{source: local, path: "{1}/rows.jsonl", seq_len: 512, packing: {3}}}
train:
{4}  schedule: {{max_steps: 2}}
  batch: {{per_device: {5}, grad_accum: 1}}
  precision: bfloat16
)",
                                              seed().name, f.path, config, packs, method,
                                              method.find("num_generations") == method.npos ? 1 : 4));
  auto r = cli::run("dataset prep " + (f / "r.yaml") + " --out " + (f / "data"));
  ASSERT_EQ(r.code, 0) << r.out;
  r = cli::run("train " + (f / "r.yaml") + " --data " + (f / "data") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const auto steps = cli::lines(f / "out/metrics.jsonl");
  ASSERT_EQ(steps.size(), 2u);
  for (const Json& step : steps) {
    EXPECT_TRUE(step["loss"].is_number()) << step;
    EXPECT_GT(step["grad_norm"].get<double>(), seed().row == kSum ? -1 : 0) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Seeds, testing::Range<size_t>(0, std::size(kSeeds)),
                         [](const auto& i) { return std::string(kSeeds[i.param].name); });

}  // namespace
}  // namespace mxt

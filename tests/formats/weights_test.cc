#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "formats/gguf.h"
#include "formats/helpers.h"
#include "formats/peft.h"
#include "formats/safetensors.h"
#include "formats/weight_source.h"

namespace mxt::formats {
namespace {

constexpr const char* kConfig =
    R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":6,"hidden_size":8,
  "intermediate_size":4,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"rope_theta":10000.0})";

std::vector<float> ramp(size_t n, float scale = 0.25f) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i) * scale;
  return v;
}

void write_folder(const std::string& folder, std::vector<TensorSpec> specs) {
  write_file_atomic(folder + "/config.json", kConfig);
  SafetensorsWriter w(folder + "/model.safetensors", specs);
  for (const auto& s : specs) {
    const auto n = static_cast<size_t>(*tensor_bytes(s.shape, s.type) / size_of(s.type));
    std::vector<char> bytes(n * size_of(s.type));
    if (s.type == DType::kI64 || s.type == DType::kF64)
      std::memset(bytes.data(), 1, bytes.size());
    else
      convert(ramp(n).data(), DType::kF32, bytes.data(), s.type, n);
    w.append(bytes.data(), bytes.size());
  }
  w.commit();
}

TEST(WeightSource, FolderReadsRowsAndConverts) {
  TempFolder dir;
  // A two-byte tensor first: what follows stands misaligned for four bytes, as old writers left it.
  write_folder(dir.path(), {{"odd", DType::kBF16, {1}},
                            {"model.w", DType::kF32, {4, 3}},
                            {"b", DType::kBF16, {5}},
                            {"i", DType::kI64, {2}}});
  const auto s = WeightSource::open(dir.path());
  EXPECT_EQ(s->config().hidden_size, 8);
  EXPECT_EQ(s->names(), (std::vector<std::string>{"odd", "model.w", "b", "i"}));
  float rows[6];
  s->read("model.w", DType::kF32, rows, 1, 3);
  EXPECT_EQ(rows[0], 0.75f);
  EXPECT_EQ(rows[5], 2.0f);
  uint16_t half[12];
  s->read("model.w", DType::kBF16, half);
  EXPECT_EQ(half[11], float_to_bf16(2.75f));
  EXPECT_TRUE(s->mapped("model.w", DType::kF32).empty());  // misaligned
  EXPECT_EQ(s->mapped("odd", DType::kBF16).size(), 2u);
  EXPECT_TRUE(s->mapped("b", DType::kF32).empty());
  EXPECT_TRUE(s->has("w"));        // a bare model's name for a headed checkpoint
  EXPECT_TRUE(s->has("model.b"));  // and the other way round
  EXPECT_FALSE(s->has("model.none"));
  expect_refused([&] { s->read("i", DType::kF32, rows); }, Exit::kBadInput, "cannot be read as F32");
  expect_refused([&] { s->shape("model.v"); }, Exit::kBadInput, "nearest: \"model.w\"");
  EXPECT_NE(s->digest_text().find(" model.safetensors\n"), std::string::npos);
}

// What most numbers are stored in, whatever the configuration says and whichever tensor comes first.
TEST(WeightSource, HeldTypeIsThatOfMostNumbers) {
  using Tensors = std::vector<TensorSpec>;
  const auto held = [](const std::string& dtype, const Tensors& tensors) {
    TempFolder dir;
    write_folder(dir.path(), tensors);
    auto config = nlohmann::json::parse(kConfig);
    if (!dtype.empty()) config["torch_dtype"] = dtype;
    write_file_atomic(dir / "config.json", config.dump());
    return WeightSource::open(dir.path())->held_type();
  };
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16})
    for (const char* said : {"", "bfloat16", "float16", "float32", "auto", "torch.bfloat16"})
      EXPECT_EQ(held(said, {{"n", t, {3}}, {"w", t, {6, 8}}}), t) << said;
  EXPECT_EQ(held("float64", {{"w", DType::kF64, {4, 4}}}), DType::kF32);
  EXPECT_EQ(held("bfloat16", {{"norm", DType::kF32, {8}}, {"w", DType::kBF16, {6, 8}}}), DType::kBF16);
  EXPECT_EQ(held("bfloat16", {{"router", DType::kBF16, {2, 8}}, {"w", DType::kF32, {6, 8}}}), DType::kF32);
  EXPECT_EQ(held("float32", {{"ids", DType::kI64, {100}}, {"w", DType::kF16, {6, 8}}}), DType::kF16);
  EXPECT_EQ(held("float16", {{"ids", DType::kI64, {100}}}), DType::kF16);
}

TEST(WeightSource, TiedHeadStandsForTheEmbeddingOrEqualsIt) {
  TempFolder dir;
  const auto tied = [&](std::vector<TensorSpec> specs) {
    write_folder(dir.path(), std::move(specs));
    std::string config = kConfig;
    config.insert(1, R"("tie_word_embeddings":true,)");
    write_file_atomic(dir.path() + "/config.json", config);
    return WeightSource::open(dir.path());
  };
  const TensorSpec head{"lm_head.weight", DType::kF32, {6, 8}}, table{"model.embed_tokens.weight", DType::kF32, {6, 8}};
  const auto alone = tied({head});  // as safetensors' save_model may leave it
  EXPECT_EQ(alone->names(), (std::vector<std::string>{"model.embed_tokens.weight"}));
  std::vector<float> rows(48);
  alone->read("model.embed_tokens.weight", DType::kF32, rows.data());
  EXPECT_EQ(rows, ramp(48));
  EXPECT_FALSE(alone->has("lm_head.weight"));

  EXPECT_TRUE(tied({table, head})->has("model.embed_tokens.weight"));
  EXPECT_TRUE(tied({{"embed_tokens.weight", DType::kF32, {6, 8}}, head})->has("model.embed_tokens.weight"));
  TensorSpec narrow = head;
  narrow.type = DType::kBF16;
  expect_refused([&] { tied({table, narrow}); }, Exit::kBadInput, "\"lm_head.weight\" differ");

  write_folder(dir.path(), {head, table});  // not tied: each is its own
  EXPECT_TRUE(WeightSource::open(dir.path())->has("lm_head.weight"));
}

TEST(WeightSource, RefusesWhatIsNoModel) {
  TempFolder dir;
  expect_refused([&] { WeightSource::open(dir / "none"); }, Exit::kBadInput, "no such model folder");
  expect_refused([&] { WeightSource::open(dir.path()); }, Exit::kBadInput, "config.json");
  write_file_atomic(dir / "x.bin", "hello");
  expect_refused([&] { WeightSource::open(dir / "x.bin"); }, Exit::kBadInput, "neither a model folder nor a GGUF");
  write_file_atomic(dir / "x.gguf", "hello");
  expect_refused([&] { WeightSource::open(dir / "x.gguf"); }, Exit::kBadInput, "is not a GGUF file");
}

// Writes a llama GGUF whose q and k rows are interleaved as llama.cpp's converter does.
void write_llama(const std::string& path, bool foreign = false, int64_t up_rows = 4) {
  GgufWriter w(path);
  w.add("general.architecture", GgufValue::text("llama"));
  for (const auto& [k, v] : {std::pair{"block_count", 1u},
                             {"context_length", 64u},
                             {"embedding_length", 8u},
                             {"feed_forward_length", 4u},
                             {"attention.head_count", 2u},
                             {"attention.head_count_kv", 1u}})
    w.add(std::string("llama.") + k, GgufValue::u32(v));
  const std::vector<std::pair<std::string, std::vector<int64_t>>> tensors{
      {"token_embd.weight", {6, 8}},
      {"output_norm.weight", {8}},
      {"blk.0.attn_norm.weight", {8}},
      {"blk.0.attn_q.weight", {8, 8}},
      {"blk.0.attn_k.weight", {4, 8}},
      {"blk.0.attn_v.weight", {4, 8}},
      {"blk.0.attn_output.weight", {8, 8}},
      {"blk.0.ffn_norm.weight", {8}},
      {"blk.0.ffn_gate.weight", {4, 8}},
      {"blk.0.ffn_up.weight", {up_rows, 8}},
      {"blk.0.ffn_down.weight", {8, 4}},
      {"blk.0.attn_q.bias", {8}},
      {foreign ? "blk.0.ssm_a" : "output.weight", {6, 8}}};
  for (const auto& [name, shape] : tensors) w.declare(name, GgmlType::kF32, shape);
  for (const auto& [name, shape] : tensors) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    w.append(name, ramp(static_cast<size_t>(n), name == "output.weight" ? 1.0f : 0.25f).data(), n / shape.back());
  }
  w.commit();
}

TEST(WeightSource, GgufUndoesLlamasRowOrder) {
  TempFolder dir;
  write_llama(dir / "m.gguf");
  const auto s = WeightSource::open(dir / "m.gguf");
  EXPECT_FALSE(s->config().tie_embeddings);
  EXPECT_TRUE(s->config().attention_bias);
  EXPECT_TRUE(s->has("lm_head.weight"));
  EXPECT_EQ(s->shape("model.layers.0.mlp.down_proj.weight"), (std::vector<int64_t>{8, 4}));
  // q: 2 heads of 4; Hugging Face's rows (head, half, j) stand at (head, j, half): 0 2 1 3 | 4 6 5 7.
  float q[64];
  s->read("model.layers.0.self_attn.q_proj.weight", DType::kF32, q);
  const int order[] = {0, 2, 1, 3, 4, 6, 5, 7};
  for (int r = 0; r < 8; ++r) EXPECT_EQ(q[r * 8], 0.25f * 8 * static_cast<float>(order[r])) << r;
  float part[16];
  s->read("model.layers.0.self_attn.q_proj.weight", DType::kF32, part, 5, 7);
  EXPECT_EQ(std::memcmp(part, q + 40, sizeof part), 0);
  float bias[8];
  s->read("model.layers.0.self_attn.q_proj.bias", DType::kF32, bias);
  for (int r = 0; r < 8; ++r) EXPECT_EQ(bias[r], 0.25f * static_cast<float>(order[r]));
  EXPECT_TRUE(s->mapped("model.layers.0.self_attn.q_proj.weight", DType::kF32).empty());
  EXPECT_EQ(s->mapped("model.layers.0.self_attn.v_proj.weight", DType::kF32).size(), 128u);
  std::vector<uint16_t> half(64);
  s->read("model.layers.0.self_attn.q_proj.weight", DType::kBF16, half.data());
  EXPECT_EQ(half[8], float_to_bf16(q[8]));
}

TEST(WeightSource, GgufRefusesForeignAndMisshapenTensors) {
  TempFolder dir;
  write_llama(dir / "f.gguf", true);
  expect_refused([&] { WeightSource::open(dir / "f.gguf"); }, Exit::kMissing, "ssm_a");
  write_llama(dir / "s.gguf", false, 5);
  expect_refused([&] { WeightSource::open(dir / "s.gguf"); }, Exit::kBadInput, "ask for [4, 8]");
}

TEST(WeightSource, GgufTransposesGpt2AndSplitsExperts) {
  TempFolder dir;
  {
    GgufWriter w(dir / "g.gguf");
    w.add("general.architecture", GgufValue::text("gpt2"));
    for (const auto& [k, v] : {std::pair{"block_count", 1u},
                               {"context_length", 4u},
                               {"embedding_length", 2u},
                               {"feed_forward_length", 8u},
                               {"attention.head_count", 1u}})
      w.add(std::string("gpt2.") + k, GgufValue::u32(v));
    w.declare("token_embd.weight", GgmlType::kF32, {3, 2});
    w.declare("blk.0.attn_qkv.weight", GgmlType::kF32, {6, 2});
    w.declare("blk.0.attn_qkv.bias", GgmlType::kF32, {6});
    w.append("token_embd.weight", ramp(6).data(), 3);
    w.append("blk.0.attn_qkv.weight", ramp(12).data(), 6);
    w.append("blk.0.attn_qkv.bias", ramp(6).data(), 1);
    w.commit();
    const auto s = WeightSource::open(dir / "g.gguf");
    EXPECT_EQ(s->shape("transformer.h.0.attn.c_attn.weight"), (std::vector<int64_t>{2, 6}));
    float row[6];
    s->read("transformer.h.0.attn.c_attn.weight", DType::kF32, row, 1, 2);
    for (int k = 0; k < 6; ++k) EXPECT_EQ(row[k], 0.25f * static_cast<float>(2 * k + 1));
  }
  GgufWriter w(dir / "m.gguf");
  w.add("general.architecture", GgufValue::text("qwen3moe"));
  for (const auto& [k, v] : {std::pair{"block_count", 1u},
                             {"context_length", 4u},
                             {"embedding_length", 2u},
                             {"feed_forward_length", 8u},
                             {"attention.head_count", 1u},
                             {"expert_count", 3u},
                             {"expert_used_count", 2u},
                             {"expert_feed_forward_length", 4u}})
    w.add(std::string("qwen3moe.") + k, GgufValue::u32(v));
  w.declare("token_embd.weight", GgmlType::kF32, {3, 2});
  w.declare("blk.0.ffn_up_exps.weight", GgmlType::kF32, {3, 4, 2});
  w.append("token_embd.weight", ramp(6).data(), 3);
  w.append("blk.0.ffn_up_exps.weight", ramp(24).data(), 12);
  w.commit();
  const auto s = WeightSource::open(dir / "m.gguf");
  float e[8];
  s->read("model.layers.0.mlp.experts.2.up_proj.weight", DType::kF32, e);
  EXPECT_EQ(e[0], 4.0f);
  EXPECT_EQ(e[7], 5.75f);
  EXPECT_EQ(s->mapped("model.layers.0.mlp.experts.1.up_proj.weight", DType::kF32).size(), 32u);
}

// A folder with one quantised matrix of 2 × 64: data bytes i % 7 + 0x38 (FP8) or i (FP4), and given scales.
struct QuantizedFolder {
  std::string config = R"({"quant_method":"fp8","weight_block_size":[1,32]})";
  DType type = DType::kF8E4M3;
  std::string weight = "weight", scale = "weight_scale";
  std::vector<int64_t> shape{2, 64}, scale_shape;
  DType scale_type = DType::kF32;
  std::vector<float> scales;       // of F32 and BF16
  std::vector<uint8_t> exponents;  // of U8

  std::unique_ptr<WeightSource> open(const TempFolder& dir) const {
    write_file_atomic(dir / "config.json", R"({"model_type":"llama","quantization_config":)" + config + "}");
    SafetensorsWriter w(dir / "model.safetensors",
                        {{"model.p." + weight, type, shape}, {"model.p." + scale, scale_type, scale_shape}});
    std::vector<uint8_t> data(static_cast<size_t>(shape[0] * shape[1]));
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(type == DType::kU8 ? i : i % 7 + 0x38);
    w.append(data.data(), data.size());
    std::vector<char> bytes(static_cast<size_t>(*tensor_bytes(scale_shape, scale_type)));
    if (scale_type == DType::kU8)
      std::memcpy(bytes.data(), exponents.data(), bytes.size());
    else
      convert(scales.data(), DType::kF32, bytes.data(), scale_type, scales.size());
    w.append(bytes.data(), bytes.size());
    w.commit();
    return WeightSource::open(dir.path());
  }
};

TEST(WeightSource, DecodesFp8ByTensorRowAndBlock) {
  TempFolder dir;
  const auto check = [&](const QuantizedFolder& f, auto&& scale_of) {
    const auto s = f.open(dir);
    EXPECT_EQ(s->names(), (std::vector<std::string>{"model.p.weight"}));
    EXPECT_EQ(s->stored_type("model.p.weight"), DType::kF32);
    EXPECT_TRUE(s->mapped("model.p.weight", DType::kF8E4M3).empty());
    std::vector<float> got(128), row(64);
    s->read("p.weight", DType::kF32, got.data());
    for (int i = 0; i < 128; ++i)
      EXPECT_EQ(got[static_cast<size_t>(i)],
                f8e4m3_to_float(static_cast<uint8_t>(i % 7 + 0x38)) * scale_of(i / 64, i % 64));
    s->read("model.p.weight", DType::kF32, row.data(), 1, 2);
    EXPECT_EQ(std::memcmp(row.data(), &got[64], 256), 0);
  };
  check({.scale_shape = {}, .scales = {0.5f}}, [](int, int) { return 0.5f; });                      // Quark per tensor
  check({.scale_shape = {2}, .scales = {0.5f, 3.0f}}, [](int r, int) { return r ? 3.0f : 0.5f; });  // Quark per channel
  check({.scale_shape = {2, 1}, .scale_type = DType::kBF16, .scales = {0.5f, 3.0f}},
        [](int r, int) { return r ? 3.0f : 0.5f; });
  check({.scale = "weight_scale_inv", .scale_shape = {2, 2}, .scales = {1, 2, 4, 8}},
        [](int r, int k) { return static_cast<float>(1 << (2 * r + k / 32)); });
}

TEST(WeightSource, DecodesMxfp4OfBothSpellings) {
  TempFolder dir;
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (const char* name : {"weight", "weight_packed"}) {
    const auto s = QuantizedFolder{.config = R"({"quant_method":"quark"})",
                                   .type = DType::kU8,
                                   .weight = name,
                                   .shape = {2, 32},
                                   .scale_shape = {2, 2},
                                   .scale_type = DType::kU8,
                                   .exponents = {127, 128, 126, 127}}
                       .open(dir);
    EXPECT_EQ(s->names(), (std::vector<std::string>{"model.p.weight"}));
    EXPECT_EQ(s->shape("model.p.weight"), (std::vector<int64_t>{2, 64}));
    std::vector<float> got(128);
    s->read("model.p.weight", DType::kF32, got.data());
    for (int i = 0; i < 128; ++i) {
      const int byte = i / 2, nibble = i % 2 ? byte >> 4 : byte & 15;
      const float scale = i < 32 ? 1.0f : i < 64 ? 2.0f : i < 96 ? 0.5f : 1.0f;
      EXPECT_EQ(got[static_cast<size_t>(i)], kValues[nibble] * scale) << i;
    }
  }
}

TEST(WeightSource, RefusesQuantisationItCannotDecode) {
  TempFolder dir;
  const auto refuse = [&](const QuantizedFolder& f, Exit code, const std::string& part) {
    expect_refused([&] { f.open(dir); }, code, part);
  };
  refuse({.config = R"({"quant_method":"gptq"})", .scale_shape = {2}, .scales = {1, 1}}, Exit::kMissing, "gptq");
  refuse({.scale = "other", .scale_shape = {2}, .scales = {1, 1}}, Exit::kBadInput, "without scales");
  refuse({.scale_shape = {3}, .scales = {1, 1, 1}}, Exit::kBadInput, "do not fit");
  refuse({.scale = "weight_scale_inv", .scale_shape = {2, 3}, .scales = {1, 1, 1, 1, 1, 1}}, Exit::kBadInput,
         "do not fit");
  refuse({.config = R"({"quant_method":"fp8","weight_block_size":[0,0]})",
          .scale = "weight_scale_inv",
          .scale_shape = {2, 2},
          .scales = {1, 1, 1, 1}},
         Exit::kBadInput, "do not fit");
  refuse({.type = DType::kU8,
          .shape = {2, 32},
          .scale_shape = {2, 3},
          .scale_type = DType::kU8,
          .exponents = {1, 1, 1, 1, 1, 1}},
         Exit::kBadInput, "do not fit");
}

// ---- PEFT ----

void write_adapter_files(const std::string& folder, const std::string& config, std::vector<TensorSpec> specs,
                         float step = 0.25f) {
  make_folders(folder);
  write_file_atomic(folder + "/adapter_config.json", config);
  SafetensorsWriter w(folder + "/adapter_model.safetensors", specs);
  for (const auto& s : specs) {
    const auto v = ramp(static_cast<size_t>(*tensor_bytes(s.shape, s.type) / 4), step);
    w.append(v.data(), v.size() * 4);
  }
  w.commit();
}

const std::string kModule = "model.layers.0.self_attn.q_proj";

TEST(Peft, RoundTripKeepsPatternsAndScaling) {
  TempFolder dir;
  const auto a = ramp(32), b = ramp(32, 0.5f);
  AdapterConfig c;
  c.r = 4;
  c.lora_alpha = 8;
  c.target_modules = {"q_proj", "v_proj"};
  c.base_model_name_or_path = "base";
  c.alpha_pattern = {{"layers.1.self_attn.q_proj", 16}};
  const std::vector<AdapterTensor> modules{{kModule, 4, 8, 8, a.data(), b.data()},
                                           {"model.layers.1.self_attn.q_proj", 2, 8, 8, a.data(), b.data()}};
  write_adapter(dir / "x", c, modules, DType::kF32);
  const Adapter x = Adapter::open(dir / "x");
  ASSERT_EQ(x.modules().size(), 2u);
  EXPECT_EQ(x.find(kModule)->scaling, 2.0);
  EXPECT_EQ(x.find("model.layers.1.self_attn.q_proj")->rank, 2);
  EXPECT_EQ(x.find("model.layers.1.self_attn.q_proj")->scaling, 8.0);
  std::vector<float> got(32);
  x.read(x.find(kModule)->b, DType::kF32, got.data());
  EXPECT_EQ(got, b);
  EXPECT_EQ(x.config().base_model_name_or_path, "base");
  const std::vector<AdapterTensor> other{modules[1], modules[0]};
  write_adapter(dir / "y", c, other, DType::kF32);
  for (const char* f : {"/adapter_model.safetensors", "/adapter_config.json"})
    EXPECT_EQ(read_file(dir / "x" + f), read_file(dir / "y" + f));
  EXPECT_EQ(Safetensors::open(dir / "x/adapter_model.safetensors").tensors()[0].name,
            "base_model.model." + kModule + ".lora_A.weight");
}

// The base of a headless checkpoint has no prefix; which way a matrix lies is the model's to say, not the file's.
TEST(Peft, MergedWeightsMeetTheirModulesWhateverTheFilesSay) {
  TempFolder dir;
  for (const char* prefix : {"model.", ""})
    for (const char* flag : {"true", "false"}) {
      const std::string base = dir / ("base" + std::string(prefix) + flag);
      make_folders(base);
      write_folder(base, {{prefix + std::string("layers.0.self_attn.q_proj.weight"), DType::kF32, {8, 8}}});
      write_adapter_files(dir / "x",
                          R"({"peft_type":"LORA","r":1,"lora_alpha":1,"target_modules":["q_proj"],"fan_in_fan_out":)" +
                              std::string(flag) + "}",
                          {{"base_model.model." + kModule + ".lora_A.weight", DType::kF32, {1, 8}},
                           {"base_model.model." + kModule + ".lora_B.weight", DType::kF32, {8, 1}}});
      const auto merged = WeightSource::with_adapter(WeightSource::open(base), dir / "x");
      for (const std::string& name : {merged->names()[0], kModule + ".weight"}) {
        std::vector<float> w(64);
        merged->read(name, DType::kF32, w.data());
        for (size_t r = 0; r < 8; ++r)
          for (size_t k = 0; k < 8; ++k)
            EXPECT_EQ(w[r * 8 + k], 0.25f * static_cast<float>(r * 8 + k) +
                                        0.25f * static_cast<float>(r) * 0.25f * static_cast<float>(k))
                << prefix << flag;
      }
    }
}

// The spellings of PEFT's files: embeddings (their product is of the table's transpose), whole modules, the base
// weights that are kept beside them, and biases.
TEST(Peft, EmbeddingsHeadWholeModulesAndBiasesTakeTheirPlaces) {
  TempFolder dir;
  make_folders(dir / "base");
  write_folder(dir / "base", {{"model.embed_tokens.weight", DType::kF32, {6, 4}},
                              {"lm_head.weight", DType::kF32, {6, 4}},
                              {"model.norm.weight", DType::kF32, {4}},
                              {kModule + ".bias", DType::kF32, {8}}});
  const auto read = [&](const std::string& name, size_t n, int64_t begin = 0, int64_t end = -1) {
    std::vector<float> v(n);
    WeightSource::with_adapter(WeightSource::open(dir / "base"), dir / "x")
        ->read(name, DType::kF32, v.data(), begin, end);
    return v;
  };
  const auto write = [&](const std::string& config, std::vector<TensorSpec> specs) {
    write_adapter_files(dir / "x", R"({"peft_type":"LORA","r":1,"lora_alpha":2,)" + config + "}", std::move(specs),
                        0.5f);
  };
  write(R"("target_modules":["embed_tokens","lm_head"])",
        {{"base_model.model.lm_head.lora_A.weight", DType::kF32, {1, 4}},
         {"base_model.model.lm_head.lora_B.weight", DType::kF32, {6, 1}},
         {"base_model.model.model.embed_tokens.lora_embedding_A", DType::kF32, {1, 6}},
         {"base_model.model.model.embed_tokens.lora_embedding_B", DType::kF32, {4, 1}}});
  EXPECT_EQ(Adapter::open(dir / "x").beyond_layers(), "lm_head");
  const auto table = read("model.embed_tokens.weight", 24), head = read("lm_head.weight", 24);
  std::vector<float> plain(24);
  WeightSource::open(dir / "base")->read("lm_head.weight", DType::kF32, plain.data());
  for (size_t r = 0; r < 6; ++r)
    for (size_t k = 0; k < 4; ++k) {
      const float base = 0.25f * static_cast<float>(r * 4 + k), outer = 2 * 0.25f * static_cast<float>(r * k);
      EXPECT_EQ(table[r * 4 + k], base + outer);
      EXPECT_EQ(head[r * 4 + k], plain[r * 4 + k] + outer);
    }
  // Whole modules in each spelling, and a part of the rows.
  for (const char* name : {"base_model.model.lm_head.weight", "lm_head.modules_to_save.default.weight",
                           "base_model.model.lm_head.modules_to_save.weight"}) {
    write(R"("target_modules":["q_proj"],"modules_to_save":["lm_head"])", {{name, DType::kF32, {6, 4}}});
    EXPECT_EQ(read("lm_head.weight", 24), ramp(24, 0.5f)) << name;
    const auto rows = read("lm_head.weight", 8, 2, 4);
    const std::vector<float> whole = ramp(24, 0.5f);
    EXPECT_EQ(rows, std::vector<float>(whole.begin() + 8, whole.begin() + 16));
  }
  write(R"("target_modules":["q_proj"],"modules_to_save":["norm"])", {{"model.norm.weight", DType::kF32, {4}}});
  EXPECT_EQ(read("model.norm.weight", 4), ramp(4, 0.5f));
  write(R"("target_modules":["q_proj"],"bias":"lora_only")",
        {{"base_model.model." + kModule + ".base_layer.bias", DType::kF32, {8}}});
  EXPECT_EQ(read(kModule + ".bias", 8), ramp(8, 0.5f));
  // PEFT keeps the base's own weights beside adapters of embeddings.
  write(R"("target_modules":["lm_head"])", {{"base_model.model.lm_head.base_layer.weight", DType::kF32, {6, 4}},
                                            {"base_model.model.lm_head.lora_A.weight", DType::kF32, {1, 4}},
                                            {"base_model.model.lm_head.lora_B.weight", DType::kF32, {6, 1}}});
  const auto sum = read("lm_head.weight", 24);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(sum[i], ramp(24, 0.5f)[i] + 0.5f * static_cast<float>((i / 4) * (i % 4)));
  write(R"("target_modules":["q_proj"],"modules_to_save":["lm_head"])", {{"lm_head.weight", DType::kF32, {7, 4}}});
  expect_refused([&] { read("lm_head.weight", 24); }, Exit::kBadInput, "another shape");
  write(R"("target_modules":["q_proj"],"modules_to_save":["score"])", {{"score.weight", DType::kF32, {2, 4}}});
  expect_refused([&] { read("lm_head.weight", 24); }, Exit::kBadInput, "does not have");
}

// PEFT looks for modules_to_save by how a module's name ends, in whatever word, and saves all that stands in it.
TEST(Peft, SavedModulesAreMatchedAsPeftMatchesThem) {
  TempFolder dir;
  const std::string layer = "base_model.model.model.layers.0.";
  const auto open = [&](const std::string& names, std::vector<std::string> tensors) {
    std::vector<TensorSpec> specs;
    for (const std::string& t : tensors) specs.push_back({t, DType::kF32, {4}});
    write_adapter_files(dir / "x", R"({"peft_type":"LORA","r":1,"lora_alpha":1,"modules_to_save":)" + names + "}",
                        std::move(specs));
    std::string all;
    const Adapter a = Adapter::open(dir / "x");
    for (const auto& [name, t] : a.replaced()) all += name + " ";
    return all;
  };
  EXPECT_EQ(open(R"(["norm"])", {layer + "input_layernorm.weight", "base_model.model.model.norm.weight"}),
            "model.layers.0.input_layernorm.weight model.norm.weight ");
  EXPECT_EQ(open(R"(["mlp"])", {layer + "mlp.gate_proj.weight", layer + "mlp.modules_to_save.default.up_proj.weight"}),
            "model.layers.0.mlp.gate_proj.weight model.layers.0.mlp.up_proj.weight ");
  EXPECT_EQ(open(R"(["attn"])", {layer + "self_attn.q_proj.bias", layer + "self_attn.q_proj.weight"}),
            "model.layers.0.self_attn.q_proj.bias model.layers.0.self_attn.q_proj.weight ");
  EXPECT_EQ(open(R"(["layers.0"])", {layer + "mlp.down_proj.weight"}), "model.layers.0.mlp.down_proj.weight ");
  // Embeddings that it was told to save stand beside its matrices, whatever the configuration says.
  EXPECT_EQ(open("null", {"base_model.model.model.embed_tokens.weight", "base_model.model.lm_head.weight"}),
            "lm_head.weight model.embed_tokens.weight ");
  EXPECT_EQ(open(R"(["classifier","score"])", {"base_model.model.score.weight"}), "score.weight ");
  expect_refused([&] { open(R"(["mlp"])", {layer + "self_attn.q_proj.weight"}); }, Exit::kMissing, "modules_to_save");
  expect_refused([&] { open(R"(["norm","lm_head"])", {"base_model.model.model.norm.weight"}); }, Exit::kBadInput,
                 "modules_to_save names \"lm_head\", and");
}

TEST(Peft, ParametersAloneSelectNoOtherModule) {
  AdapterConfig c;
  EXPECT_TRUE(c.selects("model.layers.1.mlp.gate_proj"));  // nothing is said
  c.target_parameters = {"layers.1.mlp.up_proj.weight"};
  EXPECT_TRUE(c.selects("model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(c.selects("model.layers.2.mlp.up_proj"));
  EXPECT_FALSE(c.selects("model.layers.1.mlp.gate_proj"));
}

TEST(Peft, AnAdapterThatIsNoNumberIsNamed) {
  TempFolder dir;
  make_folders(dir / "base");
  write_folder(dir / "base", {{kModule + ".weight", DType::kF32, {8, 8}}});
  for (const float broken : {NAN, INFINITY}) {
    auto v = ramp(64);
    v[5] = broken;
    AdapterConfig c;
    c.r = 2;
    const std::vector<AdapterTensor> one{{kModule, 2, 8, 8, v.data(), v.data() + 32}};
    write_adapter(dir / "a", c, one, DType::kF32);
    std::vector<float> out(64);
    const auto merged = WeightSource::with_adapter(WeightSource::open(dir / "base"), dir / "a");
    expect_refused([&] { merged->read(kModule + ".weight", DType::kF32, out.data()); }, Exit::kBadInput,
                   "a/adapter_model.safetensors: \"base_model.model." + kModule + ".lora_A.weight\" holds NaN");
  }
}

TEST(Peft, ReadsEverySpellingOfNames) {
  TempFolder dir;
  for (const std::string prefix : {"base_model.model.", ""})
    for (const std::string name : {"", ".default", ".my_adapter"}) {
      write_adapter_files(dir / "a", R"({"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["q_proj"]})",
                          {{prefix + kModule + ".lora_A" + name + ".weight", DType::kF32, {2, 8}},
                           {prefix + kModule + ".lora_B" + name + ".weight", DType::kF32, {8, 2}}});
      const Adapter a = Adapter::open(dir / "a");
      ASSERT_EQ(a.modules().size(), 1u);
      EXPECT_EQ(a.modules()[0].name, kModule);
    }
}

// PEFT passes over matrices that the config does not select; they would count here.
TEST(Peft, KnowsWhatAConfigSelects) {
  const auto config = [](const char* json) { return parse_adapter_config(parse_ordered_json(json, "c"), "c"); };
  AdapterConfig c = config(R"({"r":2,"target_modules":["q_proj","mlp.up_proj"],"layers_to_transform":[1,3]})");
  EXPECT_TRUE(c.selects("model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(c.selects("model.layers.3.mlp.up_proj"));
  EXPECT_FALSE(c.selects("model.layers.2.self_attn.q_proj"));
  EXPECT_FALSE(c.selects("model.layers.1.self_attn.xq_proj"));
  EXPECT_FALSE(c.selects("model.layers.1.up_proj"));
  EXPECT_FALSE(c.selects("lm_head"));
  c = config(R"({"r":2,"target_modules":["q_proj","model.layers.2.mlp.up_proj"],"layers_to_transform":[1]})");
  EXPECT_TRUE(c.selects("model.layers.2.mlp.up_proj"));
  EXPECT_FALSE(c.selects("model.layers.2.self_attn.q_proj"));
  c = config(R"({"r":2,"target_modules":"layers\\.[02]\\.self_attn\\.q_proj"})");
  EXPECT_TRUE(c.selects("model.layers.2.self_attn.q_proj"));
  EXPECT_FALSE(c.selects("model.layers.1.self_attn.q_proj"));
  c = config(R"({"r":2,"target_modules":["q_proj"],"exclude_modules":["layers.1.self_attn.q_proj"]})");
  EXPECT_FALSE(c.selects("model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(c.selects("model.layers.0.self_attn.q_proj"));
  // Given as text it is of the whole name, as PEFT's re.fullmatch has it.
  EXPECT_FALSE(config(R"({"r":2,"exclude_modules":".*layers\\.[01]\\..*"})").selects("model.layers.1.mlp.up_proj"));
  EXPECT_TRUE(config(R"({"r":2,"exclude_modules":"layers\\.[01]\\..*"})").selects("model.layers.1.mlp.up_proj"));
  EXPECT_TRUE(config(R"({"r":2,"exclude_modules":"q_proj"})").selects("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(config(R"({"r":2,"exclude_modules":"model.layers.1"})").selects("model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(config(R"({"r":2,"exclude_modules":"lm_head"})").selects("lm_head"));
  EXPECT_TRUE(config(R"({"r":2,"layers_to_transform":0})").selects("h.0.attn.c_attn"));
  EXPECT_TRUE(config(R"({"r":2})").selects("lm_head"));
}

TEST(Peft, PatternsMatchAsPeftMatchesThem) {
  AdapterConfig c;
  c.r = 8;
  c.rank_pattern = {{"self_attn.q_proj", 2}, {".*down_proj", 3}, {"layers\\.(1|2)\\..*", 5}};
  EXPECT_EQ(c.rank("model.layers.0.self_attn.q_proj"), 2);
  EXPECT_EQ(c.rank("model.layers.0.my_self_attn.q_proj"), 8);  // only whole parts of a name
  EXPECT_EQ(c.rank("model.layers.0.mlp.down_proj"), 3);
  EXPECT_EQ(c.rank("model.layers.1.mlp.up_proj"), 5);
  EXPECT_EQ(c.rank("model.layers.11.mlp.up_proj"), 8);
  c.use_rslora = true;
  EXPECT_EQ(c.scaling_for(8, 4), 4.0);
  c.rank_pattern = {{"(((a+)+)+)+$", 2}};
  expect_refused([&] { c.rank(std::string(40, 'a') + "!"); }, Exit::kBadInput, "too long to match");
  c.rank_pattern = {{"(", 2}};
  expect_refused([&] { c.rank("x"); }, Exit::kBadInput, "not a valid pattern");
}

TEST(Peft, RefusesWhatItCannotHonour) {
  const auto refuse = [](const std::string& json, Exit code, const std::string& part) {
    expect_refused([&] { parse_adapter_config(parse_ordered_json(json, "a.json"), "a.json"); }, code, part);
  };
  refuse(R"({"peft_type":"IA3"})", Exit::kMissing, "IA3");
  refuse(R"({"use_dora":1})", Exit::kBadInput, "use_dora");
  refuse(R"({"init_lora_weights":"pissa_niter_4"})", Exit::kMissing, "pissa_niter_4");
  refuse(R"({"bias":"some"})", Exit::kBadInput, "bias");
  refuse(R"({"lora_bias":true})", Exit::kMissing, "lora_bias");
  refuse(R"({"modules_to_save":"lm_head"})", Exit::kBadInput, "modules_to_save");
  refuse(R"({"layer_replication":[[0,4]]})", Exit::kMissing, "layer_replication");
  refuse(R"({"r":0})", Exit::kBadInput, "\"r\"");
  refuse(R"({"r":"8"})", Exit::kBadInput, "\"r\"");
  refuse(R"({"lora_alpha":-1})", Exit::kBadInput, "lora_alpha");
  refuse(R"({"target_modules":5})", Exit::kBadInput, "target_modules");
  refuse(R"({"rank_pattern":{"a":0}})", Exit::kBadInput, "rank_pattern.a");
}

TEST(Peft, RefusesFilesThatDoNotFit) {
  TempFolder dir;
  const std::string config = R"({"peft_type":"LORA","r":2,"lora_alpha":4})";
  const auto refuse = [&](std::vector<TensorSpec> specs, Exit code, const std::string& part) {
    write_adapter_files(dir / "a", config, std::move(specs));
    expect_refused([&] { Adapter::open(dir / "a"); }, code, part);
  };
  const TensorSpec a{kModule + ".lora_A.weight", DType::kF32, {2, 8}},
      b{kModule + ".lora_B.weight", DType::kF32, {8, 2}};
  refuse({a}, Exit::kBadInput, "only one of");
  refuse({}, Exit::kBadInput, "no LoRA matrices");
  refuse({a, {kModule + ".lora_B.weight", DType::kF32, {8, 3}}}, Exit::kBadInput, "rank 2 and lora_B 3");
  refuse({{kModule + ".lora_A.weight", DType::kF32, {4, 8}}, {kModule + ".lora_B.weight", DType::kF32, {8, 4}}},
         Exit::kBadInput, "adapter_config.json says 2");
  refuse({a, b, {kModule + ".lora_magnitude_vector", DType::kF32, {8}}}, Exit::kMissing, "magnitude");
  refuse({a, b, {"model.embed_tokens.lora_embedding_A", DType::kF32, {8, 2}}}, Exit::kBadInput, "only one of");
  refuse({a, b, {"model.norm.weight", DType::kF32, {8}}}, Exit::kMissing, "modules_to_save");
  refuse({a, b, {"q.bias", DType::kF32, {8}}, {"q.base_layer.bias", DType::kF32, {8}}}, Exit::kBadInput, "twice");
  refuse({a, b, {"base_model.model." + kModule + ".lora_A.default.weight", DType::kF32, {2, 8}}}, Exit::kBadInput,
         "same matrix");
  fs::remove_all(dir / "a");
  expect_refused([&] { Adapter::open(dir / "a"); }, Exit::kBadInput, "not a PEFT adapter folder");
}

TEST(Peft, AnExpertThatStandsTwiceIsNamed) {
  TempFolder dir;
  const std::string experts = "model.layers.0.mlp.experts";
  const auto v = ramp(64);
  AdapterConfig c;
  c.r = 2;
  c.target_parameters = {"mlp.experts.down_proj"};
  c.target_modules = {"down_proj"};
  AdapterTensor stack{experts, 4, 8, 8, v.data(), v.data()};  // of two
  stack.stack = true;
  const std::vector<AdapterTensor> both{stack, {experts + ".1.down_proj", 2, 8, 8, v.data(), v.data()}};
  write_adapter(dir / "a", c, both, DType::kF32);
  expect_refused([&] { Adapter::open(dir / "a"); }, Exit::kBadInput, "experts.1.down_proj\" both stacked and alone");
}

TEST(Peft, FindsAnAdapterOfAnotherBase) {
  TempFolder dir;
  make_folders(dir / "base");
  write_folder(dir / "base", {{kModule + ".weight", DType::kF32, {8, 8}}});
  const auto base = WeightSource::open(dir / "base");
  const auto v = ramp(64);
  AdapterConfig c;
  c.r = 2;
  const auto check = [&](AdapterTensor t) {
    const std::vector<AdapterTensor> one{t};
    write_adapter(dir / "a", c, one, DType::kF32);
    Adapter::open(dir / "a").check_base(*base);
  };
  check({kModule, 2, 8, 8, v.data(), v.data()});
  expect_refused([&] { check({kModule, 2, 16, 8, v.data(), v.data()}); }, Exit::kBadInput, "another base");
  expect_refused([&] { check({"model.layers.7.self_attn.q_proj", 2, 8, 8, v.data(), v.data()}); }, Exit::kBadInput,
                 "another base");
}

}  // namespace
}  // namespace mxt::formats

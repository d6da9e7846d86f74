// Families that llama.cpp holds in an order or with values of its own: the file is the one that its converter writes of
// the same folder (tests/golden/gguf, made by tools/golden/gguf_families.py), and computes what transformers computes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "folders.h"
#include "formats/gguf.h"
#include "infer/scorer.h"
#include "quantize/quantize.h"
#include "quantize/small_tokenizer.h"

namespace mxt::quantize {
namespace {

using config::QuantScheme;
using formats::Gguf;
using formats::GgufTensor;
using formats::GgufValue;
using formats::GgufWriter;
using formats::WeightSource;

constexpr const char* kModels[] = {"qwen35", "qwen35moe", "qwen3vl", "phi3_longrope", "gpt_oss_plain", "gpt_oss"};

std::string golden(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/gguf/" + name; }

Json shown(const GgufValue& v) {
  if (v.type == formats::GgufValueType::kBool) return std::get<bool>(v.value);
  Json j = std::visit([](const auto& x) { return Json(x); }, v.value);
  if (v.element == formats::GgufValueType::kBool && j.is_array())
    for (Json& x : j) x = x != 0;
  return j;
}

int64_t count(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

class GgufFamilies : public testing::Test {
 protected:
  GgufFamilies() : root_(testing::TempDir() + "mxt_gguf_families_" + std::to_string(getpid())) {
    fs::remove_all(root_);
  }
  ~GgufFamilies() override { fs::remove_all(root_); }

  Written write(const std::string& folder, QuantScheme scheme) {
    const std::string out = root_ + "/" + std::to_string(files_++);
    make_folders(out);
    return write_quantized(*WeightSource::open(folder), small_tokenizer(260).get(), {true, scheme, true}, "m", out);
  }
  // The golden folder with one key of its config (of its text_config, where it has one) set.
  std::string changed(const std::string& name, const char* key, const OrderedJson& value) {
    const std::string out = root_ + "/changed" + std::to_string(files_++);
    make_folders(out);
    fs::copy_file(golden(name) + "/model.safetensors", out + "/model.safetensors");
    OrderedJson j = parse_ordered_json(read_file(golden(name) + "/config.json"), name);
    (j.contains("text_config") ? j["text_config"] : j)[key] = value;
    write_file_atomic(out + "/config.json", j.dump());
    return out;
  }
  // A copy of a file without a key or tensor, or with other ones.
  struct Change {
    std::string without;  // a key's or tensor's name
    std::vector<std::pair<std::string, GgufValue>> keys;
    std::string narrow;                // of this tensor the last row is missing
    std::string positive;              // the values of this one without their sign
    std::vector<std::string> tensors;  // more ones, of one number
  };
  std::string copy(const std::string& path, const Change& change) {
    const Gguf g = Gguf::open(path);
    const std::string out = root_ + "/copy" + std::to_string(files_++) + ".gguf";
    GgufWriter w(out);
    for (const auto& [key, v] : g.metadata()) {
      const auto other =
          std::find_if(change.keys.begin(), change.keys.end(), [&](const auto& k) { return k.first == key; });
      if (key != change.without) w.add(key, other == change.keys.end() ? v : other->second);
    }
    for (const auto& [key, v] : change.keys)
      if (!g.find_value(key)) w.add(key, v);
    for (const GgufTensor& t : g.tensors()) {
      auto shape = t.shape();
      shape[0] -= t.name == change.narrow;
      if (t.name != change.without) w.declare(t.name, t.type, shape);
    }
    for (const std::string& name : change.tensors) w.declare(name, formats::GgmlType::kF32, {1});
    for (const GgufTensor& t : g.tensors()) {
      if (t.name == change.without) continue;
      std::vector<std::byte> bytes(g.bytes(t).begin(), g.bytes(t).end());
      if (t.name == change.narrow)
        bytes.resize(bytes.size() / static_cast<size_t>(t.shape()[0]) * static_cast<size_t>(t.shape()[0] - 1));
      if (t.name == change.positive)
        for (size_t i = 3; i < bytes.size(); i += 4) bytes[i] &= std::byte{0x7f};
      w.append_raw(t.name, bytes.data(), bytes.size());
    }
    const float zero = 0;
    for (const std::string& name : change.tensors) w.append_raw(name, &zero, 4);
    w.commit();
    return out;
  }

  std::string root_;
  int files_ = 0;
};

void expect_refused(const std::function<void()>& f, Exit code, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "accepted; wanted: " << part;
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_EQ(e.code(), code) << what;
    EXPECT_NE(what.find(part), std::string::npos) << "got: " << what << "\nwanted: " << part;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

// Keys and tensors of `path` are those of the golden `file`.
void expect_converters(const std::string& path, const std::string& file) {
  const Json want = read_json_file(file);
  const Gguf g = Gguf::open(path);
  for (const auto& [key, value] : want["keys"].items()) {
    const GgufValue* v = g.find_value(key);
    ASSERT_NE(v, nullptr) << file << " " << key;
    if (value.is_number_float())
      EXPECT_EQ(static_cast<float>(std::get<double>(v->value)), value.get<float>()) << file << " " << key;
    else
      EXPECT_EQ(shown(*v), value) << file << " " << key;
  }
  EXPECT_EQ(g.tensors().size(), want["tensors"].size()) << file;
  for (const GgufTensor& t : g.tensors()) {
    ASSERT_TRUE(want["tensors"].contains(t.name)) << file << " " << t.name;
    const Json& w = want["tensors"][t.name];
    EXPECT_EQ(formats::ggml_type_info(t.type)->name, w[0].get<std::string>()) << file << " " << t.name;
    EXPECT_EQ(Json(t.shape()), w[1]) << file << " " << t.name;
    const auto bytes = g.bytes(t);
    if (w[2].is_array()) {  // exp may round another way
      std::vector<float> v(w[2].size());
      g.dequantize(t, v.data());
      for (size_t i = 0; i < v.size(); ++i) EXPECT_FLOAT_EQ(v[i], w[2][i].get<float>()) << file << " " << t.name;
    } else {
      const std::string hex = sha256_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}).substr(0, 16);
      EXPECT_EQ(hex, w[2].get<std::string>()) << file << " " << t.name;
    }
  }
}

TEST_F(GgufFamilies, TheFileIsTheConverters) {
  for (const std::string name : kModels)
    expect_converters(write(golden(name), QuantScheme::kGgufBf16).model, golden(name) + "/converted.json");
}

// What sees pictures is a second file; the bytes that the report counts are of both.
TEST_F(GgufFamilies, TheTowersFileIsTheConverters) {
  for (const std::string name : {"qwen3vl", "qwen35"}) {
    const Written w = write(golden(name), QuantScheme::kGgufBf16);
    const std::string tower = fs::path(w.model).parent_path().string() + "/mmproj.gguf";
    expect_converters(tower, golden(name) + "/tower.json");
    EXPECT_EQ(w.bytes, fs::file_size(w.model) + fs::file_size(tower));
    expect_refused([&] { WeightSource::open(tower); }, Exit::kBadInput, "name the file of its language model");
    // In blocks of four or eight bits the tower stays as it was.
    const std::string beside =
        fs::path(write(golden(name), QuantScheme::kGgufQ8_0).model).parent_path().string() + "/mmproj.gguf";
    EXPECT_EQ(read_file(beside), read_file(tower)) << name;
  }
  for (const std::string name : {"qwen35moe", "gpt_oss"}) {
    const Written w = write(golden(name), QuantScheme::kGgufBf16);
    EXPECT_FALSE(fs::exists(fs::path(w.model).parent_path() / "mmproj.gguf")) << name;
  }
  const Gguf half = Gguf::open(fs::path(write(golden("qwen3vl"), QuantScheme::kGgufF16).model).parent_path().string() +
                               "/mmproj.gguf");
  EXPECT_EQ(half.find("v.patch_embd.weight.1")->type, formats::GgmlType::kF16);
  EXPECT_EQ(half.find("mm.0.weight")->type, formats::GgmlType::kF16);
  EXPECT_EQ(half.find("mm.0.bias")->type, formats::GgmlType::kF32);
}

// A file of a model with a tower says how many layers take features of it, also when it is written from another file.
TEST_F(GgufFamilies, LayersThatTakeAPicturesFeaturesAreKept) {
  const std::string once = write(golden("qwen3vl"), QuantScheme::kGgufBf16).model;
  const auto source = WeightSource::open(once);
  EXPECT_EQ(source->config().deepstack_layers, 2);
  const std::string out = root_ + "/again";
  make_folders(out);
  const Written again =
      write_quantized(*source, small_tokenizer(260).get(), {true, QuantScheme::kGgufBf16, true}, "m", out);
  EXPECT_EQ(read_file(again.model), read_file(once));
  EXPECT_FALSE(fs::exists(out + "/mmproj.gguf"));
  expect_refused([&] { WeightSource::open(copy(once, {.without = "qwen3vl.rope.dimension_sections"})); },
                 Exit::kBadInput, "rope.dimension_sections\" is missing");
  expect_refused(
      [&] {
        WeightSource::open(copy(once, {.keys = {{"qwen3vl.rope.dimension_sections", GgufValue::i32s({4, 4, 4, 0})}}}));
      },
      Exit::kBadInput, "has 12 pairs, the heads 8");
}

TEST_F(GgufFamilies, WeightsAndConfigComeBack) {
  for (const std::string name : kModels) {
    const auto folder = WeightSource::open(golden(name)),
               file = WeightSource::open(write(golden(name), QuantScheme::kGgufBf16).model);
    const formats::ModelConfig &c = folder->config(), &back = file->config(),
                               again = formats::parse_model_config(formats::to_hf_config(back), "again");
    for (const auto* b : {&back, &again}) {
      EXPECT_EQ(b->layers, c.layers) << name;
      EXPECT_EQ(b->rotary(), c.rotary()) << name;
      EXPECT_EQ(b->rope_scaling, c.rope_scaling) << name;
      EXPECT_EQ(b->rope_theta, c.rope_theta) << name;
      EXPECT_EQ(b->num_experts, c.num_experts) << name;
      EXPECT_EQ(b->experts_per_token, c.experts_per_token) << name;
      EXPECT_EQ(b->moe_intermediate_size, c.moe_intermediate_size) << name;
      EXPECT_EQ(b->shared_expert_intermediate_size, c.shared_expert_intermediate_size) << name;
      EXPECT_EQ(b->norm_topk_prob, c.norm_topk_prob) << name;
      EXPECT_EQ(b->tie_embeddings, c.tie_embeddings) << name;
      EXPECT_EQ(b->attention_bias, c.attention_bias) << name;
      EXPECT_EQ(b->glu_limit, c.glu_limit) << name;
      EXPECT_EQ(b->glu_alpha, c.glu_alpha) << name;
      EXPECT_EQ(b->linear_conv_kernel, c.linear_conv_kernel) << name;
      EXPECT_EQ(b->linear_key_heads, c.linear_key_heads) << name;
      EXPECT_EQ(b->linear_value_heads, c.linear_value_heads) << name;
      EXPECT_EQ(b->linear_key_head_dim, c.linear_key_head_dim) << name;
      EXPECT_EQ(b->linear_value_head_dim, c.linear_value_head_dim) << name;
    }
    size_t seen = 0;
    for (const std::string& hf : folder->names()) {
      const size_t at = hf.find("language_model.");
      const std::string mine = at == std::string::npos ? hf : std::string(hf).erase(at, 15);
      if (hf.find("visual.") != std::string::npos || hf.starts_with("mtp.")) continue;
      ASSERT_TRUE(file->has(mine)) << name << " " << hf;
      ASSERT_EQ(file->shape(mine), folder->shape(hf)) << name << " " << hf;
      std::vector<float> want(static_cast<size_t>(count(folder->shape(hf)))), got(want.size());
      folder->read(hf, DType::kF32, want.data());
      file->read(mine, DType::kF32, got.data());
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(want[i], got[i], 1e-6f * (1 + std::abs(want[i]))) << name << " " << hf;
      ++seen;
    }
    EXPECT_EQ(file->names().size(), seen) << name;
  }
}

TEST_F(GgufFamilies, ComputesWhatTransformersComputes) {
  for (const std::string name : kModels) {
    const Json want = read_json_file(golden(name) + "/expected.json");
    const auto ids = want["ids"].get<std::vector<int32_t>>();
    infer::Model model(write(golden(name), QuantScheme::kGgufBf16).model, "", DType::kF32, 0, kernels::cpu_ops());
    const auto got = infer::Scorer(model).score({ids})[0];
    for (size_t t = 1; t < ids.size(); ++t)
      EXPECT_NEAR(got[t], want["logprobs"][t - 1].get<float>(), 1e-4) << name << " " << t;
  }
}

// Rows in a file's order are read one by one or in blocks: both ways are the folder's weights as this type holds them.
TEST_F(GgufFamilies, BlocksStandInTheirPlaces) {
  for (const std::string name : kModels) {
    const auto folder = WeightSource::open(golden(name)),
               file = WeightSource::open(write(golden(name), QuantScheme::kGgufQ8_0).model);
    for (const std::string& mine : file->names()) {
      std::string hf = mine;
      if (!folder->has(hf)) hf.replace(0, 6, "model.language_model.");
      const auto shape = file->shape(mine);
      std::vector<float> want(static_cast<size_t>(count(shape))), got(want.size());
      folder->read(hf, DType::kF32, want.data());
      file->read(mine, DType::kF32, got.data());
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(want[i], got[i], 4e-3f) << name << " " << mine;
      const auto type = file->block_type(mine);
      if (!type || *type != formats::GgmlType::kQ8_0) continue;
      std::vector<float> row(static_cast<size_t>(shape[1]));
      for (int64_t r = 0; r < shape[0]; ++r) {
        formats::ggml_dequantize(*type, file->block_row(mine, r).data(), 1, shape[1], row.data());
        ASSERT_EQ(std::memcmp(row.data(), got.data() + r * shape[1], row.size() * 4), 0)
            << name << " " << mine << " " << r;
      }
    }
  }
}

// A file with a block that guesses further tokens is read without it.
TEST_F(GgufFamilies, BlocksThatGuessAheadAreLeftOut) {
  const std::string path = write(golden("qwen35"), QuantScheme::kGgufBf16).model;
  const std::string ahead = copy(
      path, {.without = {},
             .keys = {{"qwen35.block_count", GgufValue::u32(3)}, {"qwen35.nextn_predict_layers", GgufValue::u32(1)}},
             .narrow = {},
             .positive = {},
             .tensors = {"blk.2.attn_norm.weight", "blk.2.nextn.enorm.weight"}});
  EXPECT_EQ(WeightSource::open(ahead)->config().num_layers, 2);
  EXPECT_EQ(WeightSource::open(ahead)->names(), WeightSource::open(path)->names());
}

TEST_F(GgufFamilies, DamageIsNamedInOneLine) {
  const std::string qwen = write(golden("qwen35"), QuantScheme::kGgufBf16).model,
                    moe = write(golden("qwen35moe"), QuantScheme::kGgufBf16).model,
                    oss = write(golden("gpt_oss"), QuantScheme::kGgufBf16).model;
  const auto open = [&](const std::string& path, const Change& change) {
    return [this, path, change] { WeightSource::open(copy(path, change)); };
  };
  for (const char* key :
       {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size"})
    expect_refused(open(qwen, {.without = std::string("qwen35.") + key}), Exit::kBadInput,
                   std::string(key) + "\" is missing");
  for (const char* key :
       {"expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length"})
    expect_refused(open(moe, {.without = std::string("qwen35moe.") + key}), Exit::kBadInput,
                   std::string(key) + "\" is missing");
  for (const char* key : {"expert_count", "expert_feed_forward_length", "attention.sliding_window"})
    expect_refused(open(oss, {.without = std::string("gpt-oss.") + key}), Exit::kBadInput,
                   std::string(key) + "\" is missing");
  for (const char* tensor :
       {"blk.0.attn_qkv.weight", "blk.0.ssm_a", "blk.0.ssm_dt.bias", "blk.0.ssm_conv1d.weight", "blk.0.ssm_out.weight"})
    expect_refused(open(qwen, {.narrow = tensor}), Exit::kBadInput, std::string(tensor) + "\" has shape");
  expect_refused(open(moe, {.narrow = "blk.0.ffn_up_exps.weight"}), Exit::kBadInput, "weights of 4 experts");
  expect_refused(open(oss, {.narrow = "blk.0.ffn_up_exps.bias"}), Exit::kBadInput, "weights of 3 experts");
  expect_refused(open(oss, {.narrow = "blk.1.attn_sinks.weight"}), Exit::kBadInput,
                 "attn_sinks.weight\" has shape [1]");
  expect_refused(open(oss, {.tensors = {"blk.0.ssm_a"}}), Exit::kMissing, "\"blk.0.ssm_a\" is not known");
  expect_refused(open(qwen, {.keys = {{"qwen35.ssm.inner_size", GgufValue::u32(50)}}}), Exit::kBadInput,
                 "do not divide");
  expect_refused(open(qwen, {.keys = {{"qwen35.nextn_predict_layers", GgufValue::u32(2)}}}), Exit::kBadInput,
                 "block_count");
  // Those that a reader finds out.
  const auto use = [&](const std::string& path, const Change& change) {
    return [this, path, change] { infer::Model(copy(path, change), "", DType::kF32, 0, kernels::cpu_ops()); };
  };
  expect_refused(use(oss, {.without = "blk.0.attn_sinks.weight"}), Exit::kBadInput,
                 "model.layers.0.self_attn.sinks is missing");
  expect_refused(use(qwen, {.without = "blk.0.ssm_a"}), Exit::kBadInput, "linear_attn.A_log is missing");
  expect_refused(use(qwen, {.positive = "blk.0.ssm_a"}), Exit::kBadInput, "a decay below 0 is wanted");
}

TEST_F(GgufFamilies, WhatAFileCannotStateIsRefused) {
  const auto written = [&](const char* name, const char* key, const OrderedJson& value) {
    return [this, name, key, value] { write(changed(name, key, value), QuantScheme::kGgufQ8_0); };
  };
  expect_refused(written("gpt_oss_plain", "swiglu_limit", 5.0), Exit::kMissing, "swiglu_limit 5");
  expect_refused(written("gpt_oss_plain", "layer_types", {"full_attention", "sliding_attention"}), Exit::kMissing,
                 "every second");
  OrderedJson rope = {
      {"rope_type", "yarn"}, {"factor", 32.0}, {"rope_theta", 150000.0}, {"original_max_position_embeddings", 4096}};
  expect_refused(written("gpt_oss_plain", "rope_parameters", rope), Exit::kMissing,
                 "rope_scaling");  // "truncate" is true
  expect_refused(written("qwen35", "linear_value_head_dim", 4), Exit::kMissing, "linear_value_head_dim 4");
  expect_refused(written("qwen35moe", "norm_topk_prob", false), Exit::kMissing, "norm_topk_prob");
  // A config that is not of these weights.
  expect_refused(written("qwen35", "linear_num_value_heads", 4), Exit::kBadInput, "the configuration says");
  // gpt-oss has folders of no other scheme.
  expect_refused([&] { write(golden("gpt_oss"), QuantScheme::kFp8Dynamic); }, Exit::kMissing, "but in GGUF");
}

}  // namespace
}  // namespace mxt::quantize

// Every layout, written and read back: the same weights that transformers, compressed-tensors and gguf-py read
// (tests/golden/quantize/read_back.json, made by tools/golden/quantize.py), and configs that say what was done.
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "folders.h"
#include "formats/gguf.h"
#include "quantize/made_model.h"
#include "quantize/quantize.h"
#include "quantize/small_tokenizer.h"

namespace mxt::quantize {
namespace {

using config::QuantScheme;

struct Case {
  std::string name;
  config::Quantize settings;
};
const Case kCases[] = {{"fp8_dynamic", {true, QuantScheme::kFp8Dynamic, true}},
                       {"fp8_block", {true, QuantScheme::kFp8Block, true}},
                       {"quark_fp8", {true, QuantScheme::kQuarkFp8, true}},
                       {"quark_fp8_tensor", {true, QuantScheme::kQuarkFp8, false}},
                       {"quark_mxfp4", {true, QuantScheme::kQuarkMxfp4, true}},
                       {"mxfp4", {true, QuantScheme::kMxfp4, true}},
                       {"gguf_f16", {true, QuantScheme::kGgufF16, true}},
                       {"gguf_bf16", {true, QuantScheme::kGgufBf16, true}},
                       {"gguf_q8_0", {true, QuantScheme::kGgufQ8_0, true}},
                       {"gguf_q4_0", {true, QuantScheme::kGgufQ4_0, true}},
                       {"gguf_q4_k_m", {true, QuantScheme::kGgufQ4KM, true}}};

class Layouts : public testing::Test {
 protected:
  Layouts() : root_(testing::TempDir() + "mxt_layouts_" + std::to_string(getpid())) {
    fs::remove_all(root_);
    even_model().write(root_ + "/even");
    ragged_model().write(root_ + "/ragged");
  }
  ~Layouts() override { fs::remove_all(root_); }

  Written write(const std::string& model, const Case& c, const std::string& out) {
    make_folders(root_ + "/" + out);
    return write_quantized(*formats::WeightSource::open(root_ + "/" + model), small_tokenizer(280).get(), c.settings,
                           "made", root_ + "/" + out);
  }
  OrderedJson quantization_config(const std::string& out) {
    return parse_ordered_json(read_file(root_ + "/" + out + "/config.json"), out)["quantization_config"];
  }
  std::string root_;
};

std::string digest(const void* p, size_t bytes) {
  return sha256_hex({static_cast<const char*>(p), bytes}).substr(0, 16);
}

TEST_F(Layouts, ReadBackAsOtherReadersDo) {
  const Json golden = read_json_file(std::string(kSourceDir) + "/tests/golden/quantize/read_back.json");
  size_t checked = 0;
  for (const std::string model : {"even", "ragged"})
    for (const Case& c : kCases) {
      const std::string key = model + " " + c.name;
      const Written w = write(model, c, "out");
      if (!golden.contains(key)) {
        EXPECT_EQ(key, "ragged fp8_block");
        continue;
      }
      if (is_gguf_scheme(c.settings.scheme)) {
        const auto g = formats::Gguf::open(w.model);
        EXPECT_EQ(g.tensors().size(), golden[key].size());
        for (const auto& t : g.tensors()) {
          std::vector<float> v(static_cast<size_t>(t.rows() * t.columns()));
          g.dequantize(t, v.data());
          ASSERT_TRUE(golden[key].contains(t.name)) << key << " " << t.name;
          EXPECT_EQ(formats::ggml_type_info(t.type)->name, golden[key][t.name][0].get<std::string>())
              << key << " " << t.name;
          EXPECT_EQ(digest(v.data(), v.size() * 4), golden[key][t.name][1].get<std::string>()) << key << " " << t.name;
          ++checked;
        }
        continue;
      }
      const auto s = formats::WeightSource::open(w.model);
      for (const auto& name : s->names()) {
        int64_t n = 1;
        for (int64_t d : s->shape(name)) n *= d;
        std::vector<uint16_t> v(static_cast<size_t>(n));
        s->read(name, DType::kBF16, v.data());
        ASSERT_TRUE(golden[key].contains(name)) << key << " " << name;
        EXPECT_EQ(digest(v.data(), v.size() * 2), golden[key][name].get<std::string>()) << key << " " << name;
        ++checked;
      }
      fs::remove_all(root_ + "/out");
    }
  EXPECT_GT(checked, 600u);
}

// What every layout loses on these weights, at most: relative to each matrix's norm.
TEST_F(Layouts, ErrorsAreWhatTheFormatsAllow) {
  for (const std::string model : {"even", "ragged"}) {
    const auto original = formats::WeightSource::open(root_ + "/" + model);
    for (const Case& c : kCases) {
      const Written w = write(model, c, "out");
      const auto s = formats::WeightSource::open(w.model);
      const bool four = c.name.find("4") != std::string::npos && c.name.find("bf16") == std::string::npos;
      for (const auto& name : original->names()) {
        int64_t n = 1;
        for (int64_t d : original->shape(name)) n *= d;
        std::vector<float> a(static_cast<size_t>(n)), b(a.size());
        original->read(name, DType::kF32, a.data());
        s->read(name, DType::kF32, b.data());
        double error = 0, norm = 0;
        for (size_t i = 0; i < a.size(); ++i) {
          error += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
          norm += static_cast<double>(a[i]) * a[i];
        }
        EXPECT_LE(std::sqrt(error / norm), four ? 0.16 : 0.035) << model << " " << c.name << " " << name;
      }
      fs::remove_all(root_ + "/out");
    }
  }
}

TEST_F(Layouts, TheSameBytesTwice) {
  for (const Case& c : kCases) {
    write("even", c, "a");
    write("even", c, "b");
    for (const auto& f : list_files(root_ + "/a"))
      EXPECT_EQ(hash_file(root_ + "/a/" + f).blake3, hash_file(root_ + "/b/" + f).blake3) << c.name << " " << f;
  }
}

TEST_F(Layouts, ConfigsNameTheirScheme) {
  write("ragged", kCases[0], "a");
  OrderedJson q = quantization_config("a");
  EXPECT_EQ(q["quant_method"], "compressed-tensors");
  EXPECT_EQ(q["format"], "float-quantized");
  EXPECT_EQ(q["ignore"], OrderedJson({"lm_head"}));
  EXPECT_EQ(q["config_groups"]["group_0"]["weights"]["strategy"], "channel");
  EXPECT_EQ(q["config_groups"]["group_0"]["input_activations"]["dynamic"], true);
  write("even", kCases[1], "b");
  q = quantization_config("b");
  EXPECT_EQ(q["quant_method"], "fp8");
  EXPECT_EQ(q["weight_block_size"], OrderedJson({128, 128}));
  write("even", kCases[2], "c");
  q = quantization_config("c");
  EXPECT_EQ(q["quant_method"], "quark");
  EXPECT_EQ(q["global_quant_config"]["weight"]["qscheme"], "per_channel");
  EXPECT_EQ(q["global_quant_config"]["input_tensors"]["is_dynamic"], true);
  EXPECT_EQ(q["export"]["pack_method"], "reorder");
}

TEST_F(Layouts, TheEngineRoundsInputsAsTheLayoutSays) {
  using formats::InputRounding;
  const InputRounding want[] = {InputRounding::kFp8Token, InputRounding::kFp8Group128, InputRounding::kFp8Token,
                                InputRounding::kFp8Token, InputRounding::kMxfp4,       InputRounding::kNone};
  for (size_t i = 0; i < std::size(want); ++i) {
    const auto s = formats::WeightSource::open(write("even", kCases[i], "out").model);
    EXPECT_EQ(s->input_rounding("model.layers.0.mlp.up_proj.weight"), want[i]) << kCases[i].name;
    EXPECT_EQ(s->input_rounding("model.embed_tokens.weight"), InputRounding::kNone);
    fs::remove_all(root_ + "/out");
  }
}

// One that becomes small, and one that stays plain.
TEST_F(Layouts, DamagedWeightsAreNamed) {
  const std::string file = root_ + "/even/model.safetensors", whole = read_file(file);
  const auto source = formats::Safetensors::open(file);
  const uint16_t nan = float_to_bf16(std::numeric_limits<float>::quiet_NaN());
  for (const char* name : {"model.layers.1.mlp.up_proj.weight", "model.norm.weight"}) {
    std::string bytes = whole;
    std::memcpy(bytes.data() + source.at(name).offset + 100, &nan, 2);
    write_file_atomic(file, bytes);
    for (const Case& c : kCases) {
      try {
        write("even", c, "out");
        ADD_FAILURE() << c.name;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Exit::kBadInput);
        EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << c.name << ": " << e.what();
      }
    }
  }
}

// compressed-tensors decompresses MXFP4 to bf16: a folder of another type could not be multiplied.
TEST_F(Layouts, Mxfp4IsAModelOfBf16WhateverItWasMadeOf) {
  even_model().write(root_ + "/even", true);
  for (const auto& [scheme, type] : {std::pair{"mxfp4", "bfloat16"}, {"quark_fp8", "float32"}}) {
    const Case* c = std::find_if(std::begin(kCases), std::end(kCases), [&](const Case& x) { return x.name == scheme; });
    write("even", *c, scheme);
    const OrderedJson made = parse_ordered_json(read_file(root_ + "/" + scheme + "/config.json"), scheme);
    EXPECT_EQ(made.value("torch_dtype", made.value("dtype", "")), type) << scheme;
  }
}

TEST_F(Layouts, WeightsPastAFormatsRangeAreRefused) {
  const std::string file = root_ + "/even/model.safetensors", whole = read_file(file);
  const auto source = formats::Safetensors::open(file);
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  for (const auto& [value, refused] :
       {std::pair{7e4f, std::vector<std::string>{"gguf_f16"}},
        {1e30f, {"gguf_f16", "gguf_q8_0", "gguf_q4_0", "gguf_q4_k_m"}},
        {3.3e38f, {"gguf_f16", "gguf_q8_0", "gguf_q4_0", "gguf_q4_k_m", "mxfp4", "quark_mxfp4"}}}) {
    const uint16_t large = float_to_bf16(value);
    std::string bytes = whole;
    std::memcpy(bytes.data() + source.at(name).offset + 100, &large, 2);
    write_file_atomic(file, bytes);
    for (const Case& c : kCases) {
      SCOPED_TRACE(fmt::format("{} {:g}", c.name, value));
      if (std::find(refused.begin(), refused.end(), c.name) == refused.end()) {
        write("even", c, "out");
        continue;
      }
      try {
        write("even", c, "out");
        ADD_FAILURE();
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
        EXPECT_NE(std::string(e.what()).find("as large as"), std::string::npos) << e.what();
      }
    }
  }
}

TEST_F(Layouts, RowsThatHoldNoWholeBlocksAreSaid) {
  MadeModel narrow;
  narrow.type = "llama", narrow.hidden = 96, narrow.ffn = 100, narrow.heads = 3, narrow.kv_heads = 1;
  narrow.head_dim = 32, narrow.layers = 2;
  narrow.write(root_ + "/narrow");
  const Case q8{"gguf_q8_0", {true, QuantScheme::kGgufQ8_0, true}};
  const Written w = write("narrow", q8, "some");
  EXPECT_EQ(w.kept,
            (std::vector<std::string>{"model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.down_proj.weight"}));
  narrow.hidden = 72, narrow.head_dim = 24;
  narrow.write(root_ + "/narrower");
  EXPECT_THROW(write("narrower", q8, "none"), Error);
}

// llama.cpp holds Llama 3's scaling as divisors; parameters that nobody published come back as those.
TEST_F(Layouts, EveryLlama3ScalingIsReadBack) {
  const std::string file = root_ + "/even/config.json";
  OrderedJson config = parse_ordered_json(read_file(file), file);
  config.erase("rope_parameters");
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 2.0},
                            {"high_freq_factor", 3.0},
                            {"original_max_position_embeddings", 64}};
  write_file_atomic(file, config.dump());
  write("even", {"gguf_q8_0", {true, QuantScheme::kGgufQ8_0, true}}, "scaled");
  const auto source = formats::WeightSource::open(root_ + "/scaled/model.gguf");
  const auto& r = source->config().rope_scaling;
  ASSERT_EQ(r.kind, formats::RopeScaling::Kind::kDivisors);
  EXPECT_EQ(r.divisors.front(), 1.0f);
  EXPECT_EQ(r.divisors.back(), 8.0f);
}

// As generation_config.json and lists have them, for a file that has three places.
TEST_F(Layouts, EveryTokenThatEndsAnAnswerIsReadBackFromAGguf) {
  const std::string file = root_ + "/even/config.json";
  OrderedJson config = parse_ordered_json(read_file(file), file);
  const Case gguf{"gguf_q8_0", {true, QuantScheme::kGgufQ8_0, true}};
  const auto ends = [&](const OrderedJson& of_config, const OrderedJson& of_generation) {
    config["eos_token_id"] = of_config;
    write_file_atomic(file, config.dump());
    write_file_atomic(root_ + "/even/generation_config.json", OrderedJson{{"eos_token_id", of_generation}}.dump());
    write("even", gguf, "ends");
    const auto source = formats::WeightSource::open(root_ + "/ends/model.gguf");
    std::set<int64_t> all(source->config().eos.begin(), source->config().eos.end());
    all.insert(source->config().end_of_turn.begin(), source->config().end_of_turn.end());
    // So has a folder that is written of the file.
    const OrderedJson written = formats::to_hf_config(source->config(), std::nullopt)["eos_token_id"];
    std::set<int64_t> of_folder;
    if (!written.is_null())
      for (const auto& id : written.is_array() ? written : OrderedJson::array({written}))
        of_folder.insert(id.get<int64_t>());
    EXPECT_EQ(of_folder, all);
    all.erase(small_tokenizer(280)->eos());
    return all;
  };
  EXPECT_EQ(ends(9, nullptr), std::set<int64_t>{});  // null unsays it
  EXPECT_EQ(ends(nullptr, {5, 7}), (std::set<int64_t>{5, 7}));
  EXPECT_EQ(ends({9, 5}, 5), (std::set<int64_t>{5, 9}));
  EXPECT_EQ(ends(nullptr, nullptr), std::set<int64_t>{});
}

// A reader of the file would compute another model.
TEST_F(Layouts, WhatAGgufCannotStateIsRefused) {
  const std::string file = root_ + "/even/config.json";
  const OrderedJson config = parse_ordered_json(read_file(file), file);
  const Case gguf{"gguf_q8_0", {true, QuantScheme::kGgufQ8_0, true}}, fp8 = kCases[0];
  const std::pair<const char*, OrderedJson> cannot[] = {
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 0.5}}},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", 16}}},
      {"hidden_act", "gelu"}};
  for (const auto& [key, value] : cannot) {
    OrderedJson other = config;
    other.erase("rope_parameters");
    other[key] = value;
    write_file_atomic(file, other.dump());
    try {
      write("even", gguf, "out");
      ADD_FAILURE() << key;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kMissing) << e.what();
      EXPECT_NE(std::string(e.what()).find("GGUF"), std::string::npos) << e.what();
    }
    write("even", fp8, "fp8");
  }
  OrderedJson usual = config;
  usual.erase("rope_parameters");
  usual["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  write_file_atomic(file, usual.dump());
  write("even", gguf, "usual");
  EXPECT_TRUE(fs::exists(root_ + "/usual/model.gguf"));
}

TEST_F(Layouts, WhatIsNotBuiltInSaysSo) {
  EXPECT_THROW(write("even", {"gptq", {true, QuantScheme::kGptqRocm, true}}, "out"), Error);
  make_folders(root_ + "/no_tokenizer");
  EXPECT_THROW(write_quantized(*formats::WeightSource::open(root_ + "/even"), nullptr, kCases[6].settings, "x",
                               root_ + "/no_tokenizer"),
               Error);
}

// The keys of a GGUF give back a tokenizer that cuts text as the one they were made of.
TEST(TokenizerKeys, ReadBackEncodeAlike) {
  std::string corpus;
  for (int i = 0; i < 300; ++i)
    corpus +=
        fmt::format("In {} it's {} o'clock, WE'LL pay ${}.{} for {}x{}!\n", 1900 + i, i % 24, i * 37, i, i, i * i);
  for (const std::string pattern : {"qwen", "smollm", "gpt2"}) {
    tokenizer::TrainOptions o;
    o.vocab_size = 700;
    o.pattern = pattern;
    o.nfc = pattern == "qwen";
    o.special_tokens = {"<|end|>"};
    o.eos_token = "<|end|>";
    bool more = true;
    const auto tok = tokenizer::Tokenizer::from_spec(tokenizer::train_byte_level_bpe(o, [&](std::string_view& t) {
                                                       t = corpus;
                                                       return std::exchange(more, false);
                                                     }).spec);
    const auto keys = tok->to_gguf();
    if (pattern == "qwen") {
      EXPECT_EQ(keys.pre, "qwen2");
    }
    if (pattern == "gpt2") {
      EXPECT_EQ(keys.pre, "gpt-2");
    }
    const auto back = tokenizer::Tokenizer::from_gguf(keys);
    for (const std::string text :
         {"In 1999 it's 12345 o'clock", "a  b\n\n c\t1 22 333", "WE'LL we'll caf\xC3\xA9 \xE4\xBD\xA0 <|end|>x", ""})
      EXPECT_EQ(back->encode(text), tok->encode(text)) << pattern << ": " << text;
    EXPECT_EQ(back->eos(), tok->eos());
  }
}

}  // namespace
}  // namespace mxt::quantize

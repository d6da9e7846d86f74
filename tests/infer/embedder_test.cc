// Embeddings against transformers (tools/golden/embeddings.py).
#include "infer/embedder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "folders.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace mxt::infer {
namespace {

const std::string kGolden = std::string(kSourceDir) + "/tests/golden/embeddings";

struct Rows {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<float>> embeddings;
  explicit Rows(const Json& j) {
    for (const Json& r : j) {
      ids.push_back(r["ids"].get<std::vector<int32_t>>());
      embeddings.push_back(r["embedding"].get<std::vector<float>>());
    }
  }
};

void expect_equal(Embedder& e, const Rows& rows, float tolerance) {
  const auto w = static_cast<size_t>(e.width());
  std::vector<float> out(rows.ids.size() * w), one(w);
  e.embed(rows.ids, out.data());
  for (size_t i = 0; i < rows.ids.size(); ++i) {
    ASSERT_EQ(rows.embeddings[i].size(), w);
    for (size_t k = 0; k < w; ++k)
      EXPECT_NEAR(out[i * w + k], rows.embeddings[i][k], tolerance) << "row " << i << " element " << k;
    e.embed(std::span(rows.ids).subspan(i, 1), one.data());
    EXPECT_EQ(std::vector<float>(out.begin() + static_cast<ptrdiff_t>(i * w),
                                 out.begin() + static_cast<ptrdiff_t>((i + 1) * w)),
              one)
        << "alone, row " << i;
  }
}

TEST(Embedder, BertEqualsTransformersOnEveryBackend) {
  const Rows rows(read_json_file(kGolden + "/bert_tiny/expected.json"));
  for (kernels::Ops* ops : {&kernels::reference_ops(), &kernels::cpu_ops()}) {
    Embedder e(kGolden + "/bert_tiny", DType::kF32, *ops);
    EXPECT_EQ(e.max_length(), 24);
    expect_equal(e, rows, 2e-5f);
  }
}

TEST(Embedder, DecodersGiveTheMeanOfTheirLastHiddenStates) {
  const Json all = read_json_file(kGolden + "/decoders.json");
  for (const auto& [name, rows] : all.items()) {
    Embedder e(std::string(kSourceDir) + "/tests/golden/models/" + name, DType::kF32, kernels::cpu_ops());
    expect_equal(e, Rows(rows), 2e-5f);
  }
}

TEST(Embedder, IdsEqualHuggingFacesWithTheTemplatesTokens) {
  const Json rows = read_json_file(kGolden + "/bert_tiny/expected.json");
  const std::string vocab_only =
      (std::filesystem::temp_directory_path() / ("mxt_vocab_" + std::to_string(::getpid()))).string();
  std::filesystem::create_directories(vocab_only);
  std::filesystem::copy_file(kGolden + "/bert_tiny/vocab.txt", vocab_only + "/vocab.txt",
                             std::filesystem::copy_options::overwrite_existing);
  for (const std::string& folder : {kGolden + "/bert_tiny", vocab_only}) {
    const auto tok = tokenizer::Tokenizer::from_folder(folder);
    EXPECT_EQ(tok->template_prefix(), (std::vector<int32_t>{2})) << folder;
    EXPECT_EQ(tok->template_suffix(), (std::vector<int32_t>{3})) << folder;
    for (const Json& r : rows) {
      std::vector<int32_t> ids = tok->template_prefix();
      tok->encode_append(r["text"].get<std::string>(), ids);
      ids.resize(std::min<size_t>(ids.size(), 23));
      ids.push_back(3);
      EXPECT_EQ(ids, r["ids"].get<std::vector<int32_t>>()) << folder << ": " << r["text"];
    }
  }
  std::filesystem::remove_all(vocab_only);
}

TEST(Embedder, WhatItDoesNotComputeIsRefused) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("mxt_embed_" + std::to_string(::getpid()))).string();
  std::filesystem::copy(kGolden + "/bert_tiny", folder, std::filesystem::copy_options::recursive);
  const auto refusal = [&] {
    try {
      Embedder e(folder, DType::kF32, kernels::cpu_ops());
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kMissing) << e.what();
      return std::string(e.what());
    }
    return std::string();
  };
  write_file_atomic(folder + "/1_Pooling/config.json",
                    R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  EXPECT_NE(refusal().find("pooling_mode_cls_token"), std::string::npos);
  write_file_atomic(folder + "/modules.json", R"([{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])");
  EXPECT_NE(refusal().find("Dense"), std::string::npos);
  std::filesystem::remove_all(folder);

  Embedder e(kGolden + "/bert_tiny", DType::kF32, kernels::cpu_ops());
  std::vector<float> out(24);
  const std::vector<std::vector<int32_t>> outside{{2, 5000, 3}};
  EXPECT_THROW(e.embed(outside, out.data()), Error);
}

// A decoder generates; an encoder does not.
TEST(Embedder, EncodersNeitherTrainNorGenerate) {
  const auto source = formats::WeightSource::open(kGolden + "/bert_tiny");
  models::BuildOptions o;
  o.positions = 16;
  for (const auto purpose : {models::Purpose::kTrain, models::Purpose::kScore, models::Purpose::kGenerate}) {
    o.purpose = purpose;
    EXPECT_THROW(models::build(source->config(), o), Error);
  }
}

}  // namespace
}  // namespace mxt::infer

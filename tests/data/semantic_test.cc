// Copies in meaning and unlikely rows, with models made up here: what models say is tested in infer.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "base/philox.h"
#include "base/threads.h"
#include "data/prepare.h"
#include "data/semantic/kmeans.h"
#include "data/semantic/semdedup.h"
#include "data/semantic/vectors.h"
#include "helpers.h"
#include "toy_coder.h"

namespace mxt::data {
namespace {

using testing::DataTest;
using testing::error_of;
using testing::ToyEncoder;
using Vector = std::vector<float>;

Vector random_unit(Philox& random, size_t width) {
  Vector v(width);
  double sum = 0;
  for (float& x : v) x = random.normal(), sum += static_cast<double>(x) * x;
  for (float& x : v) x /= static_cast<float>(std::sqrt(sum));
  return v;
}
double cosine(const Vector& a, const Vector& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i)
    ab += static_cast<double>(a[i]) * b[i], aa += static_cast<double>(a[i]) * a[i],
        bb += static_cast<double>(b[i]) * b[i];
  return ab / std::sqrt(aa * bb);
}
// A vector with that cosine to v.
Vector at_cosine(Philox& random, const Vector& v, double c) {
  Vector other = random_unit(random, v.size());
  const double along = cosine(v, other);
  double norm = 0;
  for (size_t i = 0; i < v.size(); ++i)
    other[i] -= static_cast<float>(along) * v[i], norm += static_cast<double>(other[i]) * other[i];
  for (size_t i = 0; i < v.size(); ++i)
    other[i] = static_cast<float>(c * v[i] + std::sqrt((1 - c * c) / norm) * other[i]);
  return other;
}
std::vector<int16_t> rounded(const Vector& v) {
  std::vector<int16_t> out(row_stride(v.size()));
  EXPECT_TRUE(round_unit(std::vector<double>(v.begin(), v.end()), out.data()));
  return out;
}

TEST(Vectors, ProductsAreExactForAnyNumberOfRowsAndWidth) {
  Philox random(1, 1);
  for (const size_t width : {1, 2, 7, 24, 384, 385}) {
    const size_t stride = row_stride(width), n = 37;
    std::vector<int16_t> rows;
    Panels panels(stride);
    for (size_t i = 0; i < n; ++i) {
      const auto r = rounded(random_unit(random, width));
      rows.insert(rows.end(), r.begin(), r.end());
      panels.add(rows.data() + i * stride);
    }
    ASSERT_EQ(panels.size(), n);
    std::vector<int32_t> out(n * Panels::kPanel);
    for (const size_t count : {size_t{1}, size_t{8}, size_t{11}, n})
      for (size_t p = 0; p < panels.panels(); ++p) {
        panels.products(rows.data(), count, p, out.data());
        for (size_t r = 0; r < count; ++r)
          for (size_t c = p * Panels::kPanel; c < std::min(n, (p + 1) * Panels::kPanel); ++c) {
            int64_t want = 0;
            for (size_t k = 0; k < stride; ++k) want += int64_t{rows[r * stride + k]} * rows[c * stride + k];
            ASSERT_EQ(out[r * Panels::kPanel + c % Panels::kPanel], want) << width << " " << count;
          }
      }
  }
}

TEST(Vectors, WhatIsNotFiniteIsRefused) {
  int16_t out[4];
  EXPECT_FALSE(round_unit(std::vector<double>{1, std::nan(""), 0}, out));
  EXPECT_FALSE(round_unit(std::vector<double>{1, std::numeric_limits<double>::infinity(), 0}, out));
  EXPECT_TRUE(round_unit(std::vector<double>{0, 0, 0}, out));
  EXPECT_EQ(out[0], 0);
}

TEST(KMeans, FindsSeparateClustersWithAnyNumberOfThreads) {
  Philox random(2, 1);
  const size_t width = 16, k = 5, each = 60;
  std::vector<Vector> centres;
  for (size_t c = 0; c < k; ++c) {
    centres.emplace_back(width, 0.0f);
    centres.back()[c] = 1;
  }
  std::vector<int16_t> rows;
  for (size_t i = 0; i < k * each; ++i) {
    const auto r = rounded(at_cosine(random, centres[i % k], 0.95));
    rows.insert(rows.end(), r.begin(), r.end());
  }
  std::vector<std::vector<uint32_t>> seen;
  const int before = num_threads();
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    std::vector<KMeans::Nearest> nearest(k * each);
    const KMeans means(rows, width, k, 20);
    means.assign(rows, nearest);
    seen.emplace_back();
    for (const auto& n : nearest) seen.back().push_back(n.cluster);
  }
  set_num_threads(before);
  EXPECT_EQ(seen[0], seen[1]);
  for (size_t i = k; i < k * each; ++i) EXPECT_EQ(seen[0][i], seen[0][i % k]);
  EXPECT_EQ(std::set<uint32_t>(seen[0].begin(), seen[0].end()).size(), k);
}

TEST(KMeans, EqualRowsLeaveNoClusterWithoutACentroid) {
  std::vector<int16_t> rows;
  for (int i = 0; i < 40; ++i) {
    const auto r = rounded(i < 38 ? Vector{1, 0, 0, 0} : i == 38 ? Vector{0, 1, 0, 0} : Vector{0, 0, 1, 0});
    rows.insert(rows.end(), r.begin(), r.end());
  }
  std::vector<KMeans::Nearest> nearest(40);
  KMeans(rows, 4, 3, 10).assign(rows, nearest);  // the first three are equal
  EXPECT_NE(nearest[38].cluster, nearest[0].cluster);
  EXPECT_NE(nearest[39].cluster, nearest[0].cluster);
  EXPECT_NE(nearest[39].cluster, nearest[38].cluster);
}

class SemDedupTest : public DataTest {
 protected:
  config::SemDedup settings_;
  SemanticCopies find(const std::vector<Vector>& rows, const std::vector<uint64_t>& keys) {
    SemDedup d(settings_, rows[0].size(), folder_);
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(d.add(keys[i], rows[i]));
    return d.find();
  }
};

TEST_F(SemDedupTest, PlantedCopiesGoAndOthersStay) {
  Philox random(3, 1);
  std::vector<Vector> rows;
  std::vector<uint64_t> keys;
  const size_t width = 48, n = 1500;
  for (size_t i = 0; i < n; ++i) {
    const bool copy = i % 5 == 4;
    rows.push_back(copy ? at_cosine(random, rows[i - 1], i % 10 == 4 ? 0.99 : 0.9) : random_unit(random, width));
    keys.push_back(random.next_u64());
  }
  const SemanticCopies c = find(rows, keys);
  EXPECT_EQ(c.clusters, 39);  // √1500
  size_t near = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (c.stays[i] == i) continue;
    EXPECT_EQ(c.stays[c.stays[i]], c.stays[i]);  // what stands for a row stays itself
    EXPECT_NEAR(c.similarity[i], cosine(rows[i], rows[c.stays[i]]), 1e-4);
    EXPECT_GE(c.similarity[i], 0.95f);
    ++near;
  }
  EXPECT_EQ(near, static_cast<size_t>(c.groups));  // all groups are pairs
  EXPECT_EQ(c.largest_group, 2);
  EXPECT_GE(near, n / 10 * 85 / 100);  // some pairs lie across a border
  EXPECT_LE(near, n / 10);
}

TEST_F(SemDedupTest, TheResultDependsOnNeitherOrderNorThreads) {
  Philox random(4, 1);
  std::vector<Vector> rows;
  std::vector<uint64_t> keys;
  for (size_t i = 0; i < 600; ++i) {
    rows.push_back(i % 3 ? at_cosine(random, rows[i - 1], 0.97) : random_unit(random, 20));
    keys.push_back(random.next_u64());
  }
  const auto by_key = [&](const SemanticCopies& c, const std::vector<uint64_t>& k) {
    std::map<uint64_t, uint64_t> out;
    for (size_t i = 0; i < k.size(); ++i) out[k[i]] = k[c.stays[i]];
    return out;
  };
  const auto want = by_key(find(rows, keys), keys);
  const int before = num_threads();
  set_num_threads(3);
  EXPECT_EQ(by_key(find(rows, keys), keys), want);
  set_num_threads(before);
  std::vector<size_t> order(rows.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  random.shuffle(order);
  std::vector<Vector> mixed;
  std::vector<uint64_t> mixed_keys;
  for (size_t i : order) mixed.push_back(rows[i]), mixed_keys.push_back(keys[i]);
  EXPECT_EQ(by_key(find(mixed, mixed_keys), mixed_keys), want);
}

TEST_F(SemDedupTest, KeepSaysWhichCopyStays) {
  // One cluster: its centroid is near the first axis, and row 1 is farther from it than row 0.
  const std::vector<Vector> rows{{1, 0.05f, 0}, {1, 0.3f, 0}, {1, -0.4f, 0.3f}};
  settings_.clusters = 1;
  settings_.threshold = 0.96;
  ASSERT_GT(cosine(rows[0], rows[1]), 0.96);
  ASSERT_LT(cosine(rows[0], rows[2]), 0.96);
  settings_.keep = config::Keep::kFarthest;
  EXPECT_EQ(find(rows, {1, 2, 3}).stays, (std::vector<uint32_t>{1, 1, 2}));
  settings_.keep = config::Keep::kNearest;
  EXPECT_EQ(find(rows, {1, 2, 3}).stays, (std::vector<uint32_t>{0, 0, 2}));
}

TEST_F(SemDedupTest, EqualRowsAreOneAndARowAloneStays) {
  settings_.threshold = 1;
  Philox random(5, 1);
  const Vector v = random_unit(random, 33);
  const std::vector<Vector> rows(200, v);
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 200; ++i) keys.push_back(1000 - i);
  const SemanticCopies c = find(rows, keys);
  EXPECT_EQ(c.groups, 1);
  EXPECT_EQ(c.stays[0], 199u);  // the smallest key
  EXPECT_EQ(find({v}, {7}).stays, (std::vector<uint32_t>{0}));
}

// The model's name and the text say all: "topic 12 3" has topic 12's vector, moved a little for what follows.
class ToyEmbedder : public Embedder {
 public:
  std::string digest() const override { return "toy"; }
  int64_t width() override { return 32; }
  void embed(std::span<const std::string> texts, float* out) override {
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string& t = texts[i];
      const uint64_t topic = std::stoull(t.substr(t.find(' ') + 1));
      Philox of_topic(9, topic), of_text(10, std::hash<std::string>()(t));
      const Vector v = at_cosine(of_text, random_unit(of_topic, 32), 0.995);
      std::copy(v.begin(), v.end(), out + i * 32);
    }
    seen += texts.size();
  }
  size_t seen = 0;
};

class ToyScorer : public Scorer {
 public:
  std::string digest() const override { return "lengths"; }
  void perplexity(std::span<const std::string> texts, double* out) override {
    for (size_t i = 0; i < texts.size(); ++i)
      out[i] = texts[i].size() < 2 ? std::nan("") : static_cast<double>(texts[i].size());
    seen += texts.size();
  }
  size_t seen = 0;
};

class SemanticPrepareTest : public DataTest {
 protected:
  SemanticPrepareTest() {
    access_.embedder = [this](const std::string& model) {
      asked_.push_back(model);
      return embedder_;
    };
    access_.scorer = [this](const std::string& model) {
      asked_.push_back(model);
      return scorer_;
    };
  }
  Prepared run(const std::string& rows, const std::string& data, const std::string& out = "out",
               const std::string& model = "name: m") {
    const auto r =
        config::parse_recipe("meta: {project: p, run_name: r}\nmodel: {" + model + "}\ndata: {source: local, path: '" +
                                 write(out + ".jsonl", rows) + "', seq_len: 64, " + data + "}\n",
                             "t.yaml");
    return prepare(r, coder_, path(out), access_);
  }
  static std::string row(const std::string& text) { return "{\"text\":\"" + text + "\"}\n"; }
  ToyEncoder coder_;
  Access access_;
  std::shared_ptr<ToyEmbedder> embedder_ = std::make_shared<ToyEmbedder>();
  std::shared_ptr<ToyScorer> scorer_ = std::make_shared<ToyScorer>();
  std::vector<std::string> asked_;
};

TEST_F(SemanticPrepareTest, CopiesInMeaningAreCountedShownAndAccountedFor) {
  std::string rows;
  for (int topic = 0; topic < 40; ++topic) rows += row("topic " + std::to_string(topic) + " first");
  for (int topic = 0; topic < 40; topic += 4) rows += row("topic " + std::to_string(topic) + " again");
  rows += row("topic 0 first") + row("x 1");  // an exact copy, and one that the filter takes
  const Prepared p = run(rows, "dedupe: {semdedup: {threshold: 0.9, clusters: 1}}, filter: {min_words: 3}");
  ASSERT_TRUE(p.curation && p.curation->semantic);
  const CurationReport& c = *p.curation;
  EXPECT_EQ(c.dropped.at("semantic_copy"), 10);
  EXPECT_EQ(c.dropped.at("exact_copy"), 1);
  EXPECT_EQ(c.dropped.at("min_words"), 1);
  EXPECT_EQ(p.rows_in, 52);
  EXPECT_EQ(p.train.documents, 40);
  EXPECT_EQ(embedder_->seen, 50u);  // what has gone before is not embedded
  EXPECT_EQ(c.semantic->rows, 50);
  EXPECT_EQ(c.semantic->clusters, 1);
  EXPECT_EQ(c.semantic->groups, 10);
  EXPECT_HAS(p.text(), "10 dropped: semantic_copy");
  int samples = 0;
  for (const auto& s : c.samples) {
    if (s.reason != "semantic_copy") continue;
    ++samples;
    EXPECT_EQ(s.text.substr(0, s.text.rfind(' ')), s.stays_text.substr(0, s.stays_text.rfind(' ')));
    EXPECT_GE(s.similarity, 0.9);
  }
  EXPECT_EQ(samples, 5);
  const std::string manifest = read_file(path("out/dataset.json"));
  EXPECT_TRUE(run(rows, "dedupe: {semdedup: {threshold: 0.9, clusters: 1}}, filter: {min_words: 3}").kept);
  const Prepared again = run(rows, "dedupe: {semdedup: {threshold: 0.9, clusters: 1}}, filter: {min_words: 3}");
  EXPECT_EQ(again.curation->semantic->groups, 10);  // as the manifest says
  EXPECT_EQ(read_file(path("out/dataset.json")), manifest);
}

TEST_F(SemanticPrepareTest, UnlikelyTextGoesLastAndTextTooShortToScoreStays) {
  const std::string rows = row("ab") + row("a") + row("abcdefghij") + row("ab ab ab ab ab");
  const Prepared p = run(rows, "filter: {max_perplexity: 9, max_words: 4}");
  EXPECT_EQ(p.curation->dropped.at("max_words"), 1);
  EXPECT_EQ(p.curation->dropped.at("max_perplexity"), 1);
  EXPECT_EQ(p.train.documents, 2);
  EXPECT_EQ(scorer_->seen, 3u);
  EXPECT_EQ(asked_, (std::vector<std::string>{"m"}));  // the base model, where no other is named
  asked_.clear();
  run(rows, "filter: {max_perplexity: 9, perplexity_model: other}", "out2");
  EXPECT_EQ(asked_, (std::vector<std::string>{"other"}));
}

TEST_F(SemanticPrepareTest, InterruptedAndStartedAgainItIsTheSame) {
  std::string rows;
  for (int i = 0; i < 300; ++i) rows += row("topic " + std::to_string(i % 200) + " v" + std::to_string(i / 200));
  const std::string data = "dedupe: {semdedup: {threshold: 0.9}}";
  run(rows, data, "whole");
  std::atomic<bool> stop = true;
  access_.cancel = &stop;
  EXPECT_HAS(error_of([&] { run(rows, data, "out"); }, Exit::kInterrupted), "interrupted");
  access_.cancel = nullptr;
  const int before = num_threads();
  set_num_threads(3);
  run(rows, data, "out");
  set_num_threads(before);
  for (const char* file : {"dataset.json", "train-00001-of-00001.safetensors"}) {
    std::string a = read_file(path("whole/") + file), b = read_file(path("out/") + file);
    for (std::string* s : {&a, &b})  // where the file stands
      for (const char* name : {"/whole.jsonl", "/out.jsonl"})
        for (size_t at; (at = s->find(name)) != std::string::npos;) s->replace(at, std::string(name).size(), "/x");
    EXPECT_EQ(a, b) << file;
  }
  EXPECT_EQ(list_files(path("out")).size(), 2u);
}

// Copies in meaning go across the sources of a mixture, and jobs with a merge make the single run's folder.
TEST_F(SemanticPrepareTest, MixturesAndJobsMakeTheSingleRunsFolder) {
  std::string first, second;
  for (int i = 0; i < 120; ++i) first += row("topic " + std::to_string(i) + " first " + std::to_string(i));
  for (int i = 100; i < 160; ++i)
    second += "{\"body\":\"topic " + std::to_string(i) + " second " + std::to_string(i) + "\"}\n";
  write("a.jsonl", first);
  write("b.jsonl", second);
  const auto recipe = config::parse_recipe(
      "meta: {project: p, run_name: r}\nmodel: {name: m}\ndata: {source: mixture, seq_len: 64, eval_fraction: 0.1,\n"
      "  mixture: [{path: '" +
          path("a.jsonl") + "', weight: 2}, {path: '" + path("b.jsonl") +
          "', columns: {body: text}, weight: 1}],\n"
          "  dedupe: {semdedup: {threshold: 0.9, clusters: 1}}, filter: {min_words: 3}}\n",
      "t.yaml");
  const Prepared single = prepare(recipe, coder_, path("single"), access_);
  EXPECT_EQ(single.curation->dropped.at("semantic_copy"), 20);
  EXPECT_EQ(single.curation->semantic->groups, 20);
  ASSERT_EQ(single.mixture.size(), 2u);
  EXPECT_EQ(single.mixture[0].dropped + single.mixture[1].dropped, 20);
  for (int jobs : {1, 3}) {
    const std::string out = path("jobs" + std::to_string(jobs));
    for (int j = jobs; j >= 1; --j) {
      embedder_->seen = 0;
      prepare_job(recipe, coder_, out, {j, jobs}, access_);
      EXPECT_EQ(embedder_->seen, 0u);  // which rows are embedded is known only when all jobs are done
    }
    merge_jobs(recipe, coder_, out, access_);
    EXPECT_EQ(embedder_->seen, 180u);
    for (const std::string& file : list_files(path("single")))
      EXPECT_EQ(read_file(out + "/" + file), read_file(path("single/") + file)) << file;
    EXPECT_EQ(list_files(out), list_files(path("single")));
  }
}

TEST_F(SemanticPrepareTest, WhatCannotBeIsRefusedWithTheWayOut) {
  const std::string rows = row("topic 1 a");
  access_.embedder = nullptr;
  EXPECT_HAS(error_of([&] { run(rows, "dedupe: {semdedup: {threshold: 0.9}}"); }, Exit::kMissing), "semdedup");
  access_.scorer = nullptr;
  EXPECT_HAS(error_of([&] { run(rows, "filter: {max_perplexity: 9}"); }, Exit::kMissing), "max_perplexity");
  EXPECT_HAS(error_of([&] {
               run(rows, "filter: {max_perplexity: 9}", "out", "name: m, init: random, config: {model_type: gpt2}");
             }),
             "perplexity_model");
}

TEST_F(SemanticPrepareTest, AnEmbeddingThatIsNotFiniteIsAnError) {
  struct Broken : ToyEmbedder {
    void embed(std::span<const std::string> texts, float* out) override {
      std::fill(out, out + texts.size() * 32, std::nanf(""));
    }
  };
  embedder_ = std::make_shared<Broken>();
  EXPECT_HAS(error_of([&] { run(row("topic 1 a"), "dedupe: {semdedup: {threshold: 0.9}}"); }), "not finite");
}

}  // namespace
}  // namespace mxt::data

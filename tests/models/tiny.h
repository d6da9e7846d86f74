// A small golden model as a running program: what the parity and engine tests share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "checkpoint/weights.h"
#include "folders.h"
#include "formats/safetensors.h"
#include "formats/weight_source.h"
#include "kernels/api.h"
#include "kernels/plan.h"
#include "models/model.h"
#include "runtime/program.h"

namespace mxt::tiny {

inline std::string golden(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/models/" + name; }

struct Packed {
  std::vector<int32_t> ids, positions, targets, cu{0};
  int64_t count = 0;  // targets
  void add(const std::vector<int32_t>& doc, const std::vector<int32_t>& labels) {
    for (size_t t = 0; t < doc.size(); ++t) {
      ids.push_back(doc[t]);
      positions.push_back(static_cast<int32_t>(t));
      targets.push_back(t + 1 < doc.size() ? labels[t + 1] : -100);
      count += targets.back() != -100;
    }
    cu.push_back(static_cast<int32_t>(ids.size()));
  }
  runtime::Batch batch() const {
    runtime::Batch b;
    b.tokens = static_cast<int64_t>(ids.size());
    b.ids = ids.data();
    b.positions = positions.data();
    b.cu_seqlens = cu.data();
    b.documents = static_cast<int64_t>(cu.size()) - 1;
    b.targets = targets.data();
    b.loss_scale = 1.0f / static_cast<float>(count);
    b.row_offsets = cu.data();
    b.rows = b.documents;
    b.balance_scale = 1.0f / static_cast<float>(b.documents);
    return b;
  }
};

inline Packed read_rows(const std::string& folder, size_t from, size_t n) {
  Packed p;
  const std::string text = read_file(folder + "/rows.jsonl");
  size_t at = 0, row = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    const Json j = Json::parse(text.substr(at, end - at));
    if (row >= from && row < from + n)
      p.add(j["input_ids"].get<std::vector<int32_t>>(), j["labels"].get<std::vector<int32_t>>());
    ++row;
    at = end + 1;
  }
  return p;
}

class Model {
 public:
  Model(const std::string& folder, const models::BuildOptions& options, kernels::Ops& ops)
      : source(formats::WeightSource::open(folder)),
        graph(models::build(source->config(), options)),
        params(graph, options.purpose == models::Purpose::kTrain),
        program(graph, plan, ops, {256, 0, false}) {
    checkpoint::load_base(graph, params, *source);
    program.allocate(params);
  }
  double loss(const Packed& p) {
    program.run(p.batch());
    double sum = 0;
    for (size_t t = 0; t < p.ids.size(); ++t) sum += static_cast<double>(program.nll()[t]);
    return sum / static_cast<double>(p.count);
  }
  std::unique_ptr<formats::WeightSource> source;
  graph::Graph graph;
  kernels::KernelPlan plan;
  runtime::ParamStore params;
  runtime::Program program;
};

// ‖a − b‖ / ‖b‖
inline double relative(const float* a, const float* b, size_t n) {
  double d = 0, s = 0;
  for (size_t i = 0; i < n; ++i) {
    d += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    s += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(d / std::max(s, 1e-30));
}

// Logits of every row of `batch` against those of the folder's expected.safetensors, to 1e-5 of the largest.
inline void expect_logits(Model& m, runtime::Batch batch, const std::string& folder) {
  std::vector<int32_t> all(static_cast<size_t>(batch.tokens));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  std::vector<float> logits(all.size() * static_cast<size_t>(m.graph.vocab));
  batch.logit_rows = all.data();
  batch.logit_count = static_cast<int64_t>(all.size());
  batch.logits = logits.data();
  m.program.run(batch);
  const auto expected = formats::Safetensors::open(folder + "/expected.safetensors");
  const auto& t = expected.at("logits");
  ASSERT_EQ(t.bytes, logits.size() * 4);
  std::vector<float> want(logits.size());
  std::memcpy(want.data(), expected.bytes(t).data(), t.bytes);
  float largest = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    worst = std::max(worst, std::abs(want[i] - logits[i]));
  }
  EXPECT_LT(worst / largest, 1e-5);
}

}  // namespace mxt::tiny

#include "eval/core/bits_per_byte.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "infer/scorer.h"

namespace mxt::eval {

double BitsPerByte::value() const {
  return bytes == 0 ? std::numeric_limits<double>::infinity() : nats / (std::log(2.0) * static_cast<double>(bytes));
}

BitsPerByte bits_per_byte(infer::Model& model, const tokenizer::Tokenizer& tokenizer, const data::Dataset& data,
                          int64_t rows, StopFlag stop) {
  constexpr size_t kTogether = 16;  // rows that are held as tokens at a time
  const int64_t count = rows > 0 ? std::min(rows, data.rows()) : data.rows();
  std::vector<int64_t> bytes(static_cast<size_t>(tokenizer.vocab_size()));
  for (size_t id = 0; id < bytes.size(); ++id)
    if (!tokenizer.is_special(static_cast<int32_t>(id)))
      bytes[id] = static_cast<int64_t>(tokenizer.token_bytes(static_cast<int32_t>(id)).size());
  const auto bytes_of = [&](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < bytes.size() ? bytes[static_cast<size_t>(id)] : 0;
  };
  infer::Scorer scorer(model, 2048);
  BitsPerByte out;
  std::vector<std::vector<int32_t>> inputs, targets;
  const auto flush = [&] {
    const auto scored = scorer.score_targets(inputs, targets, stop);
    for (size_t r = 0; r < scored.size(); ++r)
      for (size_t t = 0; t < scored[r].size(); ++t) {
        const int64_t n = bytes_of(targets[r][t]);
        if (n == 0) continue;
        out.nats -= scored[r][t];
        out.bytes += n;
        ++out.targets;
      }
    inputs.clear(), targets.clear();
  };
  for (int64_t i = 0; i < count; ++i) {
    const data::Row row = data.row(i);
    for (size_t d = 0; d + 1 < row.cu_seqlens.size(); ++d) {
      const size_t b = static_cast<size_t>(row.cu_seqlens[d]), n = static_cast<size_t>(row.cu_seqlens[d + 1]) - b;
      if (n < 2) continue;
      const auto ids = row.ids.subspan(b, n - 1);
      const auto next = row.labels.subspan(b + 1, n - 1);
      inputs.emplace_back(ids.begin(), ids.end());
      targets.emplace_back(next.begin(), next.end());
    }
    ++out.rows;
    if (out.rows % static_cast<int64_t>(kTogether) == 0 && !inputs.empty()) flush();
  }
  if (!inputs.empty()) flush();
  return out;
}

}  // namespace mxt::eval

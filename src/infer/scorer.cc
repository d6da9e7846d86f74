#include "infer/scorer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace mxt::infer {
namespace {

// The pictures of a pass's rows as a batch has them.
struct PassPictures {
  int64_t merge = 0;
  std::vector<int32_t> time, down, across, axes, grids, rows;
  std::vector<float> pixels;
  runtime::PictureBatch batch;

  void clear() {
    for (auto* list : {&time, &down, &across, &axes, &grids, &rows}) list->clear();
    pixels.clear();
  }
  void add(int64_t tokens, const Shown* shown) {
    const auto first = static_cast<int64_t>(time.size());
    for (auto* axis : {&time, &down, &across}) axis->resize(static_cast<size_t>(first + tokens));
    static const Shown kNone;
    const Shown& s = shown ? *shown : kNone;
    runtime::positions_of(tokens, s.pictures, merge, time.data() + first, down.data() + first, across.data() + first);
    for (const runtime::PlacedPicture& p : s.pictures) {
      for (int64_t i = 0; i < p.tokens(merge); ++i) rows.push_back(static_cast<int32_t>(first + p.first + i));
      grids.insert(grids.end(), {p.rows, p.columns});
    }
    pixels.insert(pixels.end(), s.pixels.begin(), s.pixels.end());
  }
  void put(runtime::Batch& b) {
    for (const auto* axis : {&time, &down, &across}) axes.insert(axes.end(), axis->begin(), axis->end());
    b.axes = axes.data();
    batch = {static_cast<int64_t>(grids.size()) / 2,
             static_cast<int64_t>(rows.size()),
             grids.data(),
             pixels.data(),
             nullptr,
             rows.data()};
    if (batch.count > 0) b.pictures = &batch;
  }
};

}  // namespace

Scorer::Scorer(Model& model, int64_t tokens_per_pass)
    : model_(model), max_tokens_(std::max(tokens_per_pass, model.positions())), program_(model.scorer(max_tokens_)) {}

std::vector<std::vector<float>> Scorer::score(const std::vector<std::vector<int32_t>>& rows, StopFlag stop,
                                              const std::vector<Shown>& shown) {
  std::vector<std::vector<int32_t>> next(rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    if (!rows[i].empty()) {
      next[i].assign(rows[i].begin() + 1, rows[i].end());
      next[i].push_back(-100);
    }
  auto out = score_targets(rows, next, stop, shown);
  for (auto& r : out)
    if (!r.empty()) {
      r.pop_back();
      r.insert(r.begin(), std::numeric_limits<float>::quiet_NaN());
    }
  return out;
}

std::vector<std::vector<float>> Scorer::score_targets(const std::vector<std::vector<int32_t>>& inputs,
                                                      const std::vector<std::vector<int32_t>>& wanted, StopFlag stop,
                                                      const std::vector<Shown>& shown) {
  MXT_ASSERT(shown.empty() || shown.size() == inputs.size());
  PassPictures pictures;
  pictures.merge = model_.graph().pictures.merge;
  if (pictures.merge == 0 &&
      std::any_of(shown.begin(), shown.end(), [](const Shown& x) { return !x.pictures.empty(); }))
    fail_missing("pictures: the model ({}) is without its tower here, which no device computes: run it on the CPU",
                 model_.config().model_type);
  std::vector<std::vector<float>> out(inputs.size());
  std::vector<int32_t> ids, positions, targets, cu;
  for (size_t first = 0; first < inputs.size();) {
    check_stop(stop);
    ids.clear();
    positions.clear();
    targets.clear();
    cu.assign(1, 0);
    pictures.clear();
    size_t last = first;
    for (; last < inputs.size(); ++last) {
      const auto& r = inputs[last];
      MXT_ASSERT(wanted[last].size() == r.size());
      if (static_cast<int64_t>(r.size()) > model_.positions())
        fail_input("row {}: {} tokens, the model's context is {}", last + 1, r.size(), model_.positions());
      if (!ids.empty() && static_cast<int64_t>(ids.size() + r.size()) > max_tokens_) break;
      for (size_t t = 0; t < r.size(); ++t) {
        const int32_t target = wanted[last][t];
        if (r[t] < 0 || r[t] >= model_.vocab() || target < -100 || target >= model_.vocab())
          fail_input("row {}: token id {} is outside the model's vocabulary of {}", last + 1,
                     r[t] < 0 || r[t] >= model_.vocab() ? r[t] : target, model_.vocab());
        ids.push_back(r[t]);
        positions.push_back(static_cast<int32_t>(t));
        targets.push_back(target);
      }
      if (!r.empty()) cu.push_back(static_cast<int32_t>(ids.size()));
      if (pictures.merge > 0) pictures.add(static_cast<int64_t>(r.size()), shown.empty() ? nullptr : &shown[last]);
    }
    if (!ids.empty()) {
      runtime::Batch b;
      b.tokens = static_cast<int64_t>(ids.size());
      b.ids = ids.data();
      b.positions = positions.data();
      b.targets = targets.data();
      b.cu_seqlens = cu.data();
      b.documents = static_cast<int64_t>(cu.size()) - 1;
      if (pictures.merge > 0) pictures.put(b);
      program_->run(b);
    }
    const float* nll = ids.empty() ? nullptr : program_->nll();
    size_t at = 0;
    for (size_t i = first; i < last; ++i) {
      out[i].resize(inputs[i].size());
      for (size_t t = 0; t < inputs[i].size(); ++t)
        out[i][t] = wanted[i][t] < 0 ? std::numeric_limits<float>::quiet_NaN() : -nll[at + t];
      at += inputs[i].size();
    }
    first = last;
  }
  return out;
}

double Scorer::perplexity(const std::vector<int32_t>& ids, int64_t window, StopFlag stop) {
  window = std::min(window, model_.positions());
  const int64_t n = static_cast<int64_t>(ids.size()), half = std::max<int64_t>(window / 2, 1);
  double nll = 0;
  int64_t count = 0, scored = 1;  // the first token has nothing before it
  for (int64_t begin = 0; scored < n; begin += half) {
    check_stop(stop);
    const int64_t end = std::min(begin + window, n);
    const std::vector<int32_t> piece(ids.begin() + begin, ids.begin() + end);
    const auto lp = score({piece})[0];
    for (int64_t t = scored; t < end; ++t) {
      nll -= static_cast<double>(lp[static_cast<size_t>(t - begin)]);
      ++count;
    }
    scored = std::max(scored, end);
  }
  return count > 0 ? std::exp(nll / static_cast<double>(count)) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace mxt::infer

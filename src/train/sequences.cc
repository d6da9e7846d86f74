#include "train/sequences.h"

#include <algorithm>

#include "base/error.h"
#include "formats/classifier.h"

namespace mxt::train {

SequencePass::SequencePass(const Method& method, const graph::Graph& g, int64_t seq_len, bool share_prompts)
    : method_(method), seq_len_(static_cast<size_t>(seq_len)), share_prompts_(share_prompts) {
  MXT_ASSERT(!g.roots.empty());
  root_ = g.roots[0].value;
  seed_ = g.roots[0].seed;
  if (method.wants_entropy())
    for (const graph::Op& op : g.ops)
      if (std::holds_alternative<graph::TokenLogProbOp>(op.attrs)) entropy_ = op.out[1];
}

void SequencePass::clear() {
  batch_.clear();
  places_.clear();
}

void SequencePass::add_row(int64_t row, const data::Row& r) {
  for (size_t d = 0; d + 1 < r.cu_seqlens.size(); ++d) {
    const auto b = static_cast<size_t>(r.cu_seqlens[d]), n = static_cast<size_t>(r.cu_seqlens[d + 1]) - b;
    add(row, static_cast<int>(d), r.marks.empty() ? 0 : r.marks[d], r.ids.subspan(b, n), r.labels.subspan(b, n));
  }
}

void SequencePass::add(int64_t row, int part, int32_t mark, std::span<const int32_t> ids,
                       std::span<const int32_t> labels) {
  ids = ids.first(std::min(ids.size(), seq_len_));
  labels = labels.first(ids.size());
  const int64_t first = batch_.tokens();
  const bool whole = method_.trains_prompt(part);
  MXT_ASSERT(!share_prompts_ || (!whole && method_.head() != models::Head::kScore));
  if (share_prompts_)
    batch_.add_answer(ids, labels);
  else
    batch_.add_document(ids, whole ? ids : labels);
  Place p;
  p.sequence.row = row;
  p.sequence.part = part;
  p.sequence.mark = mark;
  if (method_.head() == models::Head::kScore) {
    p.at.push_back(first + static_cast<int64_t>(formats::score_position(ids, method_.pad())));
  } else {
    for (int64_t t = first; t + 1 < batch_.tokens(); ++t)
      if (batch_.target_ids()[static_cast<size_t>(t)] != data::kNoTarget) p.at.push_back(t);
    if (whole)
      for (size_t t = 1; t < labels.size() && labels[t] == data::kNoTarget; ++t) ++p.sequence.answer;
  }
  places_.push_back(std::move(p));
}

std::span<Sequence> SequencePass::read(const runtime::Program& program,
                                       const std::function<std::span<const float>(size_t)>& reference) {
  tokens_.resize(static_cast<size_t>(batch_.tokens()));
  values_.clear();
  entropies_.clear();
  program.read(root_, tokens_.data());
  for (Place& p : places_) {
    p.first = values_.size();
    for (int64_t t : p.at) values_.push_back(tokens_[static_cast<size_t>(t)]);
  }
  if (entropy_ != graph::kNone) {
    program.read(entropy_, tokens_.data());
    for (const Place& p : places_)
      for (int64_t t : p.at) entropies_.push_back(tokens_[static_cast<size_t>(t)]);
  }
  gradients_.assign(values_.size(), 0);
  view_.clear();
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& p = places_[i];
    Sequence s = p.sequence;
    s.logp = std::span(values_).subspan(p.first, p.at.size());
    if (!entropies_.empty()) s.entropy = std::span(entropies_).subspan(p.first, p.at.size());
    s.gradient = std::span(gradients_).subspan(p.first, p.at.size());
    if (reference) {
      s.reference = reference(i);
      MXT_ASSERT(s.reference.size() == s.logp.size());
    }
    view_.push_back(s);
  }
  return view_;
}

void SequencePass::write(runtime::Program& program) {
  std::fill(tokens_.begin(), tokens_.end(), 0.0f);
  for (const Place& p : places_)
    for (size_t k = 0; k < p.at.size(); ++k) tokens_[static_cast<size_t>(p.at[k])] = gradients_[p.first + k];
  program.write(seed_, tokens_.data());
}

StepRows::Row describe_row(const Method& method, const data::Row& r, int64_t seq_len) {
  StepRows::Row out;
  for (size_t d = 0; d + 1 < r.cu_seqlens.size(); ++d) {
    int64_t targets = 0;
    const auto begin = static_cast<int64_t>(r.cu_seqlens[d]),
               end = std::min<int64_t>(r.cu_seqlens[d + 1], begin + seq_len);
    for (int64_t t = begin + 1; t < end; ++t) targets += r.labels[static_cast<size_t>(t)] != data::kNoTarget;
    out.answer_targets.push_back(targets);
    out.targets.push_back(method.trains_prompt(static_cast<int>(d)) ? end - begin - 1 : targets);
    if (!r.marks.empty()) out.mark = r.marks[d];
  }
  return out;
}

void score_rows(runtime::Program& scorer, SequencePass& pass, int64_t rows, int64_t micro_batch, int64_t max_tokens,
                const std::function<void(int64_t row, SequencePass&)>& add,
                const std::function<void(const Sequence&)>& take) {
  for (int64_t first = 0; first < rows; first += micro_batch) {
    pass.clear();
    for (int64_t i = first; i < std::min(rows, first + micro_batch); ++i) add(i, pass);
    pass.pad(max_tokens);
    scorer.run(pass.batch().view());
    for (const Sequence& s : pass.read(scorer)) take(s);
  }
}

}  // namespace mxt::train

#include "autotune/slice.h"

#include <algorithm>

#include "base/threads.h"

namespace mxt::autotune {

formats::ModelConfig slice_of(const formats::ModelConfig& model, int64_t layers) {
  formats::ModelConfig c = model;
  c.num_layers = std::min(layers, model.num_layers);
  c.vocab_size = std::min(kSliceVocab, model.vocab_size);
  c.layers.resize(static_cast<size_t>(c.num_layers));
  return c;
}

Slice::Slice(const formats::ModelConfig& slice, const models::BuildOptions& options, const config::Train& train,
             int64_t seq_len, int64_t rows, bool packed, const kernels::KernelPlan& plan, kernels::Ops& ops,
             std::shared_ptr<runtime::ParamStore> params, runtime::Offload offload, bool packed_weights)
    : graph_(models::build(slice, options)),
      ops_(ops),
      program_(graph_, plan, ops, {rows * seq_len, 0, false, seq_len, packed_weights}),
      optimizer_(optim::make_optimizer(train, graph_)),
      params_(std::move(params)),
      offload_(offload),
      rows_(rows),
      seq_len_(seq_len),
      packed_weights_(packed_weights) {
  const int64_t document = packed ? std::max<int64_t>(1, seq_len / 2) : seq_len;
  for (int64_t t = 0; t < rows * seq_len; ++t) {
    ids_.push_back(static_cast<int32_t>(t * 2654435761LL % slice.vocab_size));
    const int64_t at = t % seq_len % document;
    positions_.push_back(static_cast<int32_t>(at));
    if (at == 0) cu_.push_back(static_cast<int32_t>(t));
  }
  cu_.push_back(static_cast<int32_t>(rows * seq_len));
  flops_ = program_.flops(rows * seq_len, document, rows * seq_len);
}

// Small values of both signs: products of ordinary numbers, no infinities, and no zeros, which cost a processor less
// power.
void Slice::fill_weights() {
  for (size_t i = 0; i < graph_.params.size(); ++i) {
    const auto access = params_->write(static_cast<graph::ParamId>(i));
    const runtime::ParamSlot& s = access.slot;
    const bool bf16 = graph_.value(graph_.params[i].value).type == DType::kBF16;
    parallel_for(0, s.size, 1 << 16, [&](int64_t first, int64_t last) {
      auto x = static_cast<uint32_t>(first >> 16) * 2654435761u + 1;
      for (int64_t k = first; k < last; ++k) {
        x = x * 1664525u + 1013904223u;
        const float v = (static_cast<float>(x >> 8) * 0x1p-24f - 0.5f) * 0.05f;
        if (s.master) s.master[k] = v;
        if (bf16)
          static_cast<uint16_t*>(s.weight)[k] = float_to_bf16(v);
        else
          static_cast<float*>(s.weight)[k] = v;
      }
    });
  }
}

const std::shared_ptr<runtime::ParamStore>& Slice::params() {
  if (!params_) {
    params_ = std::make_shared<runtime::ParamStore>(graph_, true, ops_.device(), offload_, optimizer_->states());
    fill_weights();
    if (packed_weights_) params_->pack_frozen(graph_, ops_);
  }
  return params_;
}

void Slice::allocate() {
  if (allocated_) return;
  program_.allocate(*params());
  allocated_ = true;
}

double Slice::pass_us(DeviceTimer& clock) {
  allocate();
  runtime::Batch b;
  b.tokens = rows_ * seq_len_;
  b.ids = ids_.data();
  b.positions = positions_.data();
  b.cu_seqlens = cu_.data();
  b.documents = static_cast<int64_t>(cu_.size()) - 1;
  b.targets = ids_.data();
  b.loss_scale = 1.0f / static_cast<float>(b.tokens);
  if (graph_.roots.empty()) return clock.us([&] { program_.run(b); });
  const std::vector<float> seed(static_cast<size_t>(b.tokens), -b.loss_scale);
  return clock.us([&] { program_.run(b, [&] { program_.write(graph_.roots[0].seed, seed.data()); }); });
}

int64_t Slice::trained() const {
  int64_t n = 0;
  for (const graph::Param& p : graph_.params)
    if (p.trainable) n += p.rows * p.cols;
  return n;
}

double Slice::update_us(DeviceTimer& clock) {
  allocate();
  if (!bound_) optimizer_->bind(*params_, ops_);
  bound_ = true;
  return clock.us([&] { optimizer_->update({1, 1000}); });
}

}  // namespace mxt::autotune

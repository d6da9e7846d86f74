#include "runtime/params.h"

#include "base/error.h"

namespace mxt::runtime {
namespace {

int64_t align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

ParamBytes ParamStore::measure(const graph::Graph& g, bool training) {
  ParamBytes b;
  for (const graph::Param& p : g.params) {
    const DType t = g.value(p.value).type;
    const int64_t n = p.rows * p.cols, f32 = align(n * 4);
    b.weights += align(n * static_cast<int64_t>(size_of(t)));
    if (!training || !p.trainable) continue;
    if (t != DType::kF32) b.masters += f32;
    b.gradients += f32;
    b.moments += 2 * f32;
  }
  return b;
}

ParamStore::ParamStore(const graph::Graph& g, bool training, device::Accelerator* device) : device_(device) {
  memory_ = device::Buffer::on(device, static_cast<size_t>(measure(g, training).total()));
  size_t at = 0;
  auto take = [&](int64_t bytes) {
    void* p = memory_.bytes_at(at);
    at += static_cast<size_t>(align(bytes));
    return p;
  };
  for (const graph::Param& p : g.params) {
    const DType t = g.value(p.value).type;
    ParamSlot s;
    s.size = p.rows * p.cols;
    s.weight = take(s.size * static_cast<int64_t>(size_of(t)));
    if (training && p.trainable) {
      s.master = static_cast<float*>(t == DType::kF32 ? s.weight : take(s.size * 4));
      s.grad = static_cast<float*>(take(s.size * 4));
      s.m = static_cast<float*>(take(s.size * 4));
      s.v = static_cast<float*>(take(s.size * 4));
    }
    slots_.push_back(s);
    shapes_.emplace_back(p.rows, p.cols);
    types_.push_back(t);
  }
}

void ParamStore::sync_weights(graph::ParamId p) {
  const Access s = write(p);
  const DType t = types_[static_cast<size_t>(p)];
  if (s->master && t != DType::kF32) convert(s->master, DType::kF32, s->weight, t, static_cast<size_t>(s->size));
}

namespace {

// Every array of a slot with its size in bytes. Where the graph computes in F32 master and weight are one.
template <typename F>
void each_array(ParamSlot& s, DType type, F f) {
  const size_t n = static_cast<size_t>(s.size);
  const bool one = static_cast<void*>(s.master) == s.weight;
  f(s.weight, n * size_of(type));
  if (one) s.master = static_cast<float*>(s.weight);
  auto floats = [&](float*& p) {
    void* q = p;
    if (p) f(q, n * 4);
    p = static_cast<float*>(q);
  };
  if (!one) floats(s.master);
  floats(s.grad);
  floats(s.m);
  floats(s.v);
}

}  // namespace

ParamStore::Access::Access(const ParamStore& store, graph::ParamId p, bool write) : slot(store[p]), store_(store), p_(p), write_(write) {
  if (!store.device_) return;
  const DType type = store.types_[static_cast<size_t>(p)];
  size_t bytes = 0;
  ParamSlot measure = slot;
  each_array(measure, type, [&](void*&, size_t n) { bytes += static_cast<size_t>(align(static_cast<int64_t>(n))); });
  copy_.resize(bytes);
  size_t at = 0;
  each_array(slot, type, [&](void*& q, size_t n) {
    store.device_->download(copy_.data() + at, q, n);
    q = copy_.data() + at;
    at += static_cast<size_t>(align(static_cast<int64_t>(n)));
  });
  store.device_->synchronize();
}

ParamStore::Access::~Access() {
  if (!store_.device_ || !write_) return;
  ParamSlot there = store_[p_];
  size_t at = 0;
  each_array(there, store_.types_[static_cast<size_t>(p_)], [&](void*& q, size_t n) {
    store_.device_->upload(q, copy_.data() + at, n);
    at += static_cast<size_t>(align(static_cast<int64_t>(n)));
  });
  store_.device_->synchronize();
}

bool ParamStore::matches(const graph::Graph& g) const {
  if (g.params.size() != slots_.size()) return false;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (std::pair(g.params[i].rows, g.params[i].cols) != shapes_[i] || g.value(g.params[i].value).type != types_[i]) return false;
  return true;
}

}  // namespace mxt::runtime

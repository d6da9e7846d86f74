#include "runtime/params.h"

#include <cstring>

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
    b.weights += align(graph::stride(p) * graph::height(p) * static_cast<int64_t>(size_of(t)));
    if (!training || !p.trainable) continue;
    if (t != DType::kF32) b.masters += f32;
    b.gradients += f32;
    b.moments += 2 * f32;
  }
  return b;
}

ParamStore::ParamStore(const graph::Graph& g, bool training, device::Accelerator* device, const std::vector<const kernels::BlockMatrix*>& blocks) : device_(device) {
  MXT_ASSERT(blocks.empty() || (blocks.size() == g.params.size() && !training && !device));
  auto weight_bytes = [&](const graph::Param& p) { return align(graph::stride(p) * graph::height(p) * static_cast<int64_t>(size_of(g.value(p.value).type))); };
  int64_t total = measure(g, training).total();
  for (size_t i = 0; i < blocks.size(); ++i)
    if (blocks[i]) total -= weight_bytes(g.params[i]);
  memory_ = device::Buffer::on(device, static_cast<size_t>(total));
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
    if (!blocks.empty()) s.blocks = blocks[slots_.size()];
    if (!s.blocks) s.weight = take(weight_bytes(p));
    if (training && p.trainable) {
      s.master = static_cast<float*>(t == DType::kF32 ? s.weight : take(s.size * 4));
      s.grad = static_cast<float*>(take(s.size * 4));
      s.m = static_cast<float*>(take(s.size * 4));
      s.v = static_cast<float*>(take(s.size * 4));
    }
    slots_.push_back(s);
    shapes_.push_back({p.rows, p.cols, p.joined, graph::stride(p)});
    types_.push_back(t);
  }
}

ParamStore::ParamStore(const graph::Graph& g, const ParamStore& base) : device_(base.device_) {
  auto bytes = [&](const graph::Param& p) { return align(graph::stride(p) * graph::height(p) * static_cast<int64_t>(size_of(g.value(p.value).type))); };
  int64_t total = 0;
  for (const graph::Param& p : g.params)
    if (p.adapter) total += bytes(p);
  memory_ = device::Buffer::on(device_, static_cast<size_t>(total));
  int64_t at = 0;
  size_t next = 0;  // of the base's own parameters, which come first in its store
  for (const graph::Param& p : g.params) {
    const Shape shape{p.rows, p.cols, p.joined, graph::stride(p)};
    ParamSlot s;
    if (p.adapter) {
      s.size = p.rows * p.cols;
      s.weight = memory_.bytes_at(static_cast<size_t>(at));
      at += bytes(p);
    } else {
      MXT_ASSERT(next < base.slots_.size() && base.shapes_[next] == shape);
      s = base.slots_[next++];
    }
    slots_.push_back(s);
    shapes_.push_back(shape);
    types_.push_back(g.value(p.value).type);
  }
}

void ParamStore::sync_weights(graph::ParamId p) {
  const DType t = types_[static_cast<size_t>(p)];
  if (!slots_[static_cast<size_t>(p)].master || t == DType::kF32) return;
  const Access s = write(p);
  convert(s->master, DType::kF32, s->weight, t, static_cast<size_t>(s->size));
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
  const Shape& shape = store.shapes_[static_cast<size_t>(p)];
  if (!store.device_ && shape.stride == shape.cols) return;
  const DType type = store.types_[static_cast<size_t>(p)];
  size_t bytes = 0;
  ParamSlot measure = slot;
  each_array(measure, type, [&](void*&, size_t n) { bytes += static_cast<size_t>(align(static_cast<int64_t>(n))); });
  copy_.resize(bytes);
  move(false);
  size_t at = 0;
  each_array(slot, type, [&](void*& q, size_t n) {
    q = copy_.data() + at;
    at += static_cast<size_t>(align(static_cast<int64_t>(n)));
  });
}

ParamStore::Access::~Access() {
  if (write_ && !copy_.empty()) move(true);
}

// Between the store and the copy. The weight, the first array, may have wider rows in the store.
void ParamStore::Access::move(bool back) {
  ParamSlot there = store_[p_];
  const Shape& shape = store_.shapes_[static_cast<size_t>(p_)];
  const DType type = store_.types_[static_cast<size_t>(p_)];
  size_t at = 0;
  each_array(there, type, [&](void*& q, size_t n) {
    const bool wide = at == 0 && shape.stride != shape.cols;
    const size_t rows = wide ? static_cast<size_t>(shape.rows) : 1, width = n / rows, pitch = wide ? static_cast<size_t>(shape.stride) * size_of(type) : n;
    std::byte* mine = copy_.data() + at;
    if (store_.device_) {
      if (back) store_.device_->upload_rows(q, pitch, mine, width, width, rows);
      else store_.device_->download_rows(mine, width, q, pitch, width, rows);
    } else {
      for (size_t r = 0; r < rows; ++r) {
        std::byte *a = static_cast<std::byte*>(q) + r * pitch, *b = mine + r * width;
        back ? std::memcpy(a, b, width) : std::memcpy(b, a, width);
      }
    }
    at += static_cast<size_t>(align(static_cast<int64_t>(n)));
  });
  if (store_.device_) store_.device_->synchronize();
}

bool ParamStore::matches(const graph::Graph& g) const {
  if (g.params.size() != slots_.size()) return false;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (Shape{g.params[i].rows, g.params[i].cols, g.params[i].joined, graph::stride(g.params[i])} != shapes_[i] || g.value(g.params[i].value).type != types_[i]) return false;
  return true;
}

}  // namespace mxt::runtime

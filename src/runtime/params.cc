#include "runtime/params.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/threads.h"
#include "graph/op_info.h"
#include "kernels/api.h"
#include "kernels/small_types.h"

namespace mxt::runtime {
namespace {

int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// What a parameter takes whether it trains or not, array by array.
struct Parts {
  int64_t weight, scale = 0, transposed = 0, joined = 0;
  int64_t total() const { return weight + scale + transposed + joined; }
};
Parts parts_of(const graph::Graph& g, const graph::Param& p, bool training) {
  const auto element = static_cast<int64_t>(size_of(g.value(p.value).type));
  if (p.held == graph::Storage::kCoded) {
    const CodedPlace end = coded_place(p, p.segments.size());
    return {end.codes, end.scales};
  }
  if (p.held != graph::Storage::kFp8) {
    Parts a{whole_lines(graph::stride(p) * graph::height(p) * element)};
    if (p.held == graph::Storage::kFakeQuant) a.scale = whole_lines(p.rows * 4);
    if (training && p.back == graph::Storage::kFp8)
      a.scale = whole_lines(p.cols * 4), a.transposed = whole_lines(p.rows * p.cols);
    if (training && p.back == graph::Storage::kFakeQuant) a.transposed = whole_lines(p.rows * p.cols * element);
    return a;
  }
  const int64_t held = whole_lines(p.rows * p.cols);
  return {held, whole_lines(p.rows * 4), training ? held : 0, whole_lines(p.rows * graph::joined_stride(p) * element)};
}

// The products of g with a frozen weight that stands alone, once each: f(parameter, whether it is the input's gradient,
// the product as far as its weight says it).
template <typename F>
void each_frozen_product(const graph::Graph& g, F f) {
  std::vector<bool> seen(2 * g.params.size());
  auto product = [&](graph::ValueId weight, bool dx) {
    const graph::ParamId id = g.value(weight).param;
    if (id == graph::kNone) return;
    const graph::Param& p = g.params[static_cast<size_t>(id)];
    if (p.trainable || p.adapter || graph::stride(p) != p.cols) return;
    if (p.held == graph::Storage::kFp8 || p.held == graph::Storage::kCoded) return;
    const size_t at = 2 * static_cast<size_t>(id) + dx;
    if (seen[at]) return;
    seen[at] = true;
    kernels::Gemm call;
    call.b = {nullptr, p.rows, p.cols, p.cols, g.value(p.value).type};
    call.trans_b = !dx;
    f(id, dx, call);
  };
  for (const graph::Op& op : g.ops) {
    const graph::OpInfo& of = graph::info(op);
    if (of.weight < 0) continue;
    const graph::ValueId weight = op.in[static_cast<size_t>(of.weight)];
    if (of.weight_use != graph::WeightUse::kRows) product(weight, false);
    const bool back = of.weight_use == graph::WeightUse::kBoth && op.out.size() > 1;  // a head with its gradient
    if (of.weight_use == graph::WeightUse::kRows || (back && g.param_of(weight).back == graph::Storage::kPlain))
      product(weight, true);
  }
}

}  // namespace

std::string_view offload_name(Offload o) { return o == Offload::kOptimizer ? "optimizer" : "none"; }

bool offload_from_name(std::string_view name, Offload* o) {
  for (const Offload x : {Offload::kNone, Offload::kOptimizer})
    if (name == offload_name(x)) {
      *o = x;
      return true;
    }
  return false;
}

std::string_view weights_name(bool packed) { return packed ? "packed" : "plain"; }

bool weights_from_name(std::string_view name, bool* packed) {
  *packed = name == weights_name(true);
  return *packed || name == weights_name(false);
}

ParamBytes ParamStore::measure(const graph::Graph& g, bool training, const States& states) {
  MXT_ASSERT(states.empty() || (training && states.size() == g.params.size()));
  ParamBytes b;
  for (const auto& of_param : states)
    for (const StateArray& a : of_param) b.states += whole_lines(a.bytes());
  for (const graph::Param& p : g.params) {
    const DType t = g.value(p.value).type;
    const int64_t n = p.rows * p.cols, f32 = whole_lines(n * 4);
    b.weights += parts_of(g, p, training).total();
    if (!training || !p.trainable) continue;
    if (t != DType::kF32) b.masters += f32;
    b.gradients += f32;
  }
  return b;
}

ParamStore::ParamStore(const graph::Graph& g, bool training, device::Accelerator* device, Offload offload,
                       States states, const std::vector<const kernels::BlockMatrix*>& blocks)
    : device_(device), states_(std::move(states)) {
  MXT_ASSERT(blocks.empty() || (blocks.size() == g.params.size() && !training && !device));
  auto weight_bytes = [&](const graph::Param& p) { return parts_of(g, p, training).weight; };
  MXT_ASSERT(offload == Offload::kNone || device);
  const ParamBytes bytes = measure(g, training, states_);
  const auto on_host = static_cast<size_t>(bytes.offloaded(offload));
  int64_t total = bytes.total() - static_cast<int64_t>(on_host);
  for (size_t i = 0; i < blocks.size(); ++i)
    if (blocks[i]) total -= weight_bytes(g.params[i]);
  memory_ = device::Buffer::on(device, static_cast<size_t>(total));
  if (on_host > 0) {
    offloaded_ = device::Buffer::shared_with(device, on_host);
    device->fill(offloaded_.data(), 0, on_host);
  }
  size_t at = 0, at_offloaded = 0;
  auto take = [&](int64_t size, bool aside = false) {
    size_t& next = aside ? at_offloaded : at;
    void* p = (aside ? offloaded_ : memory_).bytes_at(next);
    next += static_cast<size_t>(whole_lines(size));
    return p;
  };
  for (const graph::Param& p : g.params) {
    const DType t = g.value(p.value).type;
    ParamSlot s;
    s.size = p.rows * p.cols;
    if (!blocks.empty()) s.blocks = blocks[slots_.size()];
    if (!s.blocks) s.weight = take(weight_bytes(p));
    if (const Parts parts = parts_of(g, p, training); parts.scale > 0 || parts.transposed > 0) {
      if (parts.scale > 0) s.scale = static_cast<float*>(take(parts.scale));
      if (parts.transposed > 0) s.transposed = take(parts.transposed);
      if (parts.joined > 0) s.joined = take(parts.joined);
    }
    slots_.push_back(s);
    shapes_.push_back(shape_of(p));
    types_.push_back(t);
  }
  if (!training) return;
  const bool aside = on_host > 0;
  auto each_trained = [&](auto f) {
    for (size_t i = 0; i < slots_.size(); ++i)
      if (g.params[i].trainable) f(i, slots_[i]);
  };
  each_trained([&](size_t i, ParamSlot& s) {
    s.master = static_cast<float*>(types_[i] == DType::kF32 ? s.weight : take(s.size * 4, aside));
  });
  each_trained([&](size_t, ParamSlot& s) { s.grad = static_cast<float*>(take(s.size * 4)); });
  // The arrays of one name lie together, in the order in which the names first come.
  std::vector<std::string> names;
  for (const auto& of_param : states_)
    for (const StateArray& a : of_param)
      if (std::find(names.begin(), names.end(), a.name) == names.end()) names.push_back(a.name);
  for (size_t i = 0; i < states_.size(); ++i) slots_[i].states.resize(states_[i].size());
  for (const std::string& name : names)
    for (size_t i = 0; i < states_.size(); ++i)
      for (size_t k = 0; k < states_[i].size(); ++k)
        if (states_[i][k].name == name) slots_[i].states[k] = take(states_[i][k].bytes(), aside);
}

ParamStore::ParamStore(const graph::Graph& g, const ParamStore& base) : device_(base.device_) {
  auto bytes = [&](const graph::Param& p) {
    return whole_lines(graph::stride(p) * graph::height(p) * static_cast<int64_t>(size_of(g.value(p.value).type)));
  };
  int64_t total = 0;
  for (const graph::Param& p : g.params)
    if (p.adapter) total += bytes(p);
  memory_ = device::Buffer::on(device_, static_cast<size_t>(total));
  int64_t at = 0;
  size_t next = 0;  // of the base's own parameters, which come first in its store
  for (const graph::Param& p : g.params) {
    const Shape shape = shape_of(p);
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

ParamStore::Shape ParamStore::shape_of(const graph::Param& p) {
  Shape s{p.rows, p.cols, p.joined, graph::stride(p), p.held, p.back, {}};
  for (size_t i = 0; p.held == graph::Storage::kCoded && i < p.segments.size(); ++i) {
    const graph::Segment& k = p.segments[i];
    s.parts.push_back({k.row, k.rows, k.coding, k.through, coded_place(p, i)});
  }
  return s;
}

int64_t ParamStore::packed_bytes(const graph::Graph& g, const kernels::Ops& ops, int algo) {
  int64_t n = 0;
  each_frozen_product(g, [&](graph::ParamId, bool, kernels::Gemm c) {
    c.algo = algo;
    n += whole_lines(static_cast<int64_t>(ops.packed_b_bytes(c)));
  });
  return n;
}

void ParamStore::pack_frozen(const graph::Graph& g, kernels::Ops& ops, int algo) {
  MXT_ASSERT(!device_ && matches(g) && packed_.size() == 0);
  packed_ = device::Buffer::on(nullptr, static_cast<size_t>(packed_bytes(g, ops, algo)));
  int64_t at = 0;
  each_frozen_product(g, [&](graph::ParamId p, bool dx, kernels::Gemm c) {
    c.algo = algo;
    const auto bytes = static_cast<int64_t>(ops.packed_b_bytes(c));
    ParamSlot& s = slots_[static_cast<size_t>(p)];
    if (bytes == 0 || !s.weight) return;
    void* to = packed_.bytes_at(static_cast<size_t>(at));
    at += whole_lines(bytes);
    c.b.p = s.weight;
    ops.pack_b(c, to);
    (dx ? s.packed_dx : s.packed) = to;
  });
}

void ParamStore::sync_weights(graph::ParamId p) {
  const DType t = types_[static_cast<size_t>(p)];
  if (!slots_[static_cast<size_t>(p)].master || t == DType::kF32) return;
  const Access s = write(p);
  convert(s->master, DType::kF32, s->weight, t, static_cast<size_t>(s->size));
}

namespace {

// The arrays of an access with their sizes in bytes: weight and master, which are one where the graph computes in F32.
template <typename F>
void each_array(ParamSlot& s, DType type, F f) {
  const size_t n = static_cast<size_t>(s.size);
  const bool one = static_cast<void*>(s.master) == s.weight;
  f(s.weight, n * size_of(type));
  if (one) {
    s.master = static_cast<float*>(s.weight);
  } else if (s.master) {
    void* master = s.master;
    f(master, n * 4);
    s.master = static_cast<float*>(master);
  }
}

}  // namespace

std::vector<StateArray> ParamStore::arrays(graph::ParamId p) const {
  const ParamSlot& s = (*this)[p];
  if (!s.grad) return {};
  std::vector<StateArray> all{{"master", DType::kF32, s.size}, {"grad", DType::kF32, s.size}};
  if (!states_.empty()) {
    const auto& of_param = states_[static_cast<size_t>(p)];
    all.insert(all.end(), of_param.begin(), of_param.end());
  }
  return all;
}

ParamStore::Array::Array(const ParamStore& store, graph::ParamId p, std::string_view name, bool write)
    : store_(store), write_(write) {
  const std::vector<StateArray> all = store.arrays(p);
  const auto it = std::find_if(all.begin(), all.end(), [&](const StateArray& a) { return a.name == name; });
  MXT_ASSERT(it != all.end());
  const ParamSlot& s = store[p];
  const auto at = static_cast<size_t>(it - all.begin());
  there_ = at == 0 ? s.master : at == 1 ? s.grad : s.states[at - 2];
  bytes = static_cast<size_t>(it->bytes());
  data = there_;
  if (!store_.device_) return;
  copy_.resize(bytes);
  data = copy_.data();
  store_.fetch(data, there_, bytes);
}

ParamStore::Array::~Array() {
  if (write_ && data != there_) store_.put(there_, data, bytes);
}

ParamStore::Access::Access(const ParamStore& store, graph::ParamId p, bool write)
    : slot(store[p]), store_(store), p_(p), write_(write) {
  MXT_ASSERT(!write || (!slot.packed && !slot.packed_dx));
  const Shape& shape = store.shapes_[static_cast<size_t>(p)];
  if (shape.held == graph::Storage::kFp8 || shape.held == graph::Storage::kCoded) {
    shape.held == graph::Storage::kFp8 ? decode() : decode_segments();
    return;
  }
  if (!store.device_ && shape.stride == shape.cols) return;
  const DType type = store.types_[static_cast<size_t>(p)];
  size_t bytes = 0;
  ParamSlot measure = slot;
  each_array(measure, type,
             [&](void*&, size_t n) { bytes += static_cast<size_t>(whole_lines(static_cast<int64_t>(n))); });
  copy_.resize(bytes);
  move(false);
  size_t at = 0;
  slot.grad = nullptr;
  slot.states.clear();
  each_array(slot, type, [&](void*& q, size_t n) {
    q = copy_.data() + at;
    at += static_cast<size_t>(whole_lines(static_cast<int64_t>(n)));
  });
}

ParamStore::Access::~Access() {
  if (!write_) return;
  const Shape& shape = store_.shapes_[static_cast<size_t>(p_)];
  if (shape.held == graph::Storage::kCoded) {
    encode_segments();
    return;
  }
  if (shape.held != graph::Storage::kPlain) encode();
  if (slot.transposed != nullptr && shape.back != graph::Storage::kPlain) turn();
  if (!copy_.empty() && shape.held != graph::Storage::kFp8) move(true);
}

void ParamStore::fetch(void* to, const void* from, size_t bytes) const {
  if (bytes == 0) return;  // neither may be anywhere then
  if (device_)
    device_->download(to, from, bytes), device_->synchronize();
  else
    std::memcpy(to, from, bytes);
}

void ParamStore::put(void* to, const void* from, size_t bytes) const {
  if (bytes == 0) return;  // neither may be anywhere then
  if (device_)
    device_->upload(to, from, bytes), device_->synchronize();
  else
    std::memcpy(to, from, bytes);
}

namespace {

template <typename E>
void transpose(const E* from, int64_t rows, int64_t cols, E* to) {
  constexpr int64_t kTile = 64;
  parallel_for(0, (cols + kTile - 1) / kTile, 1, [&](int64_t b, int64_t e) {
    for (int64_t tile = b; tile < e; ++tile)
      for (int64_t r0 = 0; r0 < rows; r0 += kTile)
        for (int64_t c = tile * kTile; c < std::min(cols, (tile + 1) * kTile); ++c)
          for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r) to[c * rows + r] = from[r * cols + c];
  });
}

}  // namespace

void ParamStore::Access::decode() {
  const Shape& shape = store_.shapes_[static_cast<size_t>(p_)];
  const DType type = store_.types_[static_cast<size_t>(p_)];
  std::vector<uint8_t> held(static_cast<size_t>(shape.rows * shape.cols));
  std::vector<float> scale(static_cast<size_t>(shape.rows));
  store_.fetch(held.data(), slot.weight, held.size());
  store_.fetch(scale.data(), slot.scale, scale.size() * 4);
  float values[256];
  for (int i = 0; i < 256; ++i) values[i] = f8e4m3_to_float(static_cast<uint8_t>(i));
  copy_.resize(held.size() * size_of(type));
  slot.weight = copy_.data();
  parallel_for(0, shape.rows, 16, [&](int64_t b, int64_t e) {
    for (int64_t i = b * shape.cols; i < e * shape.cols; ++i) {
      const float x = values[held[static_cast<size_t>(i)]] * scale[static_cast<size_t>(i / shape.cols)];
      if (type == DType::kBF16)
        static_cast<uint16_t*>(slot.weight)[i] = float_to_bf16(x);
      else
        static_cast<float*>(slot.weight)[i] = x;
    }
  });
}

// Rounds what the access shows; kFp8: carries it into the store, both ways round.
void ParamStore::Access::encode() {
  const Shape& shape = store_.shapes_[static_cast<size_t>(p_)];
  const DType type = store_.types_[static_cast<size_t>(p_)];
  const ParamSlot& there = store_[p_];
  std::vector<float> scale(static_cast<size_t>(shape.rows));
  const kernels::Mat shown{slot.weight, shape.rows, shape.cols, shape.cols, type};
  if (shape.held == graph::Storage::kFakeQuant) {
    kernels::quantize_rows({shown, nullptr, shown, scale.data()});
    store_.put(there.scale, scale.data(), scale.size() * 4);
    return;
  }
  std::vector<uint8_t> held(static_cast<size_t>(shape.rows * shape.cols));
  kernels::quantize_rows(
      {shown, nullptr, {held.data(), shape.rows, shape.cols, shape.cols, DType::kF8E4M3}, scale.data()});
  store_.put(there.weight, held.data(), held.size());
  store_.put(there.scale, scale.data(), scale.size() * 4);
  if (there.transposed == nullptr) return;
  std::vector<uint8_t> turned(held.size());
  transpose(held.data(), shape.rows, shape.cols, turned.data());
  store_.put(there.transposed, turned.data(), turned.size());
}

// A head's columns rounded to E4M3 with a scale each: the transpose, or the values that it stands for as they lie.
void ParamStore::Access::turn() {
  const Shape& shape = store_.shapes_[static_cast<size_t>(p_)];
  const DType type = store_.types_[static_cast<size_t>(p_)];
  const ParamSlot& there = store_[p_];
  const auto count = static_cast<size_t>(shape.rows * shape.cols);
  std::vector<std::byte> turned(count * size_of(type));
  auto both_ways = [&](auto element) {
    using E = decltype(element);
    transpose(static_cast<const E*>(slot.weight), shape.rows, shape.cols, reinterpret_cast<E*>(turned.data()));
    const kernels::Mat columns{turned.data(), shape.cols, shape.rows, shape.rows, type};
    if (shape.back == graph::Storage::kFakeQuant) {
      kernels::quantize_rows({columns, nullptr, columns, nullptr});
      transpose(reinterpret_cast<const E*>(turned.data()), shape.cols, shape.rows, static_cast<E*>(there.transposed));
      return;
    }
    std::vector<uint8_t> held(count);
    std::vector<float> scale(static_cast<size_t>(shape.cols));
    kernels::quantize_rows(
        {columns, nullptr, {held.data(), shape.cols, shape.rows, shape.rows, DType::kF8E4M3}, scale.data()});
    store_.put(there.transposed, held.data(), held.size());
    store_.put(there.scale, scale.data(), scale.size() * 4);
  };
  type == DType::kBF16 ? both_ways(uint16_t{}) : both_ways(float{});
}

// Between the store and the copy. The weight, which comes first, may have wider rows in the store.
void ParamStore::Access::move(bool back) {
  ParamSlot there = store_[p_];
  const Shape& shape = store_.shapes_[static_cast<size_t>(p_)];
  const DType type = store_.types_[static_cast<size_t>(p_)];
  size_t at = 0;
  each_array(there, type, [&](void*& q, size_t n) {
    const bool wide = at == 0 && shape.stride != shape.cols;
    const size_t rows = wide ? static_cast<size_t>(shape.rows) : 1, width = n / rows,
                 pitch = wide ? static_cast<size_t>(shape.stride) * size_of(type) : n;
    std::byte* mine = copy_.data() + at;
    if (store_.device_) {
      if (back)
        store_.device_->upload_rows(q, pitch, mine, width, width, rows);
      else
        store_.device_->download_rows(mine, width, q, pitch, width, rows);
    } else {
      for (size_t r = 0; r < rows; ++r) {
        std::byte *a = static_cast<std::byte*>(q) + r * pitch, *b = mine + r * width;
        back ? std::memcpy(a, b, width) : std::memcpy(b, a, width);
      }
    }
    at += static_cast<size_t>(whole_lines(static_cast<int64_t>(n)));
  });
  if (store_.device_) store_.device_->synchronize();
}

bool ParamStore::matches(const graph::Graph& g) const {
  if (g.params.size() != slots_.size()) return false;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Shape wanted = shape_of(g.params[i]);
    if (wanted.back == graph::Storage::kPlain)
      wanted.back = shapes_[i].back;  // a graph that only writes has no use for it
    if (wanted != shapes_[i] || g.value(g.params[i].value).type != types_[i]) return false;
  }
  return true;
}

}  // namespace mxt::runtime

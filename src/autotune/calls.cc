#include "autotune/calls.h"

#include <algorithm>
#include <cstring>

namespace mxt::autotune {
namespace {

using kernels::Attention;
using kernels::AttentionGrad;
using kernels::Gemm;

size_t align(size_t bytes) { return (bytes + 255) / 256 * 256; }
size_t bytes_of(const kernels::ConstMat& m) { return align(static_cast<size_t>(m.rows * m.ld) * size_of(m.type)); }

int64_t inner(const Gemm& g) { return g.trans_a ? g.a.rows : g.a.cols; }

// Causal attention over documents of `longest`: two products forward, five backward, half of the square.
template <typename A>
double attention_flops(const A& a, double products) {
  return products * static_cast<double>(a.q.rows) * static_cast<double>(a.longest) *
         static_cast<double>(a.heads * a.head_dim);
}

// The operands of attention: the packed q|k|v (and its gradient), and [tokens, heads·head_dim] matrices.
template <typename A>
size_t packed_bytes(const A& a) {
  return bytes_of(a.q);
}
template <typename A>
size_t wide_bytes(const A& a) {
  return align(static_cast<size_t>(a.q.rows * a.heads * a.head_dim) * size_of(a.q.type));
}

// 16-bit patterns whose halves and wholes are ordinary numbers of both signs, about 2^-7: as bf16, and in pairs as F32.
std::vector<uint16_t> pattern(size_t n) {
  std::vector<uint16_t> out(n);
  uint32_t x = 12345;
  for (auto& v : out) {
    x = x * 1664525u + 1013904223u;
    v = static_cast<uint16_t>(((x >> 16) & 0x8000u) | 0x3c00u | ((x >> 18) & 0x7fu));
  }
  return out;
}

}  // namespace

double Choice::flops() const {
  double total = 0;
  for (const Tunable& t : calls) {
    if (const auto* g = std::get_if<Gemm>(&t.call))
      total += 2.0 * static_cast<double>(g->c.rows) * static_cast<double>(g->c.cols) * static_cast<double>(inner(*g));
    if (const auto* a = std::get_if<Attention>(&t.call)) total += attention_flops(*a, 2);
    if (const auto* a = std::get_if<AttentionGrad>(&t.call)) total += attention_flops(*a, 5);
  }
  return total;
}

std::vector<Choice> choices_of(const std::vector<Tunable>& tunables) {
  std::vector<Choice> all;
  for (const Tunable& t : tunables) {
    if (std::holds_alternative<AttentionGrad>(t.call)) continue;
    Choice c{{t}};
    if (std::holds_alternative<Attention>(t.call)) {
      const std::string rest = t.key.substr(t.key.find(' '));
      for (const Tunable& g : tunables)
        if (std::holds_alternative<AttentionGrad>(g.call) && g.key.substr(g.key.find(' ')) == rest)
          c.calls.push_back(g);
    }
    all.push_back(std::move(c));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Choice& a, const Choice& b) { return a.flops() * a.count() > b.flops() * b.count(); });
  return all;
}

std::vector<int> algorithms_of(const Choice& choice, kernels::Ops& ops) {
  const Gemm* g = std::get_if<Gemm>(&choice.calls[0].call);
  const size_t n = (g ? ops.gemm_algorithms() : ops.attention_algorithms()).size();
  std::vector<int> all;
  for (int algo = 0; algo < static_cast<int>(n); ++algo)
    if ((g ? ops.same_gemm(*g, algo) : ops.same_attention(std::get<Attention>(choice.calls[0].call), algo)) == algo)
      all.push_back(algo);
  return all;
}

namespace {

Layout layout_of(const Choice& choice, const kernels::Ops& ops) {
  Layout l;
  auto put = [](std::vector<size_t>& at, size_t& bytes, std::initializer_list<size_t> sizes) {
    for (const size_t n : sizes) {
      at.push_back(bytes);
      bytes += n;
    }
  };
  if (const auto* g = std::get_if<Gemm>(&choice.calls[0].call)) {
    put(l.read, l.read_bytes,
        {bytes_of(g->a), bytes_of(g->b), align(static_cast<size_t>(g->c.cols) * 4),  // A, B, bias, B packed, tails
         g->b_packed ? align(ops.packed_b_bytes(*g)) : 0, bytes_of(g->tail_a), bytes_of(g->tail_b)});
    put(l.written, l.written_bytes,
        {bytes_of(kernels::ConstMat(g->c)), g->row_max ? align(static_cast<size_t>(g->c.rows * g->row_parts) * 4) : 0});
  } else {
    const auto& a = std::get<Attention>(choice.calls[0].call);
    put(l.read, l.read_bytes, {packed_bytes(a), wide_bytes(a)});  // qkv, dout
    put(l.written, l.written_bytes,
        {packed_bytes(a), wide_bytes(a), align(static_cast<size_t>(a.q.rows * a.heads) * 8)});  // dqkv, out, lse
  }
  return l;
}

// Enough copies to leave the caches, as the operands of a whole model do.
int copies_of(const Layout& l) {
  return static_cast<int>(
      std::clamp<size_t>((size_t{48} << 20) / std::max<size_t>(1, l.read_bytes + l.written_bytes), 1, 8));
}

void fill(device::Buffer& memory, device::Accelerator* device) {
  const auto block = pattern(size_t{1} << 19);
  const size_t n = block.size() * 2;
  for (size_t at = 0; at < memory.size(); at += n) {
    const size_t part = std::min(n, memory.size() - at);
    if (device)
      device->upload(memory.bytes_at(at), block.data(), part);
    else
      std::memcpy(memory.bytes_at(at), block.data(), part);
  }
  if (device) device->synchronize();
}

}  // namespace

size_t Operands::bytes(const Choice& choice, const kernels::Ops& ops) {
  const Layout l = layout_of(choice, ops);
  return l.read_bytes + l.written_bytes;
}

Operands::Operands(const std::vector<const Choice*>& choices, kernels::Ops& ops) {
  size_t read = 0, written = 0;
  for (const Choice* c : choices) {
    const Layout l = layout_of(*c, ops);
    read = std::max(read, l.read_bytes * static_cast<size_t>(copies_of(l)));
    written = std::max(written, l.written_bytes * static_cast<size_t>(copies_of(l)));
  }
  read_ = device::Buffer::on(ops.device(), read);
  written_ = device::Buffer::on(ops.device(), written);
  fill(read_, ops.device());
  fill(written_, ops.device());
}

CallBench::CallBench(const Choice& choice, kernels::Ops& ops, const Operands& operands, int64_t document, bool packed)
    : choice_(choice),
      ops_(ops),
      operands_(operands),
      document_(document),
      packed_(packed),
      at_(layout_of(choice, ops)),
      copies_(copies_of(at_)) {
  if (const auto* a = std::get_if<Attention>(&choice.calls[0].call)) make_documents(*a);
  scratch_ = device::Buffer::on(ops.device(), scratch_bytes());
}

size_t CallBench::scratch_bytes() const {
  size_t most = 0;
  for (const int algo : algorithms_of(choice_, ops_))
    for (const Tunable& t : choice_.calls)
      std::visit(
          [&](auto call) {
            call.algo = algo;
            using C = decltype(call);
            if constexpr (std::is_same_v<C, Gemm>) most = std::max(most, ops_.gemm_scratch(call));
            if constexpr (std::is_same_v<C, Attention>) most = std::max(most, ops_.attention_scratch(call));
            if constexpr (std::is_same_v<C, AttentionGrad>) most = std::max(most, ops_.attention_grad_scratch(call));
          },
          t.call);
  return most;
}

void CallBench::make_documents(const Attention& a) {
  auto& cu = cu_;
  for (const int64_t part : packed_ ? std::vector<int64_t>{1, 4, 16} : std::vector<int64_t>{1}) {
    const int64_t length = std::max<int64_t>(1, std::min(document_, a.q.rows) / part);
    const size_t first = cu.size();
    for (int64_t t = 0; t < a.q.rows; t += length) cu.push_back(static_cast<int32_t>(t));
    cu.push_back(static_cast<int32_t>(a.q.rows));
    mixes_.push_back({static_cast<int64_t>(cu.size() - first) - 1, length, first});
  }
  documents_ = device::Buffer::on(ops_.device(), cu.size() * 4);
  if (ops_.device()) {
    ops_.device()->upload(documents_.data(), cu.data(), cu.size() * 4);
    ops_.device()->synchronize();
  } else {
    std::memcpy(documents_.data(), cu.data(), cu.size() * 4);
  }
}

Gemm CallBench::gemm(int copy, int algorithm) const {
  Gemm g = std::get<Gemm>(choice_.calls[0].call);
  const Layout& l = at_;
  auto read = [&](size_t i) { return operands_.read_at(static_cast<size_t>(copy) * l.read_bytes + l.read[i]); };
  g.a.p = read(0);
  g.b.p = read(1);
  if (g.bias) g.bias = read(2);
  if (g.b_packed) g.b_packed = l.read[3] < l.read_bytes ? read(3) : nullptr;  // any numbers will do for the time
  if (g.tail_a.cols > 0) g.tail_a.p = read(4), g.tail_b.p = read(5);
  auto written = [&](size_t i) {
    return operands_.written_at(static_cast<size_t>(copy) * l.written_bytes + l.written[i]);
  };
  g.c.p = written(0);
  if (g.row_max) g.row_max = reinterpret_cast<float*>(written(1));
  g.algo = algorithm;
  return g;
}

template <typename C>
C CallBench::attention(const C& shape, int copy, size_t mix, int algorithm) const {
  C a = shape;
  const Layout& l = at_;
  auto read = [&](size_t i, int64_t elements = 0) {
    return operands_.read_at(static_cast<size_t>(copy) * l.read_bytes + l.read[i] +
                             static_cast<size_t>(elements) * size_of(a.q.type));
  };
  auto written = [&](size_t i, int64_t elements = 0) {
    return operands_.written_at(static_cast<size_t>(copy) * l.written_bytes + l.written[i] +
                                static_cast<size_t>(elements) * size_of(a.q.type));
  };
  const int64_t k = a.heads * a.head_dim, v = k + a.kv_heads * a.head_dim;
  a.q.p = read(0);
  a.k.p = read(0, k);
  a.v.p = read(0, v);
  a.out.p = written(1);
  a.lse = reinterpret_cast<float*>(written(2));
  if constexpr (std::is_same_v<C, AttentionGrad>) {
    a.dq.p = written(0);
    a.dk.p = written(0, k);
    a.dv.p = written(0, v);
    a.dout.p = read(1);
  }
  a.cu_seqlens = static_cast<const int32_t*>(documents_.data()) + mixes_[mix].at;
  if constexpr (std::is_same_v<C, AttentionGrad>) a.host_cu_seqlens = cu_.data() + mixes_[mix].at;
  a.documents = mixes_[mix].documents;
  a.longest = mixes_[mix].longest;
  a.algo = algorithm;
  return a;
}

std::vector<double> CallBench::sample(int algorithm, Clock& clock, int repeats) {
  kernels::count_decision();
  ops_.set_scratch(scratch_.data(), scratch_.size());
  std::vector<double> out(choice_.calls.size(), 0);
  auto next = [&] { return turn_ = (turn_ + 1) % copies_; };
  if (std::holds_alternative<Gemm>(choice_.calls[0].call)) {
    out[0] = clock.us([&] {
      for (int i = 0; i < repeats; ++i) ops_.gemm(gemm(next(), algorithm));
    }) / repeats;
    return out;
  }
  const int first = turn_;
  for (size_t c = 0; c < choice_.calls.size(); ++c) {
    for (size_t mix = 0; mix < mixes_.size(); ++mix) {
      turn_ = first;
      if (c == 1)  // what the gradient reads: of this mix, written by this algorithm
        for (int i = 0; i < std::min(repeats, copies_); ++i)
          ops_.attention(attention(std::get<Attention>(choice_.calls[0].call), next(), mix, algorithm));
      turn_ = first;
      out[c] += clock.us([&] {
        for (int i = 0; i < repeats; ++i) {
          if (c == 0)
            ops_.attention(attention(std::get<Attention>(choice_.calls[0].call), next(), mix, algorithm));
          else
            ops_.attention_grad(attention(std::get<AttentionGrad>(choice_.calls[1].call), next(), mix, algorithm));
        }
      }) / (repeats * static_cast<double>(mixes_.size()));
    }
  }
  return out;
}

}  // namespace mxt::autotune

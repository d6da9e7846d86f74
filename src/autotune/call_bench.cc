#include "autotune/call_bench.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "kernels/call_visitor.h"

namespace mxt::autotune {
namespace {

using kernels::Attention;
using kernels::AttentionGrad;
using kernels::Gemm;

size_t align(size_t bytes) { return (bytes + 255) / 256 * 256; }

kernels::AnyCall any(const Tunable& t) {
  return std::visit([](const auto& c) { return kernels::AnyCall(c); }, t.call);
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
  for (const Tunable& t : calls) total += kernels::operations(any(t));
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

// An operand as the program places it.
struct Place {
  std::string name;
  runtime::Ref ref;
  size_t bytes = 0;
};

struct Places : kernels::CallVisitor {
  std::vector<Place> all;
  template <typename M>
  void mat(std::string_view name, M& m, kernels::Use) {
    const int64_t elements = m.rows > 0 ? (m.rows - 1) * m.ld + m.cols : 0;
    all.push_back({std::string(name), runtime::ref_of(m.p), static_cast<size_t>(elements) * size_of(m.type)});
  }
  template <typename P>
  void array(std::string_view name, P& p, DType type, int64_t elements, kernels::Use) {
    all.push_back({std::string(name), runtime::ref_of(p), static_cast<size_t>(elements) * size_of(type)});
  }
};

std::vector<Place> places_of(const Tunable& t, const kernels::Ops& ops) {
  kernels::AnyCall call = any(t);
  Places p;
  std::visit([&](auto& c) { kernels::operands(c, p); }, call);
  if (const auto* g = std::get_if<Gemm>(&t.call))
    for (Place& x : p.all)
      if (x.name == "b_packed") x.bytes = ops.packed_b_bytes(*g);  // any numbers will do for the time
  return p.all;
}

bool overlap(const Place& a, const Place& b) {
  return a.ref.buffer >= 0 && a.ref.buffer == b.ref.buffer &&
         a.ref.offset < b.ref.offset + static_cast<int64_t>(b.bytes) &&
         b.ref.offset < a.ref.offset + static_cast<int64_t>(a.bytes);
}

Layout layout_of(const Choice& choice, const kernels::Ops& ops) {
  constexpr size_t kNone = SIZE_MAX;
  std::map<std::string, size_t> sizes;                           // of what lies together, by its first operand's name
  std::vector<std::vector<std::pair<std::string, size_t>>> all;  // of each operand: whose rows, and where in them
  for (const Tunable& t : choice.calls) {
    const std::vector<Place> places = places_of(t, ops);
    auto& of = all.emplace_back();
    for (const Place& p : places) {
      const Place* host = &p;  // the first of those that share rows
      for (const Place& q : places)
        if (overlap(q, p) && q.ref.offset < host->ref.offset) host = &q;
      const int64_t inside = p.ref.offset - host->ref.offset;
      of.push_back({p.ref.buffer < 0 ? std::string() : host->name, static_cast<size_t>(inside)});
      if (p.ref.buffer < 0) continue;
      size_t& size = sizes[host->name];
      size = std::max(size, static_cast<size_t>(inside) + p.bytes);
    }
  }
  Layout l;
  std::map<std::string, size_t> begin;
  for (const auto& [name, size] : sizes) {
    begin[name] = l.bytes;
    l.bytes += align(size);
  }
  for (const auto& of : all) {
    auto& at = l.at.emplace_back();
    for (const auto& [name, inside] : of) at.push_back(name.empty() ? kNone : begin.at(name) + inside);
  }
  return l;
}

// Enough copies to leave the caches, as the operands of a whole model do.
int copies_of(const Layout& l) {
  return static_cast<int>(std::clamp<size_t>((size_t{48} << 20) / std::max<size_t>(1, l.bytes), 1, 8));
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

size_t Operands::bytes(const Choice& choice, const kernels::Ops& ops) { return layout_of(choice, ops).bytes; }

Operands::Operands(const std::vector<const Choice*>& choices, kernels::Ops& ops) {
  size_t most = 0;
  for (const Choice* c : choices) {
    const Layout l = layout_of(*c, ops);
    most = std::max(most, l.bytes * static_cast<size_t>(copies_of(l)));
  }
  memory_ = device::Buffer::on(ops.device(), most);
  fill(memory_, ops.device());
}

CallBench::CallBench(const Choice& choice, kernels::Ops& ops, const Operands& operands, int64_t document, bool packed)
    : choice_(choice),
      ops_(ops),
      operands_(operands),
      document_(document),
      packed_(packed),
      at_(layout_of(choice, ops)),
      copies_(copies_of(at_)) {
  const auto* a = std::get_if<Attention>(&choice.calls[0].call);
  if (a)
    make_documents(a->q.rows);
  else
    mixes_.push_back({});
  scratch_ = device::Buffer::on(ops.device(), scratch_bytes());
}

namespace {

size_t scratch_of(const kernels::Ops& ops, const Gemm& g) { return ops.gemm_scratch(g); }
size_t scratch_of(const kernels::Ops& ops, const Attention& a) { return ops.attention_scratch(a); }
size_t scratch_of(const kernels::Ops& ops, const AttentionGrad& a) { return ops.attention_grad_scratch(a); }

}  // namespace

size_t CallBench::scratch_bytes() const {
  size_t most = 0;
  for (const int algo : algorithms_of(choice_, ops_))
    for (const Tunable& t : choice_.calls)
      std::visit(
          [&](auto call) {
            call.algo = algo;
            most = std::max(most, scratch_of(ops_, call));
          },
          t.call);
  return most;
}

void CallBench::make_documents(int64_t tokens) {
  auto& cu = cu_;
  for (const int64_t part : packed_ ? std::vector<int64_t>{1, 4, 16} : std::vector<int64_t>{1}) {
    const int64_t length = std::max<int64_t>(1, std::min(document_, tokens) / part);
    const size_t first = cu.size();
    for (int64_t t = 0; t < tokens; t += length) cu.push_back(static_cast<int32_t>(t));
    cu.push_back(static_cast<int32_t>(tokens));
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

namespace {

// Puts lent memory where the program has its places.
struct Lend : kernels::CallVisitor {
  const std::vector<size_t>& at;
  std::byte* memory;
  const int32_t *documents_there, *documents_here;
  int64_t count, longest_one;
  size_t i = 0;
  template <typename M>
  void mat(std::string_view, M& m, kernels::Use) {
    const size_t offset = at[i++];
    m.p = offset == SIZE_MAX ? nullptr : memory + offset;
  }
  template <typename P>
  void array(std::string_view name, P& p, DType, int64_t, kernels::Use) {
    const size_t offset = at[i++];
    const void* to = offset == SIZE_MAX ? nullptr : memory + offset;
    if (name == "cu_seqlens") to = documents_there;
    if (name == "host_cu_seqlens") to = documents_here;
    p = static_cast<P>(const_cast<void*>(to));
  }
  void documents(int64_t& n, int64_t& longest) { n = count, longest = longest_one; }
};

}  // namespace

kernels::AnyCall CallBench::bound(size_t c, int copy, size_t mix, int algorithm) const {
  kernels::AnyCall call = any(choice_.calls[c]);
  const Mix& m = mixes_[mix];
  Lend lend{{},
            at_.at[c],
            operands_.at(static_cast<size_t>(copy) * at_.bytes),
            static_cast<const int32_t*>(documents_.data()) + m.at,
            cu_.data() + m.at,
            m.documents,
            m.longest};
  std::visit(
      [&](auto& x) {
        kernels::operands(x, lend);
        if constexpr (requires { x.algo; }) x.algo = algorithm;
      },
      call);
  return call;
}

std::vector<double> CallBench::sample(int algorithm, DeviceTimer& clock, int repeats) {
  kernels::count_decision();
  ops_.set_scratch(scratch_.data(), scratch_.size());
  std::vector<double> out(choice_.calls.size(), 0);
  auto next = [&] { return turn_ = (turn_ + 1) % copies_; };
  const int first = turn_;
  for (size_t c = 0; c < choice_.calls.size(); ++c) {
    for (size_t mix = 0; mix < mixes_.size(); ++mix) {
      if (choice_.calls.size() > 1) turn_ = first;
      if (c == 1)  // what the gradient reads: of this mix, written by this algorithm
        for (int i = 0; i < std::min(repeats, copies_); ++i) kernels::run(ops_, bound(0, next(), mix, algorithm));
      if (choice_.calls.size() > 1) turn_ = first;
      out[c] += clock.us([&] {
        for (int i = 0; i < repeats; ++i) kernels::run(ops_, bound(c, next(), mix, algorithm));
      }) / (repeats * static_cast<double>(mixes_.size()));
    }
  }
  return out;
}

}  // namespace mxt::autotune

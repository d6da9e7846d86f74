// Time and memory traffic of each pointwise CPU operation on shapes of small models. `pointwise_bench [threads]
// [repeats]`. Bytes count what must move once: operands read plus results written. Times are medians; buffers stay in
// cache where they fit, as they do in a step.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <vector>

#include "base/philox.h"
#include "base/threads.h"
#include "kernels/api.h"

namespace mxt::kernels {
namespace {

int g_repeats = 15;

void report(const std::string& name, double bytes, const std::function<void()>& f) {
  f();
  std::vector<double> us;
  for (int i = 0; i < g_repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(us.begin(), us.end());
  fmt::print("{:<44} best {:>9.1f} us {:>7.1f} GB/s   median {:>9.1f} us\n", name, us[0], bytes / us[0] * 1e-3,
             us[us.size() / 2]);
}

// Memory of a benchmark: small random values.
class Arena {
 public:
  Mat mat(int64_t rows, int64_t cols, DType type) {
    buffers_.emplace_back(static_cast<size_t>(rows * cols) * size_of(type) + 64);
    char* p = buffers_.back().data();
    p += (64 - reinterpret_cast<uintptr_t>(p) % 64) % 64;
    Philox g(1, buffers_.size());
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float v = g.uniform() * 2 - 1;
      if (type == DType::kF32) reinterpret_cast<float*>(p)[i] = v;
      if (type == DType::kBF16) reinterpret_cast<uint16_t*>(p)[i] = float_to_bf16(v);
    }
    return {p, rows, cols, cols, type};
  }
  float* floats(int64_t n) { return static_cast<float*>(mat(1, n, DType::kF32).p); }

 private:
  std::vector<std::vector<char>> buffers_;
};

void norms(Ops& ops, int64_t t, int64_t w, DType type) {
  Arena a;
  const std::string tag = fmt::format("{} {}x{}", name_of(type), t, w);
  const double one = static_cast<double>(t * w) * static_cast<double>(size_of(type));
  Norm n;
  n.x = a.mat(t, w, type), n.r = a.mat(t, w, type), n.h = a.mat(t, w, type), n.y = a.mat(t, w, type);
  n.w = a.floats(w), n.rstd = a.floats(t);
  report("rms_norm + residual " + tag, 4 * one, [&] { ops.norm(n); });
  n.r.p = nullptr;
  report("rms_norm " + tag, 2 * one, [&] { ops.norm(n); });
  n.layer_norm = true, n.mean = a.floats(t);
  report("layer_norm " + tag, 2 * one, [&] { ops.norm(n); });
  NormGrad g;
  g.x = n.x, g.dy = n.y, g.dres = n.h, g.dx = a.mat(t, w, type), g.w = n.w, g.rstd = n.rstd;
  report("rms_norm grad " + tag, 4 * one, [&] { ops.norm_grad(g); });
  g.dw = a.floats(w);
  report("rms_norm grad, dw " + tag, 4 * one, [&] { ops.norm_grad(g); });
  Add add{n.x, n.y, n.h};
  report("add " + tag, 3 * one, [&] { ops.add(add); });
  BiasGrad b{n.x, a.floats(w)};
  report("bias_grad " + tag, one, [&] { ops.bias_grad(b); });
  Dropout d{n.x, n.y, 0.1f, 1, 2};
  report("dropout " + tag, 2 * one, [&] { ops.dropout(d); });
}

void activations(Ops& ops, int64_t t, int64_t w, DType type) {
  Arena a;
  const std::string tag = fmt::format("{} {}x{}", name_of(type), t, w);
  const double one = static_cast<double>(t * w) * static_cast<double>(size_of(type));
  const std::pair<Activation, const char*> kinds[] = {{Activation::kSwiGlu, "swiglu"},
                                                      {Activation::kGeluTanh, "gelu_tanh"},
                                                      {Activation::kGelu, "gelu"},
                                                      {Activation::kRelu2, "relu2"}};
  const Mat x = a.mat(t, 2 * w, type), dx = a.mat(t, 2 * w, type), y = a.mat(t, w, type);
  for (const auto& [kind, name] : kinds) {
    const bool glu = kind == Activation::kSwiGlu;
    Mat in = x, din = dx;
    if (!glu) in.cols = in.ld = din.cols = din.ld = w;
    const Act f{kind, in, y};
    const ActGrad g{kind, in, y, din};
    report(fmt::format("{} {}", name, tag), (glu ? 3 : 2) * one, [&] { ops.act(f); });
    report(fmt::format("{} grad {}", name, tag), (glu ? 5 : 3) * one, [&] { ops.act_grad(g); });
  }
}

void rope(Ops& ops, int64_t t, int64_t heads, int64_t kv, int64_t d, DType type) {
  Arena a;
  const int64_t width = (heads + 2 * kv) * d;
  const double one = static_cast<double>(t * width) * static_cast<double>(size_of(type));
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < t; ++i) positions.push_back(static_cast<int32_t>(i % 256));
  QkNormRope r;
  r.qkv = a.mat(t, width, type), r.out = a.mat(t, width, type);
  r.heads = heads, r.kv_heads = kv, r.head_dim = r.rotary = d;
  r.positions = positions.data(), r.cos = a.floats(256 * d / 2), r.sin = a.floats(256 * d / 2);
  const std::string tag = fmt::format("{} {} h{} kv{} d{}", name_of(type), t, heads, kv, d);
  QkNormRope in_place = r;
  in_place.qkv = in_place.out;
  report("rope in place " + tag, 2 * one, [&] { ops.qk_norm_rope(in_place); });
  r.q_w = a.floats(d), r.k_w = a.floats(d), r.rstd = a.floats(t * (heads + kv));
  report("qk_norm + rope " + tag, 2 * one, [&] { ops.qk_norm_rope(r); });
  QkNormRopeGrad back;
  back.dout = in_place.qkv, back.dqkv = in_place.out, back.heads = heads, back.kv_heads = kv;
  back.head_dim = back.rotary = d, back.positions = r.positions, back.cos = r.cos, back.sin = r.sin;
  report("rope grad in place " + tag, 2 * one, [&] { ops.qk_norm_rope_grad(back); });
  QkNormRopeGrad g;
  g.qkv = r.qkv, g.dout = a.mat(t, width, type), g.dqkv = a.mat(t, width, type);
  g.heads = heads, g.kv_heads = kv, g.head_dim = g.rotary = d;
  g.positions = r.positions, g.cos = r.cos, g.sin = r.sin, g.q_w = r.q_w, g.k_w = r.k_w, g.rstd = r.rstd;
  g.dq_w = a.floats(d), g.dk_w = a.floats(d);
  report("qk_norm + rope grad " + tag, 3 * one, [&] { ops.qk_norm_rope_grad(g); });
}

void loss(Ops& ops, int64_t rows, int64_t vocab, DType type) {
  Arena a;
  const double one = static_cast<double>(rows * vocab) * static_cast<double>(size_of(type));
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < rows; ++i) labels.push_back(static_cast<int32_t>(i * 7919 % vocab));
  CrossEntropy c;
  c.logits = a.mat(rows, vocab, type), c.labels = labels.data(), c.nll = a.floats(rows);
  const std::string tag = fmt::format("{} {}x{}", name_of(type), rows, vocab);
  report("cross_entropy " + tag, one, [&] { ops.cross_entropy(c); });
  c.gradient = true;
  report("cross_entropy + gradient " + tag, 2 * one, [&] { ops.cross_entropy(c); });
}

void embeddings(Ops& ops, int64_t tokens, int64_t vocab, int64_t width) {
  Arena a;
  std::vector<int32_t> ids;
  Philox g(3, 0);
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>(g.below(static_cast<uint64_t>(vocab))));
  const Mat table = a.mat(vocab, width, DType::kF32), y = a.mat(tokens, width, DType::kBF16);
  const double elements = static_cast<double>(tokens * width);
  report(fmt::format("embedding F32 to BF16 {}x{}", tokens, width), 6 * elements,
         [&] { ops.embedding({ids.data(), table, y}); });
  report(fmt::format("embedding_grad {}x{}", tokens, width), 10 * elements,
         [&] { ops.embedding_grad({ids.data(), y, table, true}); });
}

void optimizer(Ops& ops, int64_t n) {
  Arena a;
  AdamW w;
  w.tensors.push_back({a.floats(n), a.floats(n), a.floats(n), a.floats(n),
                       static_cast<uint16_t*>(a.mat(1, n, DType::kBF16).p), n, 1e-4f, 0.1f});
  for (int64_t i = 0; i < n; ++i) w.tensors[0].v[i] = std::abs(w.tensors[0].v[i]);
  report(fmt::format("adamw with bf16 copy, {} parameters", n), 30.0 * static_cast<double>(n), [&] { ops.adamw(w); });
  const SquaredNorm s{{w.tensors[0].grad}, {n}};
  report(fmt::format("squared_norm, {}", n), 4.0 * static_cast<double>(n), [&] { (void)ops.squared_norm(s); });
}

}  // namespace

int bench(int threads, int repeats) {
  set_num_threads(threads);
  g_repeats = repeats;
  Ops& ops = cpu_ops();
  const CpuFeatures f = cpu_features();
  fmt::print("{}, {}, {} threads, {} repeats\n", f.model, f.vector_target, threads, repeats);
  for (const auto& [t, w] : {std::pair<int64_t, int64_t>{1024, 576}, {768, 128}})
    for (DType type : {DType::kBF16, DType::kF32}) norms(ops, t, w, type);
  for (const auto& [t, w] : {std::pair<int64_t, int64_t>{1024, 1536}, {768, 512}})
    for (DType type : {DType::kBF16, DType::kF32}) activations(ops, t, w, type);
  rope(ops, 1024, 9, 3, 64, DType::kBF16);
  rope(ops, 768, 4, 4, 32, DType::kF32);
  loss(ops, 128, 49152, DType::kBF16);
  loss(ops, 128, 49152, DType::kF32);
  loss(ops, 768, 65, DType::kF32);
  embeddings(ops, 1024, 49152, 576);
  optimizer(ops, 10'000'000);
  optimizer(ops, 800'000);
  return 0;
}

}  // namespace mxt::kernels

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : mxt::num_threads();
  return mxt::kernels::bench(std::max(1, threads), argc > 2 ? std::max(1, std::atoi(argv[2])) : 15);
}

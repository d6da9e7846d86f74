// Kernel timings at the shapes of one model, one JSON line a kernel on standard output. Times are the device's own,
// medians over repeats; bytes count every operand once, read and written.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "kernels/backend.h"

namespace mxt {
namespace {

using namespace kernels;

struct Bench {
  Backend b = cuda_backend();
  device::Accelerator& d = *b.device;
  Ops& ops = *b.ops;
  void* from = d.make_mark();
  void* to = d.make_mark();
  std::vector<uint16_t> noise;
  void* scratch = nullptr;
  std::string only;  // what a kernel's name begins with
  static constexpr size_t kScratch = size_t{8} << 30;

  Bench() {
    // Small random numbers: zeros would run faster than real data does.
    noise.resize(size_t{16} << 20);
    uint32_t s = 12345;
    for (auto& x : noise) {
      s = s * 1664525u + 1013904223u;
      x = float_to_bf16((static_cast<float>(s >> 8) * 0x1p-24f - 0.5f) * 0.2f);
    }
    scratch = d.allocate(kScratch);
    ops.set_scratch(scratch, kScratch);
  }
  void* buffer(size_t bytes) {
    auto* p = static_cast<std::byte*>(d.allocate(bytes));
    for (size_t at = 0; at < bytes; at += noise.size() * 2)
      d.upload(p + at, noise.data(), std::min(bytes - at, noise.size() * 2));
    return p;
  }
  void report(const std::string& name, double bytes, double flops, const std::function<void()>& call,
              int repeats = 12) {
    if (!name.starts_with(only)) return;
    try {
      for (int i = 0; i < 3; ++i) call();
      std::vector<double> us;
      for (int i = 0; i < repeats; ++i) {
        d.mark(from);
        call();
        d.mark(to);
        us.push_back(d.elapsed_us(from, to));
      }
      std::sort(us.begin(), us.end());
      const double t = us[us.size() / 2];
      nlohmann::ordered_json j{{"kernel", name},
                               {"us", std::round(t * 10) / 10},
                               {"spread_us", std::round((us[us.size() * 3 / 4] - us[us.size() / 4]) * 10) / 10}};
      if (bytes > 0) j["GB/s"] = std::round(bytes / t / 1e3);
      if (flops > 0) j["TFLOP/s"] = std::round(flops / t / 1e5) / 10;
      std::printf("%s\n", j.dump().c_str());
    } catch (const std::exception& e) {
      std::printf("%s\n", nlohmann::json{{"kernel", name}, {"error", e.what()}}.dump().c_str());
    }
    std::fflush(stdout);
  }
};

void run(int64_t tokens, int64_t length, int64_t heads, int64_t kv, const std::string& only) {
  Bench x;
  x.only = only;
  const int64_t hd = 128, width = heads * hd, ffn = 12288, vocab = 151936, qkv = (heads + 2 * kv) * hd, chunk = 4096;
  const auto T = static_cast<double>(tokens);
  constexpr DType bf = DType::kBF16;
  auto mat = [&](int64_t rows, int64_t cols, int64_t ld = 0) {
    return Mat{x.buffer(static_cast<size_t>(rows * (ld ? ld : cols)) * 2), rows, cols, ld ? ld : cols, bf};
  };
  auto f32 = [&](int64_t n) { return static_cast<float*>(x.buffer(static_cast<size_t>(n) * 4)); };
  auto& p = x.d.properties();
  nlohmann::ordered_json head{{"device", p.name}, {"driver", p.driver}, {"tokens", tokens}, {"length", length}};
  for (const auto& [k, v] : p.libraries) head[k] = v;
  std::printf("%s\n", head.dump().c_str());

  {
    const size_t n = size_t{2} << 30;
    void *a = x.buffer(n), *b = x.buffer(n);
    x.report("copy 2 GiB", 2.0 * static_cast<double>(n), 0, [&] { x.d.copy(b, a, n); });
    x.d.release(a), x.d.release(b);
  }
  Mat h = mat(tokens, width), r = mat(tokens, width), y = mat(tokens, width), y2 = mat(tokens, width);
  Mat wide = mat(tokens, 2 * ffn), dwide = mat(tokens, 2 * ffn), mid = mat(tokens, ffn), q1 = mat(tokens, qkv),
      q2 = mat(tokens, qkv);
  float *rstd = f32(tokens * 64), *cs = f32(length * 64), *sn = f32(length * 64);
  Mat w = mat(1, width);
  std::vector<int32_t> pos, cu;
  for (int64_t t = 0; t < tokens; ++t) pos.push_back(static_cast<int32_t>(t % length));
  for (int64_t t = 0; t <= tokens; t += length) cu.push_back(static_cast<int32_t>(t));
  auto ints = [&](const std::vector<int32_t>& v) {
    auto* p = static_cast<int32_t*>(x.d.allocate(v.size() * 4));
    x.d.upload(p, v.data(), v.size() * 4);
    return p;
  };
  int32_t* positions = ints(pos);

  x.report("norm, residual", T * width * 2 * 4, 0, [&] {
    Norm n;
    n.x = h, n.r = r, n.h = y, n.y = y2, n.w = w.p, n.wtype = bf, n.rstd = rstd;
    x.ops.norm(n);
  });
  x.report("norm_grad, dres", T * width * 2 * 4, 0, [&] {
    NormGrad n;
    n.x = h, n.dy = r, n.dres = y, n.dx = y, n.w = w.p, n.wtype = bf, n.rstd = rstd;
    x.ops.norm_grad(n);
  });
  auto rope = [&](auto& c) {
    c.heads = heads, c.kv_heads = kv, c.head_dim = hd, c.rotary = hd, c.positions = positions, c.cos = cs, c.sin = sn,
    c.q_w = w.p, c.k_w = w.p, c.wtype = bf, c.rstd = rstd;
  };
  x.report("qk_norm_rope, norm", T * static_cast<double>(qkv) * 2 * 2, 0, [&] {
    QkNormRope c;
    rope(c);
    c.qkv = q1, c.out = q2;
    x.ops.qk_norm_rope(c);
  });
  x.report("qk_norm_rope_grad, norm", T * static_cast<double>(qkv - 1024) * 2 * 3, 0, [&] {
    QkNormRopeGrad c;
    rope(c);
    c.qkv = q1, c.dout = q2, c.dqkv = q2;
    x.ops.qk_norm_rope_grad(c);
  });
  x.report("swiglu", T * static_cast<double>(ffn) * 2 * 3, 0, [&] { x.ops.act({Activation::kSwiGlu, wide, mid}); });
  x.report("swiglu_grad", T * static_cast<double>(ffn) * 2 * 5, 0,
           [&] { x.ops.act_grad({Activation::kSwiGlu, wide, mid, dwide}); });
  x.report("add", T * width * 2 * 3, 0, [&] { x.ops.add({h, r, y}); });

  auto gemm = [&](const char* name, Mat a, Mat b, Mat c, bool ta, bool tb, bool acc, int algos) {
    const double m = static_cast<double>(c.rows), n = static_cast<double>(c.cols),
                 k = static_cast<double>(ta ? a.rows : a.cols);
    for (int i = 0; i < algos; ++i)
      x.report(fmt::format("gemm {} {}{} m{} n{} k{}{}{} lt{}", name, ta ? 't' : 'n', tb ? 't' : 'n', c.rows, c.cols,
                           static_cast<int64_t>(k), acc ? " acc" : "", c.type == bf ? "" : " f32", i),
               (m * k + n * k) * 2 + m * n * static_cast<double>(size_of(c.type)) * (acc ? 2 : 1), 2 * m * n * k, [&] {
                 Gemm g;
                 g.a = a, g.b = b, g.c = c, g.trans_a = ta, g.trans_b = tb, g.accumulate = acc, g.algo = i;
                 x.ops.gemm(g);
               });
  };
  struct L {
    const char* name;
    Mat in, out;
    int64_t stacked;
  };
  for (const L& l : {L{"qkv", h, q1, 48}, L{"o", h, y, 16}, L{"gate_up", h, wide, 32}, L{"down", mid, y, 16}}) {
    Mat wt = mat(l.out.cols, l.in.cols);
    gemm(l.name, l.in, wt, l.out, false, true, false, 4);
    gemm(l.name, l.out, wt, l.in, false, false, false, 4);
    x.d.release(wt.p);
    // The same products with the adapter's columns appended.
    const int64_t pad = 64;
    Mat xe = mat(tokens, l.in.cols + l.stacked, l.in.cols + pad),
        we = mat(l.out.cols, l.in.cols + l.stacked, l.in.cols + pad);
    gemm(l.name, xe, we, l.out, false, true, false, 3);
    Mat de = mat(tokens, l.out.cols + l.stacked, l.out.cols + pad),
        wr = mat(l.out.cols + l.stacked, l.in.cols, l.in.cols + pad);
    gemm(l.name, de, wr, l.in, false, false, false, 3);
    for (Mat* m : {&xe, &we, &de, &wr}) x.d.release(m->p);
    // The thin products of LoRA.
    Mat a = mat(l.stacked, l.in.cols), bm = mat(l.out.cols, 16), z = mat(tokens, l.stacked);
    Mat z16 = z;
    z16.cols = 16;
    gemm("z", l.in, a, z, false, true, false, 4);
    gemm("+zB", z16, bm, l.out, false, true, true, 2);
    gemm("dz", l.out, bm, z16, false, false, false, 4);
    gemm("dx+", z, a, l.in, false, false, true, 2);
    Mat dbm{x.buffer(static_cast<size_t>(l.out.cols) * 64), l.out.cols, 16, 16, DType::kF32},
        da{x.buffer(static_cast<size_t>(l.in.cols * l.stacked) * 4), l.stacked, l.in.cols, l.in.cols, DType::kF32};
    gemm("dB", l.out, z16, dbm, true, false, true, 4);
    gemm("dA", z, l.in, da, true, false, true, 4);
    for (void* q : {a.p, bm.p, z.p, dbm.p, da.p}) x.d.release(q);
  }

  auto attention = [&](const char* name, const std::vector<int32_t>& starts, int64_t longest, double pairs, int algo,
                       const std::vector<int32_t>& prefix = {}) {
    const int32_t *offs = ints(starts), *from = prefix.empty() ? nullptr : ints(prefix);
    auto cols = [&](Mat m, int64_t first, int64_t n) {
      m.p = static_cast<std::byte*>(m.p) + first * 2;
      m.cols = n, m.rows = starts.back();
      return m;
    };
    auto set = [&](auto& c) {
      c.q = cols(q1, 0, heads * hd), c.k = cols(q1, heads * hd, kv * hd), c.v = cols(q1, (heads + kv) * hd, kv * hd),
      c.out = cols(y, 0, heads * hd), c.lse = rstd, c.prefix = from;
      c.cu_seqlens = offs, c.documents = static_cast<int64_t>(starts.size()) - 1, c.longest = longest, c.heads = heads,
      c.kv_heads = kv, c.head_dim = hd, c.scale = 0.088f, c.algo = algo;
    };
    Attention c;
    set(c);
    AttentionGrad g;
    set(g);
    g.host_cu_seqlens = starts.data();
    g.dout = cols(h, 0, heads * hd);
    g.dq = cols(q2, 0, heads * hd), g.dk = cols(q2, heads * hd, kv * hd), g.dv = cols(q2, (heads + kv) * hd, kv * hd);
    const double flops = 4.0 * pairs * static_cast<double>(heads * hd);
    try {
      std::printf("{\"kernel\":\"%s scratch\",\"forward\":%zu,\"backward\":%zu}\n", name, x.ops.attention_scratch(c),
                  x.ops.attention_grad_scratch(g));
    } catch (const std::exception& e) {
      std::printf("%s\n", nlohmann::json{{"kernel", name}, {"error", e.what()}}.dump().c_str());
      return;
    }
    x.report(fmt::format("attention {}", name), 0, flops, [&] { x.ops.attention(c); });
    x.report(fmt::format("attention_grad {}", name), 0, 2.5 * flops, [&] { x.ops.attention_grad(g); });
  };
  const auto len = static_cast<double>(length);
  attention("cudnn_tiles dense", cu, length, T * len / 2, 0);
  attention("cudnn dense", cu, length, T * len / 2, 3);
  if (tokens <= 4096) attention("cudnn packed, equal lengths", cu, length + 1, T * len / 2, 3);
  std::vector<int32_t> mixed{0};
  double pairs = 0;
  for (int32_t i = 0; mixed.back() < tokens; ++i) {
    const int32_t n = std::min<int32_t>(static_cast<int32_t>(tokens) - mixed.back(), 100 + (i * 977) % 1500);
    mixed.push_back(mixed.back() + n);
    pairs += static_cast<double>(n) * n / 2;
  }
  attention("cudnn packed, 100 to 1600", mixed, 1600, pairs, 3);
  attention("flash dense", cu, length, T * len / 2, 2);
  attention("flash, 100 to 1600", mixed, 1600, pairs, 2);
  attention("plain, 100 to 1600", mixed, 1600, pairs, 1);
  // Eight answers to a prompt, which has its keys once.
  for (const auto& [prompt, answer] : {std::pair{1024, 512}, std::pair{256, 1024}}) {
    std::vector<int32_t> documents{0}, from;
    pairs = 0;
    while (documents.back() + prompt + 8 * answer <= tokens) {
      const auto group = static_cast<int32_t>(from.size());
      for (int i = 0; i <= 8; ++i) {
        documents.push_back(documents.back() + (i == 0 ? prompt : answer));
        from.push_back(i == 0 ? -1 : group);
      }
      pairs += prompt * prompt / 2.0 + 8 * answer * (answer / 2.0 + prompt);
    }
    if (from.empty()) continue;
    const std::string name = fmt::format("of 8 answers of {} to prompts of {}", answer, prompt);
    attention(name.c_str(), documents, prompt + answer, pairs, 2, from);
  }

  {
    Mat logits = mat(chunk, vocab), wh = mat(vocab, width), hc = h;
    hc.rows = chunk;
    gemm("head", hc, wh, logits, false, true, false, 3);
    gemm("head", logits, wh, hc, false, false, false, 3);
    std::vector<int32_t> labels(static_cast<size_t>(chunk), 17);
    int32_t* l = ints(labels);
    x.report("cross_entropy, gradient", static_cast<double>(chunk * vocab) * 2 * 2, 0,
             [&] { x.ops.cross_entropy({logits, l, nullptr, rstd, true, 0}); });
  }
  {
    const int64_t n = 43646976;  // LoRA r16 of Qwen3-8B
    float *master = f32(n), *g = f32(n), *m = f32(n), *v = f32(n);
    auto* copy = static_cast<uint16_t*>(x.buffer(static_cast<size_t>(n) * 2));
    AdamW a;
    a.tensors.push_back({master, g, m, v, copy, n, 1e-6f, 0});
    x.report("adamw 43.6 M", static_cast<double>(n) * (4 * 7 + 2), 0, [&] { x.ops.adamw(a); });
    auto* out = reinterpret_cast<double*>(rstd);
    x.report("squared_norm 43.6 M", static_cast<double>(n) * 4, 0, [&] { x.ops.squared_norm_to({{g}, {n}}, out); });
  }
}

// The gated delta rule and what stands around it, of Qwen3.5's 27B.
void run_hybrid(int64_t tokens, int64_t length) {
  Bench x;
  const DeltaShape of{16, 48, 128, 128};
  const auto mat = [&](int64_t rows, int64_t cols) {
    return Mat{x.buffer(static_cast<size_t>(rows * cols) * 2), rows, cols, cols, DType::kBF16};
  };
  const auto T = static_cast<double>(tokens), W = static_cast<double>(of.width()),
             V = static_cast<double>(of.value_heads * of.value_dim);
  std::vector<int32_t> cu;
  for (int64_t t = 0; t <= tokens; t += length) cu.push_back(static_cast<int32_t>(t));
  auto* documents = static_cast<int32_t*>(x.d.allocate(cu.size() * 4));
  x.d.upload(documents, cu.data(), cu.size() * 4);
  const auto document_count = static_cast<int64_t>(cu.size()) - 1;
  Mat qkv = mat(tokens, of.width()), dqkv = mat(tokens, of.width()), conv = mat(tokens, of.width()),
      taps = mat(of.width(), 4);
  Mat ba = mat(tokens, 2 * of.value_heads), dba = mat(tokens, 2 * of.value_heads),
      out = mat(tokens, of.value_heads * of.value_dim), dout = mat(tokens, of.value_heads * of.value_dim),
      gate = mat(tokens, of.value_heads * of.value_dim), dgate = mat(tokens, of.value_heads * of.value_dim),
      weight = mat(1, of.value_dim);
  auto* rates = static_cast<float*>(x.buffer(static_cast<size_t>(of.value_heads) * 4));
  auto* rstd = static_cast<float*>(x.buffer(static_cast<size_t>(tokens * of.value_heads) * 4));
  const ConstMat rate{rates, 1, of.value_heads, of.value_heads, DType::kF32};
  CausalConv c;
  c.x = qkv, c.w = taps, c.y = conv, c.cu_seqlens = documents, c.documents = document_count;
  x.report("causal_conv", T * W * 4, 0, [&] { x.ops.causal_conv(c); });
  CausalConvGrad cg;
  cg.x = qkv, cg.w = taps, cg.dy = conv, cg.dx = dqkv, cg.cu_seqlens = documents, cg.documents = document_count;
  x.report("causal_conv_grad", T * W * 6, 0, [&] { x.ops.causal_conv_grad(cg); });
  GatedDelta g;
  g.qkv = qkv, g.ba = ba, g.a_log = rate, g.dt_bias = rate, g.out = out, g.of = of, g.cu_seqlens = documents,
  g.documents = document_count;
  x.report("gated_delta", T * (W + V) * 2, 0, [&] { x.ops.gated_delta(g); });
  GatedDeltaGrad gg;
  gg.qkv = qkv, gg.ba = ba, gg.a_log = rate, gg.dt_bias = rate, gg.dout = dout, gg.dqkv = dqkv, gg.dba = dba,
  gg.of = of;
  gg.cu_seqlens = documents, gg.documents = document_count;
  x.report("gated_delta_grad", T * (2 * W + V) * 2, 0, [&] { x.ops.gated_delta_grad(gg); });
  GatedNorm n;
  n.x = out, n.gate = gate, n.w = weight, n.y = dout, n.rstd = rstd;
  x.report("gated_norm", T * V * 6, 0, [&] { x.ops.gated_norm(n); });
  GatedNormGrad ng;
  ng.x = out, ng.gate = gate, ng.w = weight, ng.dy = dout, ng.rstd = rstd, ng.dx = out, ng.dgate = dgate;
  x.report("gated_norm_grad", T * V * 10, 0, [&] { x.ops.gated_norm_grad(ng); });
}

}  // namespace
}  // namespace mxt

// gpu_kernels [TOKENS [LENGTH [hybrid | HEADS KEY_HEADS [ONLY]]]]      ONLY: what the kernels' names begin with
int main(int argc, char** argv) {
  try {
    const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 8192, length = argc > 2 ? std::atoll(argv[2]) : 4096;
    if (argc == 4)
      mxt::run_hybrid(tokens, length);
    else
      mxt::run(tokens, length, argc > 4 ? std::atoll(argv[3]) : 32, argc > 4 ? std::atoll(argv[4]) : 8,
               argc > 5 ? argv[5] : "");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
  }
}

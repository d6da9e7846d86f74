// Speed of each gemm candidate on the shapes of a SmolLM2-135M LoRA step and of nanoGPT's small CPU run. Candidates
// take turns, so that a busy machine slows all of them alike; the best time counts. The last column is what one call of
// oneDNN reaches alone on the same shape, in fp32 where it has no bf16 for this processor.
//   gemm_bench [rounds] [filter] [threads]
//   gemm_bench alone ROUNDS THREADS M,N,K,NT|NN|TN,f32|bf16,COUNT…     oneDNN by itself on these products, as one line
//   of JSON:
//                                                                      what a whole step of them would take at its best
//                                                                      times
// With one thread the thread's own processor time is measured, which other programs disturb least.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/threads.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm/onednn.h"

namespace mxt::kernels {
namespace {

struct Shape {
  const char* name;
  int64_t m, n, k;
  bool trans_a, trans_b, accumulate;
  DType ab, c;
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

constexpr DType kF = DType::kF32, kB = DType::kBF16;

const std::vector<Shape> kShapes = {
    {"smol qkv", 1024, 960, 576, false, true, false, kB, kB},
    {"smol o", 1024, 576, 576, false, true, false, kB, kB},
    {"smol gate+up", 1024, 3072, 576, false, true, false, kB, kB},
    {"smol down", 1024, 576, 1536, false, true, false, kB, kB},
    {"smol head 256 rows", 256, 49152, 576, false, true, false, kB, kB},
    {"smol head dx", 256, 576, 49152, false, false, false, kB, kB},
    {"smol dx qkv", 1024, 576, 960, false, false, false, kB, kB},
    {"smol dx gate+up", 1024, 576, 3072, false, false, false, kB, kB},
    {"smol dx down", 1024, 1536, 576, false, false, false, kB, kB},
    {"lora z = x At", 1024, 48, 576, false, true, false, kB, kB},
    {"lora y += z Bt", 1024, 576, 16, false, true, true, kB, kB},
    {"lora y += z Bt, wide", 1024, 1536, 16, false, true, true, kB, kB},
    {"lora dz = dy B", 1024, 16, 576, false, false, false, kB, kB},
    {"lora dz = dy B, wide", 1024, 16, 1536, false, false, false, kB, kB},
    {"lora dB += dyt z", 576, 16, 1024, true, false, true, kB, kF},
    {"lora dB += dyt z, wide", 1536, 16, 1024, true, false, true, kB, kF},
    {"lora dA += dzt x", 48, 576, 1024, true, false, true, kB, kF},
    {"lora dx += dz A", 1024, 576, 48, false, false, true, kB, kB},
    {"full dW", 576, 1536, 1024, true, false, true, kB, kF},
    {"decode 1", 1, 1536, 576, false, true, false, kB, kB},
    {"decode 8", 8, 1536, 576, false, true, false, kB, kB},
    {"decode head", 1, 49152, 576, false, true, false, kB, kB},
    {"nano qkv f32", 768, 384, 128, false, true, false, kF, kF},
    {"nano mlp f32", 768, 512, 128, false, true, false, kF, kF},
    {"nano dx f32", 768, 128, 512, false, false, false, kF, kF},
    {"nano dx up f32", 768, 512, 128, false, false, false, kF, kF},
    {"nano down f32", 768, 128, 512, false, true, false, kF, kF},
    {"nano dW f32", 512, 128, 768, true, false, true, kF, kF},
    {"nano dW down f32", 128, 512, 768, true, false, true, kF, kF},
    {"nano dW qkv f32", 384, 128, 768, true, false, true, kF, kF},
    {"nano dW o f32", 128, 128, 768, true, false, true, kF, kF},
    {"nano head f32", 768, 65, 128, false, true, false, kF, kF},
    {"nano qkv bf16", 768, 384, 128, false, true, false, kB, kB},
    {"nano dx bf16", 768, 128, 512, false, false, false, kB, kB},
    {"nano dW bf16", 512, 128, 768, true, false, true, kB, kF},
    {"nanochat d4 qkv f32", 4096, 256, 256, false, true, false, kF, kF},
    {"nanochat d4 up f32", 4096, 1024, 256, false, true, false, kF, kF},
    {"nanochat d4 down f32", 4096, 256, 1024, false, true, false, kF, kF},
    {"nanochat d4 dx up f32", 4096, 256, 1024, false, false, false, kF, kF},
    {"nanochat d4 dx down f32", 4096, 1024, 256, false, false, false, kF, kF},
    {"nanochat d4 dW f32", 256, 256, 4096, true, false, true, kF, kF},
    {"nanochat d4 dW up f32", 1024, 256, 4096, true, false, true, kF, kF},
    {"nanochat d4 dW down f32", 256, 1024, 4096, true, false, true, kF, kF},
    {"nanochat d4 head f32", 1024, 4096, 256, false, true, false, kF, kF},
    {"square f32", 1024, 1024, 1024, false, true, false, kF, kF},
    {"square bf16", 1024, 1024, 1024, false, true, false, kB, kB},
};

struct Aligned {
  void* p;
  explicit Aligned(size_t n) : p(::operator new(n + 64, std::align_val_t(64))) { std::memset(p, 0, n); }
  ~Aligned() { ::operator delete(p, std::align_val_t(64)); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
};

double seconds() {
  if (num_threads() == 1) {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::string> columns() {
  auto names = cpu::gemm_algorithms();
  names.push_back("oneDNN alone");
  return names;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

// Enough copies of the operands to leave the caches, as in a step of a whole model; large enough for `ab` and `ct`.
struct Operands {
  Operands(const Shape& s, DType ab, DType ct)
      : ar(s.trans_a ? s.k : s.m), ac(s.trans_a ? s.m : s.k), br(s.trans_b ? s.n : s.k), bc(s.trans_b ? s.k : s.n) {
    const auto bytes_of = [](int64_t r, int64_t c, DType t) { return static_cast<size_t>(r * c) * size_of(t); };
    bytes = static_cast<double>(bytes_of(ar, ac, s.ab) + bytes_of(br, bc, s.ab) +
                                bytes_of(s.m, s.n, s.c) * (s.accumulate ? 2 : 1));
    copies = static_cast<int>(std::clamp(64e6 / bytes, 1.0, 16.0));
    for (int i = 0; i < copies; ++i) {
      a.push_back(std::make_unique<Aligned>(bytes_of(ar, ac, ab)));
      b.push_back(std::make_unique<Aligned>(bytes_of(br, bc, ab)));
      c.push_back(std::make_unique<Aligned>(bytes_of(s.m, s.n, ct)));
    }
  }
  Gemm gemm(int copy, const Shape& s, DType ab, DType ct) const {
    const auto at = static_cast<size_t>(copy);
    Gemm g;
    g.a = {a[at]->p, ar, ac, ac, ab}, g.b = {b[at]->p, br, bc, bc, ab}, g.c = {c[at]->p, s.m, s.n, s.n, ct};
    g.trans_a = s.trans_a, g.trans_b = s.trans_b, g.accumulate = s.accumulate;
    return g;
  }
  int64_t ar, ac, br, bc;
  double bytes;
  int copies;
  std::vector<std::unique_ptr<Aligned>> a, b, c;
};

void measure(const Shape& s, int rounds) {
  const bool same = cpu::onednn_usable(s.ab);
  const DType alone_ab = same ? s.ab : kF, alone_c = same ? s.c : kF;
  const Operands o(s, alone_ab, alone_c);
  const auto names = columns();
  std::vector<double> best(names.size(), 1e9);
  for (int round = -1; round < rounds; ++round)
    for (size_t algo = 0; algo < names.size(); ++algo) {
      const bool alone = algo + 1 == names.size();
      double start = 0;
      for (int i = -1; i < o.copies; ++i) {
        Gemm g = o.gemm(std::max(i, 0), s, alone ? alone_ab : s.ab, alone ? alone_c : s.c);
        if (!alone) g.algo = static_cast<int>(algo);
        if (i == 0) start = seconds();
        if (alone)
          cpu::onednn_whole(g);
        else
          cpu::gemm(g);
      }
      if (round >= 0) best[algo] = std::min(best[algo], (seconds() - start) / o.copies);
    }
  fmt::print("{:<24}{:>6}{:>7}{:>7}", s.name, s.m, s.n, s.k);
  for (double t : best)
    fmt::print("  {:>8.1f} us {:>6.0f} GF/s {:>5.1f} GB/s", t * 1e6, s.flops() / t * 1e-9, o.bytes / t * 1e-9);
  fmt::print("\n");
}

// oneDNN's best time for each of the products, weighted by how often a step has it.
int alone(int argc, char** argv) {
  const int rounds = std::atoi(argv[2]);
  set_num_threads(std::atoi(argv[3]));
  double flops = 0, time = 0;
  bool bf16 = true;
  for (int i = 4; i < argc; ++i) {
    const std::vector<std::string> f = split(argv[i]);
    if (f.size() != 6) return fmt::print(stderr, "{}: not M,N,K,NT|NN|TN,f32|bf16,COUNT\n", argv[i]), 1;
    Shape s{"",
            std::atoll(f[0].c_str()),
            std::atoll(f[1].c_str()),
            std::atoll(f[2].c_str()),
            f[3][0] == 'T',
            f[3][1] == 'T',
            false,
            kF,
            kF};
    if (f[4] == "bf16" && cpu::onednn_usable(kB))
      s.ab = s.c = kB;
    else
      bf16 = false;
    const Operands o(s, s.ab, s.c);
    double best = 1e9;
    for (int round = -1; round < rounds; ++round) {
      const double start = seconds();
      for (int c = 0; c < o.copies; ++c) cpu::onednn_whole(o.gemm(c, s, s.ab, s.c));
      if (round >= 0) best = std::min(best, (seconds() - start) / o.copies);
    }
    const double count = std::atof(f[5].c_str());
    flops += count * s.flops();
    time += count * best;
  }
  fmt::print("{{\"flops\": {:.6g}, \"seconds\": {:.6g}, \"tflops\": {:.4g}, \"bf16\": {}}}\n", flops, time,
             flops / time * 1e-12, bf16);
  return 0;
}

}  // namespace
}  // namespace mxt::kernels

int main(int argc, char** argv) {
  if (argc > 4 && std::string(argv[1]) == "alone") return mxt::kernels::alone(argc, argv);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const std::string filter = argc > 2 ? argv[2] : "";
  if (argc > 3) mxt::set_num_threads(std::atoi(argv[3]));
  fmt::print("{:<24}{:>6}{:>7}{:>7}", "threads " + std::to_string(mxt::num_threads()), "m", "n", "k");
  for (const auto& name : mxt::kernels::columns()) fmt::print("  {:^34}", name);
  fmt::print("\n");
  for (const auto& s : mxt::kernels::kShapes)
    if (std::string(s.name).find(filter) != std::string::npos) mxt::kernels::measure(s, rounds);
}

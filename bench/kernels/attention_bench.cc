// Speed of each attention candidate, forward and backward, on the shapes that matter on a CPU. The rate counts the
// multiplications of the visible half only (4·d a query-key pair forward, 10·d backward).
//   attention_bench [rounds] [threads]
// With one thread the thread's own processor time is measured, which other programs disturb least.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/threads.h"
#include "kernels/cpu/attention.h"

namespace mxt::kernels {
namespace {

struct Shape {
  const char* name;
  int64_t documents, length, heads, kv_heads, d;
  DType type;
};

const std::vector<Shape> kShapes = {
    {"smol 4x256", 4, 256, 9, 3, 64, DType::kBF16},     {"smol 16x60", 16, 60, 9, 3, 64, DType::kBF16},
    {"smol 4x256 f32", 4, 256, 9, 3, 64, DType::kF32},  {"qwen 2x512", 2, 512, 16, 8, 128, DType::kBF16},
    {"qwen 1x2048", 1, 2048, 16, 8, 128, DType::kBF16}, {"nano 12x64", 12, 64, 4, 4, 32, DType::kBF16},
    {"nano 12x64 f32", 12, 64, 4, 4, 32, DType::kF32},
};

double seconds() {
  timespec t;
  clock_gettime(num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void measure(const Shape& s, int rounds) {
  const int64_t t = s.documents * s.length, hq = s.heads * s.d, hk = s.kv_heads * s.d, width = hq + 2 * hk;
  const auto size = static_cast<int64_t>(size_of(s.type));
  std::vector<char> qkv(static_cast<size_t>(t * width * size)), dqkv(qkv.size()),
      out(static_cast<size_t>(t * hq * size)), dout(out.size());
  for (auto* v : {&qkv, &dout})
    for (size_t i = 0; i < v->size() / static_cast<size_t>(size); ++i) {
      const float x = static_cast<float>((i * 2654435761u >> 20) % 1000) / 500 - 1;
      if (s.type == DType::kF32)
        reinterpret_cast<float*>(v->data())[i] = x;
      else
        reinterpret_cast<uint16_t*>(v->data())[i] = float_to_bf16(x);
    }
  std::vector<float> lse(static_cast<size_t>(s.heads * t));
  std::vector<int32_t> cu;
  for (int64_t i = 0; i <= s.documents; ++i) cu.push_back(static_cast<int32_t>(i * s.length));
  auto columns = [&](std::vector<char>& v, int64_t at, int64_t cols) {
    return Mat{v.data() + at * size, t, cols, width, s.type};
  };
  const double pairs = static_cast<double>(s.documents * s.heads) * static_cast<double>(s.length * (s.length + 1)) / 2;
  fmt::print("{:<16}", s.name);
  for (size_t algo = 0; algo < cpu::attention_algorithms().size(); ++algo) {
    double forward = 1e9, backward = 1e9;
    for (int round = -1; round < rounds; ++round) {
      Attention a;
      a.q = columns(qkv, 0, hq), a.k = columns(qkv, hq, hk), a.v = columns(qkv, hq + hk, hk);
      a.out = {out.data(), t, hq, hq, s.type}, a.lse = lse.data(), a.cu_seqlens = cu.data();
      a.documents = s.documents, a.heads = s.heads, a.kv_heads = s.kv_heads, a.head_dim = s.d;
      a.scale = 1 / std::sqrt(static_cast<float>(s.d)), a.algo = static_cast<int>(algo);
      const double t0 = seconds();
      cpu::attention(a);
      const double t1 = seconds();
      AttentionGrad g;
      g.q = a.q, g.k = a.k, g.v = a.v, g.out = a.out, g.dout = {dout.data(), t, hq, hq, s.type}, g.lse = lse.data();
      g.dq = columns(dqkv, 0, hq), g.dk = columns(dqkv, hq, hk), g.dv = columns(dqkv, hq + hk, hk),
      g.cu_seqlens = cu.data();
      g.documents = s.documents, g.heads = s.heads, g.kv_heads = s.kv_heads, g.head_dim = s.d, g.scale = a.scale,
      g.algo = a.algo;
      cpu::attention_grad(g);
      const double t2 = seconds();
      if (round >= 0) forward = std::min(forward, t1 - t0), backward = std::min(backward, t2 - t1);
    }
    fmt::print("  {:>7.0f} us {:>4.0f} GF/s {:>8.0f} us {:>4.0f} GF/s", forward * 1e6,
               4e-9 * static_cast<double>(s.d) * pairs / forward, backward * 1e6,
               10e-9 * static_cast<double>(s.d) * pairs / backward);
  }
  fmt::print("\n");
}

}  // namespace
}  // namespace mxt::kernels

int main(int argc, char** argv) {
  if (argc > 2) mxt::set_num_threads(std::atoi(argv[2]));
  fmt::print("{:<16}", "threads " + std::to_string(mxt::num_threads()));
  for (const auto& name : mxt::kernels::cpu::attention_algorithms())
    fmt::print("  {:^44}", name + " forward, backward");
  fmt::print("\n");
  for (const auto& s : mxt::kernels::kShapes) mxt::kernels::measure(s, argc > 1 ? std::atoi(argv[1]) : 5);
}

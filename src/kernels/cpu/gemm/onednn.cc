#include "kernels/cpu/gemm/onednn.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/threads.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace mxt::kernels::cpu {
namespace {

struct Key {
  int64_t m, n, k, lda, ldb, ldc;
  uint32_t alpha;
  int32_t threads;
  uint8_t ab_type, c_type, bias, trans_a, trans_b, accumulate, pad[2];
  bool operator==(const Key& o) const { return std::memcmp(this, &o, sizeof(Key)) == 0; }
};
static_assert(sizeof(Key) == 64, "no padding: keys are compared as bytes");

struct Hash {
  size_t operator()(const Key& key) const {
    uint64_t words[sizeof(Key) / 8], h = 0x9e3779b97f4a7c15u;
    std::memcpy(words, &key, sizeof(Key));
    for (uint64_t w : words) h = (h ^ w) * 0xff51afd7ed558ccdu, h ^= h >> 32;
    return h;
  }
};

// A primitive with the memory objects of its arguments: a call only sets pointers.
struct Entry {
  dnnl::primitive primitive;
  dnnl::memory a, b, c, bias, scratch;
  std::vector<dnnl_exec_arg_t> args;
  size_t scratch_bytes = 0;
};

constexpr size_t kMaxEntries = 2048;  // tokens vary from step to step; past this the thread's cache starts anew

dnnl::engine& engine() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

int region_threads() {
#ifdef _OPENMP
  if (omp_in_parallel()) return 1;
#endif
  return num_threads();
}

Key key_of(const Gemm& g) {
  Key key{};
  key.m = g.c.rows, key.n = g.c.cols, key.k = g.trans_a ? g.a.rows : g.a.cols;
  key.lda = g.a.ld, key.ldb = g.b.ld, key.ldc = g.c.ld;
  std::memcpy(&key.alpha, &g.alpha, 4);
  key.threads = region_threads();
  key.ab_type = static_cast<uint8_t>(g.a.type), key.c_type = static_cast<uint8_t>(g.c.type);
  key.bias = g.bias ? static_cast<uint8_t>(1 + static_cast<int>(g.bias_type)) : 0;
  key.trans_a = g.trans_a, key.trans_b = g.trans_b, key.accumulate = g.accumulate;
  return key;
}

dnnl::memory::data_type type_of(DType t) {
  MXT_ASSERT(t == DType::kF32 || t == DType::kBF16);
  return t == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc plain(int64_t rows, int64_t cols, int64_t ld, bool transposed, DType t) {
  return {{rows, cols}, type_of(t), transposed ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1}};
}

std::unique_ptr<Entry> build(const Gemm& g, const Key& key) {
  const auto a = plain(key.m, key.k, g.a.ld, g.trans_a, g.a.type);
  const auto b = plain(key.k, key.n, g.b.ld, g.trans_b, g.b.type);
  const auto c = plain(key.m, key.n, g.c.ld, false, g.c.type);
  const auto bias = g.bias ? plain(1, key.n, key.n, false, g.bias_type) : dnnl::memory::desc();
  // oneDNN scales (A·B + bias); with both, the bias is added after the scale instead.
  const bool late_bias = g.bias && g.alpha != 1.0f;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
  if (g.alpha != 1.0f) attr.set_output_scales(0, {g.alpha});
  dnnl::post_ops post;
  if (g.accumulate) post.append_sum(1.0f);
  if (late_bias) post.append_binary(dnnl::algorithm::binary_add, bias);
  attr.set_post_ops(post);
  const auto desc = g.bias && !late_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc pd(desc, attr, engine());

  auto e = std::make_unique<Entry>();
  e->primitive = dnnl::matmul(pd);
  e->a = {a, engine(), DNNL_MEMORY_NONE}, e->b = {b, engine(), DNNL_MEMORY_NONE},
  e->c = {c, engine(), DNNL_MEMORY_NONE};
  e->args = {{DNNL_ARG_SRC, e->a.get()}, {DNNL_ARG_WEIGHTS, e->b.get()}, {DNNL_ARG_DST, e->c.get()}};
  if (g.bias) {
    e->bias = {bias, engine(), DNNL_MEMORY_NONE};
    e->args.push_back({late_bias ? DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1 : DNNL_ARG_BIAS, e->bias.get()});
  }
  e->scratch_bytes = pd.scratchpad_desc().get_size();
  if (e->scratch_bytes > 0) {
    e->scratch = {pd.scratchpad_desc(), engine(), DNNL_MEMORY_NONE};
    e->args.push_back({DNNL_ARG_SCRATCHPAD, e->scratch.get()});
  }
  return e;
}

Entry& find(const Gemm& g) {
  thread_local std::unordered_map<Key, std::unique_ptr<Entry>, Hash> cache;
  const Key key = key_of(g);
  auto it = cache.find(key);
  if (it == cache.end()) {
    if (cache.size() >= kMaxEntries) cache.clear();
    it = cache.emplace(key, build(g, key)).first;
  }
  return *it->second;
}

// Each thread keeps the largest scratchpad it needed: tiles are small, and so is this.
void* scratch_memory(size_t need) {
  struct Free {
    void operator()(void* p) const { ::operator delete(p, std::align_val_t(64)); }
  };
  thread_local std::unique_ptr<void, Free> own;
  thread_local size_t have = 0;
  if (have < need) {
    own.reset();
    own.reset(::operator new(need, std::align_val_t(64)));
    have = need;
  }
  return own.get();
}

void set(dnnl::memory& m, const void* p) {
  dnnl::error::wrap_c_api(dnnl_memory_set_data_handle(m.get(), const_cast<void*>(p)), "oneDNN: set_data_handle");
}

}  // namespace

bool onednn_usable(DType t) {
#ifdef _OPENMP
  static const bool bf16 = [] {
    const auto isa = dnnl::get_effective_cpu_isa();
    return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  }();
  return t == DType::kF32 || (t == DType::kBF16 && bf16);
#else
  (void)t;
  return false;
#endif
}

bool onednn_has_amx() { return dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx; }

void onednn_whole(const Gemm& g) {
  Entry& e = find(g);
  set(e.a, g.a.p), set(e.b, g.b.p), set(e.c, g.c.p);
  if (g.bias) set(e.bias, g.bias);
  if (e.scratch_bytes > 0) set(e.scratch, scratch_memory(e.scratch_bytes));
  thread_local dnnl::stream stream(engine());
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(e.primitive.get(), stream.get(), static_cast<int>(e.args.size()), e.args.data()),
      "oneDNN: matmul");
}

namespace {

// oneDNN plans a primitive for the number of threads it sees: one, inside this scope.
class OneThread {
 public:
  OneThread() : before_(num_threads()) { set_num_threads(1); }
  ~OneThread() { set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// How the output is cut: by its shape alone. A tile packs its columns of B: the more rows share them the better, as
// long as there are tiles for many cores. Tiles of whole rows of C are up to twice as fast as others where k is short
// or the output small (AMX, nanoGPT's products: 195 → 102 µs for 768 × 512 with k = 128), and 192 rows faster than 128.
// Else an output of few tiles is cut into four of nearly one size, so that two or four threads end together.
struct Tiles {
  int64_t rows, cols;
  Tiles(int64_t m, int64_t n, int64_t k) : rows(m >= 2048 ? 512 : 256), cols(192) {
    constexpr int64_t kFew = 10, kRound = 32, kLeast = 128, kShort = 128, kThin = 64, kWhole = 576;
    const bool few = ((m + rows - 1) / rows) * ((n + cols - 1) / cols) < kFew;
    if (m >= kLeast && n >= kThin && n <= kWhole && (few || k <= kShort)) {
      cols = n;
      if (few) rows = std::min<int64_t>(192, ((m + 1) / 2 + kRound - 1) / kRound * kRound);
      return;
    }
    if (!few) return;
    rows = m, cols = n;
    for (int i = 0; i < 2; ++i) {
      int64_t& longer = rows >= cols ? rows : cols;
      if (longer >= kLeast) longer = ((longer + 1) / 2 + kRound - 1) / kRound * kRound;
    }
  }
};

template <typename M>
M block(const M& x, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  M out = x;
  const auto offset = static_cast<size_t>(row * x.ld + col) * size_of(x.type);
  out.p = static_cast<char*>(const_cast<void*>(static_cast<const void*>(x.p))) + offset;
  out.rows = rows, out.cols = cols;
  return out;
}

}  // namespace

void onednn_gemm(const Gemm& g) {
  const int64_t m = g.c.rows, n = g.c.cols, k = g.trans_a ? g.a.rows : g.a.cols;
  const Tiles tile(m, n, k);
  const int64_t down = (m + tile.rows - 1) / tile.rows, across = (n + tile.cols - 1) / tile.cols;
  parallel_for(0, down * across, 1, [&](int64_t i, int64_t) {
    const int64_t row = i % down * tile.rows, rows = std::min(tile.rows, m - row);
    const int64_t col = i / down * tile.cols, cols = std::min(tile.cols, n - col);
    Gemm t = g;
    t.a = g.trans_a ? block(g.a, 0, k, row, rows) : block(g.a, row, rows, 0, k);
    t.b = g.trans_b ? block(g.b, col, cols, 0, k) : block(g.b, 0, k, col, cols);
    t.c = block(g.c, row, rows, col, cols);
    if (g.bias) t.bias = static_cast<const char*>(g.bias) + static_cast<size_t>(col) * size_of(g.bias_type);
    const OneThread one;
    onednn_whole(t);
  });
}

}  // namespace mxt::kernels::cpu

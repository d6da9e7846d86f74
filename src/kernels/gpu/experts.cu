// Mixture of experts but for its products (kernels/experts.h): routing, the order of routed rows, and the ways between
// tokens and them. Sums are taken in one order, so results are the same every time.
#include <type_traits>

#include "kernels/gpu/element.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256, kRouteThreads = 128, kChunk = 256, kFewThreads = 512, kFewSlots = 128;
constexpr int64_t kExperts = 1024, kFewExperts = 512;

struct RouteArgs {
  const void* logits;
  void* weights;
  float* probabilities;
  int32_t* expert;
  int64_t ldl, ldw, ldp;
  int experts, k;
  bool half_logits, half_weights, renormalize;
};

// A warp a token, the same bits however many there are: the softmax, and the largest k, of equal ones the lower index;
// what is no number counts as −∞. A lane holds kEach logits; `probability` [experts] is the warp's own.
template <int kEach>
__device__ __forceinline__ void route_token(const RouteArgs& a, int64_t t, float* probability) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float logit[kEach], largest = -INFINITY, sum = 0, whole = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int e = lane + i * kWarp;
    logit[i] = e < a.experts ? get(a.logits, a.half_logits, t * a.ldl + e) : -INFINITY;
    largest = fmaxf(largest, logit[i]);
  }
  largest = warp_max(largest);
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (lane + i * kWarp < a.experts) sum += expf(logit[i] - largest);
  sum = warp_sum(sum);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int e = lane + i * kWarp;
    if (e < a.experts) a.probabilities[t * a.ldp + e] = probability[e] = expf(logit[i] - largest) / sum;
    if (isnan(logit[i])) logit[i] = -INFINITY;
  }
  sync_warp();
  uint32_t taken = 0;  // bit i: this lane's i-th
  for (int j = 0; j < a.k; ++j) {
    float value = -INFINITY;
    int index = a.experts;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = lane + i * kWarp;
      if (e < a.experts && (taken >> i & 1) == 0 && (logit[i] > value || index == a.experts))
        value = logit[i], index = e;
    }
#pragma unroll
    for (int m = kWarp / 2; m > 0; m /= 2) {
      const float other = shuffle_xor(value, m);
      const int at = shuffle_xor(index, m);
      if (at < a.experts && (index == a.experts || other > value || (other == value && at < index)))
        value = other, index = at;
    }
    if (index % kWarp == lane) taken |= 1u << (index / kWarp);
    if (j % kWarp == lane) a.expert[t * a.k + j] = index;
    whole += probability[index];
  }
  for (int j = lane; j < a.k; j += kWarp)  // of those that this lane has noted
    put(a.weights, a.half_weights, t * a.ldw + j, probability[a.expert[t * a.k + j]] / (a.renormalize ? whole : 1.0f));
}

template <int kEach>
__global__ void __launch_bounds__(kRouteThreads) route_kernel(RouteArgs a, int64_t tokens) {
  extern __shared__ float probabilities[];  // [warps, experts]
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * (kRouteThreads / kWarp) + warp;
  allow_next_grid();
  wait_for_previous_grid();
  if (t < tokens) route_token<kEach>(a, t, probabilities + warp * a.experts);
}

// Few slots (a pass of generation): one block routes them and sorts them.
template <int kEach>
__global__ void __launch_bounds__(kFewThreads)
    route_few_kernel(RouteArgs a, int tokens, int32_t* first, int32_t* row, int32_t* slot) {
  extern __shared__ float probabilities[];  // [warps, experts]
  __shared__ int32_t of[kFewSlots];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, slots = tokens * a.k;
  allow_next_grid();
  wait_for_previous_grid();
  for (int t = warp; t < tokens; t += kFewThreads / kWarp) route_token<kEach>(a, t, probabilities + warp * a.experts);
  __syncthreads();
  for (int s = static_cast<int>(threadIdx.x); s < slots; s += kFewThreads) of[s] = a.expert[s];
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e <= a.experts; e += kFewThreads) {
    int32_t before = 0;
    for (int i = 0; i < slots; ++i) before += of[i] < e;
    first[e] = before;
  }
  for (int s = static_cast<int>(threadIdx.x); s < slots; s += kFewThreads) {
    int32_t before = 0;
    for (int i = 0; i < slots; ++i) before += of[i] < of[s] || (of[i] == of[s] && i < s);
    row[s] = before;
    slot[before] = s;
  }
}

// A counting sort of slots by expert that keeps their order: how many of each expert a chunk of slots has, …
__global__ void __launch_bounds__(kChunk)
    count_kernel(const int32_t* expert, int64_t slots, int experts, int32_t* counts) {
  extern __shared__ int32_t here[];
  allow_next_grid();
  wait_for_previous_grid();
  for (int e = threadIdx.x; e < experts; e += kChunk) here[e] = 0;
  __syncthreads();
  const int64_t s = static_cast<int64_t>(blockIdx.x) * kChunk + threadIdx.x;
  if (s < slots) atomicAdd(here + expert[s], 1);
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kChunk) counts[static_cast<int64_t>(blockIdx.x) * experts + e] = here[e];
}
// … where each chunk's begin, …
__global__ void __launch_bounds__(1024) place_kernel(int32_t* counts, int64_t chunks, int experts, int32_t* first) {
  __shared__ int32_t total[kExperts];
  allow_next_grid();
  wait_for_previous_grid();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += 1024) {
    int32_t sum = 0;
    for (int64_t c = 0; c < chunks; ++c) {
      const int32_t n = counts[c * experts + e];
      counts[c * experts + e] = sum;
      sum += n;
    }
    total[e] = sum;
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e <= experts; e += 1024) {
    int32_t before = 0;
    for (int i = 0; i < e; ++i) before += total[i];
    first[e] = before;
    for (int64_t c = 0; e < experts && c < chunks; ++c) counts[c * experts + e] += before;
  }
}
// … and each slot its row: behind those of its expert that come before it.
__global__ void __launch_bounds__(kChunk)
    rank_kernel(const int32_t* expert, int64_t slots, int experts, const int32_t* counts, int32_t* row, int32_t* slot) {
  __shared__ int32_t of[kChunk];
  allow_next_grid();
  wait_for_previous_grid();
  const int64_t s = static_cast<int64_t>(blockIdx.x) * kChunk + threadIdx.x;
  const int32_t mine = s < slots ? expert[s] : -1;
  of[threadIdx.x] = mine;
  __syncthreads();
  if (s >= slots) return;
  int32_t before = 0;
  for (unsigned i = 0; i < threadIdx.x; ++i) before += of[i] == mine;
  const int32_t r = counts[static_cast<int64_t>(blockIdx.x) * experts + mine] + before;
  row[s] = r;
  slot[r] = static_cast<int32_t>(s);
}

struct RouteGradArgs {
  const float *probabilities, *dweights, *balance;
  const int32_t *expert, *runs;
  void* dlogits;
  int64_t ldp, ldw, ldb, ldd, documents;
  int experts, k;
  bool half, renormalize;
};

__global__ void __launch_bounds__(kRouteThreads) route_grad_kernel(RouteGradArgs a) {
  extern __shared__ float dp[];
  __shared__ float space[kRouteThreads / kWarp];
  __shared__ int64_t document;
  const int64_t t = blockIdx.x;
  const float* p = a.probabilities + t * a.ldp;
  if (threadIdx.x == 0) {
    int64_t d = 0, end = a.documents;  // the first whose end lies behind the token
    while (d < end) {
      const int64_t middle = (d + end) / 2;
      if (a.runs[middle + 1] > t)
        end = middle;
      else
        d = middle + 1;
    }
    document = d;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < a.experts; e += kRouteThreads)
    dp[e] = document < a.documents ? a.balance[document * a.ldb + e] : 0.0f;
  __syncthreads();
  if (threadIdx.x == 0) {
    float whole = 1, mean = 0;
    if (a.renormalize && a.k > 0) {
      whole = 0;
      for (int j = 0; j < a.k; ++j) whole += p[a.expert[t * a.k + j]];
      for (int j = 0; j < a.k; ++j) mean += p[a.expert[t * a.k + j]] / whole * a.dweights[t * a.ldw + j];
    }
    for (int j = 0; j < a.k; ++j) dp[a.expert[t * a.k + j]] += (a.dweights[t * a.ldw + j] - mean) / whole;
  }
  __syncthreads();
  float sum = 0;
  for (int e = threadIdx.x; e < a.experts; e += kRouteThreads) sum += p[e] * dp[e];
  sum = block_sum(sum, space);
  for (int e = threadIdx.x; e < a.experts; e += kRouteThreads)
    put(a.dlogits, a.half, t * a.ldd + e, p[e] * (dp[e] - sum));
}

// A warp a routed row; it asks for several packs of it before it writes the first.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const void* x, int64_t ldx, const int32_t* slot, int32_t k, const void* weights, int64_t ldw, void* y,
                  int64_t ldy, int64_t rows, int64_t cols) {
  constexpr int kPacks = 4, kStep = kWarp * V;
  const int64_t r = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  // In this order: a product that starts early then knows that the routing has ended, and which experts it reads.
  wait_for_previous_grid();
  allow_next_grid();
  if (r >= rows) return;
  const int64_t t = slot[r] / k, j = slot[r] % k;
  const float w = weights == nullptr ? 1.0f : to_float(static_cast<const T*>(weights)[t * ldw + j]);
  for (int64_t i = threadIdx.x % kWarp * V; i < cols; i += kPacks * kStep) {
    Raw<T, V> pack[kPacks];
#pragma unroll
    for (int n = 0; n < kPacks; ++n)
      if (i + n * kStep < cols) pack[n] = load<T, V>(x, t * ldx + i + n * kStep);
#pragma unroll
    for (int n = 0; n < kPacks; ++n) {
      if (i + n * kStep >= cols) continue;
      float f[V];
      pack[n].unpack(f);
#pragma unroll
      for (int e = 0; e < V; ++e) f[e] *= w;
      store_streaming<T, V>(y, r * ldy + i + n * kStep, Raw<T, V>::pack(f));  // x stays in the cache instead
    }
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const void* x, int64_t ldx, const int32_t* row, int64_t k, const void* weights, int64_t ldw,
               const void* add, int64_t lda, void* y, int64_t ldy, int64_t cols) {
  const int64_t t = blockIdx.x;
  allow_next_grid();
  wait_for_previous_grid();
  for (int64_t i = threadIdx.x * V; i < cols; i += kThreads * V) {
    float sum[V] = {}, f[V];
#pragma unroll 4
    for (int64_t j = 0; j < k; ++j) {
      const float w = weights == nullptr ? 1.0f : to_float(static_cast<const T*>(weights)[t * ldw + j]);
      load<T, V>(x, row[t * k + j] * ldx + i).unpack(f);
#pragma unroll
      for (int n = 0; n < V; ++n) sum[n] += w * f[n];
    }
    if (add != nullptr) {
      load<T, V>(add, t * lda + i).unpack(f);
#pragma unroll
      for (int n = 0; n < V; ++n) sum[n] += f[n];
    }
    store<T, V>(y, t * ldy + i, Raw<T, V>::pack(sum));
  }
}

// A warp a slot.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    dots_kernel(const void* dy, int64_t lddy, const void* x, int64_t ldx, const int32_t* row, int64_t slots, int32_t k,
                float* dweights, int64_t ldw, int64_t cols) {
  const int64_t s = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (s >= slots) return;
  const auto slot = static_cast<int32_t>(s);
  const int64_t t = slot / k, r = row[s];
  float sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x % kWarp * V; i < cols; i += kWarp * V) {
    float a[V], b[V];
    load<T, V>(dy, t * lddy + i).unpack(a);
    load<T, V>(x, r * ldx + i).unpack(b);
#pragma unroll
    for (int e = 0; e < V; ++e) sum += a[e] * b[e];
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) dweights[t * ldw + slot % k] = sum;
}

// A block a run and expert.
__global__ void __launch_bounds__(kThreads)
    load_kernel(const int32_t* expert, int64_t k, const float* probabilities, int64_t ldp, const int32_t* runs,
                float* count, int64_t ldc, float* mass, int64_t ldm, bool accumulate) {
  __shared__ float space[kThreads / kWarp];
  const int64_t d = blockIdx.y, e = blockIdx.x;
  float chosen = 0, sum = 0;
  for (int64_t t = runs[d] + threadIdx.x; t < runs[d + 1]; t += kThreads) {
    sum += probabilities[t * ldp + e];
    for (int64_t j = 0; j < k; ++j) chosen += expert[t * k + j] == e ? 1.0f : 0.0f;
  }
  chosen = block_sum(chosen, space);
  sum = block_sum(sum, space);
  if (threadIdx.x != 0) return;
  count[d * ldc + e] = chosen + (accumulate ? count[d * ldc + e] : 0.0f);
  mass[d * ldm + e] = sum + (accumulate ? mass[d * ldm + e] : 0.0f);
}

__global__ void __launch_bounds__(kThreads)
    balance_kernel(const float* count, int64_t ldc, const float* mass, int64_t ldm, const int32_t* runs, int64_t layers,
                   int64_t experts, float coefficient, const float* scale, float* loss, int64_t ldl, float* balance,
                   int64_t ldb) {
  __shared__ float space[kThreads / kWarp];
  const int64_t d = blockIdx.x;
  const float n = static_cast<float>(layers) * static_cast<float>(runs[d + 1] - runs[d]);
  const float every = static_cast<float>(experts);
  float sum = 0;
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
    const float f = n > 0 ? count[d * ldc + e] / n : 0.0f;
    sum += n > 0 ? every * f * mass[d * ldm + e] / n : 0.0f;
    balance[d * ldb + e] = n > 0 ? coefficient * *scale * every * f / n : 0.0f;
  }
  sum = block_sum(sum, space);
  if (threadIdx.x == 0) loss[d * ldl] = sum;
}

}  // namespace

size_t route_scratch(const Route& r) {
  return static_cast<size_t>(ceil_div(r.logits.rows * r.weights.cols, kChunk) * r.logits.cols) * sizeof(int32_t);
}

void route(Stream s, const Route& r, void* scratch) {
  const auto experts = static_cast<int>(r.logits.cols), k = static_cast<int>(r.weights.cols);
  require(r.logits.cols <= kExperts, "at most 1,024 experts are routed to");
  const int64_t tokens = r.logits.rows, slots = tokens * k, chunks = ceil_div(slots, kChunk);
  auto* counts = static_cast<int32_t*>(scratch);
  const RouteArgs a{r.logits.p,
                    r.weights.p,
                    static_cast<float*>(r.probabilities.p),
                    r.expert,
                    r.logits.ld,
                    r.weights.ld,
                    r.probabilities.ld,
                    experts,
                    k,
                    r.logits.type == DType::kBF16,
                    r.weights.type == DType::kBF16,
                    r.renormalize};
  const auto shared = [&](int threads) { return static_cast<size_t>(threads / kWarp * experts) * sizeof(float); };
  // Calls f with how many experts a lane holds at most.
  const auto with_each = [&](auto&& f) {
    if (experts <= 4 * kWarp) return f(std::integral_constant<int, 4>());
    if (experts <= 8 * kWarp) return f(std::integral_constant<int, 8>());
    f(std::integral_constant<int, kExperts / kWarp>());
  };
  if (slots > 0 && slots <= kFewSlots && experts <= kFewExperts) {
    with_each([&](auto each) {
      launch_dependent(route_few_kernel<each.value>, dim3(1), dim3(kFewThreads), shared(kFewThreads), s, a,
                       static_cast<int>(tokens), r.first, r.row, r.slot);
    });
    check_launch("route_few");
    return;
  }
  if (slots > 0) {
    with_each([&](auto each) {
      launch_dependent(route_kernel<each.value>, dim3(static_cast<unsigned>(ceil_div(tokens, kRouteThreads / kWarp))),
                       dim3(kRouteThreads), shared(kRouteThreads), s, a, tokens);
    });
    check_launch("route");
    launch_dependent(count_kernel, dim3(static_cast<unsigned>(chunks)), dim3(kChunk),
                     static_cast<size_t>(experts) * sizeof(int32_t), s, r.expert, slots, experts, counts);
    check_launch("count_experts");
  }
  launch_dependent(place_kernel, dim3(1), dim3(1024), 0, s, counts, chunks, experts, r.first);
  check_launch("place_experts");
  if (slots == 0) return;
  launch_dependent(rank_kernel, dim3(static_cast<unsigned>(chunks)), dim3(kChunk), 0, s, r.expert, slots, experts,
                   counts, r.row, r.slot);
  check_launch("rank_experts");
}

void route_grad(Stream s, const RouteGrad& r) {
  if (r.dlogits.rows == 0) return;
  const auto experts = static_cast<int>(r.dlogits.cols);
  route_grad_kernel<<<static_cast<unsigned>(r.dlogits.rows), kRouteThreads,
                      static_cast<size_t>(experts) * sizeof(float), s>>>(
      {static_cast<const float*>(r.probabilities.p), static_cast<const float*>(r.dweights.p),
       static_cast<const float*>(r.balance.p), r.expert, r.runs, r.dlogits.p, r.probabilities.ld, r.dweights.ld,
       r.balance.ld, r.dlogits.ld, r.balance.p ? r.balance.rows : 0, experts,
       r.dweights.p ? static_cast<int>(r.dweights.cols) : 0, r.dlogits.type == DType::kBF16, r.renormalize});
  check_launch("route_grad");
}

void expert_gather(Stream s, const ExpertGather& g) {
  if (g.y.rows == 0) return;
  const auto grid = static_cast<unsigned>(ceil_div(g.y.rows, kThreads / kWarp));
  MXT_GPU_DISPATCH(g.y.type, wide(g.x) && wide(ConstMat(g.y)),
                   launch_dependent(gather_kernel<T, V>, dim3(grid), dim3(kThreads), 0, s, g.x.p, g.x.ld, g.slot, g.k,
                                    g.weights.p, g.weights.ld, g.y.p, g.y.ld, g.y.rows, g.y.cols));
  check_launch("expert_gather");
}

void expert_sum(Stream s, const ExpertSum& c) {
  if (c.y.rows == 0) return;
  MXT_GPU_DISPATCH(
      c.y.type, wide(c.x) && wide(c.add) && wide(ConstMat(c.y)),
      launch_dependent(sum_kernel<T, V>, dim3(static_cast<unsigned>(c.y.rows)), dim3(kThreads), 0, s, c.x.p, c.x.ld,
                       c.row, c.k, c.weights.p, c.weights.ld, c.add.p, c.add.ld, c.y.p, c.y.ld, c.y.cols));
  check_launch("expert_sum");
}

void expert_dots(Stream s, const ExpertDots& d) {
  const int64_t k = d.dweights.cols, slots = d.dy.rows * k;
  if (slots == 0) return;
  const auto grid = static_cast<unsigned>(ceil_div(slots, kThreads / kWarp));
  MXT_GPU_DISPATCH(d.dy.type, wide(d.dy) && wide(d.x),
                   dots_kernel<T, V>
                   <<<grid, kThreads, 0, s>>>(d.dy.p, d.dy.ld, d.x.p, d.x.ld, d.row, slots, static_cast<int32_t>(k),
                                              static_cast<float*>(d.dweights.p), d.dweights.ld, d.dy.cols));
  check_launch("expert_dots");
}

void route_load(Stream s, const RouteLoad& l) {
  if (l.count.rows == 0) return;
  load_kernel<<<dim3(static_cast<unsigned>(l.count.cols), static_cast<unsigned>(l.count.rows)), kThreads, 0, s>>>(
      l.expert, l.k, static_cast<const float*>(l.probabilities.p), l.probabilities.ld, l.runs,
      static_cast<float*>(l.count.p), l.count.ld, static_cast<float*>(l.mass.p), l.mass.ld, l.accumulate);
  check_launch("route_load");
}

void balance_loss(Stream s, const BalanceLoss& b) {
  if (b.count.rows == 0) return;
  balance_kernel<<<static_cast<unsigned>(b.count.rows), kThreads, 0, s>>>(
      static_cast<const float*>(b.count.p), b.count.ld, static_cast<const float*>(b.mass.p), b.mass.ld, b.runs,
      b.layers, b.count.cols, b.coefficient, b.scale, static_cast<float*>(b.loss.p), b.loss.ld,
      static_cast<float*>(b.balance.p), b.balance.ld);
  check_launch("balance_loss");
}

}  // namespace mxt::kernels::MXT_GPU_NS

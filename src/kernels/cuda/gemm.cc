#include "kernels/cuda/gemm.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/error.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::cuda {
namespace {

void check_lt(cublasStatus_t s, const char* what) {
  if (s != CUBLAS_STATUS_SUCCESS) fail_missing("cuBLASLt: {} failed: {}", what, cublasLtGetStatusString(s));
}

cudaDataType_t data_type(DType t) {
  switch (t) {
    case DType::kF32: return CUDA_R_32F;
    case DType::kBF16: return CUDA_R_16BF;
    default: assert_failed("matrices are F32 or BF16", __FILE__, __LINE__);
  }
}

// The largest power of two up to 256 that divides the address.
uint32_t alignment(const void* p) {
  const uintptr_t a = reinterpret_cast<uintptr_t>(p);
  return a == 0 ? 256u : static_cast<uint32_t>(std::min<uintptr_t>(a & (~a + 1), 256));
}

template <typename T, cublasStatus_t (*Destroy)(T)>
struct Handle {
  T h = nullptr;
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (h) Destroy(h);
  }
};

using Key = std::array<int64_t, 11>;

Key key_of(const Gemm& g, bool epilogue_bias) {
  const int64_t k = g.trans_a ? g.a.rows : g.a.cols;
  const int64_t flags = (g.trans_a ? 1 : 0) | (g.trans_b ? 2 : 0) | (g.accumulate ? 4 : 0) | (epilogue_bias ? 8 : 0);
  return {g.c.rows, g.c.cols, k, g.a.ld, g.b.ld, g.c.ld, flags, static_cast<int64_t>(g.a.type) * 256 + static_cast<int64_t>(g.c.type),
          alignment(g.a.p), alignment(g.b.p), alignment(g.c.p)};
}

}  // namespace

struct GemmRunner::Plan {
  Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> desc;
  Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> left, right, out;
  std::vector<cublasLtMatmulHeuristicResult_t> ranked;
};

struct GemmRunner::Impl {
  cublasLtHandle_t lt = nullptr;
  std::map<Key, Plan> plans;
};

GemmRunner::GemmRunner() : impl_(std::make_unique<Impl>()) { check_lt(cublasLtCreate(&impl_->lt), "cublasLtCreate"); }
GemmRunner::~GemmRunner() {
  impl_->plans.clear();
  cublasLtDestroy(impl_->lt);
}

std::string GemmRunner::version() const {
  const size_t v = cublasLtGetVersion();
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

// cuBLASLt counts columns first: our row-major C is its Cᵀ = op(B)ᵀ op(A)ᵀ, so B comes first and a row bias runs down its rows.
GemmRunner::Plan& GemmRunner::plan_for(const Gemm& g, bool epilogue_bias) {
  const Key key = key_of(g, epilogue_bias);
  if (const auto at = impl_->plans.find(key); at != impl_->plans.end()) return at->second;
  Plan& p = impl_->plans[key];
  check_lt(cublasLtMatmulDescCreate(&p.desc.h, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  auto set = [&](cublasLtMatmulDescAttributes_t a, const auto& v) { check_lt(cublasLtMatmulDescSetAttribute(p.desc.h, a, &v, sizeof v), "cublasLtMatmulDescSetAttribute"); };
  set(CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (epilogue_bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(g.bias_type));
  }
  auto layout = [](cublasLtMatrixLayout_t* l, const ConstMat& m) {
    check_lt(cublasLtMatrixLayoutCreate(l, data_type(m.type), static_cast<uint64_t>(m.cols), static_cast<uint64_t>(m.rows), m.ld), "cublasLtMatrixLayoutCreate");
  };
  layout(&p.left.h, g.b);
  layout(&p.right.h, g.a);
  layout(&p.out.h, g.c);
  Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> pref;
  check_lt(cublasLtMatmulPreferenceCreate(&pref.h), "cublasLtMatmulPreferenceCreate");
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t a, const auto& v) { check_lt(cublasLtMatmulPreferenceSetAttribute(pref.h, a, &v, sizeof v), "cublasLtMatmulPreferenceSetAttribute"); };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(g.b.p));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(g.a.p));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(g.c.p));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(g.c.p));
  p.ranked.resize(kAlgorithms);
  int found = 0;
  const cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(impl_->lt, p.desc.h, p.left.h, p.right.h, p.out.h, p.out.h, pref.h, kAlgorithms, p.ranked.data(), &found);
  if (s != CUBLAS_STATUS_SUCCESS || found == 0)
    fail_missing("cuBLASLt has no algorithm for m {} n {} k {} (ld {} {} {}, {}{}, {} to {}): {}", key[0], key[1], key[2], key[3], key[4], key[5], g.trans_a ? 't' : 'n',
                 g.trans_b ? 't' : 'n', name_of(g.a.type), name_of(g.c.type), cublasLtGetStatusString(s));
  p.ranked.resize(static_cast<size_t>(found));
  return p;
}

void GemmRunner::run(const Gemm& g, void* workspace, size_t bytes, cudaStream_t stream) {
  if (g.c.rows == 0 || g.c.cols == 0) return;
  MXT_ASSERT(bytes >= kWorkspace);
  const bool epilogue_bias = g.bias != nullptr && g.bias_type == g.c.type;
  Plan& p = plan_for(g, epilogue_bias);
  if (epilogue_bias) check_lt(cublasLtMatmulDescSetAttribute(p.desc.h, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g.bias, sizeof g.bias), "bias pointer");
  // Past the end of the library's list its last entry stands.
  const auto& algo = p.ranked[std::min(static_cast<size_t>(std::max(g.algo, 0)), p.ranked.size() - 1)].algo;
  const float beta = g.accumulate ? 1.0f : 0.0f;
  check_lt(cublasLtMatmul(impl_->lt, p.desc.h, &g.alpha, g.b.p, p.left.h, g.a.p, p.right.h, &beta, g.c.p, p.out.h, g.c.p, p.out.h, &algo, workspace, bytes, stream), "cublasLtMatmul");
  if (g.bias != nullptr && !epilogue_bias) add_bias(stream, g.c, g.bias, g.bias_type);
}

}  // namespace mxt::kernels::cuda

#include "kernels/cuda/gemm.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/error.h"
#include "device/cuda/card.h"
#include "device/cuda/cuda_device.h"
#include "kernels/cuda/unscaled.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::cuda {
namespace {

void check_lt(cublasStatus_t s, const char* what) {
  if (s != CUBLAS_STATUS_SUCCESS) fail_missing("cuBLASLt: {} failed: {}", what, cublasLtGetStatusString(s));
}

cudaDataType_t data_type(DType t) {
  switch (t) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF8E4M3:
      return CUDA_R_8F_E4M3;
    default:
      assert_failed("matrices are F32, BF16 or E4M3", __FILE__, __LINE__);
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
  return {g.c.rows,
          g.c.cols,
          k,
          g.a.ld,
          g.b.ld,
          g.c.ld,
          flags,
          static_cast<int64_t>(g.a.type) * 256 + static_cast<int64_t>(g.c.type),
          alignment(g.a.p),
          alignment(g.b.p),
          alignment(g.c.p)};
}

// Products of E4M3 operands whose rows the library does not scale: by pieces of c of at most this many rows and
// columns.
constexpr int64_t kPieceSide = 4096;
bool unscaled(const Gemm& g) { return g.a.type == DType::kF8E4M3 && !device::card().fp8_row_scales; }

struct PieceRoom {
  size_t left = 0, right = 0, part = 0;  // bytes
};
PieceRoom piece_room(const Gemm& g) {
  const auto of = [](int64_t rows, int64_t cols, size_t size) {
    return (static_cast<size_t>(rows * cols) * size + 255) / 256 * 256;
  };
  const int64_t rows = std::min(kPieceSide, g.c.rows), cols = std::min(kPieceSide, g.c.cols);
  PieceRoom r;
  if (!device::card().fp8) r.left = of(rows, g.a.cols, 2), r.right = of(cols, g.a.cols, 2);
  if (g.accumulate) r.part = of(rows, cols, size_of(g.c.type));
  return r;
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
  float* ones = nullptr;  // scales of an E4M3 operand that has none
  static constexpr int64_t kOnes = 1 << 16;
};

GemmRunner::GemmRunner() : impl_(std::make_unique<Impl>()) {
  check_lt(cublasLtCreate(&impl_->lt), "cublasLtCreate");
  const std::vector<float> ones(Impl::kOnes, 1.0f);
  device::check_cuda(cudaMalloc(reinterpret_cast<void**>(&impl_->ones), ones.size() * sizeof(float)), "cudaMalloc");
  device::check_cuda(cudaMemcpy(impl_->ones, ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice),
                     "upload");
}
GemmRunner::~GemmRunner() {
  impl_->plans.clear();
  cudaFree(impl_->ones);
  cublasLtDestroy(impl_->lt);
}

size_t GemmRunner::scratch(const Gemm& g) {
  if (!unscaled(g)) return kWorkspace;
  const PieceRoom r = piece_room(g);
  return kWorkspace + r.left + r.right + r.part;
}

std::string GemmRunner::version() const {
  const size_t v = cublasLtGetVersion();
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

void GemmRunner::set_scales(Plan& p, const Gemm& g) {
  auto set = [&](cublasLtMatmulDescAttributes_t a, const float* v, int64_t n) {
    MXT_ASSERT(v != nullptr || n <= Impl::kOnes);
    if (v == nullptr) v = impl_->ones;
    check_lt(cublasLtMatmulDescSetAttribute(p.desc.h, a, &v, sizeof v), "scale pointer");
  };
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, g.b_scale, g.c.cols);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, g.a_scale, g.c.rows);
}

// cuBLASLt counts columns first: our row-major C is its Cᵀ = op(B)ᵀ op(A)ᵀ, so B comes first and a row bias runs down
// its rows.
GemmRunner::Plan& GemmRunner::plan_for(const Gemm& g, bool epilogue_bias) {
  const Key key = key_of(g, epilogue_bias);
  if (const auto at = impl_->plans.find(key); at != impl_->plans.end()) return at->second;
  Plan& p = impl_->plans[key];
  check_lt(cublasLtMatmulDescCreate(&p.desc.h, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  auto set = [&](cublasLtMatmulDescAttributes_t a, const auto& v) {
    check_lt(cublasLtMatmulDescSetAttribute(p.desc.h, a, &v, sizeof v), "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (epilogue_bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(g.bias_type));
  }
  if (g.a.type == DType::kF8E4M3) {
    // Sums in the tensor cores' own precision (about 14 bits below the largest term) to the end: its error is far below
    // that of operands with four bits (docs/performance.md), and promoting every 128 terms to fp32 costs time. A
    // weight's gradient (fp32) is a sum over all tokens, where small terms would be lost.
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(g.c.type != DType::kF32));
    if (device::card().fp8_row_scales) {
      const auto vector = static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, vector);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, vector);
      set_scales(p, g);
    }
  }
  auto layout = [](cublasLtMatrixLayout_t* l, const ConstMat& m) {
    check_lt(cublasLtMatrixLayoutCreate(l, data_type(m.type), static_cast<uint64_t>(m.cols),
                                        static_cast<uint64_t>(m.rows), m.ld),
             "cublasLtMatrixLayoutCreate");
  };
  layout(&p.left.h, g.b);
  layout(&p.right.h, g.a);
  layout(&p.out.h, g.c);
  Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> pref;
  check_lt(cublasLtMatmulPreferenceCreate(&pref.h), "cublasLtMatmulPreferenceCreate");
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t a, const auto& v) {
    check_lt(cublasLtMatmulPreferenceSetAttribute(pref.h, a, &v, sizeof v), "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  // Parts of a sum are added in fp32: in bf16 they lose up to three of its last places.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(g.b.p));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(g.a.p));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(g.c.p));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(g.c.p));
  p.ranked.resize(kAlgorithms);
  int found = 0;
  const cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(impl_->lt, p.desc.h, p.left.h, p.right.h, p.out.h, p.out.h,
                                                          pref.h, kAlgorithms, p.ranked.data(), &found);
  if (epilogue_bias && (s != CUBLAS_STATUS_SUCCESS || found == 0))
    found = 0;
  else if (s != CUBLAS_STATUS_SUCCESS || found == 0)
    fail_missing("cuBLASLt has no algorithm for m {} n {} k {} (ld {} {} {}, {}{}, {} to {}): {}", key[0], key[1],
                 key[2], key[3], key[4], key[5], g.trans_a ? 't' : 'n', g.trans_b ? 't' : 'n', name_of(g.a.type),
                 name_of(g.c.type), cublasLtGetStatusString(s));
  p.ranked.resize(static_cast<size_t>(found));
  return p;
}

void GemmRunner::run(const Gemm& g, void* workspace, size_t bytes, cudaStream_t stream) {
  if (g.c.rows == 0 || g.c.cols == 0) return;
  MXT_ASSERT(bytes >= kWorkspace);
  if (g.tail_a.cols > 0) return run_with_tail(g, workspace, bytes, stream);
  if (unscaled(g)) return run_unscaled(g, workspace, bytes, stream);
  multiply(g, workspace, stream);
}

// The library's own product, and the bias that it does not add itself.
void GemmRunner::multiply(const Gemm& g, void* workspace, cudaStream_t stream) {
  const bool fp8 = g.a.type == DType::kF8E4M3;
  // Beside E4M3 operands the library adds a bias of bf16 alone.
  bool epilogue_bias = g.bias != nullptr && g.bias_type == g.c.type && !(fp8 && g.bias_type != DType::kBF16);
  epilogue_bias = epilogue_bias && !plan_for(g, true).ranked.empty();
  Plan& p = plan_for(g, epilogue_bias);
  if (fp8 && device::card().fp8_row_scales) set_scales(p, g);
  if (epilogue_bias)
    check_lt(cublasLtMatmulDescSetAttribute(p.desc.h, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g.bias, sizeof g.bias),
             "bias pointer");
  // Past the end of the library's list its last entry stands.
  const auto& algo = p.ranked[std::min(static_cast<size_t>(std::max(g.algo, 0)), p.ranked.size() - 1)].algo;
  const float beta = g.accumulate ? 1.0f : 0.0f;
  check_lt(cublasLtMatmul(impl_->lt, p.desc.h, &g.alpha, g.b.p, p.left.h, g.a.p, p.right.h, &beta, g.c.p, p.out.h,
                          g.c.p, p.out.h, &algo, workspace, kWorkspace, stream),
           "cublasLtMatmul");
  if (g.bias != nullptr && !epilogue_bias) add_bias(stream, g.c, g.bias, g.bias_type);
}

// Pieces of c at a time, so that what they want beside it stays small: [operands in bf16][a piece that is added].
void GemmRunner::run_unscaled(const Gemm& g, void* workspace, size_t bytes, cudaStream_t stream) {
  const PieceRoom room = piece_room(g);
  MXT_ASSERT(bytes >= scratch(g));
  auto* own = static_cast<std::byte*>(workspace) + kWorkspace;
  std::byte *left = own, *right = left + room.left, *part = right + room.right;
  const auto rows_of = [](const ConstMat& m, int64_t first, int64_t rows) {
    const auto* at = static_cast<const std::byte*>(m.p) + static_cast<size_t>(first * m.ld) * size_of(m.type);
    return ConstMat{at, rows, m.cols, m.ld, m.type};
  };
  const auto operand = [&](const ConstMat& m, std::byte* wide) {
    if (device::card().fp8) return m;
    widen_e4m3(stream, m, wide);
    return ConstMat{wide, m.rows, m.cols, m.cols, DType::kBF16};
  };
  for (int64_t col = 0; col < g.c.cols; col += kPieceSide) {
    Gemm piece;
    piece.algo = g.algo, piece.trans_b = true;
    const int64_t cols = std::min(kPieceSide, g.c.cols - col);
    piece.b = operand(rows_of(g.b, col, cols), right);
    for (int64_t row = 0; row < g.c.rows; row += kPieceSide) {
      const int64_t rows = std::min(kPieceSide, g.c.rows - row);
      Mat c = g.c;
      c.p = static_cast<std::byte*>(c.p) + static_cast<size_t>(row * c.ld + col) * size_of(c.type);
      c.rows = rows, c.cols = cols;
      piece.a = operand(rows_of(g.a, row, rows), left);
      piece.c = g.accumulate ? Mat{part, rows, cols, cols, c.type} : c;
      multiply(piece, workspace, stream);
      scale_product(stream, piece.c, g.a_scale ? g.a_scale + row : nullptr, g.b_scale ? g.b_scale + col : nullptr,
                    g.accumulate, c);
    }
  }
  if (g.bias != nullptr) add_bias(stream, g.c, g.bias, g.bias_type);
}

// The tail's product is written first and the wide one adds to it, which costs one write and one read of C; the other
// way round where the library cannot add.
void GemmRunner::run_with_tail(const Gemm& g, void* workspace, size_t bytes, cudaStream_t stream) {
  const bool first = adds_quantized(workspace, stream);
  Gemm tail, wide = g;
  tail.a = g.tail_a, tail.b = g.tail_b, tail.c = g.c, tail.trans_b = g.tail_trans_b;
  tail.accumulate = !first || g.accumulate;
  wide.tail_a.cols = 0;
  if (first) {
    tail.bias = g.bias, tail.bias_type = g.bias_type;
    wide.bias = nullptr, wide.accumulate = true;
    run(tail, workspace, bytes, stream);
  }
  run(wide, workspace, bytes, stream);
  if (!first) run(tail, workspace, bytes, stream);
}

bool GemmRunner::adds_quantized(void* workspace, cudaStream_t stream) {
  if (!device::card().fp8_row_scales) return false;
  if (adds_) return *adds_;
  constexpr int64_t kSide = 256;
  void* p = nullptr;
  device::check_cuda(cudaMalloc(&p, 4 * kSide * kSide), "cudaMalloc");
  device::check_cuda(cudaMemsetAsync(p, 0, 4 * kSide * kSide, stream), "fill");
  auto* bytes = static_cast<std::byte*>(p);
  Gemm g;
  g.a = {bytes, kSide, kSide, kSide, DType::kF8E4M3};
  g.b = {bytes + kSide * kSide, kSide, kSide, kSide, DType::kF8E4M3};
  g.c = {bytes + 2 * kSide * kSide, kSide, kSide, kSide, DType::kBF16};
  g.trans_b = g.accumulate = true;
  try {
    run(g, workspace, kWorkspace, stream);
    adds_ = true;
  } catch (const Error&) {
    adds_ = false;
  }
  device::check_cuda(cudaStreamSynchronize(stream), "synchronize");
  cudaFree(p);
  return *adds_;
}

}  // namespace mxt::kernels::cuda

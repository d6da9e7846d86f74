// The optimizers beside AdamW (optimizer_calls.h). Lists of tensors go in one launch, cut into pieces; Adafactor and
// Muon look at whole matrices, one after the other. Reductions have a fixed order; nothing waits for the host.
#include "kernels/gpu/columns.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float whole_scale(const float* device_scale, float scale) {
  return device_scale != nullptr ? scale * *device_scale : scale;
}

__device__ __forceinline__ double block_sum(double v) {
  __shared__ double space[kThreads];
  __syncthreads();
  space[threadIdx.x] = v;
  __syncthreads();
  for (int m = kThreads / 2; m > 0; m /= 2) {
    if (threadIdx.x < m) space[threadIdx.x] += space[threadIdx.x + m];
    __syncthreads();
  }
  return space[0];
}

__device__ __forceinline__ void put(float* master, uint16_t* copy, int64_t i, float p) {
  master[i] = p;
  if (copy != nullptr) copy[i] = from_float<bf16>(p).bits;
}

__global__ void __launch_bounds__(kThreads)
    lion_kernel(const OptTensor* tensors, const float* rates, const Piece* pieces, LionScalars l) {
  const Piece piece = pieces[blockIdx.x];
  const OptTensor t = tensors[piece.tensor];
  const float lr = rates[2 * piece.tensor], decay = 1.0f - lr * rates[2 * piece.tensor + 1];
  const float scale = whole_scale(l.device_grad_scale, l.grad_scale);
  const int64_t first = piece.index * kPiece, last = first + kPiece < t.n ? first + kPiece : t.n;
  for (int64_t i = first + threadIdx.x; i < last; i += kThreads) {
    const float g = t.grad[i] * scale, m = t.m[i], u = l.beta1 * m + l.one_minus_beta1 * g;
    t.m[i] = l.beta2 * m + l.one_minus_beta2 * g;
    put(t.master, t.copy, i, t.master[i] * decay - (u > 0 ? lr : u < 0 ? -lr : 0.0f));
  }
}

// The nearest of 256 ascending values: the number of borders below x.
__device__ __forceinline__ uint8_t nearest_code(const float* border, float x) {
  int c = 0;
  for (int step = 128; step > 0; step /= 2)
    if (x > border[c + step - 1]) c += step;
  return static_cast<uint8_t>(c);
}

// A warp takes a block of the states.
__global__ void __launch_bounds__(kThreads) adamw_8bit_kernel(const Opt8Tensor* tensors, const float* rates,
                                                              const Piece* pieces, AdamWScalars a, const float* maps) {
  __shared__ float map[2][256], border[2][256];
  for (int i = threadIdx.x; i < 512; i += kThreads) map[i / 256][i % 256] = maps[i];
  __syncthreads();
  for (int i = threadIdx.x; i < 512; i += kThreads)
    if (i % 256 < 255)
      border[i / 256][i % 256] = static_cast<float>(
          (static_cast<double>(map[i / 256][i % 256]) + static_cast<double>(map[i / 256][i % 256 + 1])) / 2);
  __syncthreads();
  constexpr int kEach = static_cast<int>(kStateBlock) / kWarp;
  const Piece piece = pieces[blockIdx.x];
  const Opt8Tensor t = tensors[piece.tensor];
  const float lr = rates[2 * piece.tensor], decay = 1.0f - lr * rates[2 * piece.tensor + 1], rate = lr / a.correction1;
  const float scale = whole_scale(a.device_grad_scale, a.grad_scale);
  const int lane = threadIdx.x % kWarp;
  const int64_t first = piece.index * kPiece, last = first + kPiece < t.n ? first + kPiece : t.n;
  for (int64_t at = first + threadIdx.x / kWarp * kStateBlock; at < last; at += kThreads / kWarp * kStateBlock) {
    const int64_t block = at / kStateBlock;
    const float m_largest = t.m_largest[block], v_largest = t.v_largest[block];
    float m[kEach], v[kEach], m_most = 0, v_most = 0;
    for (int k = 0; k < kEach; ++k) {
      const int64_t i = at + k * kWarp + lane;
      m[k] = v[k] = 0;
      if (i >= last) continue;
      const float g = t.grad[i] * scale;
      m[k] = a.beta1 * (map[0][t.m[i]] * m_largest) + a.one_minus_beta1 * g;
      v[k] = a.beta2 * (map[1][t.v[i]] * v_largest) + a.one_minus_beta2 * g * g;
      put(t.master, t.copy, i, t.master[i] * decay - rate * m[k] / (sqrtf(v[k]) / a.correction2 + a.eps));
      m_most = fmaxf(m_most, fabsf(m[k]));
      v_most = fmaxf(v_most, v[k]);
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      m_most = fmaxf(m_most, shuffle_xor(m_most, mask));
      v_most = fmaxf(v_most, shuffle_xor(v_most, mask));
    }
    for (int k = 0; k < kEach; ++k) {
      const int64_t i = at + k * kWarp + lane;
      if (i >= last) continue;
      t.m[i] = nearest_code(border[0], m_most > 0 ? m[k] / m_most : 0.0f);
      t.v[i] = nearest_code(border[1], v_most > 0 ? v[k] / v_most : 0.0f);
    }
    if (lane == 0) t.m_largest[block] = m_most, t.v_largest[block] = v_most;
  }
}

// ---- Adafactor. u = grad · row[r] · column[c], the gradient's scale being in row; of a vector u = scale · grad / √v.

__device__ __forceinline__ float mixed(float before, double mean, double decay) {
  return static_cast<float>(decay * static_cast<double>(before) + (1.0 - decay) * mean);
}

__global__ void __launch_bounds__(kThreads) adafactor_rows(AdafactorTensor t, AdafactorScalars a) {
  const int64_t r = blockIdx.x;
  const float scale = whole_scale(a.device_grad_scale, a.grad_scale);
  double sum = 0;
  for (int64_t c = threadIdx.x; c < t.cols; c += kThreads) {
    const float g = t.grad[r * t.cols + c] * scale;
    sum += static_cast<double>(g * g + a.eps);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) t.row[r] = mixed(t.row[r], sum / static_cast<double>(t.cols), a.decay);
}

__global__ void __launch_bounds__(128)
    adafactor_columns(AdafactorTensor t, AdafactorScalars a, int64_t rows_each, float* partial) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  if (c >= t.cols) return;
  const float scale = whole_scale(a.device_grad_scale, a.grad_scale);
  const int64_t first = blockIdx.y * rows_each, last = first + rows_each < t.rows ? first + rows_each : t.rows;
  float sum = 0;
  for (int64_t r = first; r < last; ++r) {
    const float g = t.grad[r * t.cols + c] * scale;
    sum += g * g + a.eps;
  }
  partial[blockIdx.y * t.cols + c] = sum;
}

__global__ void __launch_bounds__(128) adafactor_column_factors(AdafactorTensor t, AdafactorScalars a, float* column) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  if (c >= t.cols) return;
  t.col[c] = mixed(t.col[c], static_cast<double>(column[c]) / static_cast<double>(t.rows), a.decay);
  column[c] = 1.0f / sqrtf(t.col[c]);
}

__global__ void __launch_bounds__(kThreads) adafactor_row_factors(AdafactorTensor t, AdafactorScalars a, float* row) {
  double sum = 0;
  for (int64_t r = threadIdx.x; r < t.rows; r += kThreads) sum += static_cast<double>(t.row[r]);
  const double mean = block_sum(sum) / static_cast<double>(t.rows);
  const float scale = whole_scale(a.device_grad_scale, a.grad_scale);
  for (int64_t r = threadIdx.x; r < t.rows; r += kThreads)
    row[r] = static_cast<float>(static_cast<double>(scale) * sqrt(mean / static_cast<double>(t.row[r])));
}

// One block a row of a matrix (a piece of kPiece of a vector, whose moment moves on here): Σ u² into partial.
__global__ void __launch_bounds__(kThreads)
    adafactor_squares(AdafactorTensor t, AdafactorScalars a, const float* row, const float* column, double* partial) {
  double sum = 0;
  if (t.row != nullptr) {
    const float factor = row[blockIdx.x];
    for (int64_t c = threadIdx.x; c < t.cols; c += kThreads) {
      const float u = t.grad[blockIdx.x * t.cols + c] * factor * column[c];
      sum += static_cast<double>(u * u);
    }
  } else {
    const float scale = whole_scale(a.device_grad_scale, a.grad_scale);
    const int64_t n = t.rows * t.cols, first = blockIdx.x * kPiece, last = first + kPiece < n ? first + kPiece : n;
    for (int64_t i = first + threadIdx.x; i < last; i += kThreads) {
      const float g = t.grad[i] * scale;
      t.v[i] = mixed(t.v[i], static_cast<double>(g * g + a.eps), a.decay);
      sum += static_cast<double>(g * g / t.v[i]);
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    adafactor_rate(AdafactorTensor t, AdafactorScalars a, const double* partial, int64_t count, float* rate) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  const double rms = sqrt(sum / static_cast<double>(t.rows * t.cols)) / static_cast<double>(a.clip);
  *rate = static_cast<float>(static_cast<double>(t.lr) / (rms > 1.0 ? rms : 1.0));
}

__global__ void __launch_bounds__(kThreads)
    adafactor_update(AdafactorTensor t, AdafactorScalars a, const float* row, const float* column, const float* rate) {
  const float decay = 1.0f - t.lr * t.weight_decay, lr = *rate;
  if (t.row != nullptr) {
    const float factor = row[blockIdx.x];
    for (int64_t c = threadIdx.x; c < t.cols; c += kThreads) {
      const int64_t i = blockIdx.x * t.cols + c;
      put(t.master, t.copy, i, t.master[i] * decay - lr * (t.grad[i] * factor * column[c]));
    }
    return;
  }
  const float scale = whole_scale(a.device_grad_scale, a.grad_scale);
  const int64_t n = t.rows * t.cols, first = blockIdx.x * kPiece, last = first + kPiece < n ? first + kPiece : n;
  for (int64_t i = first + threadIdx.x; i < last; i += kThreads)
    put(t.master, t.copy, i, t.master[i] * decay - lr * (t.grad[i] * scale / sqrtf(t.v[i])));
}

// ---- Muon

template <typename T>
__global__ void __launch_bounds__(kThreads)
    muon_direction_rows(MuonDirectionArgs m, T* x, int64_t cols, float* row_squares) {
  const float scale = whole_scale(m.device_grad_scale, m.grad_scale);
  double sum = 0;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    const int64_t i = blockIdx.x * cols + c;
    const float g = m.grad[i] * scale * m.one_minus_mu, b = m.mu * m.momentum[i] + g;
    m.momentum[i] = b;
    const T u = from_float<T>(m.mu * b + g);
    x[i] = u;
    sum += static_cast<double>(to_float(u)) * static_cast<double>(to_float(u));
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) row_squares[blockIdx.x] = static_cast<float>(sum);
}

// Squares of the rows become what each row is multiplied with.
__global__ void __launch_bounds__(kThreads) muon_direction_factors(MuonDirectionArgs m, int64_t rows, float* row) {
  double sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kThreads) sum += static_cast<double>(row[r]);
  double norm = sqrt(block_sum(sum));
  if (m.equalise) {
    const double wanted = norm / sqrt(static_cast<double>(rows));
    double after = 0;
    for (int64_t r = threadIdx.x; r < rows; r += kThreads) {
      const double square = static_cast<double>(row[r]), f = wanted / fmax(sqrt(square), 1e-6);
      row[r] = static_cast<float>(f);
      after += f * f * square;
    }
    norm = sqrt(block_sum(after));
  }
  const double eps = static_cast<double>(m.eps);
  const double divisor = m.equalise ? static_cast<double>(m.slack) * norm + eps : fmax(norm, eps);
  for (int64_t r = threadIdx.x; r < rows; r += kThreads)
    row[r] = static_cast<float>((m.equalise ? static_cast<double>(row[r]) : 1.0) / divisor);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) muon_scale_rows(T* x, int64_t cols, const float* row) {
  const float f = row[blockIdx.x];
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    const int64_t i = blockIdx.x * cols + c;
    x[i] = from_float<T>(to_float(x[i]) * f);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) muon_row_squares(const T* x, int64_t cols, float* out) {
  double sum = 0;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    const float v = to_float(x[blockIdx.x * cols + c]);
    sum += static_cast<double>(v * v);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<float>(sum);
}
template <typename T>
__global__ void __launch_bounds__(128)
    muon_column_squares(const T* x, int64_t rows, int64_t cols, int64_t rows_each, float* partial) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  if (c >= cols) return;
  const int64_t first = blockIdx.y * rows_each, last = first + rows_each < rows ? first + rows_each : rows;
  float sum = 0;
  for (int64_t r = first; r < last; ++r) {
    const float v = to_float(x[r * cols + c]);
    sum += v * v;
  }
  partial[blockIdx.y * cols + c] = sum;
}

// Sums of squares become the factors of NorMuon; the running means move on.
__global__ void __launch_bounds__(kThreads)
    muon_update_factors(float* second, double beta2, int64_t rows, int64_t cols, float* sums) {
  const int64_t kept = rows >= cols ? rows : cols, along = rows >= cols ? cols : rows;  // along is the lesser, too
  double all = 0;
  for (int64_t k = threadIdx.x; k < kept; k += kThreads) all += static_cast<double>(sums[k]);
  all = block_sum(all);
  const double first = sqrt(static_cast<double>(along)) / fmax(sqrt(all), 1e-6);
  double after = 0;
  for (int64_t k = threadIdx.x; k < kept; k += kThreads) {
    const double square = static_cast<double>(sums[k]), mean = first * first * square / static_cast<double>(along);
    second[k] = mixed(second[k], mean, beta2);
    const double s = first / sqrt(fmax(static_cast<double>(second[k]), 1e-10));
    after += s * s * square;
    sums[k] = static_cast<float>(s);
  }
  after = block_sum(after);
  const auto keep = static_cast<float>(first * sqrt(all) / fmax(sqrt(after), 1e-10));
  for (int64_t k = threadIdx.x; k < kept; k += kThreads) sums[k] *= keep;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    muon_update_rows(float* master, uint16_t* copy, const T* x, int64_t cols, const float* row, const float* column,
                     float lr, float weight_decay, bool cautious) {
  const float factor = row != nullptr ? row[blockIdx.x] : 1.0f, decay = lr * weight_decay;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    const int64_t i = blockIdx.x * cols + c;
    const float u = to_float(x[i]) * factor * (column != nullptr ? column[c] : 1.0f), p = master[i];
    put(master, copy, i, p - lr * u - (!cautious || u * p >= 0.0f ? decay * p : 0.0f));
  }
}

int64_t blocks_of(const AdafactorTensor& t) { return t.row != nullptr ? t.rows : ceil_div(t.rows * t.cols, kPiece); }
// Floats of a scratch, each part aligned for doubles.
int64_t even(int64_t n) { return (n + 1) / 2 * 2; }

template <typename T>
void direction(Stream s, const MuonDirection& m, float* row) {
  const MuonDirectionArgs a{
      m.grad,  m.momentum, m.grad_scale, m.device_grad_scale, static_cast<float>(m.mu), static_cast<float>(1.0 - m.mu),
      m.slack, m.eps,      m.equalise};
  T* x = static_cast<T*>(m.x.p);
  const auto rows = static_cast<unsigned>(m.x.rows);
  muon_direction_rows<T><<<rows, kThreads, 0, s>>>(a, x, m.x.cols, row);
  muon_direction_factors<<<1, kThreads, 0, s>>>(a, m.x.rows, row);
  muon_scale_rows<T><<<rows, kThreads, 0, s>>>(x, m.x.cols, row);
  check_launch("muon_direction");
}

template <typename T>
void update(Stream s, const MuonUpdate& m, float* sums) {
  const int64_t rows = m.x.rows, cols = m.x.cols;
  const T* x = static_cast<const T*>(m.x.p);
  const bool by_row = rows >= cols;
  if (m.second != nullptr) {
    if (by_row) {
      muon_row_squares<T><<<static_cast<unsigned>(rows), kThreads, 0, s>>>(x, cols, sums);
    } else {
      float* partial = sums + even(cols);
      const dim3 grid(static_cast<unsigned>(ceil_div(cols, 128)), static_cast<unsigned>(chunk_count(rows)));
      muon_column_squares<T><<<grid, 128, 0, s>>>(x, rows, cols, chunk_rows(rows), partial);
      add_chunks(s, partial, chunk_count(rows), cols, cols, sums, false);
    }
    muon_update_factors<<<1, kThreads, 0, s>>>(m.second, m.beta2, rows, cols, sums);
  }
  muon_update_rows<T><<<static_cast<unsigned>(rows), kThreads, 0, s>>>(
      m.master, m.copy, x, cols, m.second != nullptr && by_row ? sums : nullptr,
      m.second != nullptr && !by_row ? sums : nullptr, m.lr, m.weight_decay, m.cautious);
  check_launch("muon_update");
}

}  // namespace

void lion(Stream s, const OptTensor* tensors, const float* rates, const Piece* pieces, int64_t count,
          const LionScalars& l) {
  if (count == 0) return;
  lion_kernel<<<static_cast<unsigned>(count), kThreads, 0, s>>>(tensors, rates, pieces, l);
  check_launch("lion");
}

void adamw_8bit(Stream s, const Opt8Tensor* tensors, const float* rates, const Piece* pieces, int64_t count,
                const AdamWScalars& a, const float* maps) {
  static_assert(kPiece % kStateBlock == 0);
  if (count == 0) return;
  adamw_8bit_kernel<<<static_cast<unsigned>(count), kThreads, 0, s>>>(tensors, rates, pieces, a, maps);
  check_launch("adamw_8bit");
}

size_t adafactor_scratch(const AdafactorTensor& t) {
  const int64_t doubles = blocks_of(t), floats = t.row ? even(t.rows) + even(t.cols) + chunk_count(t.rows) * t.cols : 0;
  return static_cast<size_t>(doubles) * sizeof(double) + static_cast<size_t>(floats + 2) * sizeof(float);
}

void adafactor(Stream s, const AdafactorTensor& t, const AdafactorScalars& a, void* scratch) {
  if (t.rows * t.cols == 0) return;
  const int64_t blocks = blocks_of(t);
  auto* partial = static_cast<double*>(scratch);
  float* rate = reinterpret_cast<float*>(partial + blocks);
  float *row = rate + 2, *column = row + even(t.rows), *chunks = column + even(t.cols);
  if (t.row != nullptr) {
    const auto wide = static_cast<unsigned>(ceil_div(t.cols, 128));
    adafactor_rows<<<static_cast<unsigned>(t.rows), kThreads, 0, s>>>(t, a);
    adafactor_columns<<<dim3(wide, static_cast<unsigned>(chunk_count(t.rows))), 128, 0, s>>>(t, a, chunk_rows(t.rows),
                                                                                             chunks);
    add_chunks(s, chunks, chunk_count(t.rows), t.cols, t.cols, column, false);
    adafactor_column_factors<<<wide, 128, 0, s>>>(t, a, column);
    adafactor_row_factors<<<1, kThreads, 0, s>>>(t, a, row);
  }
  const auto grid = static_cast<unsigned>(blocks);
  adafactor_squares<<<grid, kThreads, 0, s>>>(t, a, row, column, partial);
  adafactor_rate<<<1, kThreads, 0, s>>>(t, a, partial, blocks, rate);
  adafactor_update<<<grid, kThreads, 0, s>>>(t, a, row, column, rate);
  check_launch("adafactor");
}

size_t muon_direction_scratch(const MuonDirection& m) { return static_cast<size_t>(m.x.rows) * sizeof(float); }

void muon_direction(Stream s, const MuonDirection& m, void* scratch) {
  if (m.x.rows * m.x.cols == 0) return;
  auto* row = static_cast<float*>(scratch);
  m.x.type == DType::kF32 ? direction<float>(s, m, row) : direction<bf16>(s, m, row);
}

size_t muon_update_scratch(const MuonUpdate& m) {
  if (m.x.rows >= m.x.cols) return static_cast<size_t>(m.x.rows) * sizeof(float);
  return static_cast<size_t>(even(m.x.cols) + chunk_count(m.x.rows) * m.x.cols) * sizeof(float);
}

void muon_update(Stream s, const MuonUpdate& m, void* scratch) {
  auto* sums = static_cast<float*>(scratch);
  m.x.type == DType::kF32 ? update<float>(s, m, sums) : update<bf16>(s, m, sums);
}

}  // namespace mxt::kernels::MXT_GPU_NS

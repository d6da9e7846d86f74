#include "kernels/harness.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/philox.h"
#include "base/threads.h"

namespace mxt::kernels::test {
namespace {

class HostMemory final : public Memory {
 public:
  void* allocate(size_t bytes) override { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }
  void release(void* p) override { std::free(p); }
  void to_device(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void to_host(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
};

constexpr uint8_t kPoison = 0xff;  // all ones is a NaN in every float type
constexpr int64_t kGuard = 64;     // elements behind every block

double get(const uint8_t* p, DType type, int64_t i) {
  p += static_cast<size_t>(i) * size_of(type);
  if (type == DType::kU8) return *p;
  if (type == DType::kF32) {
    float v;
    std::memcpy(&v, p, sizeof(v));
    return static_cast<double>(v);
  }
  if (type == DType::kF64) {
    double v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  if (type == DType::kI32) {
    int32_t v;
    std::memcpy(&v, p, sizeof(v));
    return static_cast<double>(v);
  }
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return static_cast<double>(bf16_to_float(v));
}

void set(uint8_t* p, DType type, int64_t i, double value) {
  p += static_cast<size_t>(i) * size_of(type);
  if (type == DType::kU8) {
    *p = static_cast<uint8_t>(static_cast<int>(value * 64) & 0xff);
  } else if (type == DType::kF64) {
    std::memcpy(p, &value, sizeof(value));
  } else if (type == DType::kF32) {
    const float v = static_cast<float>(value);
    std::memcpy(p, &v, sizeof(v));
  } else {
    const uint16_t v = float_to_bf16(static_cast<float>(value));
    std::memcpy(p, &v, sizeof(v));
  }
}

// Sum of four uniform numbers: variance 1/3, cheap.
std::function<double(int64_t, int64_t)> bell(uint64_t seed, double scale, double center, int64_t cols) {
  return [=](int64_t r, int64_t c) {
    double sum = -2;
    for (uint32_t u : philox4x32(seed, 0, static_cast<uint64_t>(r * cols + c))) sum += static_cast<double>(u) * 0x1p-32;
    return center + scale * sum * std::sqrt(3.0);
  };
}

}  // namespace

Memory& host_memory() {
  static HostMemory memory;
  return memory;
}

Backend reference_backend() { return {"reference", &reference_ops(), &host_memory(), {}, {}, false}; }

Trial::~Trial() {
  for (const Block& b : blocks_) b_.memory->release(b.p);
  for (void* p : others_) b_.memory->release(p);
}

Mat Trial::make(const std::string& name, int64_t rows, int64_t cols, int64_t ld, DType type,
                const std::function<double(int64_t, int64_t)>& value) {
  const size_t bytes = static_cast<size_t>(rows * ld + kGuard) * size_of(type);
  std::vector<uint8_t> host(bytes, kPoison);
  if (value)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) set(host.data(), type, r * ld + c, value(r, c));
  void* p = b_.memory->allocate(bytes);
  b_.memory->to_device(p, host.data(), bytes);
  blocks_.push_back({name, p, rows, cols, ld, type});
  return {p, rows, cols, ld, type};
}

ConstMat Trial::input(int64_t rows, int64_t cols, DType type, uint64_t seed, double scale) {
  return make("", rows, cols, cols + gap_, type, bell(seed, scale, 0, cols));
}
ConstMat Trial::values(const std::vector<double>& v, int64_t rows, int64_t cols, DType type) {
  return make("", rows, cols, cols + gap_, type,
              [&](int64_t r, int64_t c) { return v[static_cast<size_t>(r * cols + c)]; });
}
Mat Trial::output(const std::string& name, int64_t rows, int64_t cols, DType type) {
  return make(name, rows, cols, cols + gap_, type, {});
}
Mat Trial::inout(const std::string& name, int64_t rows, int64_t cols, DType type, uint64_t seed, double scale) {
  return make(name, rows, cols, cols + gap_, type, bell(seed, scale, 0, cols));
}
const float* Trial::floats(const std::vector<float>& v) {
  const auto n = static_cast<int64_t>(v.size());
  return static_cast<const float*>(make("", 1, n, n, DType::kF32, [&](int64_t, int64_t c) {
                                     return static_cast<double>(v[static_cast<size_t>(c)]);
                                   }).p);
}
float* Trial::output_floats(const std::string& name, int64_t n) {
  return static_cast<float*>(make(name, 1, n, n, DType::kF32, {}).p);
}
float* Trial::inout_floats(const std::string& name, int64_t n, uint64_t seed, double scale, double center) {
  return static_cast<float*>(make(name, 1, n, n, DType::kF32, bell(seed, scale, center, n)).p);
}
const void* Trial::param(int64_t n, DType type, uint64_t seed, double scale, double center) {
  return make("", 1, n, n, type, bell(seed, scale, center, n)).p;
}
void* Trial::inout_bytes(const std::string& name, int64_t n, DType type, uint64_t seed) {
  return make(name, 1, n, n, type, bell(seed, 1, 0, n)).p;
}
const int32_t* Trial::ints(const std::vector<int32_t>& v) {
  void* p = b_.memory->allocate(v.size() * sizeof(int32_t) + 1);
  b_.memory->to_device(p, v.data(), v.size() * sizeof(int32_t));
  others_.push_back(p);
  return static_cast<const int32_t*>(p);
}
int32_t* Trial::output_ints(const std::string& name, int64_t n) {
  return static_cast<int32_t*>(make(name, 1, n, n, DType::kI32, {}).p);
}
void Trial::record(const std::string& name, double value) { recorded_.push_back({name, DType::kF64, {value}, {}}); }
void Trial::scratch(size_t bytes) {
  others_.push_back(b_.memory->allocate(bytes + 64));
  b_.ops->set_scratch(others_.back(), bytes);
}

std::vector<double> Trial::read(const ConstMat& m) {
  std::vector<uint8_t> host(static_cast<size_t>(m.rows * m.ld) * size_of(m.type));
  b_.memory->to_host(host.data(), m.p, host.size());
  std::vector<double> out;
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.cols; ++c) out.push_back(get(host.data(), m.type, r * m.ld + c));
  return out;
}

std::vector<Output> Trial::finish() {
  std::vector<Output> out = recorded_;
  for (const Block& b : blocks_) {
    const size_t size = size_of(b.type);
    std::vector<uint8_t> host(static_cast<size_t>(b.rows * b.ld + kGuard) * size);
    b_.memory->to_host(host.data(), b.p, host.size());
    Output o{b.name, b.type, {}, {}};
    int64_t spoiled = 0;
    for (int64_t i = 0; i < b.rows * b.ld + kGuard; ++i) {
      const auto* p = host.data() + static_cast<size_t>(i) * size;
      if (i < b.rows * b.ld && i % b.ld < b.cols) {
        o.values.push_back(get(host.data(), b.type, i));
        o.bytes.insert(o.bytes.end(), p, p + size);
      } else {
        for (size_t k = 0; k < size; ++k) spoiled += p[k] != kPoison;
      }
    }
    EXPECT_EQ(spoiled, 0) << "bytes written outside the rows of \"" << b.name << "\"";
    if (!b.name.empty()) out.push_back(std::move(o));
  }
  return out;
}

void expect_close(const std::vector<Output>& expected, const std::vector<Output>& got, Tolerance t) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t o = 0; o < expected.size(); ++o) {
    const Output &e = expected[o], &g = got[o];
    ASSERT_EQ(e.values.size(), g.values.size()) << e.name;
    const double relative = std::max(t.relative, e.type == DType::kBF16 ? 0x1p-7 : 0.0);
    int reported = 0;
    for (size_t i = 0; i < e.values.size() && reported < 3; ++i) {
      const double x = e.values[i], y = g.values[i];
      if (x == y || (std::isnan(x) && std::isnan(y) && e.name.starts_with("nan"))) continue;
      if (!(std::abs(x - y) <= t.absolute + relative * std::abs(x))) {
        ++reported;
        ADD_FAILURE() << e.name << "[" << i << "]: expected " << x << ", got " << y;
      }
    }
  }
}

void expect_identical(const std::vector<Output>& expected, const std::vector<Output>& got) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t o = 0; o < expected.size(); ++o) {
    EXPECT_EQ(expected[o].bytes, got[o].bytes) << expected[o].name;
    if (expected[o].bytes.empty()) {
      EXPECT_EQ(expected[o].values, got[o].values) << expected[o].name;
    }
  }
}

std::vector<Output> run(const Backend& backend, const Op& op, int64_t gap) {
  struct Visit {  // leaves also where the op throws
    const Backend& b;
    explicit Visit(const Backend& backend) : b(backend) {
      if (b.enter) b.enter();
    }
    ~Visit() {
      b.ops->set_scratch(nullptr, 0);
      if (b.leave) b.leave();
    }
  } visit(backend);
  Trial trial(backend, gap);
  op(trial);
  return trial.finish();
}

void check_op(const Backend& backend, const Op& op, Tolerance t) {
  const int threads = num_threads();
  const std::vector<Output> expected = run(reference_backend(), op);
  set_num_threads(2);
  std::vector<Output> got;
  try {
    got = run(backend, op);
  } catch (const Error& e) {  // a device's backend need not have every call, but names what it lacks
    set_num_threads(threads);
    if (e.code() != Exit::kMissing || backend.ops->device() == nullptr) throw;
    GTEST_SKIP() << e.what();
  }
  expect_close(expected, got, t);
  if (backend.thread_independent) {
    SCOPED_TRACE("1 thread instead of 2");
    set_num_threads(1);
    expect_identical(got, run(backend, op));
  }
  set_num_threads(threads);
}

std::string label(DType t) { return std::string(name_of(t)); }

void expect_gradient(const std::string& name, std::vector<double>& x, const std::vector<double>& gradient,
                     const std::function<double()>& loss, double tolerance) {
  ASSERT_EQ(x.size(), gradient.size()) << name;
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = loss();
    x[i] = at - kStep;
    const double below = loss();
    x[i] = at;
    const double numeric = (above - below) / (2 * kStep);
    ASSERT_NEAR(numeric, gradient[i], tolerance * (1 + std::abs(numeric))) << name << "[" << i << "]";
  }
}

}  // namespace mxt::kernels::test

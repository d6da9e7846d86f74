// One op test for every backend. A test writes its op as a function of a Trial: it asks the Trial for inputs and
// outputs, which live in the backend's memory, and calls the op. The same function then runs on the reference and on
// the backend under test, with the same inputs, and the outputs are compared.
//
// Outputs start as NaN, every matrix has a gap between its rows and a guard behind it, and both must be untouched
// afterwards; so an op that leaves an element out, or writes past a row, fails.
//
// A new device needs an executable of ops/*.cc, harness.cc and one file that defines backends().
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/api.h"

namespace mxt::kernels::test {

class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* p) = 0;
  virtual void to_device(void* to, const void* from, size_t bytes) = 0;
  virtual void to_host(void* to, const void* from, size_t bytes) = 0;
};
Memory& host_memory();

struct Backend {
  std::string name;  // letters, digits and _ (a test name)
  Ops* ops = nullptr;
  Memory* memory = nullptr;
  std::function<void()> enter;      // before a run, may be empty
  std::function<void()> leave;      // after it, may be empty
  bool thread_independent = false;  // run with 1 and 2 threads and ask for equal bits
};
inline void PrintTo(const Backend& b, std::ostream* out) { *out << b.name; }
std::vector<Backend> backends();
Backend reference_backend();

struct Output {
  std::string name;
  DType type;
  std::vector<double> values;
  std::vector<uint8_t> bytes;
};

class Trial {
 public:
  explicit Trial(Backend backend, int64_t gap = 3) : b_(std::move(backend)), gap_(gap) {}
  ~Trial();
  Trial(const Trial&) = delete;

  Ops& ops() { return *b_.ops; }

  // Bell-shaped values times `scale`, rounded to `type`; the same for the same seed on every backend.
  ConstMat input(int64_t rows, int64_t cols, DType type, uint64_t seed, double scale = 1);
  ConstMat values(const std::vector<double>& v, int64_t rows, int64_t cols, DType type);
  Mat output(const std::string& name, int64_t rows, int64_t cols, DType type);
  Mat inout(const std::string& name, int64_t rows, int64_t cols, DType type, uint64_t seed, double scale = 1);

  // Vectors, without gaps. floats: of F32; param: of any type, around `center`.
  const float* floats(const std::vector<float>& values);
  float* output_floats(const std::string& name, int64_t n);
  float* inout_floats(const std::string& name, int64_t n, uint64_t seed, double scale = 1, double center = 0);
  const void* param(int64_t n, DType type, uint64_t seed, double scale = 1, double center = 0);
  const int32_t* ints(const std::vector<int32_t>& values);
  int32_t* output_ints(const std::string& name, int64_t n);
  // A buffer whose whole content is an output: dense caches.
  void* inout_bytes(const std::string& name, int64_t n, DType type, uint64_t seed);
  // Any other result.
  void record(const std::string& name, double value);
  // Scratch of this size for the op.
  void scratch(size_t bytes);

  // Host copy of a matrix as it stands now.
  std::vector<double> read(const ConstMat& m);
  std::vector<Output> finish();

 private:
  struct Block {
    std::string name;  // empty: an input
    void* p;
    int64_t rows, cols, ld;
    DType type;
  };
  Mat make(const std::string& name, int64_t rows, int64_t cols, int64_t ld, DType type,
           const std::function<double(int64_t, int64_t)>& value);
  Backend b_;
  int64_t gap_;
  std::vector<Block> blocks_;
  std::vector<void*> others_;
  std::vector<Output> recorded_;
};

using Op = std::function<void(Trial&)>;

// |x − y| ≤ absolute + relative·|x|, with the relative part widened to one unit in the last place of bf16 outputs.
struct Tolerance {
  double relative = 2e-6, absolute = 2e-6;
};
void expect_close(const std::vector<Output>& expected, const std::vector<Output>& got, Tolerance t);
void expect_identical(const std::vector<Output>& expected, const std::vector<Output>& got);

std::vector<Output> run(const Backend& backend, const Op& op, int64_t gap = 3);
// The op on `backend` agrees with the reference, and with itself on one thread.
void check_op(const Backend& backend, const Op& op, Tolerance t = {});

// Tests of one op over all backends: TEST_P(OpTest, name) { check_op(GetParam(), …); }
class OpTest : public testing::TestWithParam<Backend> {};
#define MXT_OP_TESTS(Suite)                                             \
  using Suite = OpTest;                                                 \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Suite); /* no device */ \
  INSTANTIATE_TEST_SUITE_P(Every, Suite, testing::ValuesIn(backends()), \
                           [](const auto& info) { return info.param.name; })

inline const DType kTypes[] = {DType::kF32, DType::kBF16};
std::string label(DType t);

// Numerical derivative: compares `gradient` (what the gradient op gave for the loss Σ out·weight) with central
// differences of the loss in each element of x. All in double.
void expect_gradient(const std::string& name, std::vector<double>& x, const std::vector<double>& gradient,
                     const std::function<double()>& loss, double tolerance = 1e-5);

}  // namespace mxt::kernels::test

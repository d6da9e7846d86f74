// Operands in host and device memory side by side: the reference runs on one, the GPU on the other, both from the same
// contents.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "kernels/backend.h"

namespace mxt::test {

enum class Side { kHost, kDevice };

// The GPU, or null with the reason in `why`.
inline const kernels::Backend* gpu(std::string* why) {
  static std::string reason;
  static const kernels::Backend* backend = []() -> const kernels::Backend* {
    try {
      if (const char* as = std::getenv("MINDXTRAIN_CUDA_CAPABILITY")) kernels::treat_cuda_as(as);
      static kernels::Backend b = kernels::cuda_backend();
      return &b;
    } catch (const Error& e) {
      reason = e.what();
      return nullptr;
    }
  }();
  if (why) *why = reason;
  return backend;
}

class Block {
 public:
  explicit Block(size_t bytes)
      : bytes_(bytes), host_(bytes + 64), device_(gpu(nullptr)->device->allocate(bytes + 64)) {}
  ~Block() { gpu(nullptr)->device->release(device_); }
  Block(const Block&) = delete;
  void* at(Side s, size_t offset = 0) {
    return (s == Side::kHost ? host_.data() : static_cast<std::byte*>(device_)) + offset;
  }
  void upload() { gpu(nullptr)->device->upload(device_, host_.data(), bytes_); }
  std::vector<std::byte> download() {
    std::vector<std::byte> out(bytes_);
    gpu(nullptr)->device->download(out.data(), device_, bytes_);
    gpu(nullptr)->device->synchronize();
    return out;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  std::vector<std::byte> host_;
  void* device_;
};

// A matrix on both sides. Gaps between rows hold a pattern that must survive.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t cols, DType type, int64_t ld = 0, int64_t first = 0)
      : rows_(rows),
        cols_(cols),
        ld_(ld ? ld : cols),
        type_(type),
        offset_(static_cast<size_t>(first) * size_of(type)),
        block_(offset_ + static_cast<size_t>(rows * ld_ + 1) * size_of(type)) {
    std::memset(block_.at(Side::kHost), 0x5a, block_.bytes());
    block_.upload();
  }
  void fill(uint64_t seed, float scale = 1, float shift = 0) {
    Philox rng(seed, 7);
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < cols_; ++c) set(r, c, rng.normal() * scale + shift);
    block_.upload();
  }
  void poison() {
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < cols_; ++c) set(r, c, std::nanf(""));
    block_.upload();
  }
  void upload() { block_.upload(); }
  kernels::Mat on(Side s) { return {block_.at(s, offset_), rows_, cols_, ld_, type_}; }
  void* p(Side s) { return block_.at(s, offset_); }
  float* f(Side s) { return static_cast<float*>(p(s)); }
  void set(int64_t r, int64_t c, float v) {
    const size_t i = static_cast<size_t>(r * ld_ + c);
    if (type_ == DType::kF8E4M3)
      static_cast<uint8_t*>(p(Side::kHost))[i] = float_to_f8e4m3(v);
    else if (type_ == DType::kBF16)
      static_cast<uint16_t*>(p(Side::kHost))[i] = float_to_bf16(v);
    else
      static_cast<float*>(p(Side::kHost))[i] = v;
  }
  float get(int64_t r, int64_t c) { return read(p(Side::kHost), type_, static_cast<size_t>(r * ld_ + c)); }
  static float read(const void* p, DType t, size_t i) {
    return t == DType::kF8E4M3 ? f8e4m3_to_float(static_cast<const uint8_t*>(p)[i])
           : t == DType::kBF16 ? bf16_to_float(static_cast<const uint16_t*>(p)[i])
                               : static_cast<const float*>(p)[i];
  }
  // ‖device − host‖ / ‖host‖; also checks that nothing between the rows was touched.
  double error() {
    const std::vector<std::byte> got = block_.download();
    double diff = 0, norm = 0;
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < ld_; ++c) {
        const size_t i = static_cast<size_t>(r * ld_ + c);
        if (c >= cols_) {
          EXPECT_EQ(0, std::memcmp(got.data() + offset_ + i * size_of(type_), "\x5a\x5a\x5a\x5a", size_of(type_)))
              << "gap of row " << r;
          continue;
        }
        const double a = static_cast<double>(read(got.data() + offset_, type_, i)),
                     b = static_cast<double>(read(p(Side::kHost), type_, i));
        if (std::isnan(a) || std::isnan(b)) return INFINITY;
        diff += (a - b) * (a - b);
        norm += b * b;
      }
    return norm > 0 ? std::sqrt(diff / norm) : std::sqrt(diff);
  }
  // The device's values become the host's.
  void download() {
    const std::vector<std::byte> got = block_.download();
    std::memcpy(block_.at(Side::kHost), got.data(), got.size());
  }
  // The same distance to what another matrix holds on the host.
  double error_against(Matrix& other) {
    std::memcpy(block_.at(Side::kHost), other.block_.at(Side::kHost), block_.bytes());
    return error();
  }
  double tolerance() const { return type_ == DType::kBF16 ? 4e-3 : 2e-5; }

 private:
  int64_t rows_, cols_, ld_;
  DType type_;
  size_t offset_;
  Block block_;
};

template <typename T>
class Array {
 public:
  explicit Array(std::vector<T> v) : size_(v.size()), block_(v.size() * sizeof(T)) {
    if (size_) std::memcpy(block_.at(Side::kHost), v.data(), v.size() * sizeof(T));
    block_.upload();
  }
  T* on(Side s) { return static_cast<T*>(block_.at(s)); }

 private:
  size_t size_;
  Block block_;
};

// Runs `call(ops, side)` on the reference and on the GPU.
template <typename F>
void both(F call) {
  call(kernels::reference_ops(), Side::kHost);
  call(*gpu(nullptr)->ops, Side::kDevice);
  gpu(nullptr)->device->synchronize();
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (gpu(&why) == nullptr) GTEST_SKIP() << why;
    static void* scratch = gpu(nullptr)->device->allocate(size_t{1} << 30);
    gpu(nullptr)->ops->set_scratch(scratch, size_t{1} << 30);
  }
};

inline constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

}  // namespace mxt::test

#define EXPECT_NEAR_HOST(m) EXPECT_LT((m).error(), (m).tolerance())
// Kernels of Hopper's own instructions, or of its shared memory: other cards take the general ones.
#define MXT_WANTS_HOPPER()                                              \
  if (::mxt::test::gpu(nullptr)->device->properties().arch != "sm_90a") \
  GTEST_SKIP() << "this kernel is Hopper's alone; the card counts as "  \
               << ::mxt::test::gpu(nullptr)->device->properties().arch

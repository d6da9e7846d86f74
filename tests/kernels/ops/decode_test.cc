#include <cmath>
#include <cstring>

#include "base/coding.h"
#include "base/ggml_blocks.h"
#include "base/philox.h"
#include "kernels/decode.h"
#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(Decoding);

const int32_t* bytes(Trial& t, const std::vector<uint8_t>& b) {
  std::vector<int32_t> words(b.size() / 4 + 1);
  std::memcpy(words.data(), b.data(), b.size());
  return t.ints(words);
}

// A matrix of bell-shaped weights so held.
Coded coded(Trial& t, Coding coding, int64_t rows, int64_t cols) {
  std::vector<float> w(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < w.size(); ++i) {
    const auto r = philox4x32(7, static_cast<uint64_t>(rows), i);
    w[i] =
        static_cast<float>(std::sqrt(-2 * std::log((r[0] + 1.0) * 0x1p-32)) * std::cos(6.283185307 * r[1] * 0x1p-32)) *
        (i % 97 == 5 ? 9.0f : 0.02f);
    if (i / 64 == 1) w[i] = 0;
  }
  const CodedBytes size = coded_bytes(coding, rows, cols);
  std::vector<uint8_t> codes(static_cast<size_t>(size.codes));
  std::vector<float> scales(static_cast<size_t>(size.scales + 3) / 4), nested(static_cast<size_t>(size.nested) / 4);
  auto* scale_bytes = reinterpret_cast<uint8_t*>(scales.data());
  encode(w.data(), DType::kF32, {coding, rows, cols, codes.data(), scale_bytes, nested.data()});
  Coded m{coding, rows, cols};
  m.codes = reinterpret_cast<const uint8_t*>(bytes(t, codes));
  m.scales = reinterpret_cast<const uint8_t*>(bytes(t, {scale_bytes, scale_bytes + size.scales}));
  if (!nested.empty()) m.nested = t.floats(nested);
  return m;
}

struct Case {
  int64_t rows, cols, row, col, height, width;
};

// Blocks of GGUF, of bytes that any file may hold.
TEST_P(Decoding, BlocksOfGguf) {
  if (GetParam().ops->device() != nullptr) GTEST_SKIP() << "the host's backends alone have them";
  for (Coding coding = Coding::kQ4_0; coding <= Coding::kGgmlMxfp4; coding = static_cast<Coding>(int(coding) + 1)) {
    const GgmlBlock& block = *ggml_block(coding);
    for (const Case& c : {Case{5, 256, 0, 0, 5, 256}, {7, 768, 2, 64, 4, 320}, {3, 2304, 0, 2240, 3, 64}}) {
      std::vector<uint8_t> bytes_of(static_cast<size_t>(coded_bytes(coding, c.rows, c.cols).codes));
      for (size_t i = 0; i < bytes_of.size(); ++i)  // what may be a half stays finite
        bytes_of[i] = static_cast<uint8_t>(philox4x32(11, static_cast<uint64_t>(coding), i)[0] & 0x3f);
      ASSERT_EQ(bytes_of.size(), static_cast<size_t>(c.rows * c.cols / block.values * block.bytes));
      for (const DType type : kTypes)
        for (const int64_t gap : {0, 8}) {
          const Op op = [&](Trial& t) {
            Decode d;
            d.matrix = {coding, c.rows, c.cols, reinterpret_cast<const uint8_t*>(bytes(t, bytes_of)), nullptr, nullptr};
            d.row = c.row, d.col = c.col;
            d.out = t.output("out", c.height, c.width, type);
            dynamic_cast<Decoder&>(t.ops()).decode(d);
          };
          SCOPED_TRACE(testing::Message() << name_of(coding) << " " << c.rows << "x" << c.cols << " from " << c.row
                                          << "," << c.col << " to " << label(type) << " gap " << gap);
          expect_identical(run(reference_backend(), op, gap), run(GetParam(), op, gap));
        }
    }
  }
}

TEST_P(Decoding, AnyRectangle) {
  for (const Coding coding :
       {Coding::kNf4, Coding::kNf4Double, Coding::kMxfp4, Coding::kE4M3, Coding::kE4M3Rows, Coding::kE4M3Blocks})
    for (const Case& c : {Case{5, 96, 0, 0, 5, 96},
                          {7, 160, 2, 64, 4, 96},
                          {33, 64, 1, 0, 31, 64},
                          {3, 4160, 0, 4096, 3, 64},
                          {300, 256, 17, 64, 200, 128},
                          {1, 32, 0, 0, 1, 32},
                          {9, 35, 0, 0, 9, 35},
                          {9, 35, 3, 1, 5, 33},
                          {40, 1000, 0, 0, 40, 1000},
                          {4, 31, 4, 0, 0, 31}}) {
      if (coding == Coding::kMxfp4 && c.cols % 32 != 0) continue;
      for (const DType type : kTypes)
        for (const DType through : {DType::kF32, DType::kBF16, DType::kF16})
          for (const int64_t gap : {0, 8, 3}) {
            const Op op = [&](Trial& t) {
              Decode d;
              d.matrix = coded(t, coding, c.rows, c.cols);
              d.row = c.row, d.col = c.col, d.through = through;
              d.out = t.output("out", c.height, c.width, type);
              dynamic_cast<Decoder&>(t.ops()).decode(d);
            };
            SCOPED_TRACE(testing::Message() << name_of(coding) << " " << c.rows << "x" << c.cols << " from " << c.row
                                            << "," << c.col << " to " << label(type) << " gap " << gap);
            expect_identical(run(reference_backend(), op, gap), run(GetParam(), op, gap));
          }
    }
}

// Matrices one below the other, each with scales of its own.
TEST_P(Decoding, PartsOfOneSize) {
  for (const Coding coding :
       {Coding::kNf4, Coding::kNf4Double, Coding::kMxfp4, Coding::kE4M3, Coding::kE4M3Rows, Coding::kE4M3Blocks})
    for (const DType type : kTypes) {
      constexpr int64_t kRows = 6, kCols = 96, kParts = 5;
      const CodedBytes size = coded_bytes(coding, kRows, kCols);
      const int64_t scales_step = (size.scales + 63) / 64 * 64, nested_step = (size.nested + 63) / 64 * 64;
      std::vector<uint8_t> codes(static_cast<size_t>(kParts * size.codes)),
          scales(static_cast<size_t>(kParts * scales_step));
      std::vector<float> nested(static_cast<size_t>(kParts * nested_step / 4));
      for (int64_t p = 0; p < kParts; ++p) {
        std::vector<float> w(kRows * kCols);
        for (size_t i = 0; i < w.size(); ++i)
          w[i] = static_cast<float>(philox4x32(3, static_cast<uint64_t>(p), i)[0] >> 8) * 0x1p-20f *
                     static_cast<float>(p + 1) -
                 3;
        std::vector<float> aligned(static_cast<size_t>(size.scales + 3) / 4);
        auto* bytes = reinterpret_cast<uint8_t*>(aligned.data());
        encode(w.data(), DType::kF32,
               {coding, kRows, kCols, codes.data() + p * size.codes, bytes, nested.data() + p * nested_step / 4});
        std::memcpy(scales.data() + p * scales_step, bytes, static_cast<size_t>(size.scales));
      }
      const Op op = [&](Trial& t) {
        Decode d;
        d.matrix = {coding, kRows, kCols};
        d.matrix.codes = reinterpret_cast<const uint8_t*>(bytes(t, codes));
        d.matrix.scales = reinterpret_cast<const uint8_t*>(bytes(t, scales));
        if (size.nested > 0) d.matrix.nested = t.floats(nested);
        d.parts = kParts, d.codes_step = size.codes, d.scales_step = scales_step, d.nested_step = nested_step;
        d.row = 3;
        d.out = t.output("out", 23, kCols, type);
        dynamic_cast<Decoder&>(t.ops()).decode(d);
      };
      SCOPED_TRACE(std::string(name_of(coding)) + " " + label(type));
      expect_identical(run(reference_backend(), op), run(GetParam(), op));
    }
}

}  // namespace
}  // namespace mxt::kernels::test

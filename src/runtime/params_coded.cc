// Matrices that a store holds in codes (graph::Storage::kCoded): where their parts stand, and both ways.
#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "runtime/params.h"

namespace mxt::runtime {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A segment's codes, scales and nested scales in host memory.
struct HostCoded {
  std::vector<uint8_t> codes;
  std::vector<float> scales, nested;
  HostCoded(Coding coding, int64_t rows, int64_t cols) {
    const CodedBytes bytes = coded_bytes(coding, rows, cols);
    codes.resize(static_cast<size_t>(bytes.codes));
    scales.resize(static_cast<size_t>(bytes.scales + 3) / 4);
    nested.resize(static_cast<size_t>(bytes.nested) / 4);
  }
  uint8_t* scale_bytes() { return reinterpret_cast<uint8_t*>(scales.data()); }
};

void round_through(DType through, float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (through == DType::kBF16) x[i] = bf16_to_float(float_to_bf16(x[i]));
    if (through == DType::kF16) x[i] = f16_to_float(float_to_f16(x[i]));
  }
}

}  // namespace

CodedPlace coded_place(const graph::Param& p, size_t segment) {
  CodedPlace at;
  for (size_t i = 0; i < segment; ++i) {
    const CodedBytes bytes = coded_bytes(p.segments[i].coding, p.segments[i].rows, p.cols);
    at.codes += aligned(bytes.codes);
    at.scales += aligned(bytes.scales) + aligned(bytes.nested);
  }
  at.nested = at.scales;
  if (segment < p.segments.size())
    at.nested += aligned(coded_bytes(p.segments[segment].coding, p.segments[segment].rows, p.cols).scales);
  return at;
}

void ParamStore::Access::decode_segments() {
  const Shape& shape = store_.shapes_[static_cast<size_t>(p_)];
  const DType type = store_.types_[static_cast<size_t>(p_)];
  const ParamSlot& there = store_[p_];
  copy_.resize(static_cast<size_t>(shape.rows * shape.cols) * size_of(type));
  slot.weight = copy_.data();
  for (const CodedPart& part : shape.parts) {
    HostCoded held(part.coding, part.rows, shape.cols);
    const CodedBytes bytes = coded_bytes(part.coding, part.rows, shape.cols);
    const auto* codes = static_cast<const std::byte*>(there.weight);
    const auto* scales = reinterpret_cast<const std::byte*>(there.scale);
    store_.fetch(held.codes.data(), codes + part.at.codes, static_cast<size_t>(bytes.codes));
    store_.fetch(held.scales.data(), scales + part.at.scales, static_cast<size_t>(bytes.scales));
    store_.fetch(held.nested.data(), scales + part.at.nested, static_cast<size_t>(bytes.nested));
    const Coded matrix{part.coding, part.rows, shape.cols, held.codes.data(), held.scale_bytes(), held.nested.data()};
    parallel_for(0, part.rows, 16, [&](int64_t b, int64_t e) {
      std::vector<float> row(static_cast<size_t>(shape.cols));
      for (int64_t r = b; r < e; ++r) {
        mxt::decode(matrix, r * shape.cols, shape.cols, row.data());
        round_through(part.through, row.data(), shape.cols);
        convert(row.data(), DType::kF32,
                copy_.data() + static_cast<size_t>((part.row + r) * shape.cols) * size_of(type), type, row.size());
      }
    });
  }
}

void ParamStore::Access::encode_segments() {
  const Shape& shape = store_.shapes_[static_cast<size_t>(p_)];
  const DType type = store_.types_[static_cast<size_t>(p_)];
  const ParamSlot& there = store_[p_];
  for (const CodedPart& part : shape.parts) {
    HostCoded held(part.coding, part.rows, shape.cols);
    mxt::encode(copy_.data() + static_cast<size_t>(part.row * shape.cols) * size_of(type), type,
                {part.coding, part.rows, shape.cols, held.codes.data(), held.scale_bytes(), held.nested.data()});
    store_.put_coded(there, part, shape.cols,
                     {part.coding, part.rows, shape.cols, held.codes.data(), held.scale_bytes(), held.nested.data()});
  }
}

void ParamStore::put_coded(const ParamSlot& slot, const CodedPart& part, int64_t cols, const Coded& from) const {
  MXT_ASSERT(from.coding == part.coding && from.rows == part.rows && from.cols == cols);
  const CodedBytes bytes = coded_bytes(part.coding, part.rows, cols);
  auto* scales = reinterpret_cast<std::byte*>(slot.scale);
  put(static_cast<std::byte*>(slot.weight) + part.at.codes, from.codes, static_cast<size_t>(bytes.codes));
  put(scales + part.at.scales, from.scales, static_cast<size_t>(bytes.scales));
  if (bytes.nested > 0) put(scales + part.at.nested, from.nested, static_cast<size_t>(bytes.nested));
}

void ParamStore::write_coded(graph::ParamId p, size_t segment, const Coded& from) {
  const Shape& shape = shapes_[static_cast<size_t>(p)];
  put_coded(slots_[static_cast<size_t>(p)], shape.parts.at(segment), shape.cols, from);
}

}  // namespace mxt::runtime

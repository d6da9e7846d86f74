#include "checkpoint/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/threads.h"
#include "checkpoint/heads.h"
#include "formats/buffers.h"
#include "formats/coded.h"
#include "formats/family.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "kernels/blocks.h"
#include "models/heads.h"
#include "models/model.h"

namespace mxt::checkpoint {
namespace {

using graph::Param;
using graph::ParamKind;
using graph::Segment;

bool is_vector(const Param& p) {
  return p.kind == ParamKind::kNormWeight || p.kind == ParamKind::kBias || p.kind == ParamKind::kDecay;
}

std::string shape_text(const std::vector<int64_t>& s) { return fmt::format("[{}]", fmt::join(s, ", ")); }

// The shape that a segment has in the file.
std::vector<int64_t> file_shape(const Param& p, const Segment& s) {
  if (is_vector(p)) return {s.rows};
  if (p.kind == ParamKind::kConv) return {s.rows, 1, p.cols};
  if (!p.tail.empty()) {
    std::vector<int64_t> shape{s.rows};
    shape.insert(shape.end(), p.tail.begin(), p.tail.end());
    return shape;
  }
  if (s.transposed) return {p.cols, s.rows};
  return {s.rows, p.cols};
}

std::string find_name(const formats::WeightSource& source, const Segment& s) {
  for (const std::string& name : models::spellings(source.config(), s.name))
    if (source.has(name)) return name;
  fail_input("{}: tensor {} is missing: the folder does not hold the whole model: fetch or save it again",
             source.path(), s.name);
}

// The segment's name in the file, which holds it in the shape that the graph wants.
std::string checked_name(const formats::WeightSource& source, const Param& p, const Segment& s) {
  std::string name = find_name(source, s);
  if (const std::vector<int64_t> want = file_shape(p, s), have = source.shape(name); have != want)
    fail_input("{}: tensor {} has shape {}, the configuration says {}", source.path(), name, shape_text(have),
               shape_text(want));
  return name;
}

// Elements before the segment in the parameter: rows of a matrix, columns of a vector.
int64_t segment_offset(const Param& p, const Segment& s) { return is_vector(p) ? s.row : s.row * p.cols; }

template <typename T>
void transpose_into(const T* from, int64_t rows, int64_t cols, T* to) {  // [rows, cols] → [cols, rows]
  parallel_for(0, cols, 64, [&](int64_t b, int64_t e) {
    for (int64_t c = b; c < e; ++c)
      for (int64_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * cols + c];
  });
}

void read_into(const formats::WeightSource& source, const Param& p, const Segment& s, DType type, std::byte* out) {
  const std::string name = checked_name(source, p, s);
  if (p.offset != 0) {
    MXT_ASSERT(is_vector(p));
    std::vector<float> values(static_cast<size_t>(s.rows));
    source.read(name, DType::kF32, values.data());
    for (float& v : values) v += p.offset;
    return convert(values.data(), DType::kF32, out, type, values.size());
  }
  if (!s.transposed) {
    source.read(name, type, out);
    return;
  }
  std::vector<std::byte> raw(static_cast<size_t>(s.rows * p.cols) * size_of(type));
  source.read(name, type, raw.data());
  if (type == DType::kF32)
    transpose_into(reinterpret_cast<const float*>(raw.data()), p.cols, s.rows, reinterpret_cast<float*>(out));
  else
    transpose_into(reinterpret_cast<const uint16_t*>(raw.data()), p.cols, s.rows, reinterpret_cast<uint16_t*>(out));
}

}  // namespace

namespace {

using kernels::BlockKind;
using kernels::BlockMatrix;

// The kind that all segments of a matrix can be held in without a change of their values, or of those that reading them
// in `type` gives.
std::optional<BlockKind> kind_of(const Param& p, const formats::WeightSource& source, DType type, bool plain) {
  using formats::GgmlType;
  if (p.adapter || is_vector(p) || p.experts > 0 || p.cols % BlockMatrix::kBlock != 0) return std::nullopt;
  bool four = true, eight = true, four_k = true, parts = true, bf16 = plain;
  for (const Segment& s : p.segments) {
    if (s.transposed) return std::nullopt;
    const std::string name = find_name(source, s);
    const GgmlType ggml = source.block_type(name).value_or(GgmlType::kF32);
    four = four && (ggml == GgmlType::kQ4_0 || ggml == GgmlType::kQ4_1);
    eight = eight && ggml == GgmlType::kQ8_0;
    four_k = four_k && ggml == GgmlType::kQ4_K;
    parts = parts && formats::ggml_has_parts(ggml);
    bf16 = bf16 && (type == DType::kBF16 || source.stored_type(name) == DType::kBF16);
  }
  if (four) return BlockKind::kQ4;
  if (eight) return BlockKind::kQ8;
  if (four_k) return BlockKind::kQ4F;
  if (parts) return BlockKind::kQ8F;
  return bf16 ? std::optional(BlockKind::kBF16) : std::nullopt;
}

// Row r of a tensor as BlockMatrix::set_row wants it, through `row` where the file has it otherwise.
const std::byte* block_row(const formats::WeightSource& source, const std::string& name, int64_t r, BlockKind kind,
                           std::vector<std::byte>& row) {
  const auto bytes = source.block_row(name, r);
  const formats::GgmlType type = *source.block_type(name);
  if (kind == BlockKind::kQ4F || kind == BlockKind::kQ8F) {
    std::vector<formats::GgmlPart> parts(static_cast<size_t>(source.shape(name)[1] / BlockMatrix::kBlock));
    formats::ggml_parts(type, bytes.data(), source.shape(name)[1], parts.data());
    const size_t size = BlockMatrix::block_bytes(kind);
    row.resize(parts.size() * size);
    std::byte* to = row.data();
    for (const formats::GgmlPart& p : parts) {
      if (kind == BlockKind::kQ8F) {
        std::memcpy(to, p.scale, 8), std::memcpy(to + 8, &p.least, 4), std::memcpy(to + 12, p.q, 32);
      } else {
        std::memcpy(to, p.scale, 4), std::memcpy(to + 4, &p.least, 4);
        for (size_t i = 0; i < 16; ++i) to[8 + i] = static_cast<std::byte>(p.q[i] | p.q[i + 16] << 4);
      }
      to += size;
    }
    return row.data();
  }
  if (type != formats::GgmlType::kQ4_0) return bytes.data();
  row.resize(bytes.size() / 18 * 20);
  for (size_t k = 0; k < bytes.size() / 18;
       ++k) {  // d·(q − 8) = d·q + (−8d): a power of two, so exact (but for a d near the end of f16, refused)
    uint16_t d;
    std::memcpy(&d, bytes.data() + 18 * k, 2);
    const uint16_t m8 = float_to_f16(-8 * f16_to_float(d));
    if (f16_to_float(m8) != -8 * f16_to_float(d))
      fail_input("{}: tensor {} has a scale of {}, which is no weight's", source.path(), name, f16_to_float(d));
    std::memcpy(row.data() + 20 * k, &d, 2);
    std::memcpy(row.data() + 20 * k + 2, &m8, 2);
    std::memcpy(row.data() + 20 * k + 4, bytes.data() + 18 * k + 2, 16);
  }
  return row.data();
}

}  // namespace

BlockWeights load_blocks(const graph::Graph& g, const formats::WeightSource& source, bool plain) {
  std::vector<std::optional<BlockKind>> kinds;
  auto room = [](BlockKind kind, const Param& p) { return (BlockMatrix::bytes(kind, p.rows, p.cols) + 63) / 64 * 64; };
  size_t total = 0, at = 0;
  for (const Param& p : g.params) {
    kinds.push_back(kind_of(p, source, g.value(p.value).type, plain));
    if (kinds.back()) total += room(*kinds.back(), p);
  }
  BlockWeights out;
  out.matrices.resize(g.params.size());
  out.memory = device::Buffer::host(total);
  for (size_t i = 0; i < g.params.size(); ++i) {
    const Param& p = g.params[i];
    const auto kind = kinds[i];
    if (!kind) continue;
    auto m = std::make_unique<BlockMatrix>(*kind, p.rows, p.cols, out.memory.bytes_at(at));
    at += room(*kind, p);
    for (const Segment& s : p.segments) {
      const std::string name = checked_name(source, p, s);
      parallel_for(0, s.rows, 64, [&](int64_t b, int64_t e) {
        std::vector<std::byte> row;
        if (*kind == BlockKind::kBF16) {
          const size_t bytes = static_cast<size_t>(p.cols) * 2;
          row.resize(static_cast<size_t>(e - b) * bytes);
          source.read(name, DType::kBF16, row.data(), b, e);
          for (int64_t r = b; r < e; ++r) m->set_row(s.row + r, row.data() + static_cast<size_t>(r - b) * bytes);
        } else {
          for (int64_t r = b; r < e; ++r) m->set_row(s.row + r, block_row(source, name, r, *kind, row));
        }
      });
    }
    out.matrices[i] = std::move(m);
    source.drop_pages();
  }
  return out;
}

void check_base(const graph::Graph& g, const formats::WeightSource& source) {
  for (const Param& p : g.params)
    if (!p.adapter && !models::is_head(p))
      for (const Segment& s : p.segments) checked_name(source, p, s);
}

namespace {

// Takes the segments of a matrix held in codes as the file has them; false where the file has values, to be rounded.
bool load_coded(const Param& p, graph::ParamId id, runtime::ParamStore& params, const formats::WeightSource& source) {
  for (size_t i = 0; i < p.segments.size(); ++i) {
    const Segment& s = p.segments[i];
    const std::string name = checked_name(source, p, s);
    const auto tensor = formats::coded_tensor(source, name);
    const bool same = tensor && tensor->matrix.coding == s.coding && tensor->through == s.through;
    if (!same && !formats::config_coding(source.config(), s.name)) return false;
    if (!same)
      fail_input("{}: config.json says that {} is held in {} of {}, and the file has it otherwise", source.path(), name,
                 name_of(s.coding), name_of(s.through));
    params.write_coded(id, i, tensor->matrix);
  }
  return true;
}

}  // namespace

std::vector<std::string> unused_tensors(const graph::Graph& g, const formats::WeightSource& source) {
  std::set<std::string> used;
  for (const Param& p : g.params) {
    if (p.adapter) continue;
    if (models::is_head(p)) used.insert("lm_head.weight");  // it stands in the place of that
    // A head that an adapter has untied need not be there.
    for (const Segment& s : p.segments)
      for (const std::string& name : models::spellings(source.config(), s.name)) used.insert(name);
  }
  std::vector<std::string> out;
  for (std::string& name : source.names())
    if (!used.contains(name) && !formats::is_buffer(name) &&
        !(name == "lm_head.weight" && source.config().tie_embeddings))
      out.push_back(std::move(name));
  return out;
}

namespace {

void say_unused(const graph::Graph& g, const formats::WeightSource& source) {
  static std::mutex mutex;
  static std::set<std::string> said;
  {
    std::lock_guard lock(mutex);
    if (!said.insert(source.path()).second) return;
  }
  const std::vector<std::string> names = unused_tensors(g, source);
  if (names.empty()) return;
  const size_t shown = std::min<size_t>(names.size(), 3);
  log::warn("{}: {} of its tensors {} not used by this model ({}): {}{}", source.path(), names.size(),
            names.size() == 1 ? "is" : "are", source.config().model_type,
            fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
            names.size() > shown ? ", …" : "");
}

}  // namespace

namespace {

// Box-Muller on the element's own draw.
float normal(uint64_t seed, uint64_t stream, int64_t k, float std) {
  const auto r = philox4x32(seed, stream, static_cast<uint64_t>(k));
  const double u = (static_cast<double>(r[0]) + 1.0) * 0x1p-32, w = static_cast<double>(r[1]) * 0x1p-32;
  return std * static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * w));
}

void draw(const graph::Graph& g, runtime::ParamStore& params, graph::ParamId id, uint64_t seed) {
  const Param& p = g.params[static_cast<size_t>(id)];
  const auto access = params.write(id);
  const runtime::ParamSlot& slot = access.slot;
  const DType type = g.value(p.value).type;
  uint64_t stream = 0;
  Blake3 h;
  h.update(p.name);
  const Digest d = h.digest();
  std::memcpy(&stream, d.data(), sizeof stream);
  parallel_for(0, slot.size, 1 << 14, [&](int64_t b, int64_t e) {
    for (int64_t k = b; k < e; ++k) {
      float v = p.kind == ParamKind::kNormWeight ? 1.0f : p.init_mean;
      if (!p.init_values.empty()) {
        v = p.init_values[static_cast<size_t>(k)];
      } else if (p.kind ==
                 ParamKind::kDecay) {  // the logarithm of a rate between 0.01 and 16, as transformers draws it
        const auto r = philox4x32(seed, stream, static_cast<uint64_t>(k));
        v = static_cast<float>(std::log(0.01 + 15.99 * static_cast<double>(r[0]) * 0x1p-32));
      } else if (p.init_high > p.init_low) {
        const auto r = philox4x32(seed, stream, static_cast<uint64_t>(k));
        v = p.init_low + (p.init_high - p.init_low) * static_cast<float>(static_cast<double>(r[0]) * 0x1p-32);
      } else if (!is_vector(p)) {
        v = normal(seed, stream, k, p.init_std);
      }
      if (slot.master)
        slot.master[k] = v;
      else if (type == DType::kF32)
        static_cast<float*>(slot.weight)[k] = v;
      else
        static_cast<uint16_t*>(slot.weight)[k] = float_to_bf16(v);
    }
  });
}

}  // namespace

bool lacks_head(const graph::Graph& g, const formats::WeightSource& source) {
  return std::any_of(g.params.begin(), g.params.end(),
                     [&](const Param& p) { return models::is_head(p) && !source.has(p.segments.at(0).name); });
}

void draw_head(const graph::Graph& g, runtime::ParamStore& params, uint64_t seed) {
  for (size_t i = 0; i < g.params.size(); ++i) {
    if (!models::is_head(g.params[i])) continue;
    draw(g, params, static_cast<graph::ParamId>(i), seed);
    params.sync_weights(static_cast<graph::ParamId>(i));
  }
}

void load_base(const graph::Graph& g, runtime::ParamStore& params, const formats::WeightSource& source) {
  for (size_t i = 0; i < g.params.size(); ++i) {
    const Param& p = g.params[i];
    if (p.adapter) continue;
    const auto id = static_cast<graph::ParamId>(i);
    if (params[id].blocks) continue;  // is there already
    if (models::is_head(p) && !source.has(p.segments.at(0).name)) continue;
    if (p.held == graph::Storage::kCoded && load_coded(p, id, params, source)) {
      source.drop_pages();
      continue;
    }
    const auto access = params.write(id);
    const runtime::ParamSlot& slot = access.slot;
    const DType type = slot.master ? DType::kF32 : g.value(p.value).type;
    std::byte* base = reinterpret_cast<std::byte*>(slot.master ? static_cast<void*>(slot.master) : slot.weight);
    for (const Segment& s : p.segments)
      read_into(source, p, s, type, base + static_cast<size_t>(segment_offset(p, s)) * size_of(type));
    if (p.segments.empty()) {
      const std::vector<float> ones(static_cast<size_t>(slot.size), 1.0f);
      convert(ones.data(), DType::kF32, base, type, ones.size());
    }
    source.drop_pages();
  }
  for (size_t i = 0; i < g.params.size(); ++i)
    if (!g.params[i].adapter) params.sync_weights(static_cast<graph::ParamId>(i));
  say_unused(g, source);  // a file that is refused has one line
}

void init_random(const graph::Graph& g, runtime::ParamStore& params, uint64_t seed) {
  for (size_t i = 0; i < g.params.size(); ++i)
    if (!g.params[i].adapter) draw(g, params, static_cast<graph::ParamId>(i), seed);
  for (size_t i = 0; i < g.params.size(); ++i)
    if (!g.params[i].adapter) params.sync_weights(static_cast<graph::ParamId>(i));
}

std::vector<float> read_segment(const graph::Graph& g, const runtime::ParamStore& params, const Param& p,
                                const Segment& s) {
  const auto access = params.read(g.value(p.value).param);
  const runtime::ParamSlot& slot = access.slot;
  const int64_t n = is_vector(p) ? s.rows : s.rows * p.cols, first = segment_offset(p, s);
  std::vector<float> out(static_cast<size_t>(n));
  const DType type = slot.master ? DType::kF32 : g.value(p.value).type;
  const auto* from =
      reinterpret_cast<const std::byte*>(slot.master ? static_cast<const void*>(slot.master) : slot.weight);
  convert(from + static_cast<size_t>(first) * size_of(type), type, out.data(), DType::kF32, out.size());
  for (float& v : out) v -= p.offset;
  if (!s.transposed) return out;
  std::vector<float> t(out.size());
  transpose_into(out.data(), s.rows, p.cols, t.data());
  return t;
}

namespace {

constexpr int64_t kPiece = 1 << 18;  // elements: saving takes a few MiB of its own, whatever the tensor

// As read_segment() gives it, converted and written piece by piece.
void write_segment(formats::SafetensorsWriter& writer, const graph::Graph& g, const runtime::ParamStore& params,
                   const Param& p, const Segment& s, DType type) {
  const auto access = params.read(g.value(p.value).param);
  const runtime::ParamSlot& slot = access.slot;
  const DType held = slot.master ? DType::kF32 : g.value(p.value).type;
  const auto* from =
      reinterpret_cast<const std::byte*>(slot.master ? static_cast<const void*>(slot.master) : slot.weight) +
      static_cast<size_t>(segment_offset(p, s)) * size_of(held);
  std::vector<float> values;
  std::vector<std::byte> raw;
  const auto write = [&] {
    raw.resize(values.size() * size_of(type));
    convert(values.data(), DType::kF32, raw.data(), type, values.size());
    writer.append(raw.data(), raw.size());
  };
  if (!s.transposed) {
    const int64_t n = is_vector(p) ? s.rows : s.rows * p.cols;
    for (int64_t b = 0; b < n; b += kPiece) {
      values.resize(static_cast<size_t>(std::min(kPiece, n - b)));
      convert(from + static_cast<size_t>(b) * size_of(held), held, values.data(), DType::kF32, values.size());
      for (float& v : values) v -= p.offset;
      write();
    }
    return;
  }
  const int64_t width = std::clamp<int64_t>(kPiece / s.rows, 16, p.cols);  // columns, rows of the file, at a time
  for (int64_t c = 0; c < p.cols; c += width) {
    const int64_t n = std::min(width, p.cols - c);
    values.resize(static_cast<size_t>(n * s.rows));
    parallel_for(0, s.rows, 64, [&](int64_t begin, int64_t end) {
      std::vector<float> row(static_cast<size_t>(n));
      for (int64_t r = begin; r < end; ++r) {
        convert(from + static_cast<size_t>(r * p.cols + c) * size_of(held), held, row.data(), DType::kF32, row.size());
        for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i * s.rows + r)] = row[static_cast<size_t>(i)];
      }
    });
    write();
  }
}

}  // namespace

namespace {

// …mlp.experts.gate_up_proj of …mlp.experts.0.gate_proj.weight; the other matrix is …down_proj.
std::string stack_name(const std::string& first) {
  const size_t at = first.find(".experts.") + 9;
  return first.substr(0, at) + (first.find("gate_proj", at) == std::string::npos ? "down_proj" : "gate_up_proj") +
         (first.ends_with(".bias") ? "_bias" : "");
}

// A stack whose experts lie turned, gate's and up's columns in turn (formats/weights/experts.h); a vector's likewise.
void write_turned(formats::SafetensorsWriter& writer, const graph::Graph& g, const runtime::ParamStore& params,
                  const Param& p, int64_t experts, DType type) {
  const auto access = params.read(g.value(p.value).param);
  const runtime::ParamSlot& slot = access.slot;
  const DType held = slot.master ? DType::kF32 : g.value(p.value).type;
  const auto* from =
      reinterpret_cast<const std::byte*>(slot.master ? static_cast<const void*>(slot.master) : slot.weight);
  const int64_t cols = is_vector(p) ? 1 : p.cols, all = slot.size / cols / experts,
                parts = static_cast<int64_t>(p.segments.size()) / experts, part = all / parts;
  const int64_t width = std::clamp<int64_t>(kPiece / all, 16, cols);
  std::vector<float> values;
  std::vector<std::byte> raw;
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t c = 0; c < cols; c += width) {
      const int64_t n = std::min(width, cols - c);
      values.resize(static_cast<size_t>(n * all));
      parallel_for(0, all, 64, [&](int64_t begin, int64_t end) {
        std::vector<float> row(static_cast<size_t>(n));
        for (int64_t r = begin; r < end; ++r) {
          convert(from + static_cast<size_t>((e * all + r) * cols + c) * size_of(held), held, row.data(), DType::kF32,
                  row.size());
          const int64_t to = r % part * parts + r / part;
          for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i * all + to)] = row[static_cast<size_t>(i)];
        }
      });
      raw.resize(values.size() * size_of(type));
      convert(values.data(), DType::kF32, raw.data(), type, values.size());
      writer.append(raw.data(), raw.size());
    }
}

}  // namespace

void save_model(const std::string& folder, const graph::Graph& g, const runtime::ParamStore& params,
                const formats::ModelConfig& config, DType type, const WrittenType& written) {
  make_folders(folder);
  const auto type_of = [&](const Segment& s) { return written ? written(s.name) : type; };
  struct Piece {
    const Param* p;
    const Segment* s;  // null: a turned stack
  };
  std::vector<formats::TensorSpec> specs;
  std::map<std::string, Piece> pieces;
  std::list<Segment> whole;
  for (const Param& p : g.params) {
    if (p.adapter) continue;
    const bool turned = config.family->turned_experts && !p.segments.empty() &&
                        p.segments[0].name.find(".experts.") != std::string::npos;
    if (turned) {
      const int64_t one = is_vector(p) ? p.cols / config.num_experts : p.rows / config.num_experts;
      const std::string stack = stack_name(p.segments[0].name);
      specs.push_back({stack, type_of(p.segments[0]),
                       is_vector(p) ? std::vector<int64_t>{config.num_experts, one}
                                    : std::vector<int64_t>{config.num_experts, p.cols, one}});
      pieces[stack] = {&p, nullptr};
      continue;
    }
    if (p.experts > 0 && config.stacked_experts) {  // the parameter as it lies, under the stack's name
      const std::string stack = stack_name(p.segments[0].name);
      specs.push_back({stack, type_of(p.segments[0]), {p.experts, p.rows / p.experts, p.cols}});
      whole.push_back({stack, 0, p.rows});
      pieces[stack] = {&p, &whole.back()};
      continue;
    }
    for (const Segment& s : p.segments) {
      specs.push_back({s.name, type_of(s), file_shape(p, s)});
      pieces[s.name] = {&p, &s};
    }
  }
  formats::SafetensorsWriter::Options options;
  options.max_shard_bytes = 5'000'000'000;
  specs = formats::SafetensorsWriter::usual_order(std::move(specs));
  formats::SafetensorsWriter writer(folder + "/model.safetensors", specs, options);
  for (const auto& spec : specs) {
    const Piece& piece = pieces.at(spec.name);
    if (piece.s)
      write_segment(writer, g, params, *piece.p, *piece.s, spec.type);
    else
      write_turned(writer, g, params, *piece.p, config.num_experts, spec.type);
  }
  writer.commit();
  write_file_atomic(folder + "/config.json", formats::to_hf_config(config, type).dump(2) + "\n");
}

namespace {

// An adapter as the graph has it: y = x Wᵀ and z = x Aᵀ, to which blocks of y add scale·z·Bᵀ; with experts each has its
// part of W, A and B, one below the other.
struct Adapted {
  graph::ValueId w = graph::kNone, a = graph::kNone;
  std::vector<graph::ValueId> bs;
  std::vector<graph::LoraBlock> blocks;
  int64_t experts = 1;
};

std::optional<Adapted> adapted_by(const graph::Graph& g, const graph::Op& op) {
  Adapted out;
  if (const auto* add = std::get_if<graph::LoraAddOp>(&op.attrs)) {
    out.blocks = add->blocks;
    out.bs.assign(op.in.begin() + 2, op.in.end());
  } else if (const auto* experts = std::get_if<graph::ExpertLoraAddOp>(&op.attrs)) {
    out.blocks = experts->blocks;
    out.experts = experts->experts;
    out.bs.assign(op.in.begin() + 3, op.in.end());
  } else {
    return std::nullopt;
  }
  for (const graph::Op& o : g.ops) {
    if (!std::holds_alternative<graph::LinearOp>(o.attrs) && !std::holds_alternative<graph::ExpertLinearOp>(o.attrs))
      continue;
    if (o.out[0] == op.in[0]) out.w = o.in[1];
    if (o.out[0] == op.in[1]) out.a = o.in[1];
  }
  MXT_ASSERT(out.w != graph::kNone && out.a != graph::kNone);
  return out;
}

float rounded(float x, DType type) {
  if (type == DType::kBF16) return bf16_to_float(float_to_bf16(x));
  return type == DType::kF16 ? f16_to_float(float_to_f16(x)) : x;
}

// values[i] += delta, rounded once, where the parameter trains from or computes from.
MergeCost add_to(const runtime::ParamSlot& slot, DType type, int64_t at, const std::vector<double>& row,
                 DType written) {
  MergeCost cost;
  for (size_t i = 0; i < row.size(); ++i) {
    const int64_t n = at + static_cast<int64_t>(i);
    const float delta = static_cast<float>(row[i]);
    float x;
    if (slot.master)
      x = slot.master[n] += delta;
    else if (type == DType::kF32)
      x = static_cast<float*>(slot.weight)[n] += delta;
    else {
      uint16_t& held = static_cast<uint16_t*>(slot.weight)[n];
      x = bf16_to_float(held) + delta;
      held = float_to_bf16(x);
    }
    const auto off = static_cast<double>(rounded(x, written) - x);
    cost.change += row[i] * row[i];
    cost.rounding += off * off;
  }
  return cost;
}

MergeCost merge_one(const graph::Graph& g, runtime::ParamStore& params, const Adapted& adapted, DType written) {
  MergeCost total;
  auto values = [&](graph::ValueId v) {
    const auto access = params.read(g.value(v).param);
    const runtime::ParamSlot& s = access.slot;
    std::vector<float> f(static_cast<size_t>(s.size));
    const DType t = s.master ? DType::kF32 : g.value(v).type;
    convert(s.master ? static_cast<const void*>(s.master) : s.weight, t, f.data(), DType::kF32, f.size());
    return f;
  };
  const auto w_access = params.write(g.value(adapted.w).param);
  const int64_t cols = g.value(adapted.w).cols, height = g.value(adapted.w).rows.factor / adapted.experts,
                ranks = g.value(adapted.a).rows.factor / adapted.experts;
  const std::vector<float> a = values(adapted.a);
  for (size_t k = 0; k < adapted.blocks.size(); ++k) {
    const graph::LoraBlock& block = adapted.blocks[k];
    const std::vector<float> b = values(adapted.bs[k]);
    std::vector<MergeCost> rows(static_cast<size_t>(adapted.experts * block.cols));  // summed in their order
    parallel_for(0, adapted.experts * block.cols, 16, [&](int64_t begin, int64_t end) {
      std::vector<double> row(static_cast<size_t>(cols));
      for (int64_t r = begin; r < end; ++r) {
        const int64_t expert = r / block.cols;
        std::fill(row.begin(), row.end(), 0.0);
        for (int64_t j = 0; j < block.rank; ++j) {
          const double c =
              static_cast<double>(block.scale) * static_cast<double>(b[static_cast<size_t>(r * block.rank + j)]);
          const float* a_row = a.data() + (expert * ranks + block.z_col + j) * cols;
          for (int64_t n = 0; n < cols; ++n) row[static_cast<size_t>(n)] += c * static_cast<double>(a_row[n]);
        }
        rows[static_cast<size_t>(r)] = add_to(w_access.slot, g.value(adapted.w).type,
                                              (expert * height + block.col + r % block.cols) * cols, row, written);
      }
    });
    for (const MergeCost& c : rows) total.change += c.change, total.rounding += c.rounding;
  }
  return total;
}

}  // namespace

MergeCost merge_adapter(const graph::Graph& g, runtime::ParamStore& params, const WrittenType& written) {
  MergeCost total;
  for (const graph::Op& op : g.ops) {
    if (g.forward_ops > 0 && &op - g.ops.data() >= g.forward_ops) break;
    const std::optional<Adapted> adapted = adapted_by(g, op);
    if (!adapted) continue;
    const graph::ParamId w = g.value(adapted->w).param;
    const DType type = written ? written(g.params[static_cast<size_t>(w)].segments[0].name) : DType::kF32;
    const MergeCost c = merge_one(g, params, *adapted, type);
    total.change += c.change, total.rounding += c.rounding;
    params.sync_weights(w);
  }
  return total;
}

}  // namespace mxt::checkpoint

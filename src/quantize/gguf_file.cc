// One .gguf for llama.cpp: its names, its row order for rotary pairs, and the tensor types that llama-quantize would
// choose.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/threads.h"
#include "formats/buffers.h"
#include "formats/coded.h"
#include "formats/family.h"
#include "formats/gguf_hf.h"
#include "formats/vision.h"
#include "quantize/encode.h"
#include "quantize/internal.h"

namespace mxt::quantize {
namespace {

using config::QuantScheme;
using formats::GgmlType;
using Layout = formats::GgufForm::Layout;

// llama.cpp's llama_ftype.
uint32_t file_type_of(QuantScheme s) {
  switch (s) {
    case QuantScheme::kGgufF16:
      return 1;
    case QuantScheme::kGgufQ4_0:
      return 2;
    case QuantScheme::kGgufQ8_0:
      return 7;
    case QuantScheme::kGgufQ4KM:
      return 15;
    default:
      return 32;  // BF16
  }
}

GgmlType base_type(QuantScheme s) {
  switch (s) {
    case QuantScheme::kGgufF16:
      return GgmlType::kF16;
    case QuantScheme::kGgufQ4_0:
      return GgmlType::kQ4_0;
    case QuantScheme::kGgufQ8_0:
      return GgmlType::kQ8_0;
    case QuantScheme::kGgufQ4KM:
      return GgmlType::kQ4_K;
    default:
      return GgmlType::kBF16;
  }
}

// Types that need a multiple of 256 (or 32) columns give way where rows are shorter, as llama-quantize does.
GgmlType fitting(GgmlType t, int64_t columns) {
  const auto fits = [&](GgmlType x) { return columns % formats::ggml_type_info(x)->block == 0; };
  if (!fits(t) && t == GgmlType::kQ4_K) t = GgmlType::kQ5_0;
  if (!fits(t) && t == GgmlType::kQ5_K) t = GgmlType::kQ5_1;
  if (!fits(t) && t == GgmlType::kQ6_K) t = GgmlType::kQ8_0;
  return fits(t) ? t : GgmlType::kF16;
}

// Layers that the _M mixtures hold better: the first and last eighth and every third between (llama-quant.cpp).
bool use_more_bits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// A tensor of the file and the Hugging Face ones that its rows come from (experts are stacked).
struct Item {
  std::string name;
  std::vector<std::string> from;
  std::vector<int64_t> shape;  // of the file's tensor, PyTorch's order
  GgmlType type = GgmlType::kF32;
  formats::GgufForm form;
};

class GgufFileWriter {
 public:
  GgufFileWriter(const formats::WeightSource& source, const tokenizer::Tokenizer& tok, QuantScheme scheme,
                 const std::string& path)
      : source_(source), tok_(tok), c_(source.config()), scheme_(scheme), path_(path) {}

  Written run(const std::string& name, StopFlag stop) {
    formats::GgufWriter out(path_);
    formats::write_gguf_model(out, c_, name, file_type_of(scheme_));
    collect();
    add_tokenizer_keys(out, c_, tok_);
    const std::vector<formats::RopeTensor> rope = formats::rope_tensors(c_);
    for (const auto& r : rope) out.declare(r.name, GgmlType::kF32, {std::ssize(r.divisors)});
    for (const Item& item : items_) out.declare(item.name, item.type, item.shape);
    for (const auto& r : rope) out.append(r.name, r.divisors.data(), 1);
    log::Progress progress("quantizing", static_cast<double>(items_.size()));
    double done = 0;
    for (const Item& item : items_) {
      check_stop(stop);
      write(item, out);
      source_.drop_pages();
      progress.update(++done, item.name);
    }
    out.commit();
    written_.bytes = fs::file_size(path_);
    written_.model = path_;
    written_.tokenizer_inside = true;
    return written_;
  }

 private:
  // Parts that stand beside the text model, whose file is one of its own or which no reader asks for.
  bool left_out(const std::string& hf) {
    if (!c_.family->optional_vision && c_.family->other_prefixes.empty()) return false;
    const bool sees = formats::sees_pictures(hf), guesses = hf.starts_with("mtp.") || hf.starts_with("model.mtp.");
    seeing_ += sees;
    guessing_ += guesses;
    return sees || guesses;
  }

  void collect() {
    std::map<std::string, std::map<int64_t, std::string>> experts;
    for (const std::string& hf : source_.names()) {
      if (formats::is_buffer(hf) || (hf == "lm_head.weight" && c_.tie_embeddings) || left_out(hf)) continue;
      Item item;
      int64_t expert = -1;
      item.name = formats::gguf_tensor_name(hf, c_, &expert);
      if (item.name.empty())
        fail_missing("{}: GGUF has no name for tensor \"{}\" of a {} model", source_.path(), hf, c_.model_type);
      if (expert >= 0) {
        experts[item.name][expert] = hf;
        continue;
      }
      item.from = {hf};
      item.shape = checked_shape(hf, item.name);
      item.form = formats::gguf_form(item.name, c_);
      if (item.form.layout == Layout::kTransposed) std::swap(item.shape[0], item.shape[1]);
      if (item.shape.size() == 3) item.shape.erase(item.shape.begin() + 1);  // a convolution's one channel
      items_.push_back(std::move(item));
    }
    if (seeing_ > 0 && !has_tower(source_))
      log::warn("{}: {} tensors that see pictures are left out: such a file holds the text model", source_.path(),
                seeing_);
    if (guessing_ > 0)
      log::warn("{}: {} tensors that guess further tokens (mtp) are left out: the model computes the same without them",
                source_.path(), guessing_);
    for (const auto& [name, list] : experts) {
      Item item;
      item.name = name;
      for (const auto& [expert, hf] : list) {
        if (expert != static_cast<int64_t>(item.from.size()))
          fail_input("{}: expert {} of {} is missing", source_.path(), item.from.size(), name);
        item.from.push_back(hf);
        item.shape = checked_shape(hf, name);
      }
      if (list.size() != static_cast<size_t>(c_.num_experts))
        fail_input("{}: {} of {} experts of {} are there", source_.path(), list.size(), c_.num_experts, name);
      item.shape.insert(item.shape.begin(), static_cast<int64_t>(item.from.size()));
      items_.push_back(std::move(item));
    }
    has_output_ = std::any_of(items_.begin(), items_.end(), [](const Item& i) { return i.name == "output.weight"; });
    for (Item& item : items_) {
      item.type = type_of(item);
      int64_t n = 1;
      for (int64_t d : item.shape) n *= d;
      written_.parameters += n;
      // A scheme of blocks gives way to F16 where rows do not hold whole ones.
      if (item.type == GgmlType::kF16 && base_type(scheme_) != GgmlType::kF16)
        written_.kept.push_back(item.from[0]);
      else
        written_.quantized += item.type != GgmlType::kF32;
    }
    if (written_.quantized == 0) fail_input("{}: has no matrix that this scheme can hold", source_.path());
    for (const std::string& k : written_.kept)
      log::warn("{}: {} columns are no multiple of this scheme's blocks: kept as F16", k, source_.shape(k).back());
  }

  // Rows and columns change places by the config's sizes: a tensor of others would be read past its end.
  std::vector<int64_t> checked_shape(const std::string& hf, const std::string& name) const {
    auto shape = source_.shape(hf);
    if (const auto want = formats::gguf_hf_shape(name, c_); shape != want)
      fail_input("{}: tensor \"{}\" has shape [{}], the configuration says [{}]", source_.path(), hf,
                 fmt::join(shape, ", "), fmt::join(want, ", "));
    return shape;
  }

  // gpt-oss's experts that came in MXFP4 stay so, whatever the scheme, as llama.cpp has them: nothing is lost.
  bool in_mxfp4(const Item& item) const {
    if (!c_.family->turned_experts || item.shape.size() != 3) return false;
    const auto coded = formats::coded_tensor(source_, item.from[0]);
    return coded && (coded->matrix.coding == Coding::kMxfp4 || coded->matrix.coding == Coding::kGgmlMxfp4);
  }

  // llama-quantize's choice (llama_tensor_get_type without an importance matrix).
  GgmlType type_of(const Item& item) const {
    const std::string& n = item.name;
    const bool matrix = item.shape.size() >= 2 && n.ends_with(".weight");
    if (!matrix || n.find("_norm.weight") != std::string::npos || n.find("ffn_gate_inp") != std::string::npos ||
        n.find("ssm_conv1d") != std::string::npos || n == "position_embd.weight")
      return GgmlType::kF32;
    if (in_mxfp4(item)) return GgmlType::kMXFP4;
    const int64_t columns = item.shape.back();
    GgmlType t = base_type(scheme_);
    const bool is_head = n == "output.weight" || (n == "token_embd.weight" && !has_output_);
    if (scheme_ == QuantScheme::kGgufQ4_0 || scheme_ == QuantScheme::kGgufQ4KM) {
      int64_t layer = -1;
      if (n.starts_with("blk.")) std::from_chars(n.data() + 4, n.data() + n.size(), layer);
      if (is_head) {
        t = GgmlType::kQ6_K;
      } else if (scheme_ == QuantScheme::kGgufQ4KM && layer >= 0) {
        const bool better = use_more_bits(layer, c_.num_layers);
        for (const char* part : {"attn_v.", "attn_qkv.", "ffn_down"})
          if (better && n.find(part) != std::string::npos) t = GgmlType::kQ6_K;
      }
    }
    return fitting(t, columns);
  }

  // [count / width, width]
  void check(const Item& item, const float* w, int64_t count, int64_t width) const {
    constexpr float kAlwaysFits = 3e4f;  // scales are float16 at the most narrow
    const float most = largest(w, count);
    if (!std::isfinite(most))
      fail_input("{}: tensor \"{}\" holds NaN or infinity: the model is damaged", source_.path(), item.from[0]);
    if (most < kAlwaysFits || item.type == GgmlType::kF32) return;
    const formats::GgmlTypeInfo& info = *formats::ggml_type_info(item.type);
    std::string held(static_cast<size_t>(count / info.block * info.bytes), '\0');
    std::vector<float> read(static_cast<size_t>(count));
    formats::ggml_quantize(item.type, w, count / width, width, held.data());
    formats::ggml_dequantize(item.type, held.data(), count / width, width, read.data());
    if (!std::isfinite(largest(read.data(), count)))
      fail_input("{}: tensor \"{}\" holds weights as large as {:g}, more than {} can: gguf_bf16 holds them",
                 source_.path(), item.from[0], most, info.name);
  }

  void write(const Item& item, formats::GgufWriter& out) {
    const int64_t width = item.shape.size() < 2 ? 1 : item.shape.back();
    if (item.shape.size() < 2) return write_row(item, item.from[0], out);
    if (item.form.layout == Layout::kTransposed) return write_transposed(item, out);
    if (item.type == GgmlType::kMXFP4) return write_mxfp4(item, out);
    for (const std::string& hf : item.from) {
      const auto shape = source_.shape(hf);
      if (shape.size() == 1) {
        write_row(item, hf, out);
        continue;
      }
      by_rows(shape[0], width, 1, [&](int64_t b, int64_t e) {
        values_.resize(static_cast<size_t>((e - b) * width));
        read_rows(item, hf, b, e, width);
        check(item, values_.data(), (e - b) * width, width);
        out.append(item.name, values_.data(), e - b);
      });
    }
  }

  // Codes as they came: a folder has the even weight of a byte in the low four bits, a block of GGUF the first sixteen
  // weights there, behind its exponent.
  void write_mxfp4(const Item& item, formats::GgufWriter& out) {
    for (const std::string& hf : item.from) {
      const auto coded = formats::coded_tensor(source_, hf);
      const auto shape = source_.shape(hf);
      MXT_ASSERT(coded && shape.size() == 2 && shape[1] % kMxBlock == 0);
      const Coded& m = coded->matrix;
      const int64_t blocks = shape[0] * shape[1] / kMxBlock;
      std::string bytes(static_cast<size_t>(blocks * 17), '\0');
      if (m.coding == Coding::kGgmlMxfp4) {
        std::memcpy(bytes.data(), m.codes, bytes.size());
      } else {
        for (int64_t b = 0; b < blocks; ++b) {
          char* to = bytes.data() + b * 17;
          *to++ = static_cast<char>(m.scales[b]);
          const uint8_t* from = m.codes + b * 16;
          const auto code = [&](int i) { return from[i / 2] >> (i % 2 * 4) & 15; };
          for (int i = 0; i < 16; ++i) *to++ = static_cast<char>(code(i) | code(i + 16) << 4);
        }
      }
      out.append_raw(item.name, bytes.data(), bytes.size());
    }
  }

  // Rows [b, e) of the file into values_, each run of them that stands together in the source at once.
  void read_rows(const Item& item, const std::string& hf, int64_t b, int64_t e, int64_t width) {
    const bool moved = item.form.layout == Layout::kRopePairs || item.form.layout == Layout::kValueHeads;
    for (int64_t r = b; r < e;) {
      const int64_t from = moved ? item.form.in_hf(r) : r;
      int64_t n = moved ? 1 : e - b;
      while (moved && r + n < e && item.form.in_hf(r + n) == from + n) ++n;
      source_.read(hf, DType::kF32, values_.data() + (r - b) * width, from, from + n);
      r += n;
    }
    if (item.form.layout != Layout::kValueColumns) return;
    ordered_.resize(static_cast<size_t>(width));
    for (int64_t r = 0; r < e - b; ++r) {
      std::copy_n(values_.data() + r * width, width, ordered_.data());
      for (int64_t k = 0; k < width; ++k)
        values_[static_cast<size_t>(r * width + k)] = ordered_[static_cast<size_t>(item.form.in_hf(k))];
    }
  }

  // A vector, alone or as a row of the file's tensor.
  void write_row(const Item& item, const std::string& hf, formats::GgufWriter& out) {
    const auto shape = source_.shape(hf);
    const int64_t n = shape.empty() ? 1 : shape[0];
    ordered_.resize(static_cast<size_t>(n));
    source_.read(hf, DType::kF32, ordered_.data(), 0, -1);
    check(item, ordered_.data(), n, n);
    values_.resize(ordered_.size());
    for (int64_t r = 0; r < n; ++r) {
      const float v = ordered_[static_cast<size_t>(item.form.in_hf(r))];
      values_[static_cast<size_t>(r)] = item.form.decay ? -std::exp(v) : v + item.form.more;
    }
    out.append(item.name, values_.data(), 1);
  }

  // GPT-2's matrices are of a small model: one is held whole.
  void write_transposed(const Item& item, formats::GgufWriter& out) {
    const int64_t rows = item.shape[0], cols = item.shape[1];
    values_.resize(static_cast<size_t>(rows * cols));
    ordered_.resize(values_.size());
    source_.read(item.from[0], DType::kF32, values_.data(), 0, -1);
    parallel_for(0, rows, 16, [&](int64_t b, int64_t e) {
      for (int64_t r = b; r < e; ++r)
        for (int64_t k = 0; k < cols; ++k)
          ordered_[static_cast<size_t>(r * cols + k)] = values_[static_cast<size_t>(k * rows + r)];
    });
    check(item, ordered_.data(), rows * cols, cols);
    out.append(item.name, ordered_.data(), rows);
  }

  const formats::WeightSource& source_;
  const tokenizer::Tokenizer& tok_;
  const formats::ModelConfig& c_;
  QuantScheme scheme_;
  std::string path_;
  bool has_output_ = false;
  int64_t seeing_ = 0, guessing_ = 0;  // tensors of parts that are left out
  std::vector<Item> items_;
  std::vector<float> values_, ordered_;
  Written written_;
};

}  // namespace

Written write_gguf(const formats::WeightSource& source, const tokenizer::Tokenizer& tok, QuantScheme scheme,
                   const std::string& name, const std::string& path, StopFlag stop) {
  return GgufFileWriter(source, tok, scheme, path).run(name, stop);
}

}  // namespace mxt::quantize

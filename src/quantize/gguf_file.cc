// One .gguf for llama.cpp: its names, its row order for rotary pairs, and the tensor types that llama-quantize would
// choose.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/threads.h"
#include "formats/buffers.h"
#include "formats/family.h"
#include "formats/gguf_hf.h"
#include "quantize/encode.h"
#include "quantize/internal.h"

namespace mxt::quantize {
namespace {

using config::QuantScheme;
using formats::GgmlType;

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
  int64_t pair_heads = 0;   // > 0: rows of every head are interleaved for rotary pairs
  bool transposed = false;  // the source holds [in, out]
};

class GgufFileWriter {
 public:
  GgufFileWriter(const formats::WeightSource& source, const tokenizer::Tokenizer& tok, QuantScheme scheme,
                 const std::string& path)
      : source_(source), tok_(tok), c_(source.config()), scheme_(scheme), path_(path) {}

  Written run(const std::string& name, StopFlag stop) {
    collect();
    formats::GgufWriter out(path_);
    formats::write_gguf_model(out, c_, name, file_type_of(scheme_));
    add_tokenizer_keys(out, c_, tok_);
    const std::vector<float> divisors = formats::rope_divisors(c_);
    if (!divisors.empty()) out.declare("rope_freqs.weight", GgmlType::kF32, {static_cast<int64_t>(divisors.size())});
    for (const Item& item : items_) out.declare(item.name, item.type, item.shape);
    if (!divisors.empty()) out.append("rope_freqs.weight", divisors.data(), 1);
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
  // GGUF's name, whichever of the two spellings the source has.
  std::string gguf_name(const std::string& hf) const {
    const std::string n = formats::gguf_tensor_name(hf, c_);
    return n.empty() ? formats::gguf_tensor_name(std::string(c_.family->prefix) + hf, c_) : n;
  }

  // "model.layers.2.mlp.experts.5.up_proj.weight" → "blk.2.ffn_up_exps.weight", 5.
  static bool split_expert(const std::string& hf, std::string* name, int64_t* expert) {
    static constexpr std::string_view kPrefix = "model.layers.", kMiddle = ".mlp.experts.";
    const size_t middle = hf.find(kMiddle);
    if (!hf.starts_with(kPrefix) || middle == std::string::npos) return false;
    const std::string layer = hf.substr(kPrefix.size(), middle - kPrefix.size());
    const char* at = hf.data() + middle + kMiddle.size();
    const auto r = std::from_chars(at, hf.data() + hf.size(), *expert);
    if (r.ec != std::errc()) return false;
    for (const char* part : {"gate", "up", "down"})
      if (std::string(r.ptr, hf.data() + hf.size()) == fmt::format(".{}_proj.weight", part)) {
        *name = fmt::format("blk.{}.ffn_{}_exps.weight", layer, part);
        return true;
      }
    return false;
  }

  void collect() {
    std::map<std::string, std::map<int64_t, std::string>> experts;
    for (const std::string& hf : source_.names()) {
      if (formats::is_buffer(hf) || (hf == "lm_head.weight" && c_.tie_embeddings)) continue;
      Item item;
      int64_t expert = 0;
      if (split_expert(hf, &item.name, &expert)) {
        experts[item.name][expert] = hf;
        continue;
      }
      item.name = gguf_name(hf);
      if (item.name.empty())
        fail_missing("{}: GGUF has no name for tensor \"{}\" of a {} model", source_.path(), hf, c_.model_type);
      item.from = {hf};
      item.shape = source_.shape(hf);
      item.transposed = c_.family->conv1d && item.shape.size() == 2 && item.name.starts_with("blk.");
      if (item.transposed) std::swap(item.shape[0], item.shape[1]);
      if (c_.family->gguf_pairs) {
        if (item.name.find(".attn_q.") != std::string::npos) item.pair_heads = c_.num_heads;
        if (item.name.find(".attn_k.") != std::string::npos) item.pair_heads = c_.num_kv_heads;
      }
      items_.push_back(std::move(item));
    }
    for (const auto& [name, list] : experts) {
      Item item;
      item.name = name;
      for (const auto& [expert, hf] : list) {
        if (expert != static_cast<int64_t>(item.from.size()))
          fail_input("{}: expert {} of {} is missing", source_.path(), item.from.size(), name);
        item.from.push_back(hf);
      }
      const auto shape = source_.shape(item.from[0]);
      if (shape.size() != 2) fail_input("{}: tensor \"{}\" is no matrix", source_.path(), item.from[0]);
      item.shape = {static_cast<int64_t>(item.from.size()), shape[0], shape[1]};
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

  // llama-quantize's choice (llama_tensor_get_type without an importance matrix).
  GgmlType type_of(const Item& item) const {
    const std::string& n = item.name;
    const bool matrix = item.shape.size() >= 2 && n.ends_with(".weight");
    if (!matrix || n.find("_norm.weight") != std::string::npos || n.find("ffn_gate_inp") != std::string::npos ||
        n == "position_embd.weight")
      return GgmlType::kF32;
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
        if (n.find("attn_qkv.") != std::string::npos) t = GgmlType::kQ5_K;
        if ((n.find("attn_v.") != std::string::npos || n.find("ffn_down") != std::string::npos) && better)
          t = GgmlType::kQ6_K;
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
    if (item.shape.size() < 2) return write_vector(item, out);
    if (item.transposed) return write_transposed(item, out);
    for (const std::string& hf : item.from) {
      const int64_t rows = source_.shape(hf)[0];
      if (item.pair_heads > 0 && rows % (2 * item.pair_heads) != 0)
        fail_input("{}: tensor \"{}\" does not have rows for {} heads", source_.path(), hf, item.pair_heads);
      const int64_t head = item.pair_heads > 0 ? rows / item.pair_heads : 1;
      by_rows(rows, width, head, [&](int64_t b, int64_t e) {
        const size_t n = static_cast<size_t>((e - b) * width);
        values_.resize(n);
        source_.read(hf, DType::kF32, values_.data(), b, e);
        check(item, values_.data(), (e - b) * width, width);
        if (item.pair_heads > 0) {
          ordered_.resize(n);
          interleave(values_.data(), ordered_.data(), e - b, head, width);
        }
        out.append(item.name, item.pair_heads > 0 ? ordered_.data() : values_.data(), e - b);
      });
    }
  }

  // Row (half h, j) of a head goes to (j, h): the pair that rotates together lies side by side.
  static void interleave(const float* from, float* to, int64_t rows, int64_t head, int64_t width) {
    const int64_t half = head / 2;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t in_head = r % head;
      const int64_t source = r - in_head + in_head % 2 * half + in_head / 2;
      std::copy_n(from + source * width, width, to + r * width);
    }
  }

  void write_vector(const Item& item, formats::GgufWriter& out) {
    const int64_t n = item.shape.empty() ? 1 : item.shape[0];
    values_.resize(static_cast<size_t>(n));
    source_.read(item.from[0], DType::kF32, values_.data(), 0, -1);
    if (formats::gguf_holds_plus_one(item.name, c_))
      for (float& v : values_) v += 1;
    check(item, values_.data(), n, n);
    ordered_.resize(values_.size());
    if (item.pair_heads > 0) interleave(values_.data(), ordered_.data(), n, n / item.pair_heads, 1);
    out.append(item.name, item.pair_heads > 0 ? ordered_.data() : values_.data(), 1);
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

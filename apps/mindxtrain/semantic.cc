#include "semantic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/threads.h"
#include "formats/weight_source.h"
#include "infer/embedder.h"
#include "infer/scorer.h"

namespace mxt::app {
namespace {

// Of everything in a model's folder that decides what its numbers are.
std::string model_digest(const std::string& path) {
  Blake3 h;
  h.update(formats::WeightSource::open(path)->digest_text());
  if (!formats::is_gguf(path))
    for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                             "vocab.json", "merges.txt", "vocab.txt", "modules.json", "sentence_bert_config.json"}) {
      std::error_code ec;
      if (!fs::exists(path + "/" + name, ec)) continue;
      h.update(std::string_view(name));
      h.update(read_file(path + "/" + name));
    }
  return h.hex();
}

std::string found(const std::string& model, const std::string& field, Fetch fetch) {
  try {
    return resolve_model(model, std::nullopt, fetch);
  } catch (const Error& e) {
    throw Error(
        e.code(),
        fmt::format(
            "{}: {}; set it to a model folder that is here (config.json, model.safetensors and the tokenizer's files)",
            field, e.what()));
  }
}

std::shared_ptr<const tokenizer::Tokenizer> tokenizer_of(const std::string& path, const std::string& field) {
  if (!has_tokenizer(path)) fail_missing("{}: {} has no tokenizer (tokenizer.json or vocab.txt)", field, path);
  return load_text_side(path).tok;
}

// No more of a text is looked at: longer than any model here reads, and bounded for rows of any size.
std::string_view beginning(std::string_view text) {
  constexpr size_t kBytes = size_t{1} << 16;
  if (text.size() <= kBytes) return text;
  size_t n = kBytes;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return text.substr(0, n);
}

class TextEmbedder : public data::Embedder {
 public:
  TextEmbedder(std::string path, const std::string& field)
      : path_(std::move(path)),
        tok_(tokenizer_of(path_, field)),
        before_(tok_->template_prefix()),
        after_(tok_->template_suffix()) {}

  std::string digest() const override { return model_digest(path_); }
  int64_t width() override { return model().width(); }
  void embed(std::span<const std::string> texts, float* out) override {
    infer::Embedder& m = model();
    std::vector<std::vector<int32_t>> rows(texts.size());
    parallel_for(0, static_cast<int64_t>(texts.size()), 16, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i)
        rows[static_cast<size_t>(i)] = encode(texts[static_cast<size_t>(i)], static_cast<size_t>(m.max_length()));
    });
    m.embed(rows, out);
  }

 private:
  infer::Embedder& model() {
    if (!model_) model_.emplace(path_, DType::kF32, kernels::cpu_ops());
    return *model_;
  }
  std::vector<int32_t> encode(const std::string& text, size_t most) const {
    std::vector<int32_t> ids = before_;
    tok_->encode_append(beginning(text), ids);
    ids.resize(std::min(ids.size(), most - std::min(most, after_.size())));
    ids.insert(ids.end(), after_.begin(), after_.end());
    if (ids.empty()) ids.push_back(std::max(0, tok_->eos()));  // of an empty text, where the template adds nothing
    return ids;
  }
  std::string path_;
  std::shared_ptr<const tokenizer::Tokenizer> tok_;
  std::vector<int32_t> before_, after_;
  std::optional<infer::Embedder> model_;
};

// Rows that fit are scored many at a time, longer ones in windows.
class TextScorer : public data::Scorer {
 public:
  TextScorer(std::string path, const std::string& field)
      : path_(std::move(path)), tok_(tokenizer_of(path_, field)), before_(tok_->template_prefix()) {}

  std::string digest() const override { return model_digest(path_); }
  void perplexity(std::span<const std::string> texts, double* out) override {
    if (!model_) {
      model_.emplace(path_, "", DType::kBF16, kWindow, kernels::cpu_ops());
      scorer_.emplace(*model_);
    }
    std::vector<std::vector<int32_t>> ids(texts.size());
    parallel_for(0, static_cast<int64_t>(texts.size()), 16, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) {
        ids[static_cast<size_t>(i)] = before_;
        tok_->encode_append(texts[static_cast<size_t>(i)], ids[static_cast<size_t>(i)]);
      }
    });
    const auto window = static_cast<size_t>(model_->positions());
    std::vector<size_t> which;
    std::vector<std::vector<int32_t>> fitting;
    for (size_t i = 0; i < texts.size(); ++i) {
      out[i] = std::numeric_limits<double>::quiet_NaN();
      if (ids[i].size() > window) out[i] = scorer_->perplexity(ids[i], static_cast<int64_t>(window));
      if (ids[i].size() < 2 || ids[i].size() > window) continue;
      which.push_back(i);
      fitting.push_back(std::move(ids[i]));
    }
    const auto logprobs = scorer_->score(fitting);
    for (size_t k = 0; k < which.size(); ++k) {
      double nll = 0;
      for (size_t t = 1; t < logprobs[k].size(); ++t) nll -= static_cast<double>(logprobs[k][t]);
      out[which[k]] = std::exp(nll / static_cast<double>(logprobs[k].size() - 1));
    }
  }

 private:
  static constexpr int64_t kWindow = 2048;
  std::string path_;
  std::shared_ptr<const tokenizer::Tokenizer> tok_;
  std::vector<int32_t> before_;
  std::optional<infer::Model> model_;
  std::optional<infer::Scorer> scorer_;
};

}  // namespace

std::unique_ptr<data::Scorer> make_scorer(const std::string& model, const std::string& field, Fetch fetch) {
  return std::make_unique<TextScorer>(found(model, field, fetch), field);
}

std::unique_ptr<data::Embedder> make_embedder(const std::string& model, const std::string& field, Fetch fetch) {
  return std::make_unique<TextEmbedder>(found(model, field, fetch), field);
}

}  // namespace mxt::app

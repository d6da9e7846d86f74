#include <nlohmann/json.hpp>

#include "base/json.h"
#include "formats/family.h"
#include "formats/weight_source.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kHead = "lm_head.weight";

class Untied final : public WeightSource {
 public:
  explicit Untied(std::unique_ptr<WeightSource> base) : base_(std::move(base)) {
    config_ = base_->config();
    held_ = base_->held_type();
    config_.tie_embeddings = false;
    if (config_.raw) {  // what a saved folder's config.json is made of
      auto raw = std::make_shared<OrderedJson>(*config_.raw);
      (*raw)["tie_word_embeddings"] = false;
      if (const auto text = raw->find("text_config"); text != raw->end() && text->is_object())
        (*text)["tie_word_embeddings"] = false;
      config_.raw = std::move(raw);
    }
    path_ = base_->path();
    table_ = std::string(config_.family->embedding);
    const std::string_view prefix = config_.family->prefix;  // which a checkpoint of the bare model lacks
    if (!base_->has(table_) && table_.starts_with(prefix)) table_ = table_.substr(prefix.size());
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> all = base_->names();
    if (!base_->has(kHead)) all.emplace_back(kHead);
    return all;
  }
  bool has(std::string_view name) const override { return name == kHead || base_->has(name); }
  std::vector<int64_t> shape(std::string_view name) const override { return base_->shape(of(name)); }
  DType stored_type(std::string_view name) const override { return base_->stored_type(of(name)); }
  InputRounding input_rounding(std::string_view name) const override { return base_->input_rounding(of(name)); }
  void read(std::string_view name, DType to, void* out, int64_t begin, int64_t end) const override {
    base_->read(of(name), to, out, begin, end);
  }
  std::span<const std::byte> mapped(std::string_view name, DType type) const override {
    return base_->mapped(of(name), type);
  }
  std::optional<GgmlType> block_type(std::string_view name) const override { return base_->block_type(of(name)); }
  std::span<const std::byte> block_row(std::string_view name, int64_t row) const override {
    return base_->block_row(of(name), row);
  }
  std::string digest_text() const override { return base_->digest_text(); }
  void drop_pages() const override { base_->drop_pages(); }

 private:
  // A file of a tied model may have the table twice; the first is what is used.
  std::string_view of(std::string_view name) const { return name == kHead ? std::string_view(table_) : name; }

  std::unique_ptr<WeightSource> base_;
  std::string table_;
};

}  // namespace

std::unique_ptr<WeightSource> WeightSource::untied(std::unique_ptr<WeightSource> base) {
  if (!base->config().tie_embeddings) return base;
  return std::make_unique<Untied>(std::move(base));
}

}  // namespace mxt::formats

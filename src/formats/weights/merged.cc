#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "base/threads.h"
#include "formats/family.h"
#include "formats/peft.h"
#include "formats/weight_source.h"

namespace mxt::formats {
namespace {

// scaling·B·A of a module, row by row as its base holds it.
struct Product {
  const Adapter::Module& m;
  bool transposed;
  std::vector<float> a, b;

  Product(const Adapter::Module& module, const Adapter& adapter, bool turned)
      : m(module),
        transposed(turned),
        a(static_cast<size_t>(module.rank * module.in)),
        b(static_cast<size_t>(module.out * module.rank)) {
    adapter.read(m.a, DType::kF32, a.data());
    adapter.read(m.b, DType::kF32, b.data());
  }

  void row(int64_t r, std::vector<double>& out) const {
    std::fill(out.begin(), out.end(), 0.0);
    for (int64_t j = 0; j < m.rank; ++j) {
      const double c = m.scaling * static_cast<double>(transposed ? a[static_cast<size_t>(j * m.in + r)]
                                                                  : b[static_cast<size_t>(r * m.rank + j)]);
      for (size_t k = 0; k < out.size(); ++k) {
        const auto i = static_cast<int64_t>(k);
        out[k] += c * static_cast<double>(transposed ? b[static_cast<size_t>(i * m.rank + j)]
                                                     : a[static_cast<size_t>(j * m.in + i)]);
      }
    }
  }
};

class Merged final : public WeightSource {
 public:
  Merged(std::unique_ptr<WeightSource> base, const std::string& folder)
      : base_(std::move(base)), adapter_(Adapter::open(folder, base_->config().family)) {
    path_ = base_->path();
    held_ = base_->held_type();
    // Where one of the two changes it is no longer what the other is.
    config_ = base_->config();
    for (const std::string& weight : {std::string("lm_head.weight"), std::string(config_.family->embedding)})
      if (module(weight) || replaced(weight)) base_ = untied(std::move(base_));
    config_ = base_->config();
    adapter_.check_base(*base_);
  }

  std::vector<std::string> names() const override { return base_->names(); }
  bool has(std::string_view name) const override { return base_->has(name); }
  std::vector<int64_t> shape(std::string_view name) const override { return base_->shape(name); }
  // Merged values are what fp32 gives; a plain tensor stays what it is.
  DType stored_type(std::string_view name) const override {
    if (const TensorInfo* t = replaced(name); t && !module(name)) return t->type;
    return module(name) ? DType::kF32 : base_->stored_type(name);
  }
  std::span<const std::byte> mapped(std::string_view name, DType type) const override {
    return module(name) || replaced(name) ? std::span<const std::byte>{} : base_->mapped(name, type);
  }
  std::string digest_text() const override {
    std::string out = base_->digest_text();
    for (const char* file : {"adapter_model.safetensors", "adapter_config.json"}) {
      const FileDigests d = hash_file(adapter_.folder() + "/" + file);
      out += fmt::format("{} {} {}\n", d.blake3, d.bytes, file);
    }
    return out;
  }
  void drop_pages() const override { base_->drop_pages(); }

  void read(std::string_view name, DType to, void* out, int64_t begin, int64_t end) const override {
    const Adapter::Module* m = module(name);
    if (!m) return read_plain(name, to, out, begin, end);
    const std::vector<int64_t> s = base_->shape(name);
    if (end < 0) end = s[0];
    const Product product(*m, adapter_, m->embedding || holds_transposed(config_, m->name));
    std::vector<float> w(static_cast<size_t>((end - begin) * s[1]));
    read_plain(name, DType::kF32, w.data(), begin, end);
    std::vector<float> magnitude(m->magnitude.name.empty() ? 0 : static_cast<size_t>(m->out));
    if (!magnitude.empty()) adapter_.read(m->magnitude, DType::kF32, magnitude.data());
    std::vector<double> columns;
    if (!magnitude.empty() && product.transposed) columns = column_gains(name, s, product, magnitude);
    parallel_for(begin, end, 16, [&](int64_t first, int64_t last) {
      std::vector<double> delta(static_cast<size_t>(s[1]));
      for (int64_t r = first; r < last; ++r) {
        product.row(r, delta);
        float* y = w.data() + (r - begin) * s[1];
        if (magnitude.empty()) {
          for (int64_t k = 0; k < s[1]; ++k) y[k] += static_cast<float>(delta[static_cast<size_t>(k)]);
          continue;
        }
        // DoRA: the row of W + scaling·B·A, as long as its magnitude.
        double squared = 0;
        for (int64_t k = 0; k < s[1]; ++k) {
          double& x = delta[static_cast<size_t>(k)];
          x += static_cast<double>(y[k]);
          squared += x * x;
        }
        const double gain = columns.empty() ? gain_of(magnitude[static_cast<size_t>(r)], squared) : 0;
        for (int64_t k = 0; k < s[1]; ++k) {
          const auto i = static_cast<size_t>(k);
          y[k] = static_cast<float>((columns.empty() ? gain : columns[i]) * delta[i]);
        }
      }
    });
    convert(w.data(), DType::kF32, out, to, w.size());
  }

 private:
  static double gain_of(float magnitude, double squared) {
    return squared > 0 ? static_cast<double>(magnitude) / std::sqrt(squared) : 0;
  }

  // DoRA over a matrix that is held turned: its rows are the columns here, and how long they are is known of the whole.
  std::vector<double> column_gains(std::string_view name, const std::vector<int64_t>& s, const Product& product,
                                   const std::vector<float>& magnitude) const {
    std::vector<float> w(static_cast<size_t>(s[0] * s[1]));
    read_plain(name, DType::kF32, w.data(), 0, s[0]);
    std::vector<double> gains(magnitude.size()), row(magnitude.size());
    for (int64_t r = 0; r < s[0]; ++r) {
      product.row(r, row);
      for (size_t k = 0; k < row.size(); ++k) {
        const double x = row[k] + static_cast<double>(w[static_cast<size_t>(r) * row.size() + k]);
        gains[k] += x * x;
      }
    }
    for (size_t k = 0; k < gains.size(); ++k) gains[k] = gain_of(magnitude[k], gains[k]);
    return gains;
  }

  // The base's tensor, or the one that takes its place.
  void read_plain(std::string_view name, DType to, void* out, int64_t begin, int64_t end) const {
    const TensorInfo* t = replaced(name);
    if (!t) return base_->read(name, to, out, begin, end);
    std::vector<char> all(static_cast<size_t>(t->count()) * size_of(to));
    adapter_.read(*t, to, all.data());
    const size_t row = all.size() / static_cast<size_t>(t->shape[0]);
    const size_t first = static_cast<size_t>(begin) * row;
    std::copy_n(all.data() + first, (end < 0 ? all.size() : static_cast<size_t>(end) * row) - first,
                static_cast<char*>(out));
  }

  // A checkpoint of the bare model lacks the prefix that the adapter's names have, or the other way round.
  const TensorInfo* replaced(std::string_view name) const {
    const auto& all = adapter_.replaced();
    if (all.empty()) return nullptr;
    const std::string_view prefix = config_.family->prefix;
    for (const std::string& n :
         {std::string(name), own_name(*config_.family, name),
          name.starts_with(prefix) ? std::string(name.substr(prefix.size())) : std::string(prefix) + std::string(name)})
      if (const auto it = all.find(n); it != all.end()) return &it->second;
    return nullptr;
  }

  const Adapter::Module* module(std::string_view name) const {
    constexpr std::string_view kSuffix = ".weight";
    if (!name.ends_with(kSuffix)) return nullptr;
    name.remove_suffix(kSuffix.size());
    if (const Adapter::Module* m = adapter_.find(name)) return m;
    if (const Adapter::Module* m = adapter_.find(own_name(*config_.family, name))) return m;
    // A checkpoint of the bare model lacks the prefix that the adapter's names have, or the other way round.
    const std::string_view prefix = config_.family->prefix;
    return name.starts_with(prefix) ? adapter_.find(name.substr(prefix.size()))
                                    : adapter_.find(std::string(prefix) + std::string(name));
  }

  std::unique_ptr<WeightSource> base_;
  Adapter adapter_;
};

}  // namespace

std::unique_ptr<WeightSource> WeightSource::with_adapter(std::unique_ptr<WeightSource> base,
                                                         const std::string& folder) {
  return std::make_unique<Merged>(std::move(base), folder);
}

}  // namespace mxt::formats

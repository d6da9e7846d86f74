#include "data/store/spill.h"

#include <filesystem>

#include "base/error.h"

namespace mxt::data {

Spill::Spill(std::string path) : path_(std::move(path)), file_(std::make_unique<AtomicFile>(path_)) {}

Spill::~Spill() {
  std::error_code ignored;
  map_ = MappedFile();
  fs::remove(path_, ignored);
}

void Spill::add(const Document& d) {
  MXT_ASSERT(!d.ids.empty() && (d.labels.empty() || d.labels.size() == d.ids.size()) && d.ids.size() <= UINT32_MAX);
  entries_.push_back({written_, static_cast<uint32_t>(d.ids.size()), !d.labels.empty()});
  file_->write(d.ids.data(), d.ids.size() * sizeof(int32_t));
  if (!d.labels.empty()) file_->write(d.labels.data(), d.labels.size() * sizeof(int32_t));
  written_ += d.ids.size() + d.labels.size();
}

void Spill::finish() {
  file_->commit();
  file_.reset();
  if (written_ > 0) map_ = MappedFile(path_);
}

DocumentView Spill::view(size_t i) const {
  const auto* all = reinterpret_cast<const int32_t*>(map_.bytes().data());
  const Entry& e = entries_[i];
  if ((seen_ += e.length) > size_t{16} << 20) {
    forget();
    seen_ = 0;
  }
  return {{all + e.at, e.length}, {all + e.at + e.length, e.labelled ? e.length : 0}};
}

std::span<const int32_t> Spill::all_ids() const {
  return {reinterpret_cast<const int32_t*>(map_.bytes().data()), map_.bytes().size() / sizeof(int32_t)};
}

}  // namespace mxt::data

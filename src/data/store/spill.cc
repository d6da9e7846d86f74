#include "data/store/spill.h"

#include "base/error.h"

namespace mxt::data {

void Spill::add(const Document& d) {
  MXT_ASSERT(!d.ids.empty() && (d.labels.empty() || d.labels.size() == d.ids.size()) && d.ids.size() <= INT32_MAX);
  entries_.push_back({file_.size() / sizeof(int32_t), static_cast<uint32_t>(d.ids.size()),
                      static_cast<uint32_t>(count_targets(d)) & INT32_MAX, !d.labels.empty(),
                      static_cast<uint32_t>(d.second), d.mark});
  if (!d.pictures.empty()) pictures_[entries_.size() - 1] = d.pictures;
  file_.append(d.ids.data(), d.ids.size() * sizeof(int32_t));
  file_.append(d.labels.data(), d.labels.size() * sizeof(int32_t));
}

std::span<const DocumentPicture> Spill::pictures(size_t i) const {
  const auto at = pictures_.find(i);
  return at == pictures_.end() ? std::span<const DocumentPicture>() : at->second;
}

void Spill::expect(size_t i) const {
  file_.expect(entries_[i].at * sizeof(int32_t), entries_[i].elements() * sizeof(int32_t));
}

DocumentView Spill::view(size_t i) const {
  const Entry& e = entries_[i];
  document_.resize(e.elements());
  file_.read(e.at * sizeof(int32_t), document_.size() * sizeof(int32_t), document_.data());
  const std::span<const int32_t> all(document_);
  return {all.first(e.length), all.subspan(e.length)};
}

}  // namespace mxt::data

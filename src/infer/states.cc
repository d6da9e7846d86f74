#include "infer/states.h"

#include <cstring>

#include "base/error.h"

namespace mxt::infer {
namespace {

using Mixer = formats::LayerSpec::Mixer;

struct Sizes {
  int64_t convolution = 0, state = 0;  // bytes of one sequence and layer
};
Sizes sizes_of(const formats::ModelConfig& c, DType type) {
  const int64_t keys = c.linear_key_heads * c.linear_key_head_dim,
                values = c.linear_value_heads * c.linear_value_head_dim;
  return {(c.linear_conv_kernel - 1) * (2 * keys + values) * static_cast<int64_t>(size_of(type)),
          c.linear_key_head_dim * values * static_cast<int64_t>(sizeof(float))};
}
int64_t layers_of(const formats::ModelConfig& c) {
  int64_t n = 0;
  for (const formats::LayerSpec& l : c.layers) n += l.mixer == Mixer::kGatedDelta;
  return n;
}

}  // namespace

int64_t SequenceStates::bytes(const formats::ModelConfig& c, DType type) {
  const int64_t n = layers_of(c);
  if (n == 0) return 0;
  const Sizes s = sizes_of(c, type);
  return n * (s.convolution + s.state);
}

SequenceStates::SequenceStates(const formats::ModelConfig& c, DType type, int64_t slots, device::Accelerator* device,
                               int64_t copies)
    : any_(layers_of(c) > 0), device_(device) {
  if (!any_) return;
  const Sizes s = sizes_of(c, type);
  convolution_bytes_ = s.convolution;
  state_bytes_ = s.state;
  const int64_t all = slots + copies;
  auto align = [](int64_t n) { return (n + 63) / 64 * 64; };
  memory_ = device::Buffer::on(device,
                               static_cast<size_t>(layers_of(c) * (align(s.convolution * all) + align(s.state * all))));
  size_t at = 0;
  auto take = [&](int64_t one) {
    void* p = memory_.bytes_at(at);
    at += static_cast<size_t>(align(one * all));
    return p;
  };
  for (const formats::LayerSpec& l : c.layers) {
    const bool here = l.mixer == Mixer::kGatedDelta;
    convolution_.push_back(here ? take(s.convolution) : nullptr);
    state_.push_back(here ? take(s.state) : nullptr);
  }
  for (int64_t i = slots; i-- > 0;) free_.push_back(static_cast<int32_t>(i));
  for (int64_t i = all; i-- > slots;) free_copies_.push_back(static_cast<int32_t>(i));
}

int32_t SequenceStates::take() {
  MXT_ASSERT(!free_.empty());
  const int32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void SequenceStates::copy(int32_t from, int32_t to) const {
  const auto one = [&](void* base, int64_t bytes) {
    auto* p = static_cast<std::byte*>(base);
    std::byte* target = p + to * bytes;
    const std::byte* source = p + from * bytes;
    if (device_)
      device_->copy(target, source, static_cast<size_t>(bytes));
    else
      std::memcpy(target, source, static_cast<size_t>(bytes));
  };
  for (size_t l = 0; l < state_.size(); ++l) {
    if (!state_[l]) continue;
    one(convolution_[l], convolution_bytes_);
    one(state_[l], state_bytes_);
  }
}

void SequenceStates::keep(const Digest& digest, int32_t slot) {
  if (const auto it = copies_.find(digest); it != copies_.end()) {
    used_.splice(used_.end(), used_, it->second.used);
    return;
  }
  if (free_copies_.empty()) {
    if (used_.empty()) return;  // there is room for none
    const auto oldest = copies_.find(used_.front());
    free_copies_.push_back(oldest->second.slot);
    copies_.erase(oldest);
    used_.pop_front();
  }
  const int32_t to = free_copies_.back();
  free_copies_.pop_back();
  copies_.emplace(digest, Copy{to, used_.insert(used_.end(), digest)});
  copy(slot, to);
}

void SequenceStates::restore(const Digest& digest, int32_t slot) {
  const Copy& c = copies_.at(digest);
  used_.splice(used_.end(), used_, c.used);
  copy(c.slot, slot);
}

void SequenceStates::forget() {
  for (const auto& [digest, c] : copies_) free_copies_.push_back(c.slot);
  copies_.clear();
  used_.clear();
}

void SequenceStates::show(runtime::CacheView& view, const std::vector<int32_t>& slots) const {
  if (!any_) return;
  view.convolution = convolution_;
  view.state = state_;
  view.state_slots = slots.data();
}

}  // namespace mxt::infer

#include "runtime/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace mxt::runtime {

Program::Staging::Staging(const ProgramSettings& s, device::Accelerator* device, bool previous, const graph::Graph& g)
    : device_(device), settings_(s), previous_(previous) {
  if (g.pictures.merge > 0) pictures_ = std::make_unique<PictureStaging>(s, g);
  const auto n = static_cast<size_t>(batch_bytes(s, previous)) + (pictures_ ? pictures_->layout().bytes : 0);
  if (device_ == nullptr) {
    host_[0] = device::Buffer::host(n);
    return;
  }
  there_ = device::Buffer::on(device_, n);
  for (int i = 0; i < 2; ++i) {
    pinned_[i] = device_->allocate_pinned(n);
    marks_[i] = device_->make_mark();
  }
}

Program::Staging::~Staging() {
  if (device_ == nullptr) return;
  for (int i = 0; i < 2; ++i) {
    device_->release_mark(marks_[i]);
    device_->release_pinned(pinned_[i]);
    device_->release_pinned(cache_pinned_[i]);
  }
}

const StagedBatch& Program::Staging::take(const Batch& b) {
  turn_ = device_ ? 1 - turn_ : 0;
  if (device_) device_->wait(marks_[turn_]);
  auto* base = static_cast<std::byte*>(device_ ? pinned_[turn_] : host_[0].data());
  auto* seen = static_cast<std::byte*>(device_ ? there_.data() : base);
  staged_ = StagedBatch{};
  static_cast<Batch&>(staged_) = b;
  size_t at = 0;
  auto block = [&](int64_t count) {  // an array's place here, and where the kernels see it
    const size_t here = at;
    at += static_cast<size_t>(staged_bytes(count));
    return std::pair{base + here, seen + here};
  };
  auto copy = [&](const int32_t* from, int64_t count, int64_t room) -> const int32_t* {
    const auto [to, as_seen] = block(room);
    if (from == nullptr) return nullptr;
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(int32_t));
    return reinterpret_cast<const int32_t*>(as_seen);
  };
  staged_.ids = copy(b.ids, b.tokens, settings_.max_tokens);
  staged_.positions = copy(b.positions, b.tokens, settings_.max_tokens);
  if (previous_) staged_.previous = copy(b.previous, b.tokens, settings_.max_tokens);
  if (b.cu_seqlens) MXT_ASSERT(b.documents <= settings_.max_documents);
  staged_.host_cu_seqlens = reinterpret_cast<const int32_t*>(base + at);
  staged_.cu_seqlens = copy(b.cu_seqlens, b.documents + 1, settings_.max_documents + 1);
  for (int64_t i = 0; b.cu_seqlens && i < b.documents; ++i)
    staged_.longest = std::max<int64_t>(staged_.longest, b.cu_seqlens[i + 1] - b.cu_seqlens[i]);
  MXT_ASSERT(b.prefix == nullptr || settings_.prefixes);
  if (settings_.prefixes) staged_.prefix = copy(b.prefix, b.documents, settings_.max_documents);
  MXT_ASSERT(b.rows <= settings_.max_documents);
  staged_.row_offsets = copy(b.row_offsets, b.rows + 1, settings_.max_documents + 1);
  const auto [scale, scale_seen] = block(1);
  std::memcpy(scale, &b.balance_scale, sizeof(float));
  staged_.staged_balance_scale = reinterpret_cast<const float*>(scale_seen);
  const auto [rows, rows_seen] = block(settings_.max_tokens);
  const auto [labels, labels_seen] = block(settings_.max_tokens);
  const auto [weights, weights_seen] = block(settings_.max_tokens);
  auto* r = reinterpret_cast<int32_t*>(rows);
  auto* l = reinterpret_cast<int32_t*>(labels);
  auto* w = reinterpret_cast<float*>(weights);
  int64_t n = 0;
  for (int64_t t = 0; b.targets && t < b.tokens; ++t) {
    if (b.targets[t] == -100) continue;
    r[n] = static_cast<int32_t>(t);
    l[n] = b.targets[t];
    w[n++] = b.loss_scale * (b.weights ? b.weights[t] : 1.0f);
  }
  staged_.target_rows = reinterpret_cast<const int32_t*>(rows_seen);
  staged_.target_labels = reinterpret_cast<const int32_t*>(labels_seen);
  staged_.target_weights = reinterpret_cast<const float*>(weights_seen);
  staged_.host_rows = r;
  staged_.target_count = n;
  if (pictures_) {
    pictures_->fill(b, base + at);
    staged_.host_picture_block = base + at;
    staged_.picture_block = seen + at;
    staged_.picture_layout = &pictures_->layout();
    staged_.longest_picture = pictures_->longest();
    at += pictures_->layout().bytes;
  }
  if (device_) {
    device_->upload(there_.data(), base, at);
    if (b.cache) take_cache(b);
    device_->mark(marks_[turn_]);
  }
  return staged_;
}

void Program::Staging::take_cache(const Batch& b) {
  const CacheView& c = *b.cache;
  const auto* temperature = reinterpret_cast<const int32_t*>(b.draw_temperature);
  const std::pair<const int32_t*, int64_t> arrays[] = {{c.cu_q, c.requests + 1},
                                                       {c.context, c.requests},
                                                       {c.tables, c.requests * c.max_pages},
                                                       {c.slots, b.tokens},
                                                       {b.logit_rows, b.logit_count},
                                                       {temperature, b.drawn ? b.logit_count : 0},
                                                       {b.draw_bits, b.drawn ? 2 * b.logit_count : 0},
                                                       {c.state_slots, c.state_slots ? c.requests : 0}};

  size_t need = 0;
  for (const auto& [p, n] : arrays) need += static_cast<size_t>(staged_bytes(n));
  if (need > cache_there_.size()) {
    device_->synchronize();
    cache_there_ = device::Buffer::on(device_, 2 * need);
    for (void*& p : cache_pinned_) {
      device_->release_pinned(p);
      p = device_->allocate_pinned(2 * need);
    }
  }
  const int32_t* seen[std::size(arrays)];
  size_t at = 0;
  for (size_t i = 0; i < std::size(arrays); ++i) {
    const auto& [p, n] = arrays[i];
    if (n > 0)
      std::memcpy(static_cast<std::byte*>(cache_pinned_[turn_]) + at, p, static_cast<size_t>(n) * sizeof(int32_t));
    seen[i] = reinterpret_cast<const int32_t*>(cache_there_.bytes_at(at));
    at += static_cast<size_t>(staged_bytes(n));
  }
  device_->upload(cache_there_.data(), cache_pinned_[turn_], at);
  view_ = c;
  view_.cu_q = seen[0], view_.context = seen[1], view_.tables = seen[2], view_.slots = seen[3];
  staged_.cache = &view_;
  staged_.logit_rows = seen[4];
  staged_.draw_temperature = reinterpret_cast<const float*>(seen[5]);
  staged_.draw_bits = seen[6];
  if (c.state_slots) view_.state_slots = seen[7];
}

}  // namespace mxt::runtime

#include "kernels/cpu/attention/forward.h"

#include <algorithm>
#include <cmath>

namespace mxt::kernels::cpu {

TileForward::TileForward(DType type, int64_t d, int64_t window, float scale, int64_t query_rows, int64_t key_rows,
                         bool portable)
    : kernels_(type, portable),
      d_(d),
      window_(window),
      query_rows_(query_rows),
      key_rows_(key_rows),
      panels_(panels_of(d)),
      scale_(scale) {}

int64_t TileForward::units() const {
  return Arena::rounded(packed_units(kernels_, key_rows_, d_)) + Arena::rounded(packed_units(kernels_, d_, key_rows_)) +
         Arena::rounded(kernels_.steps(d_) * query_rows_) + 2 * Arena::rounded(query_rows_ * key_rows_);
}

void TileForward::take(Arena& arena) {
  kt_ = arena.take<uint32_t>(packed_units(kernels_, key_rows_, d_));
  v_ = arena.take<uint32_t>(packed_units(kernels_, d_, key_rows_));
  rows_ = arena.take<uint32_t>(kernels_.steps(d_) * query_rows_);
  s_ = arena.take(query_rows_ * key_rows_);
  p_ = arena.take(query_rows_ * key_rows_);
}

void TileForward::start(QueryTile& q, Arena& arena) const {
  q.out = arena.take(panels_ * query_rows_ * kPanel);
  q.top = arena.take(query_rows_), q.sum = arena.take(query_rows_);
  std::fill(q.top, q.top + q.rows, -INFINITY);
  std::fill(q.sum, q.sum + q.rows, 0.0f);
}

void TileForward::set_keys(const void* k, int64_t ldk, const void* v, int64_t ldv, int64_t first_key, int64_t count) {
  first_key_ = first_key, keys_ = count;
  kernels_.pack(k, ldk, true, count, d_, kt_);
  kernels_.pack(v, ldv, false, d_, count, v_);
}

void TileForward::attend(QueryTile& q) {
  // Scores.
  PanelCall c;
  c.m = q.rows, c.steps = kernels_.steps(d_), c.a_step = 4, c.alpha = scale_ * kLog2E, c.ldc = key_rows_;
  if (kernels_.in_place(d_)) {
    c.a = q.q, c.a_row = q.ld * kernels_.size();
  } else {
    kernels_.copy_rows(q.q, q.ld, q.rows, d_, rows_);
    c.a = rows_, c.a_row = kernels_.row_bytes(d_);
  }
  for (int64_t i = 0; i < keys_; i += kPanel) {
    c.n = std::min(kPanel, keys_ - i), c.b = kt_ + i * c.steps, c.c = s_ + i;
    kernels_.multiply(c);
  }

  SoftmaxTile t;
  t.s = s_, t.p = p_, t.ld = key_rows_, t.rows = q.rows, t.cols = keys_;
  t.first_query = q.first_query, t.first_key = first_key_, t.window = window_, t.same_query = q.same_query;
  t.bf16 = kernels_.bf16_inside, t.top = q.top, t.sum = q.sum, t.out = q.out, t.panels = panels_,
  t.tile_rows = query_rows_;
  softmax_tile(t);
  if (drop_.threshold > 0) {
    for (int64_t r = 0; r < q.rows; ++r)
      drop_.draw(q.head, begin_ + q.first_query + r, begin_ + first_key_, keys_, [&](int64_t c, bool keep) {
        if (!keep)
          kernels_.bf16_inside ? void(reinterpret_cast<uint16_t*>(p_)[r * key_rows_ + c] = 0)
                               : void(p_[r * key_rows_ + c] = 0);
      });
  }

  // out += p v.
  PanelCall o;
  o.a = p_, o.a_row = key_rows_ * kernels_.size_inside(), o.a_step = 4;
  o.m = q.rows, o.steps = kernels_.steps(keys_), o.from_partial = q.started, o.to_partial = true;
  for (int64_t i = 0; i < panels_; ++i) {
    o.n = std::min(kPanel, d_ - i * kPanel), o.b = v_ + i * kPanel * o.steps,
    o.partial = q.out + i * query_rows_ * kPanel;
    kernels_.multiply(o);
  }
  q.started = true;
}

void TileForward::finish(QueryTile& q, void* out, int64_t ld, float* lse) const {
  for (int64_t r = 0; r < q.rows; ++r) {
    if (lse) lse[r] = q.top[r] * kLn2 + std::log(q.sum[r]);
    q.sum[r] = drop_.scale / q.sum[r];
  }
  StoreRows s;
  s.from = q.out, s.tile_rows = query_rows_, s.rows = q.rows, s.cols = d_, s.factors = q.sum;
  s.to = out, s.ld = ld, s.bf16 = kernels_.bf16;
  store_rows(s);
}

}  // namespace mxt::kernels::cpu

// The forward pass over tiles, shared by packed documents and the paged cache: keys are packed a tile at a time, then
// any number of query tiles attend to them. A query meets its key tiles in ascending order; nothing else decides its
// result.
#pragma once

#include "kernels/cpu/attention/tile.h"

namespace mxt::kernels::cpu {

// Rows of queries of one head and their running softmax.
struct QueryTile {
  const void* q = nullptr;
  int64_t ld = 0, rows = 0;                              // elements between rows
  int64_t first_query = 0;                               // position in the document
  int64_t head = 0;                                      // for dropout
  bool same_query = false;                               // all rows at that position (heads of one decoded token)
  bool started = false;                                  // has met a key tile
  float *out = nullptr, *top = nullptr, *sum = nullptr;  // [panels][tile_rows][64], [rows], [rows]
};

class TileForward {
 public:
  TileForward(DType type, int64_t d, int64_t window, float scale, int64_t query_rows, int64_t key_rows,
              bool portable = false);
  // Units that each part wants from an arena.
  int64_t units() const;
  int64_t query_units() const {
    return Arena::rounded(panels_ * query_rows_ * kPanel) + 2 * Arena::rounded(query_rows_);
  }
  void take(Arena& arena);
  void start(QueryTile& q, Arena& arena) const;  // memory and empty sums

  int64_t query_rows() const { return query_rows_; }
  int64_t key_rows() const { return key_rows_; }
  // First key tile that a query at this position sees.
  int64_t first_tile(int64_t query) const {
    return window_ > 0 && query >= window_ ? (query - window_ + 1) / key_rows_ : 0;
  }
  // Whether the window of a query at this position reaches a key of [first_key, first_key + count), or any after it.
  bool sees(int64_t query, int64_t first_key, int64_t count) const {
    return window_ <= 0 || first_key + count > query - window_ + 1;
  }
  // Dropout of what softmax gives; `begin`: the document's first row in the batch.
  void set_dropout(const Drop& drop, int64_t begin) { drop_ = drop, begin_ = begin; }
  void set_keys(const void* k, int64_t ldk, const void* v, int64_t ldv, int64_t first_key, int64_t count);
  void attend(QueryTile& q);
  void finish(QueryTile& q, void* out, int64_t ld, float* lse) const;  // lse may be null

 private:
  TileKernels kernels_;
  int64_t d_, window_, query_rows_, key_rows_, panels_;
  float scale_;
  Drop drop_;
  int64_t begin_ = 0;
  int64_t first_key_ = 0, keys_ = 0;
  uint32_t *kt_ = nullptr, *v_ = nullptr, *rows_ = nullptr;
  float *s_ = nullptr, *p_ = nullptr;
};

}  // namespace mxt::kernels::cpu

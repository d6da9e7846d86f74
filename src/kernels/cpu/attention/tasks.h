// How attention is cut for threads. The cut never changes a result.
#pragma once

#include <cstdint>

namespace mxt::kernels::cpu {

struct TileSize {
  int64_t queries, keys;  // multiples of 32
};
// The tile of a candidate (index into attention_algorithms()) for a document of this length.
TileSize attention_tile(int algo, int64_t length);

// Queries [query_begin, query_end) of one document against its keys [key_begin, key_end), all q heads of one kv head.
// Keys of a document that it goes on from are cut in tiles of their own.
struct AttentionTask {
  int64_t begin, length;  // the document: first token, tokens
  int64_t kv_head;
  int64_t query_begin, query_end, key_begin, key_end;
  TileSize tile;
  int64_t prefix_begin = 0, prefix = 0;  // what it goes on from: first token, tokens (0: nothing)
};

// Tokens of the document that document i of a call goes on from, and the first of them.
template <typename A>
int64_t prefix_of(const A& a, int64_t i, int64_t* begin) {
  const int64_t from = a.prefix ? a.prefix[i] : -1;
  *begin = from < 0 ? 0 : a.cu_seqlens[from];
  return from < 0 ? 0 : a.cu_seqlens[from + 1] - *begin;
}

}  // namespace mxt::kernels::cpu

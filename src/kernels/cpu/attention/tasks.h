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
struct AttentionTask {
  int64_t begin, length;  // the document: first token, tokens
  int64_t kv_head;
  int64_t query_begin, query_end, key_begin, key_end;
  TileSize tile;
};

}  // namespace mxt::kernels::cpu

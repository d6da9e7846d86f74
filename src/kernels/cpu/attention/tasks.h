// How attention is cut for threads. The cut never changes a result.
#pragma once

#include <cstdint>

namespace mxt::kernels::cpu {

struct TileSize {
  int64_t queries, keys;  // multiples of 32
};
TileSize attention_tile(int algo);

// Queries [query_begin, query_end) of one document against its keys [key_begin, key_end), all q heads of one kv head.
struct AttentionTask {
  int64_t begin, length;  // the document: first token, tokens
  int64_t kv_head;
  int64_t query_begin, query_end, key_begin, key_end;
};

}  // namespace mxt::kernels::cpu

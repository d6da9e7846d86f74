// Attention: over packed documents, its gradient, and through the cache.
#include <algorithm>

#include "base/error.h"
#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;
using kernels::Mat;

namespace {

template <typename C>
void set_shape(C& call, const AttentionOp& a) {
  call.heads = a.heads;
  call.kv_heads = a.kv_heads;
  call.head_dim = a.head_dim;
  call.window = a.window;
  call.scale = a.scale;
}

}  // namespace

// Sinks are added to an lse of [heads, tokens], which a GPU's library does not write, and it knows no document that
// goes on from another: our own algorithm there.
int Lowering::own_attention() const {
  const auto at = std::find(attention_names_.begin(), attention_names_.end(), "flash");
  return at == attention_names_.end() ? 0 : static_cast<int>(at - attention_names_.begin());
}

// Documents (at the widest: full ones), shape and dropout.
template <typename C>
void Lowering::set_packed(C& call, const AttentionOp& a) {
  const int64_t tokens = spec_.settings.max_tokens,
                full = spec_.settings.document > 0 ? spec_.settings.document : tokens;
  call.cu_seqlens = in<int32_t>(a.pictures ? Source::kPictureDocuments : Source::kDocuments);
  call.documents = (tokens + full - 1) / full;
  call.longest = full;
  if (a.pictures)
    call.documents = 1, call.longest = most_.rows({Dim::kPictureTokens, g_.pictures.merge * g_.pictures.merge});
  set_shape(call, a);
  call.dropout = a.dropout;
}

void Lowering::lower(const AttentionOp& a) {
  const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
  const Mat qkv = mat(op_->in[0]);
  const Mat queries = columns(qkv, 0, q), keys = columns(qkv, q, kv), values = columns(qkv, q + kv, kv);
  if (spec_.settings.cached && !a.pictures) {
    MXT_ASSERT(a.causal);
    void *k_cache = in(Source::kKeys, a.layer), *v_cache = in(Source::kValues, a.layer);
    emit(kernels::StoreCache{keys, values, k_cache, v_cache, in<int32_t>(Source::kSlots), 0, a.kv_heads, a.head_dim});
    kernels::CachedAttention call;
    call.q = queries;
    call.out = mat(op_->out[0]);
    call.k_cache = k_cache;
    call.v_cache = v_cache;
    call.cu_q = in<int32_t>(Source::kQueries);
    call.context = in<int32_t>(Source::kContext);
    call.tables = in<int32_t>(Source::kTables);
    set_shape(call, a);
    if (op_->in.size() > 1)
      emit(kernels::CachedSinks{call, at<const float>(op_->in[1])});
    else
      emit(call);
    return;
  }
  kernels::Attention call;
  call.q = queries;
  call.k = keys;
  call.v = values;
  call.out = mat(op_->out[0]);
  call.lse = at<float>(op_->out[1]);
  call.causal = a.causal;
  set_packed(call, a);
  kernels::Attention wide = widest(call);
  wide.algo = call.algo = ops_.device() && (op_->in.size() > 1 || has_prefixes(a))
                              ? own_attention()
                              : choose(kernels::attention_key(wide), wide, attention_names_, attention_memory_);
  if (has_prefixes(a)) call.prefix = wide.prefix = in<int32_t>(Source::kPrefixes);  // the probe measures without
  scratch(ops_.attention_scratch(wide));
  emit(call).stream = kAttentionStreams + a.layer;
  if (op_->in.size() > 1) emit(kernels::AttentionSinks{call.out, call.lse, at<const float>(op_->in[1]), a.heads});
}

void Lowering::lower(const AttentionGradOp& g) {
  const int64_t q = g.of.heads * g.of.head_dim, kv = g.of.kv_heads * g.of.head_dim;
  const Mat qkv = mat(op_->in[0]), d = mat(op_->out[0]);
  kernels::AttentionGrad call;
  call.q = columns(qkv, 0, q);
  call.k = columns(qkv, q, kv);
  call.v = columns(qkv, q + kv, kv);
  call.out = mat(op_->in[1]);
  call.lse = at<float>(op_->in[2]);
  call.dout = mat(op_->in[3]);
  call.dq = columns(d, 0, q);
  call.dk = columns(d, q, kv);
  call.dv = columns(d, q + kv, kv);
  call.host_cu_seqlens = in<int32_t>(g.of.pictures ? Source::kHostPictureDocuments : Source::kHostDocuments);
  set_packed(call, g.of);
  call.causal = g.of.causal;
  kernels::AttentionGrad wide = widest(call);
  wide.algo = call.algo = ops_.device() && (op_->in.size() > 4 || has_prefixes(g.of))
                              ? own_attention()
                              : choose(kernels::attention_key(wide), wide, attention_names_, grad_memory_);
  if (has_prefixes(g.of)) call.prefix = wide.prefix = in<int32_t>(Source::kPrefixes);  // the probe measures without
  scratch(ops_.attention_grad_scratch(wide));
  emit(call).stream = kAttentionStreams + g.of.layer;
  if (op_->param == kNone) return;
  emit(kernels::AttentionSinksGrad{call.out, call.dout, call.lse, at<const float>(op_->in[4]), g.of.heads,
                                   grad(op_->param), adds(*op_)},
       first(*op_));
}

}  // namespace mxt::runtime

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

// Documents (before there is a batch: full ones), shape and dropout.
template <typename C>
void Lowering::set_packed(C& call, const AttentionOp& a, const Frame& f) const {
  const int64_t full = p_.settings_.document > 0 ? p_.settings_.document : p_.settings_.max_tokens;
  call.cu_seqlens = f.batch ? f.batch->cu_seqlens : nullptr;
  call.documents = f.batch ? f.batch->documents : (p_.settings_.max_tokens + full - 1) / full;
  call.longest = f.batch ? f.batch->longest : full;
  set_shape(call, a);
  call.dropout = a.dropout;
  if (f.batch == nullptr || !(a.dropout > 0)) return;
  call.seed = f.batch->seed;
  call.first_row = f.batch->first_row;
  call.stream = dropout_stream(*f.batch, kAttentionStreams + static_cast<uint64_t>(a.layer));
}

void Lowering::lower(const AttentionOp& a) {
  const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
  if (!a.causal && ops_.device()) fail_missing("encoders (attention to both sides) run on the CPU only");
  if (p_.settings_.cached) {
    MXT_ASSERT(a.causal);
    emit([this, op = op_, a, q, kv](const Frame& f) {
      const CacheView& c = *f.batch->cache;
      const size_t layer = static_cast<size_t>(a.layer);
      const Mat qkv = mat(op->in[0], f);
      ops_.store_cache({columns(qkv, q, kv), columns(qkv, q + kv, kv), c.k[layer], c.v[layer], c.slots, c.page,
                        a.kv_heads, a.head_dim});
      kernels::CachedAttention call;
      call.q = columns(qkv, 0, q);
      call.out = mat(op->out[0], f);
      call.k_cache = c.k[layer];
      call.v_cache = c.v[layer];
      call.cu_q = c.cu_q;
      call.context = c.context;
      call.tables = c.tables;
      call.requests = c.requests;
      call.max_pages = c.max_pages;
      call.page = c.page;
      set_shape(call, a);
      ops_.cached_attention(call);
    });
    return;
  }
  auto make = [this, op = op_, a, q, kv](const Frame& f) {
    const Mat qkv = mat(op->in[0], f);
    kernels::Attention call;
    call.q = columns(qkv, 0, q);
    call.k = columns(qkv, q, kv);
    call.v = columns(qkv, q + kv, kv);
    call.out = mat(op->out[0], f);
    if (p_.params_) call.lse = static_cast<float*>(at(op->out[1]));
    call.causal = a.causal;
    set_packed(call, a, f);
    return call;
  };
  kernels::Attention widest = make(Frame{nullptr, p_.settings_.max_tokens});
  widest.algo = choose(kernels::attention_key(widest), widest, attention_names_, attention_memory_);
  p_.bytes_.workspace = std::max(p_.bytes_.workspace, static_cast<int64_t>(ops_.attention_scratch(widest)));
  emit([this, make, algo = widest.algo](const Frame& f) {
    kernels::Attention call = make(f);
    call.algo = algo;
    ops_.attention(call);
  });
}

void Lowering::lower(const AttentionGradOp& g) {
  const int64_t q = g.of.heads * g.of.head_dim, kv = g.of.kv_heads * g.of.head_dim;
  auto make = [this, op = op_, a = g.of, q, kv](const Frame& f) {
    const Mat qkv = mat(op->in[0], f), d = mat(op->out[0], f);
    kernels::AttentionGrad call;
    call.q = columns(qkv, 0, q);
    call.k = columns(qkv, q, kv);
    call.v = columns(qkv, q + kv, kv);
    call.out = mat(op->in[1], f);
    if (p_.params_) call.lse = static_cast<const float*>(at(op->in[2]));
    call.dout = mat(op->in[3], f);
    call.dq = columns(d, 0, q);
    call.dk = columns(d, q, kv);
    call.dv = columns(d, q + kv, kv);
    call.host_cu_seqlens = f.batch ? f.batch->host_cu_seqlens : nullptr;
    set_packed(call, a, f);
    return call;
  };
  kernels::AttentionGrad widest = make(Frame{nullptr, p_.settings_.max_tokens});
  widest.algo = choose(kernels::attention_key(widest), widest, attention_names_, grad_memory_);
  p_.bytes_.workspace = std::max(p_.bytes_.workspace, static_cast<int64_t>(ops_.attention_grad_scratch(widest)));
  emit([this, make, algo = widest.algo](const Frame& f) {
    kernels::AttentionGrad call = make(f);
    call.algo = algo;
    ops_.attention_grad(call);
  });
}

}  // namespace mxt::runtime

#include "kernels/cuda/attention_cudnn.h"

#include <cudnn.h>
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "kernels/gpu/launch.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend finds every function of cuDNN through it
}

namespace mxt::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;

void check_cudnn(cudnnStatus_t s, const char* what) {
  if (s != CUDNN_STATUS_SUCCESS) fail_missing("cuDNN: {} failed: {}", what, fe::detail::get_error_string(s));
}
void check_fe(const fe::error_t& e, const char* what) {
  if (e.is_bad()) fail_missing("cuDNN: {} failed: {}", what, e.err_msg);
}

int64_t power_of_two(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStats,
  kDO,
  kDQ,
  kDK,
  kDV,
  kLengths,
  kOffQkv,
  kOffO,
  kOffDO,
  kOffD,
  kOffStats
};

// What one call of cuDNN computes: some documents and some heads. It decides the graph; packed batches are rounded up
// so that a few graphs serve every mix of documents.
struct Shape {
  bool backward = false, packed = false, stats = false, causal = true;
  int64_t batch = 0, length = 0, total = 0, heads = 0, kv_heads = 0, all_heads = 0, d = 0, window = 0;
  int64_t ldq = 0, ldk = 0, ldv = 0, ldo = 0, lddo = 0, lddq = 0, lddk = 0, lddv = 0;
  float scale = 0;
  auto operator<=>(const Shape&) const = default;
};

constexpr int64_t kShortest = 128;  // lengths of packed documents are rounded up to this times a power of two

template <typename A>
int64_t longest_of(const A& a) {
  return a.longest > 0 ? a.longest : a.q.rows;
}
template <typename A>
bool is_packed(const A& a) {
  return a.documents * longest_of(a) != a.q.rows;
}

template <typename A>
Shape shape_of(const A& a, bool backward, bool stats) {
  Shape s;
  s.backward = backward;
  s.stats = stats;
  const int64_t tokens = a.q.rows, longest = longest_of(a);
  s.packed = is_packed(a);
  s.batch = s.packed ? power_of_two(a.documents) : a.documents;
  s.length = s.packed ? std::max(power_of_two(longest), kShortest) : longest;
  s.total = s.packed ? power_of_two(tokens) : tokens;
  s.heads = s.all_heads = a.heads, s.kv_heads = a.kv_heads, s.d = a.head_dim, s.window = a.window, s.scale = a.scale;
  s.causal = a.causal;
  s.ldq = a.q.ld, s.ldk = a.k.ld, s.ldv = a.v.ld, s.ldo = a.out.ld;
  return s;
}
Shape shape_of(const Attention& a) { return shape_of(a, false, a.lse != nullptr); }
Shape shape_of(const AttentionGrad& a) {
  Shape s = shape_of(a, true, true);
  s.lddo = a.dout.ld, s.lddq = a.dq.ld, s.lddk = a.dk.ld, s.lddv = a.dv.ld;
  return s;
}

// The deterministic backward keeps the gradient of every score of a call, in bf16: documents, then groups of heads, are
// taken in several calls so that this stays within kScores.
constexpr int64_t kScores = int64_t{5} << 29;
int64_t score_bytes(const Shape& s) {
  return s.batch * s.heads * ((s.length + 127) / 128 * 128) * ((s.length + 127) / 128 * 128) * 2;
}
// Half of the documents, or one of them with fewer key heads; false where there is nothing left to halve.
bool halve(Shape& s) {
  if (s.batch > 1) {
    s.batch = s.packed ? s.batch / 2 : (s.batch + 1) / 2;
    return true;
  }
  for (int64_t kv = s.kv_heads / 2; kv > 0; --kv) {
    if (s.kv_heads % kv != 0) continue;
    s.heads = s.heads / s.kv_heads * kv;
    s.kv_heads = kv;
    return true;
  }
  return false;
}
Shape part_of(Shape s) {
  while (score_bytes(s) > kScores && halve(s)) {
  }
  return s;
}

struct Built {
  fe::graph::Graph graph;
  int64_t workspace = 0;
};

// Sizes of the tables of a packed batch, before cuDNN's own workspace.
constexpr size_t kTables = 6;
size_t table_bytes(const Shape& s) {
  return s.packed ? (kTables * static_cast<size_t>(s.batch + 1) * sizeof(int32_t) + 255) / 256 * 256 : 0;
}

class Builder {
 public:
  Builder(const Shape& s, fe::graph::Graph& g) : s_(s), g_(g) {
    g.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (s.packed) lengths_ = table("lengths", kLengths, s.batch);
  }

  void forward() {
    auto q = tensor("q", kQ, s_.heads, s_.ldq, offsets("off_qkv", kOffQkv)),
         k = tensor("k", kK, s_.kv_heads, s_.ldk, off_), v = tensor("v", kV, s_.kv_heads, s_.ldv, off_);
    auto o = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(s_.stats).set_attn_scale(s_.scale);
    masks(o);
    auto [out, stats] = g_.sdpa(q, k, v, o);
    place(out, kO, s_.heads, s_.ldo, offsets("off_o", kOffO));
    if (s_.stats) as_stats(stats->set_output(true));
  }

  void backward() {
    auto q = tensor("q", kQ, s_.heads, s_.ldq, offsets("off_qkv", kOffQkv)),
         k = tensor("k", kK, s_.kv_heads, s_.ldk, off_), v = tensor("v", kV, s_.kv_heads, s_.ldv, off_);
    auto out = tensor("o", kO, s_.heads, s_.ldo, offsets("off_o", kOffO)),
         dout = tensor("do", kDO, s_.heads, s_.lddo, offsets("off_do", kOffDO));
    auto stats = g_.tensor(fe::graph::Tensor_attributes().set_name("stats"));
    as_stats(*stats);
    auto o = fe::graph::SDPA_backward_attributes()
                 .set_name("attention_grad")
                 .set_attn_scale(s_.scale)
                 .set_deterministic_algorithm(true);
    masks(o);
    if (s_.packed) o.set_max_total_seq_len_q(s_.total).set_max_total_seq_len_kv(s_.total);
    auto [dq, dk, dv] = g_.sdpa_backward(q, k, v, out, dout, stats, o);
    place(dq, kDQ, s_.heads, s_.lddq, offsets("off_d", kOffD));
    place(dk, kDK, s_.kv_heads, s_.lddk, off_);
    place(dv, kDV, s_.kv_heads, s_.lddv, off_);
  }

 private:
  TensorPtr table(const char* name, int64_t uid, int64_t n) {
    return g_.tensor(fe::graph::Tensor_attributes()
                         .set_name(name)
                         .set_uid(uid)
                         .set_dim({n, 1, 1, 1})
                         .set_stride({1, 1, 1, 1})
                         .set_data_type(fe::DataType_t::INT32));
  }
  TensorPtr offsets(const char* name, int64_t uid) {
    return off_ = s_.packed ? table(name, uid, s_.batch + 1) : nullptr;
  }
  // [batch, heads, length, d] over rows of `ld` elements. Packed: batch i starts at its offset instead of its stride.
  TensorPtr tensor(const char* name, int64_t uid, int64_t heads, int64_t ld, const TensorPtr& off) {
    auto t = g_.tensor(fe::graph::Tensor_attributes()
                           .set_name(name)
                           .set_uid(uid)
                           .set_dim({s_.batch, heads, s_.length, s_.d})
                           .set_stride({s_.length * ld, s_.d, ld, 1}));
    if (off) t->set_ragged_offset(off);
    return t;
  }
  void place(const TensorPtr& t, int64_t uid, int64_t heads, int64_t ld, const TensorPtr& off) {
    t->set_output(true)
        .set_uid(uid)
        .set_dim({s_.batch, heads, s_.length, s_.d})
        .set_stride({s_.length * ld, s_.d, ld, 1});
    if (off) t->set_ragged_offset(off);
  }
  void as_stats(fe::graph::Tensor_attributes& t) {
    t.set_uid(kStats).set_data_type(fe::DataType_t::FLOAT).set_dim({s_.batch, s_.heads, s_.length, 1});
    if (s_.packed)
      t.set_stride({s_.length * s_.all_heads, 1, s_.all_heads, 1}).set_ragged_offset(offsets("off_stats", kOffStats));
    else
      t.set_stride({s_.heads * s_.length, s_.length, 1,
                    1});  // cuDNN wants no gaps: fewer than all heads come one document at a time
  }
  template <typename O>
  void masks(O& o) {
    if (s_.causal) o.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    if (s_.window > 0) o.set_diagonal_band_left_bound(static_cast<int>(s_.window));
    if (s_.packed) o.set_padding_mask(true).set_seq_len_q(lengths_).set_seq_len_kv(lengths_);
  }

  const Shape& s_;
  fe::graph::Graph& g_;
  TensorPtr lengths_, off_;
};

}  // namespace

struct CudnnAttention::Impl {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  std::map<Shape, Built> graphs;

  Built& built(const Shape& s) {
    if (const auto at = graphs.find(s); at != graphs.end()) return at->second;
    Built& b = graphs[s];
    Builder builder(s, b.graph);
    if (s.backward)
      builder.backward();
    else
      builder.forward();
    check_fe(b.graph.build(handle, {fe::HeurMode_t::A}), "building the attention graph");
    check_fe(b.graph.get_workspace_size(b.workspace), "asking for the workspace");
    return b;
  }

  size_t needed(const Shape& s) { return table_bytes(s) + static_cast<size_t>(built(s).workspace); }

  using Pointers = std::unordered_map<int64_t, void*>;
  // `documents`: which ones of a packed batch; none: the first s.batch.
  void execute(const Shape& s, const int32_t* cu_seqlens, int64_t count, const DocumentList* documents, Pointers pack,
               void* workspace, size_t bytes) {
    Built& b = built(s);
    const size_t tables = table_bytes(s);
    MXT_ASSERT(bytes >= tables + static_cast<size_t>(b.workspace));
    if (s.packed) {
      auto* t = static_cast<int32_t*>(workspace);
      const int64_t n = s.batch + 1;
      const int64_t lds[kTables] = {0, s.ldq, s.ldo, s.lddo, s.lddq, s.all_heads};
      MXT_ASSERT(s.total * std::max({s.ldq, s.ldo, s.lddo, s.lddq}) < INT32_MAX);
      packed_tables(stream, cu_seqlens, count, documents, s.batch, lds, t);
      const int64_t uids[kTables] = {kLengths, kOffQkv, kOffO, kOffDO, kOffD, kOffStats};
      for (size_t i = 0; i < kTables; ++i)
        if (s.backward || (uids[i] != kOffDO && uids[i] != kOffD)) pack[uids[i]] = t + static_cast<int64_t>(i) * n;
      if (!s.stats) pack.erase(kOffStats);
    }
    check_fe(b.graph.execute(handle, pack, static_cast<std::byte*>(workspace) + tables), "running attention");
  }

  // The largest part of `whole` whose workspace fits.
  Shape fitting(const Shape& whole, size_t bytes) {
    Shape s = part_of(whole);
    while (needed(s) > bytes) {
      if (!halve(s))
        fail_missing("cuDNN's attention backward needs {} bytes of workspace, {} were planned", needed(s), bytes);
    }
    return s;
  }

  static void* moved(const void* p, int64_t elements, size_t size) {
    return const_cast<std::byte*>(static_cast<const std::byte*>(p)) + elements * static_cast<int64_t>(size);
  }
  // Operands from token `first` and key head `kv` on.
  static Pointers operands(const AttentionGrad& a, const Shape& s, int64_t first, int64_t kv) {
    const int64_t q = kv * (a.heads / a.kv_heads) * a.head_dim, k = kv * a.head_dim;
    const int64_t head = kv * (a.heads / a.kv_heads);
    const int64_t stats = s.packed ? head : first * a.heads + head * s.length;
    return {{kQ, moved(a.q.p, first * a.q.ld + q, 2)},        {kK, moved(a.k.p, first * a.k.ld + k, 2)},
            {kV, moved(a.v.p, first * a.v.ld + k, 2)},        {kO, moved(a.out.p, first * a.out.ld + q, 2)},
            {kDO, moved(a.dout.p, first * a.dout.ld + q, 2)}, {kStats, moved(a.lse, stats, 4)},
            {kDQ, moved(a.dq.p, first * a.dq.ld + q, 2)},     {kDK, moved(a.dk.p, first * a.dk.ld + k, 2)},
            {kDV, moved(a.dv.p, first * a.dv.ld + k, 2)}};
  }

  void dense_grad(const Shape& whole, const AttentionGrad& a, void* workspace, size_t bytes) {
    const Shape part = fitting(whole, bytes);
    for (int64_t d = 0; d < whole.batch; d += part.batch)
      for (int64_t kv = 0; kv < a.kv_heads; kv += part.kv_heads) {
        Shape s = part;
        s.batch = std::min(part.batch, whole.batch - d);
        s.total = s.batch * s.length;
        execute(s, nullptr, 0, nullptr, operands(a, s, d * s.length, kv), workspace, bytes);
      }
  }

  // Documents of about one length go together: a call's workspace grows with the square of its longest.
  void packed_grad(const Shape& whole, const AttentionGrad& a, void* workspace, size_t bytes) {
    MXT_ASSERT(a.host_cu_seqlens != nullptr);
    std::map<int64_t, std::vector<int32_t>> by_length;
    for (int64_t i = 0; i < a.documents; ++i)
      if (const int64_t n = a.host_cu_seqlens[i + 1] - a.host_cu_seqlens[i]; n > 0)
        by_length[std::max(power_of_two(n), kShortest)].push_back(static_cast<int32_t>(i));
    for (const auto& [length, list] : by_length) {
      Shape s = whole;
      s.length = length;
      s.batch = std::min<int64_t>(power_of_two(static_cast<int64_t>(list.size())), DocumentList::kMost);
      s = fitting(s, bytes);
      for (size_t first = 0; first < list.size(); first += static_cast<size_t>(s.batch)) {
        DocumentList documents;
        documents.count = static_cast<int32_t>(std::min(static_cast<size_t>(s.batch), list.size() - first));
        std::copy_n(list.begin() + static_cast<ptrdiff_t>(first), documents.count, documents.index);
        for (int64_t kv = 0; kv < a.kv_heads; kv += s.kv_heads)
          execute(s, a.cu_seqlens, a.documents, &documents, operands(a, s, 0, kv), workspace, bytes);
      }
    }
  }
};

CudnnAttention::CudnnAttention(cudaStream_t stream) : impl_(std::make_unique<Impl>()) {
  if (fe::cudnn_dlhandle == nullptr) fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
  if (fe::cudnn_dlhandle == nullptr)
    fail_missing("cuDNN 9 cannot be opened ({}): pip install nvidia-cudnn-cu13, and name its folder in LD_LIBRARY_PATH",
                 dlerror());
  check_cudnn(fe::detail::create_handle(&impl_->handle), "cudnnCreate");
  check_cudnn(fe::detail::set_stream(impl_->handle, stream), "cudnnSetStream");
  impl_->stream = stream;
}
CudnnAttention::~CudnnAttention() {
  impl_->graphs.clear();
  fe::detail::destroy_handle(impl_->handle);
}

std::string CudnnAttention::version() const {
  const size_t v = fe::detail::get_backend_version();
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

namespace {
template <typename A>
bool in_reach(const A& a) {
  return a.q.type == DType::kBF16 && a.head_dim % 8 == 0 && a.head_dim <= 256 && a.q.ld == a.k.ld && a.k.ld == a.v.ld &&
         a.q.ld % 8 == 0 && a.out.ld % 8 == 0 && wide(a.q.p) && wide(a.k.p) && wide(a.v.p) && wide(a.out.p) &&
         a.q.rows > 0;
}
}  // namespace

bool CudnnAttention::covers(const Attention& a) { return in_reach(a); }
bool CudnnAttention::covers(const AttentionGrad& a) {
  return in_reach(a) && a.dq.ld == a.dk.ld && a.dk.ld == a.dv.ld && a.dq.ld % 8 == 0 && a.dout.ld % 8 == 0 &&
         wide(a.dout.p) && wide(a.dq.p) && wide(a.dk.p) && wide(a.dv.p);
}

StatsLayout CudnnAttention::stats_layout(const AttentionGrad& a) {
  const int64_t length = longest_of(a);
  return is_packed(a) ? StatsLayout{0, a.heads, 1, a.heads} : StatsLayout{a.heads * length, 0, length, 1};
}

// Room for as many packed documents as there are tokens, too: their tables, and the few bytes a document that cuDNN
// wants itself.
size_t CudnnAttention::scratch(const Attention& a) {
  return impl_->needed(shape_of(a)) +
         (kTables * sizeof(int32_t) + 128) * static_cast<size_t>(power_of_two(a.q.rows) + 1);
}

// Enough for documents of the given length, and for one packed document of up to that length: what is more is taken in
// parts.
size_t CudnnAttention::scratch(const AttentionGrad& a) {
  Shape s = shape_of(a);
  const size_t whole = s.packed ? 0 : impl_->needed(part_of(s));
  s.packed = true;
  s.batch = 1;
  s.length = std::max(power_of_two(longest_of(a)), kShortest);
  s.total = power_of_two(a.q.rows);
  return std::max(whole, impl_->needed(part_of(s)));
}

void CudnnAttention::run(const Attention& a, void* workspace, size_t bytes) {
  const Shape s = shape_of(a);
  Impl::Pointers pack{
      {kQ, const_cast<void*>(a.q.p)}, {kK, const_cast<void*>(a.k.p)}, {kV, const_cast<void*>(a.v.p)}, {kO, a.out.p}};
  if (s.stats) pack[kStats] = a.lse;
  impl_->execute(s, a.cu_seqlens, a.documents, nullptr, std::move(pack), workspace, bytes);
}

void CudnnAttention::run(const AttentionGrad& a, void* workspace, size_t bytes) {
  const Shape s = shape_of(a);
  if (s.packed)
    impl_->packed_grad(s, a, workspace, bytes);
  else
    impl_->dense_grad(s, a, workspace, bytes);
}

}  // namespace mxt::kernels::cuda

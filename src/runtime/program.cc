#include "runtime/program.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;

// Packs a batch into one block and carries it to the device in one copy. Two blocks of pinned memory take turns, so
// that a copy in flight is never overwritten.
class Program::Staging {
 public:
  static int64_t bytes(const ProgramSettings& s) { return align(s.max_documents + 1) + 5 * align(s.max_tokens); }
  Staging(const ProgramSettings& s, device::Accelerator* device) : device_(device), settings_(s) {
    const auto n = static_cast<size_t>(bytes(s));
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
  ~Staging() {
    if (device_ == nullptr) return;
    for (int i = 0; i < 2; ++i) {
      device_->release_mark(marks_[i]);
      device_->release_pinned(pinned_[i]);
      device_->release_pinned(cache_pinned_[i]);
    }
  }
  Staging(const Staging&) = delete;

  const Staged& take(const Batch& b) {
    turn_ = device_ ? 1 - turn_ : 0;
    if (device_) device_->wait(marks_[turn_]);
    auto* base = static_cast<std::byte*>(device_ ? pinned_[turn_] : host_[0].data());
    auto* seen = static_cast<std::byte*>(device_ ? there_.data() : base);
    staged_ = Staged{};
    static_cast<Batch&>(staged_) = b;
    size_t at = 0;
    auto block = [&](int64_t count) {  // an array's place here, and where the kernels see it
      const size_t here = at;
      at += static_cast<size_t>(align(count));
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
    if (b.cu_seqlens) MXT_ASSERT(b.documents <= settings_.max_documents);
    staged_.host_cu_seqlens = reinterpret_cast<const int32_t*>(base + at);
    staged_.cu_seqlens = copy(b.cu_seqlens, b.documents + 1, settings_.max_documents + 1);
    for (int64_t i = 0; b.cu_seqlens && i < b.documents; ++i)
      staged_.longest = std::max<int64_t>(staged_.longest, b.cu_seqlens[i + 1] - b.cu_seqlens[i]);
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
    staged_.head_rows = reinterpret_cast<const int32_t*>(rows_seen);
    staged_.head_labels = reinterpret_cast<const int32_t*>(labels_seen);
    staged_.head_weights = reinterpret_cast<const float*>(weights_seen);
    staged_.host_rows = r;
    staged_.head_count = n;
    if (device_) {
      device_->upload(there_.data(), base, at);
      if (b.cache) take_cache(b);
      device_->mark(marks_[turn_]);
    }
    return staged_;
  }

 private:
  static int64_t align(int64_t count) { return (count * 4 + 255) / 256 * 256; }

  // What generation adds, in a block that grows with the number of requests and the pages that each may have.
  void take_cache(const Batch& b) {
    const CacheView& c = *b.cache;
    const std::pair<const int32_t*, int64_t> arrays[] = {{c.cu_q, c.requests + 1},
                                                         {c.context, c.requests},
                                                         {c.tables, c.requests * c.max_pages},
                                                         {c.slots, b.tokens},
                                                         {b.logit_rows, b.logit_count}};
    size_t need = 0;
    for (const auto& [p, n] : arrays) need += static_cast<size_t>(align(n));
    if (need > cache_there_.size()) {
      device_->synchronize();
      cache_there_ = device::Buffer::on(device_, 2 * need);
      for (void*& p : cache_pinned_) {
        device_->release_pinned(p);
        p = device_->allocate_pinned(2 * need);
      }
    }
    const int32_t* seen[5];
    size_t at = 0;
    for (size_t i = 0; i < 5; ++i) {
      const auto& [p, n] = arrays[i];
      if (n > 0)
        std::memcpy(static_cast<std::byte*>(cache_pinned_[turn_]) + at, p, static_cast<size_t>(n) * sizeof(int32_t));
      seen[i] = reinterpret_cast<const int32_t*>(cache_there_.bytes_at(at));
      at += static_cast<size_t>(align(n));
    }
    device_->upload(cache_there_.data(), cache_pinned_[turn_], at);
    view_ = c;
    view_.cu_q = seen[0], view_.context = seen[1], view_.tables = seen[2], view_.slots = seen[3];
    staged_.cache = &view_;
    staged_.logit_rows = seen[4];
  }

  device::Accelerator* device_;
  ProgramSettings settings_;
  device::Buffer host_[1], there_, cache_there_;
  void* pinned_[2] = {};
  void* cache_pinned_[2] = {};
  CacheView view_;
  void* marks_[2] = {};
  int turn_ = 0;
  Staged staged_;
};

Program::Program(const Graph& g, const kernels::KernelPlan& plan, kernels::Ops& ops, const ProgramSettings& settings)
    : graph_(g), ops_(ops), settings_(settings) {
  if (settings_.max_documents == 0) settings_.max_documents = settings_.max_tokens;
  std::vector<ValueId> keep;
  for (const Op& op : g.ops)
    if (std::holds_alternative<HeadOp>(op.attrs)) keep.push_back(op.out[0]);
  lowering_ = std::make_unique<Lowering>(*this, plan);
  const std::vector<Step> steps = lowering_->steps();
  memory_ = plan_memory(g, steps, settings_.max_tokens, keep);
  find_dead(steps, keep);
  bytes_.activations = memory_.bytes;
  bytes_.lower_bound = memory_.lower_bound;
  bytes_.batch = Staging::bytes(settings_);
  if (ops_.device()) {
    bytes_.batch += static_cast<int64_t>((g.rope_cos.size() + g.rope_sin.size()) * sizeof(float));
  }
  lowering_->run();
}

// For poisoned replay: which buffers die where.
void Program::find_dead(const std::vector<Step>& steps, const std::vector<ValueId>& keep) {
  const std::vector<ValueId> root = roots(graph_);
  std::vector<int32_t> last(graph_.values.size(), -1);
  const auto of = [&](ValueId v) -> int32_t& { return last[static_cast<size_t>(root[static_cast<size_t>(v)])]; };
  for (size_t i = 0; i < steps.size(); ++i) {
    for (ValueId v : steps[i].reads) of(v) = static_cast<int32_t>(i);
    for (ValueId v : steps[i].writes) of(v) = static_cast<int32_t>(i);
  }
  for (ValueId v : keep) of(v) = -1;
  dead_after_.assign(steps.size(), {});
  for (size_t v = 0; v < last.size(); ++v)
    if (last[v] >= 0 && graph_.values[v].param == kNone)
      dead_after_[static_cast<size_t>(last[v])].push_back(static_cast<ValueId>(v));
}

Program::~Program() { forget_recordings(); }

std::vector<Program::Tunable> Program::tunables() const { return tunables_; }

double Program::flops(int64_t tokens, int64_t document, int64_t targets) const {
  const double t = static_cast<double>(tokens);
  double total = 0;
  // What a pass needs: clones made for recomputation read values made in the backward part and are not counted.
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const Op& op = graph_.ops[i];
    const bool backward = graph_.forward_ops > 0 && static_cast<int32_t>(i) >= graph_.forward_ops;
    auto weights = [&](ValueId w) {
      return 2.0 * static_cast<double>(graph_.value(w).rows.factor) * static_cast<double>(graph_.value(w).cols);
    };
    auto joined = [&](int64_t r, int64_t width) { return 2.0 * static_cast<double>(r) * static_cast<double>(width); };
    if (const auto* l = std::get_if<LinearOp>(&op.attrs); l && !backward)
      total += t * (weights(op.in[1]) + joined(l->joined, graph_.value(op.in[1]).rows.factor));
    if (const auto* l = std::get_if<LinearDxOp>(&op.attrs))
      total += t * (weights(op.in[1]) + joined(l->joined, graph_.value(op.in[1]).cols));
    if (std::holds_alternative<HeldLinearOp>(op.attrs) && !backward) total += t * weights(op.in[2]);
    if (std::holds_alternative<LinearDwOp>(op.attrs) || std::holds_alternative<HeldLinearDwOp>(op.attrs)) {
      const Param& p = graph_.params[static_cast<size_t>(op.param)];
      total += t * 2.0 * static_cast<double>(p.rows) * static_cast<double>(p.cols);
    }
    auto lora = [&](const LoraBlock& b) {
      total += t * 2.0 * static_cast<double>(b.cols) * static_cast<double>(b.rank);
    };
    if (const auto* l = std::get_if<LoraAddOp>(&op.attrs); l && !backward)
      for (const auto& b : l->blocks) lora(b);
    if (const auto* l = std::get_if<LoraDzOp>(&op.attrs))
      for (const auto& b : l->blocks) {
        lora(b);
        if (!l->b.empty()) lora(b);
      }
    if (const auto* l = std::get_if<LoraDbOp>(&op.attrs)) lora(l->block);
    // Causal: half of the square; forward has two products of it, backward five.
    auto attention = [&](const AttentionOp& a, double products) {
      const double all = static_cast<double>(document), half = all / 2;
      const double seen = !a.causal ? all : a.window > 0 ? std::min(half, static_cast<double>(a.window)) : half;
      total += t * products * 2.0 * seen * static_cast<double>(a.heads * a.head_dim);
    };
    if (const auto* x = std::get_if<AttentionOp>(&op.attrs); x && !backward) attention(*x, 2);
    if (const auto* x = std::get_if<AttentionGradOp>(&op.attrs)) attention(x->of, 5);
    if (const auto* h = std::get_if<HeadOp>(&op.attrs))
      total +=
          static_cast<double>(targets) * weights(op.in[1]) * (1 + (h->gradient ? 1 : 0) + (op.param != kNone ? 1 : 0));
  }
  return total;
}

void Program::allocate(ParamStore& params) {
  MXT_ASSERT(params.matches(graph_));
  params_ = &params;
  device::Accelerator* device = ops_.device();
  MXT_ASSERT(params.device() == device);
  arena_ = device::Buffer::on(device, static_cast<size_t>(bytes_.activations));
  head_ = device::Buffer::on(device, static_cast<size_t>(bytes_.logits));
  scratch_ = device::Buffer::on(device, static_cast<size_t>(bytes_.workspace));
  staging_ = std::make_unique<Staging>(settings_, device);
  cos_ = graph_.rope_cos.data();
  sin_ = graph_.rope_sin.data();
  if (device && !graph_.rope_cos.empty()) {
    const size_t n = graph_.rope_cos.size() * sizeof(float);
    rope_ = device::Buffer::on(device, 2 * n);
    device->upload(rope_.data(), cos_, n);
    device->upload(rope_.bytes_at(n), sin_, n);
    device->synchronize();
    cos_ = static_cast<const float*>(rope_.data());
    sin_ = reinterpret_cast<const float*>(rope_.bytes_at(n));
  }
}

void Program::run(const Batch& batch) {
  MXT_ASSERT(params_ != nullptr);
  MXT_ASSERT(batch.tokens > 0 && batch.tokens <= settings_.max_tokens);
  ops_.set_scratch(scratch_.data(), scratch_.size());
  const Frame frame{&staging_->take(batch), batch.tokens};
  tokens_ = batch.tokens;
  nll_fetched_ = false;
  if (!replay(frame)) queue(frame);
  if (finish_) finish_(*frame.batch);
}

void Program::forget_recordings() {
  for (const auto& [key, recording] : recordings_)
    if (recording) ops_.device()->discard(recording);
  recordings_.clear();
}

bool Program::replay(const Frame& frame) {
  constexpr int64_t kMostTokens = 64;  // beyond, the kernels take longer than queueing them
  constexpr size_t kMostRecordings = 256;
  const Batch& b = *frame.batch;
  device::Accelerator* device = ops_.device();
  if (device == nullptr || b.cache == nullptr || b.tokens > kMostTokens || b.logits == nullptr || b.hidden || poison_ ||
      before_)
    return false;
  // All that the calls are given and that is not read from the device's memory.
  const auto address = [](const void* p) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p)); };
  const std::vector<uint64_t> key{static_cast<uint64_t>(b.tokens),
                                  static_cast<uint64_t>(b.logit_count),
                                  static_cast<uint64_t>(b.cache->requests),
                                  static_cast<uint64_t>(b.cache->max_pages),
                                  address(b.logits),
                                  address(b.cache->k[0]),
                                  address(b.cache->cu_q)};
  const auto at = recordings_.find(key);
  if (at == recordings_.end()) {  // the first time as it is: what a library makes on first use cannot be recorded
    if (recordings_.size() >= kMostRecordings) forget_recordings();
    recordings_.emplace(key, nullptr);
    return false;
  }
  if (at->second == nullptr) {
    device->begin_recording();
    try {
      queue(frame);
    } catch (...) {  // the device must not go on recording
      try {
        device->discard(device->end_recording());
      } catch (const Error&) {  // the recording has ended with an error of its own, the first one counts
      }
      throw;
    }
    at->second = device->end_recording();
  }
  device->replay(at->second);
  return true;
}

void Program::queue(const Frame& frame) {
  size_t op = 0;
  for (const Launch& l : launches_) {
    if (poison_)
      for (; op < l.op; ++op)
        for (ValueId v : dead_after_[op]) {
          void* p = arena_.bytes_at(static_cast<size_t>(memory_.offset[static_cast<size_t>(v)]));
          const auto n = static_cast<size_t>(value_bytes(graph_, v, settings_.max_tokens));
          if (ops_.device())
            ops_.device()->fill(p, 0xff, n);
          else
            std::memset(p, 0xff, n);
        }
    if (before_) before_();
    l.run(frame);
  }
}

std::vector<Program::Timing> Program::profile(const Batch& batch) {
  device::Accelerator* device = ops_.device();
  std::vector<void*> marks;
  std::vector<std::chrono::steady_clock::time_point> times;  // on the host, where a call has ended when it returns
  auto mark = [&] {
    if (device == nullptr) return times.push_back(std::chrono::steady_clock::now());
    marks.push_back(device->make_mark());
    device->mark(marks.back());
  };
  before_ = mark;
  run(batch);
  before_ = nullptr;
  mark();
  std::vector<Timing> out;
  for (size_t i = 0; i < launches_.size(); ++i) {
    const Op& op = graph_.ops[launches_[i].op];
    std::string what(op_name(op));
    for (ValueId v : op.in)
      if (const Value& x = graph_.value(v); x.param != kNone && x.rows.factor > 1) {
        what += fmt::format(" [{}, {}]", x.rows.factor, x.cols);
        break;
      }
    auto at = std::find_if(out.begin(), out.end(), [&](const Timing& t) { return t.what == what; });
    if (at == out.end()) at = out.insert(at, {what, 0, 0});
    ++at->count;
    at->us += device ? device->elapsed_us(marks[i], marks[i + 1])
                     : std::chrono::duration<double, std::micro>(times[i + 1] - times[i]).count();
  }
  for (void* m : marks) device->release_mark(m);
  return out;
}

void Program::copy_nll(float* to) const {
  MXT_ASSERT(nll_ != kNone);
  const void* p = arena_.bytes_at(static_cast<size_t>(memory_.offset[static_cast<size_t>(nll_)]));
  const size_t n = static_cast<size_t>(tokens_) * sizeof(float);
  if (ops_.device())
    ops_.device()->download(to, p, n);
  else
    std::memcpy(to, p, n);
}

const float* Program::nll() const {
  MXT_ASSERT(nll_ != kNone);
  if (!ops_.device())
    return reinterpret_cast<const float*>(
        arena_.bytes_at(static_cast<size_t>(memory_.offset[static_cast<size_t>(nll_)])));
  if (!nll_fetched_) {
    nll_host_.resize(static_cast<size_t>(tokens_));
    copy_nll(nll_host_.data());
    ops_.device()->synchronize();
    nll_fetched_ = true;
  }
  return nll_host_.data();
}

}  // namespace mxt::runtime

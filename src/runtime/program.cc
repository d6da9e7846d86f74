#include "runtime/program.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "graph/op_info.h"
#include "kernels/blocks.h"
#include "runtime/staging.h"

namespace mxt::runtime {

using namespace graph;

Program::Program(const Graph& g, const kernels::KernelPlan& plan, kernels::Ops& ops, const ProgramSettings& settings)
    : graph_(g), ops_(ops), spec_(lower(g, plan, ops, settings)) {}

Program::~Program() { forget_recordings(); }

void Program::allocate(ParamStore& params) {
  MXT_ASSERT(params.matches(graph_));
  params_ = &params;
  device::Accelerator* device = ops_.device();
  MXT_ASSERT(params.device() == device);
  arena_ = device::Buffer::on(device, static_cast<size_t>(spec_.bytes.activations));
  head_ = device::Buffer::on(device, static_cast<size_t>(spec_.bytes.logits));
  decoded_ = device::Buffer::on(device, static_cast<size_t>(spec_.bytes.decoded));
  scratch_ = device::Buffer::on(device, static_cast<size_t>(spec_.bytes.workspace));
  staging_ = std::make_unique<Staging>(spec_.settings, device, reads_previous(spec_), graph_);
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
  bind();
}

// Collects the fields of a call that binding writes.
struct Bind {
  Program& p;
  const StepCall& spec;
  Program::Call& call;
  size_t i = 0;
  int accumulates = 0;
  void* pointer(Ref ref, void* field) {
    if (ref.buffer < 0) return nullptr;
    p.sites_[static_cast<size_t>(ref.buffer)].push_back({field, ref.offset});
    return nullptr;
  }
  template <typename M>
  void mat(std::string_view, M& m, kernels::Use) {
    const Operand& o = spec.operands[i++];
    pointer(o.ref, &m.p);
    if (!o.rows.constant()) p.row_sites_[static_cast<size_t>(o.rows.dim)].push_back({&m.rows, o.rows.factor});
  }
  template <typename P>
  void array(std::string_view, P& field, DType, int64_t, kernels::Use) {
    pointer(spec.operands[i++].ref, &field);
  }
  void adds(bool& flag) {
    if (spec.overwrites_first >> accumulates++ & 1) call.overwrites_first.push_back(&flag);
  }
  void draws(float probability, uint64_t& seed, uint64_t& stream, int64_t& first_row) {
    if (probability > 0) p.draws_.push_back({&seed, &stream, &first_row, spec.stream});
  }
  void documents(int64_t& n, int64_t& longest) {
    const auto pictures = [&](const Operand& o) {
      return o.ref.buffer >= 0 &&
             p.spec_.buffers[static_cast<size_t>(o.ref.buffer)].source == Source::kPictureDocuments;
    };
    const bool of_pictures = std::any_of(spec.operands.begin(), spec.operands.end(), pictures);
    (of_pictures ? p.picture_documents_ : p.documents_).push_back({&n, &longest});
  }
  void cache(int64_t& requests, int64_t& max_pages) { p.cache_.push_back({&requests, &max_pages}); }
  void page(int64_t& size) { p.pages_.push_back(&size); }
};

void Program::bind() {
  calls_.assign(spec_.calls.size(), {});
  bases_.assign(spec_.buffers.size(), nullptr);
  sites_.assign(spec_.buffers.size(), {});
  for (auto& sites : row_sites_) sites.clear();
  rows_.fill(-1);
  draws_.clear(), documents_.clear(), picture_documents_.clear(), cache_.clear(), pages_.clear();
  for (size_t i = 0; i < calls_.size(); ++i) {
    const StepCall& spec = spec_.calls[i];
    calls_[i].call = spec.call;
    Bind bind{*this, spec, calls_[i]};
    std::visit([&](auto& c) { kernels::operands(c, bind); }, calls_[i].call);
    // A frozen weight may stand in blocks (ParamSlot::blocks): the second operand of a product, or a table.
    const bool product = std::holds_alternative<kernels::Gemm>(spec.call),
               table = std::holds_alternative<kernels::Embedding>(spec.call);
    if (!product && !table) continue;
    const Ref weight = spec.operands[1].ref;
    const BufferSpec* b = weight.buffer < 0 ? nullptr : &spec_.buffers[static_cast<size_t>(weight.buffer)];
    if (b && b->source == Source::kWeight) calls_[i].blocks = (*params_)[b->index].blocks;
  }
  for (size_t id = 0; id < spec_.buffers.size(); ++id) {
    const BufferSpec& b = spec_.buffers[id];
    if (b.source == Source::kZeros) {
      zeros_ = device::Buffer::on(ops_.device(), static_cast<size_t>(b.bytes));
      ops_.device() ? ops_.device()->fill(zeros_.data(), 0, zeros_.size())
                    : static_cast<void>(std::memset(zeros_.data(), 0, zeros_.size()));
    }
  }
}

// Where a buffer lies; of a batch's, where this one lies.
void* Program::base_of(const BufferSpec& b) const {
  const auto of = [](const void* p) { return const_cast<void*>(p); };
  const auto slot = [&]() -> const ParamSlot& { return (*params_)[b.index]; };
  const StagedBatch& batch = staging_->batch();
  const auto cache = [&](auto f) { return batch.cache ? of(f(*batch.cache)) : nullptr; };
  const auto pictured = [&](size_t PictureLayout::* at) { return of(batch.picture_block + batch.picture_layout->*at); };
  switch (b.source) {
    case Source::kArena:
      return of(arena_.data());
    case Source::kHead:
      return of(head_.data());
    case Source::kDecoded:
      return of(decoded_.data());
    case Source::kZeros:
      return of(zeros_.data());
    case Source::kCos:
      return of(cos_);
    case Source::kSin:
      return of(sin_);
    case Source::kWeight:
      return slot().weight;
    case Source::kGrad:
      return slot().grad;
    case Source::kScale:
      return slot().scale;
    case Source::kTransposed:
      return slot().transposed;
    case Source::kJoined:
      return slot().joined;
    case Source::kPacked:
      return slot().packed;
    case Source::kPackedDx:
      return slot().packed_dx;
    case Source::kIds:
      return of(batch.ids);
    case Source::kPositions:
      return of(batch.positions);
    case Source::kPrevious:
      return of(batch.previous);
    case Source::kDocuments:
      return of(batch.cu_seqlens);
    case Source::kHostDocuments:
      return of(batch.host_cu_seqlens);
    case Source::kPrefixes:
      return of(batch.prefix);
    case Source::kRowOffsets:
      return of(batch.row_offsets);
    case Source::kBalanceScale:
      return of(batch.staged_balance_scale);
    case Source::kTargetRows:
      return of(batch.target_rows);
    case Source::kTargetLabels:
      return of(batch.target_labels);
    case Source::kTargetWeights:
      return of(batch.target_weights);
    case Source::kLogitRows:
      return of(batch.logit_rows);
    case Source::kDrawTemperature:
      return of(batch.draw_temperature);
    case Source::kDrawBits:
      return of(batch.draw_bits);
    case Source::kDrawn:
      return batch.drawn;
    case Source::kLogits:
      return batch.logits;
    case Source::kHidden:
      return batch.hidden;
    case Source::kPooled:
      return batch.pooled;
    case Source::kQueries:
      return cache([](const CacheView& c) { return c.cu_q; });
    case Source::kContext:
      return cache([](const CacheView& c) { return c.context; });
    case Source::kTables:
      return cache([](const CacheView& c) { return c.tables; });
    case Source::kSlots:
      return cache([](const CacheView& c) { return c.slots; });
    case Source::kKeys:
      return cache([&](const CacheView& c) { return c.k[static_cast<size_t>(b.index)]; });
    case Source::kValues:
      return cache([&](const CacheView& c) { return c.v[static_cast<size_t>(b.index)]; });
    case Source::kStateSlots:
      return cache([](const CacheView& c) { return c.state_slots; });
    case Source::kConvolutions:
      return cache([&](const CacheView& c) { return c.convolution.at(static_cast<size_t>(b.index)); });
    case Source::kStates:
      return cache([&](const CacheView& c) { return c.state.at(static_cast<size_t>(b.index)); });
    case Source::kPixels:
      return pictured(&PictureLayout::pixels);
    case Source::kFeatures:
      return pictured(&PictureLayout::features);
    case Source::kPictureDocuments:
      return pictured(&PictureLayout::documents);
    case Source::kHostPictureDocuments:
      return of(batch.host_picture_block + batch.picture_layout->documents);
    case Source::kPictureRows:
      return pictured(&PictureLayout::rows);
    case Source::kTextIds:
      return pictured(&PictureLayout::text_ids);
    case Source::kCount:
      return pictured(&PictureLayout::count);
    case Source::kCorners:
      return pictured(&PictureLayout::corners);
    case Source::kCornerWeights:
      return pictured(&PictureLayout::corner_weights);
    case Source::kPatchCos:
      return pictured(&PictureLayout::patch_cos);
    case Source::kPatchSin:
      return pictured(&PictureLayout::patch_sin);
    case Source::kTokenCos:
      return pictured(&PictureLayout::token_cos);
    case Source::kTokenSin:
      return pictured(&PictureLayout::token_sin);
    case Source::kWindow:
      return nullptr;  // run_loop() sets it
  }
  return nullptr;
}

void Program::set_buffer(BufferId id, void* base) {
  const auto at = static_cast<size_t>(id);
  if (base != nullptr && bases_[at] == base) return;
  bases_[at] = base;
  for (const Site& s : sites_[at]) {
    void* p = base == nullptr ? nullptr : static_cast<std::byte*>(base) + s.offset;
    std::memcpy(s.field, &p, sizeof p);
  }
}

void Program::set_rows(Dim dim, int64_t n) {
  const auto at = static_cast<size_t>(dim);
  if (rows_[at] == n) return;
  rows_[at] = n;
  for (const RowSite& s : row_sites_[at]) *s.rows = n * s.factor;
}

void* Program::address(Ref r) const {
  void* base = r.buffer < 0 ? nullptr : bases_[static_cast<size_t>(r.buffer)];
  return base ? static_cast<std::byte*>(base) + r.offset : nullptr;
}

// What this batch decides.
void Program::begin(const Batch& given) {
  Batch whole = given;
  if (!given.previous && reads_previous(spec_)) {
    MXT_ASSERT(given.cache == nullptr);  // there the row before need not be the token before
    previous_.resize(static_cast<size_t>(given.tokens));
    for (int64_t t = 0; t < given.tokens; ++t)
      previous_[static_cast<size_t>(t)] = given.ids[given.positions[t] > 0 ? t - 1 : t];
    whole.previous = previous_.data();
  }
  const StagedBatch& b = staging_->take(whole);
  for (size_t id = 0; id < spec_.buffers.size(); ++id)
    if (spec_.buffers[id].source != Source::kWindow) set_buffer(static_cast<BufferId>(id), base_of(spec_.buffers[id]));
  set_rows(Dim::kTokens, b.tokens);
  set_rows(Dim::kSequences, b.documents);
  set_rows(Dim::kBatchRows, b.rows);
  set_rows(Dim::kTargets, b.target_count);
  set_rows(Dim::kLogitRows, b.logit_count);
  const int64_t picture_tokens = b.pictures ? b.pictures->tokens : 0;
  MXT_ASSERT(picture_tokens == 0 || graph_.pictures.merge > 0);
  set_rows(Dim::kPictureTokens, picture_tokens);
  for (const auto& [n, longest] : picture_documents_)
    *n = b.pictures ? b.pictures->count : 0, *longest = b.longest_picture;
  for (const DrawSite& d : draws_) {
    *d.seed = b.seed;
    *d.stream = b.step * static_cast<uint64_t>(kStreams) + static_cast<uint64_t>(d.id);
    *d.first_row = b.first_row;
  }
  for (const auto& [n, longest] : documents_) *n = b.documents, *longest = b.longest;
  if (b.cache) {
    for (const auto& [requests, pages] : cache_) *requests = b.cache->requests, *pages = b.cache->max_pages;
    for (int64_t* page : pages_) *page = b.cache->page;
  }
  for (Call& c : calls_)
    for (bool* adds : c.overwrites_first) *adds = !b.first_micro;
  holds_ = static_cast<uint16_t>((b.first_micro ? kFirstPass : 0) | (b.target_count < b.tokens ? kSomeLeftOut : 0) |
                                 (b.target_count == 0 ? kNoTarget : 0) | (b.logits || b.drawn ? kLogitsWanted : 0) |
                                 (b.logits ? kLogitsFetched : 0) | (b.drawn ? kDrawsWanted : 0) |
                                 (b.hidden ? kHiddenWanted : 0) | (picture_tokens > 0 ? kPicturesThere : 0));
  if (picture_tokens == 0 && b.first_micro) clear_gradients();
}

void Program::run(const Batch& batch, const std::function<void()>& between) {
  MXT_ASSERT(params_ != nullptr && (between == nullptr) == (graph_.roots.empty() || graph_.forward_ops == 0));
  MXT_ASSERT(batch.tokens > 0 && batch.tokens <= spec_.settings.max_tokens);
  ops_.set_scratch(scratch_.data(), scratch_.size());
  begin(batch);
  tokens_ = batch.tokens;
  nll_fetched_ = false;
  poisoned_ = 0;
  if (between) {
    size_t middle = 0;
    while (middle < spec_.calls.size() && spec_.calls[middle].op < static_cast<size_t>(graph_.forward_ops)) ++middle;
    queue(0, middle);
    between();
    queue(middle, calls_.size());
  } else if (!replay()) {
    queue(0, calls_.size());
  }
  finish(batch);
}

// Of generation, once all is queued: the one place where it waits for a device.
void Program::finish(const Batch& b) {
  if (!b.logits && !b.drawn) return;
  if (ops_.device() && b.logit_count > 0) ops_.device()->synchronize();
  const float c = spec_.softcap;
  if (c > 0 && b.logits)
    for (int64_t i = 0; i < b.logit_count * graph_.vocab; ++i) b.logits[i] = c * std::tanh(b.logits[i] / c);
}

void Program::forget_recordings() {
  for (const auto& [key, recording] : recordings_)
    if (recording) ops_.device()->discard(recording);
  recordings_.clear();
}

bool Program::replay() {
  constexpr int64_t kMostTokens = 64;  // beyond, the kernels take longer than queueing them
  constexpr size_t kMostRecordings = 256;
  const Batch& b = staging_->batch();
  device::Accelerator* device = ops_.device();
  if (device == nullptr || b.cache == nullptr || b.pictures != nullptr || b.tokens > kMostTokens ||
      (b.logits == nullptr && b.drawn == nullptr) || b.hidden || poison_ || watch_)
    return false;
  // All that the calls are given and that is not read from the device's memory.
  const auto at = [](const void* p) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p)); };
  const std::vector<uint64_t> key{static_cast<uint64_t>(b.tokens),
                                  static_cast<uint64_t>(b.logit_count),
                                  static_cast<uint64_t>(b.cache->requests),
                                  static_cast<uint64_t>(b.cache->max_pages),
                                  at(b.logits),
                                  at(b.drawn),
                                  at(b.cache->k[0]),
                                  at(b.cache->cu_q)};
  const auto known = recordings_.find(key);
  if (known == recordings_.end()) {  // the first time as it is: what a library makes on first use cannot be recorded
    if (recordings_.size() >= kMostRecordings) forget_recordings();
    recordings_.emplace(key, nullptr);
    return false;
  }
  if (known->second == nullptr) {
    device->begin_recording();
    try {
      queue(0, calls_.size());
    } catch (...) {  // the device must not go on recording
      try {
        device->discard(device->end_recording());
      } catch (const Error&) {  // the recording has ended with an error of its own, the first one counts
      }
      throw;
    }
    known->second = device->end_recording();
  }
  device->replay(known->second);
  return true;
}

void* Program::place_of(ValueId v) const {
  return arena_.bytes_at(static_cast<size_t>(spec_.memory.offset[static_cast<size_t>(v)]));
}

int64_t Program::count_of(ValueId v) const {
  const Value& x = graph_.value(v);
  return (x.rows == kTokens ? tokens_ : rows_[static_cast<size_t>(x.rows.dim)] * x.rows.factor) * x.cols;
}

// Of parameters that pictures alone train, in a step whose first pass has none.
void Program::clear_gradients() {
  for (const ParamId p : spec_.of_pictures) {
    const ParamSlot& slot = (*params_)[p];
    if (slot.grad == nullptr) continue;
    const auto n =
        static_cast<size_t>(graph_.params[static_cast<size_t>(p)].rows * graph_.params[static_cast<size_t>(p)].cols) *
        sizeof(float);
    ops_.device() ? ops_.device()->fill(slot.grad, 0, n) : static_cast<void>(std::memset(slot.grad, 0, n));
  }
}

void Program::read(ValueId v, float* to) const {
  const Value& x = graph_.value(v);
  const auto count = static_cast<size_t>(count_of(v));
  std::vector<std::byte> here(count * size_of(x.type));
  if (ops_.device()) {
    ops_.device()->download(here.data(), place_of(v), here.size());
    ops_.device()->synchronize();
  } else {
    std::memcpy(here.data(), place_of(v), here.size());
  }
  convert(here.data(), x.type, to, DType::kF32, count);
}

void Program::write(ValueId v, const float* from) {
  const Value& x = graph_.value(v);
  const auto count = static_cast<size_t>(tokens_ * x.cols);
  std::vector<std::byte> here(count * size_of(x.type));
  convert(from, DType::kF32, here.data(), x.type, count);
  if (ops_.device()) {
    ops_.device()->upload(place_of(v), here.data(), here.size());
    ops_.device()->synchronize();
  } else {
    std::memcpy(place_of(v), here.data(), here.size());
  }
}

void Program::queue(size_t first, size_t last) {
  size_t loop = 0;
  while (loop < spec_.loops.size() && spec_.loops[loop].first < first) ++loop;
  for (size_t i = first; i < last; ++i) {
    if (loop < spec_.loops.size() && spec_.loops[loop].first == i) {
      run_loop(spec_.loops[loop]);
      i = spec_.loops[loop++].last - 1;
      continue;
    }
    make(i);
  }
}

void Program::run_loop(const Loop& loop) {
  const StagedBatch& b = staging_->batch();
  const bool targets = loop.over == Dim::kTargets;
  const int64_t n = targets ? b.target_count : b.logit_count;
  for (int64_t i = 0; i < n; i += loop.chunk) {
    const int64_t m = std::min(loop.chunk, n - i), first = targets ? b.host_rows[i] : i;
    const bool apart = targets && b.host_rows[i + m - 1] - first != m - 1;
    holds_ = static_cast<uint16_t>(apart ? holds_ | kApart : holds_ & ~kApart);
    set_rows(Dim::kChunk, m);
    for (const Window& w : loop.windows) {
      void* base = apart && w.apart.buffer >= 0 ? address(w.apart) : address(w.of);
      if (base && !(apart && w.apart.buffer >= 0))
        base = static_cast<std::byte*>(base) + (w.by_place ? i : first) * w.row_bytes;
      set_buffer(w.window, base);
    }
    for (size_t c = loop.first; c < loop.last; ++c) {
      if (i > 0)
        for (bool* adds : calls_[c].overwrites_first) *adds = true;
      make(c);
    }
  }
}

void Program::make(size_t i) {
  const StepCall& spec = spec_.calls[i];
  if ((spec.when & holds_) != spec.when) return;
  if (poison_) poison(spec.op);
  const Call& c = calls_[i];
  if (watch_) watch_(i, c.call);
  if (c.blocks == nullptr) return kernels::run(ops_, c.call);
  if (const auto* g = std::get_if<kernels::Gemm>(&c.call))
    return kernels::cpu::block_gemm({g->a, c.blocks, g->c, g->bias, g->bias_type});
  const auto& table = std::get<kernels::Embedding>(c.call);
  kernels::cpu::block_rows(*c.blocks, table.ids, table.y);
}

// Fills what is dead before operation `upto` runs.
void Program::poison(size_t upto) {
  for (; poisoned_ < upto; ++poisoned_)
    for (ValueId v : spec_.dead_after[poisoned_]) {
      void* p = arena_.bytes_at(static_cast<size_t>(spec_.memory.offset[static_cast<size_t>(v)]));
      const auto n = static_cast<size_t>(value_bytes(graph_, v, spec_.settings.max_tokens));
      if (ops_.device())
        ops_.device()->fill(p, 0xff, n);
      else
        std::memset(p, 0xff, n);
    }
}

std::vector<Program::Timing> Program::profile(const Batch& batch) {
  device::Accelerator* device = ops_.device();
  std::vector<void*> marks;
  std::vector<std::chrono::steady_clock::time_point> times;  // on the host, where a call has ended when it returns
  std::vector<size_t> made;
  auto mark = [&] {
    if (device == nullptr) return times.push_back(std::chrono::steady_clock::now());
    marks.push_back(device->make_mark());
    device->mark(marks.back());
  };
  Watch before = std::move(watch_);
  watch_ = [&](size_t call, const kernels::AnyCall&) {
    made.push_back(call);
    mark();
  };
  run(batch, graph_.roots.empty() || graph_.forward_ops == 0 ? std::function<void()>() : [] {});
  watch_ = std::move(before);
  mark();
  std::vector<Timing> out;
  for (size_t i = 0; i < made.size(); ++i) {
    const Op& op = graph_.ops[spec_.calls[made[i]].op];
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

void Program::copy_nll(float* to) const { copy_out(spec_.nll, tokens_, to); }

void Program::copy_loads(float* loss, float* count, int64_t rows) const {
  copy_out(spec_.balance, rows, loss);
  copy_out(spec_.load, rows * experts(), count);
}

void Program::copy_out(Ref from, int64_t floats, float* to) const {
  const void* p = address(from);
  MXT_ASSERT(p != nullptr);
  const size_t n = static_cast<size_t>(floats) * sizeof(float);
  if (ops_.device())
    ops_.device()->download(to, p, n);
  else
    std::memcpy(to, p, n);
}

const float* Program::nll() const {
  if (!ops_.device()) return static_cast<const float*>(address(spec_.nll));
  if (!nll_fetched_) {
    nll_host_.resize(static_cast<size_t>(tokens_));
    copy_nll(nll_host_.data());
    ops_.device()->synchronize();
    nll_fetched_ = true;
  }
  return nll_host_.data();
}

double Program::flops(int64_t tokens, int64_t document, int64_t targets) const {
  return products_of(graph_,
                     {static_cast<double>(tokens), static_cast<double>(document), static_cast<double>(targets)});
}

}  // namespace mxt::runtime

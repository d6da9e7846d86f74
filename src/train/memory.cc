#include "train/memory.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/source/records.h"
#include "device/memory.h"
#include "graph/passes.h"
#include "optim/optimizer.h"
#include "train/methods/method.h"
#include "train/reference.h"
#include "train/sampler.h"
#include "train/value_model.h"

namespace mxt::train {
namespace {

// Of a pass that the probe tries: more fill no device better.
int64_t most_tokens(const kernels::Ops& ops) { return ops.device() ? 1 << 16 : 4096; }

// Or asks a reference before; one that is kept is asked by a program of its own.
bool scores_while_training(const config::Recipe& r) {
  const auto method = make_method(r.train.method);
  return (method && ((method->has_reference() && !keeps_reference(r)) || method->scores_policy())) ||
         (r.train.eval_every && (r.data.eval_fraction > 0 || r.data.eval_path || r.data.synth));
}

// Tokens that local files become, from above. Of random windows a byte can be a token; rows of text have fewer than one
// for two bytes (English and code a third of one, digits alone one). Packed files hold up to ten times their size.
double tokens_of_files(const std::string& path, const config::Data& d) {
  double bytes = 0;
  for (const data::SourceFile& f : data::find_source_files(path, d.split)) {
    std::error_code ec;
    const auto size = static_cast<double>(fs::file_size(f.path, ec));
    const bool packed = f.path.ends_with(".gz") || f.path.ends_with(".zst") || f.path.ends_with(".parquet");
    if (!ec) bytes += packed ? 10 * size : size;
  }
  return d.sampling == config::Sampling::kRandomWindows ? bytes : bytes / 2;
}

double most_tokens_of(const config::Recipe& r) {
  constexpr double kNotKnown = 64 << 20;
  const config::Data& d = r.data;
  try {
    if (d.source == config::DataSource::kLocal && d.path && d.mixture.empty()) return tokens_of_files(*d.path, d);
  } catch (const Error&) {  // not here yet
  }
  if (d.source == config::DataSource::kSynth && d.synth && !d.synth->teacher)
    return static_cast<double>(d.synth->rows * d.seq_len);
  return kNotKnown;
}

// Ids and labels, four bytes each, of what the steps read.
int64_t mapped_data(const Setup& s) {
  const config::Recipe& r = s.recipe;
  double tokens = most_tokens_of(r);
  if (r.train.schedule.max_steps)
    tokens = std::min(
        tokens, static_cast<double>(*r.train.schedule.max_steps) * static_cast<double>(s.pass_tokens(s.rows_per_step)));
  return static_cast<int64_t>(tokens) * 8;
}

// Targets of a pass of `rows` rows, from above, where less than its tokens: answers that are sampled end.
int64_t most_targets(const Setup& s, int64_t rows) {
  const int64_t all = s.pass_tokens(rows);
  return samples(s.recipe) ? std::min(all, rows * std::min(s.recipe.train.method.max_new_tokens, s.seq_len - 1)) : all;
}

// What a program takes beside those before it. Kernels keep memory for the process, and no two programs run together:
// of that the most counts.
class Beside {
 public:
  explicit Beside(const runtime::ProgramBytes& first) : kernels_(first.kernels) {}
  int64_t operator()(const runtime::ProgramBytes& b) {
    const int64_t more = std::max<int64_t>(0, b.kernels - kernels_);
    kernels_ += more;
    return b.total() - b.kernels + more;
  }

 private:
  int64_t kernels_;
};

constexpr int64_t kPage = 2 << 20;  // buffers ask for huge ones

}  // namespace

int64_t process_bytes() {
  // Touched by the first step and not before: code of kernels and libraries (9 MB), code that oneDNN generates (3), the
  // programs and what laying them out left in the heap (6). Measured; see docs/planning.md.
  constexpr int64_t kFirstStep = 18 << 20;
  return static_cast<int64_t>(device::resident_bytes()) + kFirstStep;
}

int64_t touched_activations(const graph::Graph& g, const runtime::ProgramSpec& spec, int64_t tokens) {
  graph::Bounds rows(tokens);
  for (const graph::Dim d :
       {graph::Dim::kSequences, graph::Dim::kBatchRows, graph::Dim::kTargets, graph::Dim::kLogitRows})
    rows[d] = tokens;
  std::vector<std::pair<int64_t, int64_t>> used;  // begin, end
  for (size_t v = 0; v < spec.memory.offset.size(); ++v)
    if (const int64_t at = spec.memory.offset[v]; at >= 0)
      used.emplace_back(at / kPage * kPage,
                        (at + graph::value_bytes(g, static_cast<graph::ValueId>(v), rows) + kPage - 1) / kPage * kPage);
  std::sort(used.begin(), used.end());
  int64_t touched = 0, end = 0;
  for (const auto& [first, last] : used) {
    touched += std::max<int64_t>(0, last - std::max(first, end));
    end = std::max(end, last);
  }
  return touched;
}

int64_t touched_logits(const runtime::ProgramBytes& program, int64_t chunk, int64_t targets) {
  const int64_t rows = std::min(chunk, targets);
  return std::min(program.logits, (program.logits / chunk + 1) * rows + kPage);
}

MemoryEstimate estimate_memory(const Setup& s, const kernels::KernelPlan& plan, kernels::Ops& ops) {
  return estimate_memory(s, s.pass(), plan, ops);
}

MemoryEstimate estimate_memory(const Setup& s, const Pass& pass, const kernels::KernelPlan& plan, kernels::Ops& ops) {
  MemoryEstimate e;
  const graph::Graph& g = s.training_graph(pass.recompute);
  const runtime::ProgramSettings settings = program_settings(s, pass);
  e.params = param_bytes(s, g);
  e.update = optim::make_optimizer(s.recipe.train, g)->workspace();
  if (pass.packed_weights) e.params.packed = runtime::ParamStore::packed_bytes(g, ops);
  e.program = runtime::Program(g, plan, ops, settings).bytes();
  const auto cut_head = [&](runtime::ProgramBytes* b, int64_t chunk) {
    if (!ops.device())
      b->logits = touched_logits(*b, std::min(chunk, settings.max_tokens), most_targets(s, pass.micro_batch));
  };
  cut_head(&e.program, s.options.head_chunk);
  const auto method = make_method(s.recipe.train.method);
  const bool keeps = keeps_reference(s.recipe), shares = keeps && shares_base(g);
  Beside beside(e.program);
  if (const bool scores = scores_while_training(s.recipe); scores || keeps) {
    const graph::Graph score = s.scoring_graph();
    e.scoring = runtime::Program(score, plan, ops, settings).bytes();
    cut_head(&e.scoring, s.backend->scoring_head_chunk);
    if (scores && keeps) e.scoring.activations += e.scoring.total() - e.scoring.kernels;
    e.scoring.kernels = beside(e.scoring) - (e.scoring.total() - e.scoring.kernels);
    // The starting weights, or the starting adapter over the weights that are there.
    for (const graph::Param& p : score.params)
      if (shares && p.adapter)
        e.params.weights += p.rows * p.cols * static_cast<int64_t>(size_of(score.value(p.value).type));
    if (keeps && !shares) e.params.weights += runtime::ParamStore::measure(score, false).weights;
  }
  if (samples(s.recipe)) {
    e.sampler = sampler_cache_bytes(s) + beside(sampler_program_bytes(s, plan, ops));
    for (const infer::RewardModel::Bytes& judge : judge_bytes(s, ops))
      e.sampler += judge.weights + beside(judge.program);
  }
  if (method && method->wants_values()) {
    const runtime::ParamBytes values = ValueModel::param_bytes(s);
    e.params.weights += values.weights, e.params.masters += values.masters;
    e.params.gradients += values.gradients, e.params.states += values.states;
    for (const runtime::ProgramBytes& b : ValueModel::program_bytes(s, plan, ops)) e.scoring.activations += beside(b);
  }
  e.offloaded = e.params.offloaded(pass.offload);
  e.data = mapped_data(s);
  if (!ops.device()) e.process = process_bytes();
  return e;
}

uint64_t host_memory() { return (device::available_host_bytes() + device::resident_bytes()) / 20 * 19; }

std::vector<Pass> open_passes(const Setup& s, kernels::Ops& ops, uint64_t memory) {
  const auto& t = s.recipe.train;
  std::vector<Pass> fit;
  Pass least{1, graph::Recompute::kNone, s.offload};
  int64_t least_bytes = INT64_MAX;
  const kernels::KernelPlan none;
  const bool packs = s.packed_weights && runtime::ParamStore::packed_bytes(s.training_graph(), ops) > 0;
  const auto consider = [&](int64_t n) {
    auto fits = [&](graph::Recompute r, bool packed = false) {
      const int64_t bytes = estimate_memory(s, {n, r, s.offload, packed}, none, ops).needs();
      if (bytes < least_bytes) least = {n, r, s.offload, packed}, least_bytes = bytes;
      return static_cast<uint64_t>(bytes) <= memory;
    };
    // Packed weights cost memory alone: where there is room they gain.
    if (packs && fits(graph::Recompute::kNone, true)) {
      fit.push_back({n, graph::Recompute::kNone, s.offload, true});
    } else if (fits(graph::Recompute::kNone)) {
      fit.push_back({n, graph::Recompute::kNone, s.offload});
    } else if (t.gradient_checkpointing && fits(graph::Recompute::kLayer)) {
      // The fewest tensors, in the order of cost for a byte.
      int64_t few = 0, many = static_cast<int64_t>(s.recompute_order().size());
      while (many - few > 1) {
        const int64_t half = (few + many) / 2;
        (fits({half}) ? many : few) = half;
      }
      fit.push_back({n, {many}, s.offload});
    }
  };
  const auto consider_all = [&](int64_t unit) {
    for (int64_t n = unit; !t.micro_batch && n <= t.batch.per_device; n *= 2)
      if (n != s.micro_batch && s.pass_tokens(n) <= most_tokens(ops)) consider(n);
  };
  consider(s.micro_batch);
  consider_all(s.whole_rows());
  if (fit.empty() && s.whole_rows() > 1) consider_all(1);  // parts of a group
  if (fit.empty()) fit.push_back(least);
  return fit;
}

namespace {

struct Asked {
  std::string text;
  config::Recipe recipe;
};

// In the order of what they cost.
std::vector<Asked> questions(const Setup& s) {
  const config::Recipe& r = s.recipe;
  std::vector<Asked> out;
  auto ask = [&](std::string text, auto change) {
    config::Recipe changed = r;
    change(changed);
    out.push_back({std::move(text), std::move(changed)});
  };
  const int64_t micro = r.train.micro_batch ? std::min(*r.train.micro_batch, r.train.batch.per_device) : s.micro_batch;
  for (int64_t n = micro / 2; n >= 1; n /= 2)
    ask(fmt::format("train.micro_batch: {}", n), [&](auto& c) { c.train.micro_batch = n; });
  if (!r.train.gradient_checkpointing) {
    ask("train.gradient_checkpointing: true", [](auto& c) { c.train.gradient_checkpointing = true; });
    if (micro > 1)
      ask("train.gradient_checkpointing: true and train.micro_batch: 1", [](auto& c) {
        c.train.gradient_checkpointing = true;
        c.train.micro_batch = 1;
      });
  }
  if (r.train.precision == config::Precision::kFloat32)
    ask("train.precision: bfloat16", [](auto& c) { c.train.precision = config::Precision::kBFloat16; });
  if (r.train.method.lora)
    for (int64_t rank = r.train.method.lora->r / 2; rank >= 1; rank /= 2)
      ask(fmt::format("train.method.r: {}", rank), [&](auto& c) { c.train.method.lora->r = rank; });
  for (int64_t n = r.data.seq_len / 2; n >= 64; n /= 2)
    ask(fmt::format("data.seq_len: {}", n), [&](auto& c) { c.data.seq_len = n; });
  if (!r.train.method.lora && r.train.method.kind == config::MethodKind::kFull)
    ask("train.method: {kind: lora, r: 16}",
        [](auto& c) { c.train.method = config::default_method(config::MethodKind::kLora); });
  if (!r.train.method.lora && r.train.method.kind == config::MethodKind::kCpt)
    ask("train.method: {kind: cpt, lora: {r: 16}}", [](auto& c) { c.train.method.lora.emplace(); });
  return out;
}

}  // namespace

std::vector<Change> changes_that_fit(const Setup& s, kernels::Ops& ops, uint64_t memory, size_t most) {
  std::vector<Change> out;
  std::string last;  // of a family (text before the colon) the mildest that fits is enough
  const kernels::KernelPlan none;
  for (const Asked& q : questions(s)) {
    const std::string family = q.text.substr(0, q.text.find(':'));
    if (family == last) continue;
    const auto changed = with_recipe(s, q.recipe);
    const Pass pass = open_passes(*changed, ops, memory).front();
    const int64_t bytes = estimate_memory(*changed, pass, none, ops).needs();
    if (static_cast<uint64_t>(bytes) > memory) continue;
    out.push_back({q.text, bytes});
    last = family;
    if (out.size() == most) break;
  }
  return out;
}

void require_fit(const Setup& s, const kernels::KernelPlan& plan, kernels::Ops& ops, uint64_t memory) {
  const MemoryEstimate e = estimate_memory(s, plan, ops);
  auto bytes = [](int64_t n) { return human_bytes(static_cast<uint64_t>(n)); };
  if (static_cast<uint64_t>(e.offloaded) > host_memory())
    fail_input(
        "{}: the optimizer's masters and states do not fit the device and would take {} of the host's memory, of "
        "which {} may be used: train an adapter (train.method: {{kind: lora, r: 16}}), or a smaller model",
        s.recipe.source, bytes(e.offloaded), human_bytes(host_memory()));
  if (static_cast<uint64_t>(e.needs()) <= memory) return;
  std::string remedy;
  for (const Change& c : changes_that_fit(s, ops, memory))
    remedy += fmt::format("{}{} ({})", remedy.empty() ? "" : "; or ", c.text, bytes(c.bytes));
  fail_input(
      "{}: this run needs {} of memory (weights {}, gradients {}, optimizer {}, activations and workspace {}, program "
      "{}), {} may be used: {}",
      s.recipe.source, bytes(e.needs()), bytes(e.params.weights + e.params.masters + e.params.packed),
      bytes(e.params.gradients), bytes(e.params.states),
      bytes(e.program.total() + e.scoring.total() + e.sampler + e.update), bytes(e.process), human_bytes(memory),
      remedy.empty() ? "no smaller batch, sequence or adapter makes it fit: take a smaller model or a larger machine"
                     : "it fits with " + remedy);
}

}  // namespace mxt::train

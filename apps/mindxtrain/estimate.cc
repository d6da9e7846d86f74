#include "estimate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "base/threads.h"
#include "config/prices.h"
#include "config/recipe.h"
#include "cost.h"
#include "data/dataset.h"
#include "kernels/backend.h"
#include "model_files.h"
#include "probe.h"
#include "quantize_model.h"
#include "train/batches.h"
#include "train/memory.h"
#include "train/planned.h"
#include "train/sampler.h"
#include "train/setup.h"

namespace mxt::app {
namespace {

// What a step costs on a device, and how sure that is.
struct Speed {
  double step_s = 0;  // 0: not known
  bool measured = false;
  std::string from;  // in words
};

struct Work {
  double flops = 0;      // of a step: the model's own operations, every token with a target
  double fp8_flops = 0;  // of these, products with a base held in FP8, forward and activation gradient
  bool float32 = false;
  int64_t tokens = 0;  // of a step
  int64_t bytes = 0;   // that a step moves at least: weights a pass, gradients, masters and the optimizer's states once
  int64_t update_bytes = 0;  // of these, masters and states: read and written
};

Work work_of(const train::Setup& s, const train::Pass& pass, kernels::Ops& ops) {
  const graph::Graph& g = s.training_graph(pass.recompute);
  const kernels::KernelPlan none;
  const runtime::Program program(g, none, ops, {s.pass_tokens(pass.micro_batch), 0, false, s.seq_len});
  const auto params = train::param_bytes(s, g);
  const int64_t passes = (s.rows_per_step + pass.micro_batch - 1) / pass.micro_batch;
  Work w;
  w.tokens = std::min(s.rows_per_step * s.seq_len, passes * s.pass_tokens(pass.micro_batch));  // prompts may be shared
  w.flops = program.flops(w.tokens, s.seq_len, w.tokens);
  w.float32 = s.type == DType::kF32;
  for (const graph::Param& p : g.params)
    if (p.held == graph::Storage::kFp8 || p.held == graph::Storage::kFakeQuant)
      w.fp8_flops += 4.0 * static_cast<double>(p.rows * p.cols * w.tokens);
  w.update_bytes = 2 * params.offloaded(runtime::Offload::kOptimizer);
  w.bytes = 2 * passes * params.weights + w.update_bytes + (passes + 1) * params.gradients;
  return w;
}

// What the plan measured for a step; not measured: step_s 0.
Speed speed_of(const kernels::KernelPlan& plan) {
  if (const auto step = plan.candidates.find("step");
      plan.measured && step != plan.candidates.end() && step->second.size() == 2 && step->second[1].median_us > 0)
    return {step->second[1].median_us * 1e-6, true, fmt::format("the plan's measurements on {}", plan.device.name)};
  return {};
}

Speed speed_here(const train::Setup& s, const Work& w) {
  // No plan: one product, timed now, and what a step usually reaches of it.
  constexpr double kOfOneProduct = 0.6;
  const double rate = autotune::product_rate(kernels::cpu_ops(), s.type);
  return {w.flops / (rate * kOfOneProduct), false,
          "an estimate: 60 % of one product's rate, timed now; `mindxtrain bench` measures"};
}

Speed speed_there(const config::DevicePrice& d, const Work& w) {
  const double peak = w.float32 ? d.peak_tflops_float32 : d.peak_tflops,
               peak8 = d.peak_tflops_fp8 > 0 ? d.peak_tflops_fp8 : d.peak_tflops;
  if (peak <= 0) return {0, false, "no published float32 peak"};
  const double compute = ((w.flops - w.fp8_flops) / peak + w.fp8_flops / peak8) / (1e12 * d.utilisation),
               memory = static_cast<double>(w.bytes) / (d.bandwidth_tb_s * 1e12);
  return {std::max(compute, memory), false,
          fmt::format("not measured: published peak {:.0f} TFLOP/s{}, {:.2f} TB/s ({}), {:.0f} % of it assumed", peak,
                      w.fp8_flops > 0 ? fmt::format(" and {:.0f} in FP8", peak8) : "", d.bandwidth_tb_s, d.source,
                      100 * d.utilisation)};
}

// What a step takes longer with the optimizer's memory on the host: it crosses the link both ways at once. 0: not
// known.
double offload_seconds(const config::DevicePrice& d, const Work& w) {
  return d.host_link_gb_s > 0 ? static_cast<double>(w.update_bytes) / 2 / (d.host_link_gb_s * 1e9) : 0;
}

// Steps of the run; 0 where nothing says how many rows there are.
int64_t steps_of(const train::Setup& s, const std::string& data) {
  if (s.recipe.train.schedule.max_steps) return *s.recipe.train.schedule.max_steps;
  if (!data.empty() && !data::is_windows(data))
    return train::total_steps(s.recipe, data::Dataset::open(data).rows(), s.rows_per_step);
  return 0;
}

// What the steps map of a prepared folder, all of it read.
int64_t shard_bytes(const std::string& data) {
  int64_t all = 0;
  for (const std::string& f : list_files(data))
    if (f.ends_with(".safetensors") && !f.starts_with("eval"))
      all += static_cast<int64_t>(fs::file_size(data + "/" + f));
  return all;
}

// Tokens of the longest row of a prepared folder; 0 where it holds no rows.
int64_t longest_row(const std::string& data) {
  return data::is_windows(data) ? 0 : data::Dataset::open(data).info().longest;
}

// As batches are padded.
int64_t round_up(int64_t tokens) {
  constexpr int64_t kPad = train::PackedBatch::kPad;
  return (tokens + kPad - 1) / kPad * kPad;
}

struct Savings {
  std::string name;
  int64_t activations = 0;
  double more_flops = 0;  // part of the step's own
};

// What recomputation would save: nothing, half of the tensors in the order of their cost, all of them.
std::vector<Savings> recompute_savings(const train::Setup& s, const train::Pass& pass, kernels::Ops& ops,
                                       const Work& w) {
  const auto order = s.recompute_order();
  const auto n = static_cast<int64_t>(order.size());
  std::vector<Savings> out;
  for (const int64_t k : {int64_t{0}, n / 2, n}) {
    double more = 0;
    for (int64_t i = 0; i < k; ++i) more += order[static_cast<size_t>(i)].cost;
    out.push_back({fmt::format("{} of {} tensors", k, n),
                   train::estimate_memory(s, {pass.micro_batch, {k}}, {}, ops).program.activations,
                   more * static_cast<double>(w.tokens) / w.flops});
  }
  return out;
}

// How the gradients of adapters are made on a device of this instruction set: by a kernel that reads what they have in
// common once, or by products that read it for each. Empty: nothing has adapters.
OrderedJson adapters_of(const train::Setup& s, std::string_view arch, const kernels::KernelPlan& plan) {
  const auto served = kernels::one_pass_ranks(*s.backend, arch, s.options.base == graph::Storage::kFp8);
  std::map<std::pair<int64_t, bool>, int64_t> times;
  const auto& ops = s.training_graph().ops;
  for (size_t i = 0; i < ops.size(); ++i)
    if (const auto* dz = std::get_if<graph::LoraDzOp>(&ops[i].attrs)) {
      const int64_t rank = dz->blocks.front().rank;
      const bool alike =
          std::all_of(dz->blocks.begin(), dz->blocks.end(), [&](const graph::LoraBlock& b) { return b.rank == rank; });
      const bool beside_swiglu = i > 0 && std::holds_alternative<graph::ActGradOp>(ops[i - 1].attrs);
      const bool has = std::find(served.begin(), served.end(), rank) != served.end() && (rank <= 16 || beside_swiglu);
      ++times[{rank, alike && has && !dz->b.empty() && s.type == DType::kBF16}];
    }
  OrderedJson out = OrderedJson::array();
  for (const auto& [key, n] : times)
    out.push_back({{"rank", key.first}, {"gradients", n}, {"kernel", key.second ? "one pass" : "products"}});
  if (out.empty()) return out;
  OrderedJson j{{"by_rank", out}, {"one_pass_ranks", served}};
  if (const auto at = plan.candidates.find("step adapters"); at != plan.candidates.end())
    for (const auto& c : at->second)
      if (c.median_us > 0) j["us_a_row_and_layer"][c.algorithm] = c.median_us;
  return j;
}

// The backend's kernels where its device is here, for the workspaces they take; without it the CPU's, and the plan
// counts none.
kernels::Ops& ops_or_cpu(const kernels::BackendInfo& backend) {
  try {
    return *backend.open().ops;
  } catch (const Error&) {
    return kernels::cpu_ops();
  }
}

// The device that is counted for.
struct Target {
  std::string device;  // its name in the table
  bool here = false;   // this machine's processor
  Rate rate;
  bool own_gpu = false;  // one card that this build drives, and that the recipe asks for
  uint64_t memory = 0;   // that may be used
};

// A recipe for the processor or for another card, counted on one that this build drives, is one for that card.
void move_to_card(config::Hardware& h, const std::string& device, const config::DevicePrice& d) {
  if (kernels::backend_for(d.arch) == nullptr || !config::enum_from_text(d.arch, &h.gfx_arch)) return;
  if (!config::enum_from_text(device, &h.name)) h.name = config::GpuName::kCuda;  // one of the user's own table
  h.gpus = 1;
  h.expected_hbm_gb = std::lround(d.memory_gb);
}

// The recipe is changed to what is counted: a GPU that this build drives cuts a step in its own way; for any other
// device the graph is that of the CPU lane.
Target target_of(config::Recipe& r, const std::string& named, const config::Prices& prices) {
  Target t;
  t.device = named;
  // Names of the table are in lower case, cards' own names are not.
  std::transform(t.device.begin(), t.device.end(), t.device.begin(), [](unsigned char c) { return std::tolower(c); });
  if (t.device.empty()) t.device = priced_device(r);
  require_device(prices, t.device);
  t.here = t.device == "cpu";
  t.rate = *rate_of(r, t.device, prices);
  const config::DevicePrice& d = t.rate.price;
  if (!t.here && !d.has_figures())
    fail_input("{}: devices.{}: peak_tflops, bandwidth_tb_s, memory_gb and utilisation are needed to count with",
               prices.file, t.device);
  const bool elsewhere =
      r.hardware.cpu_lane() || (r.hardware.gpus == 1 && t.device != config::text_of(r.hardware.name));
  if (!t.here && elsewhere) move_to_card(r.hardware, t.device, d);
  const kernels::BackendInfo* backend = kernels::backend_for(d.arch);
  t.own_gpu = backend != nullptr && backend == train::backend_of(r) && r.hardware.gpus == 1;
  if (!t.own_gpu) r.hardware.gpus = 0;
  if (t.own_gpu && !config::device_computes(r.hardware, r.train.precision))
    fail_input("{}: train.precision: is {}, which {} has no units for: write bfloat16", r.source,
               config::text_of(r.train.precision), t.device);
  t.memory = t.here ? train::host_memory() : static_cast<uint64_t>(d.memory_gb * 1e9 * 0.95);
  return t;
}

// Of a card that is not here: in what the plan is for another device. Cards of one instruction set share their plans;
// whose measurements they are is said with the speed.
std::string other_device(const kernels::DeviceIdentity& planned, const train::Setup& s, const Target& t) {
  const auto differs = [&](std::string_view what, std::string_view for_, std::string_view there) {
    return fmt::format("{}: the plan was made for {}, {} is {}", what, for_, t.device, there);
  };
  if (planned.kind != s.backend->kind) return differs("device kind", planned.kind, s.backend->kind);
  const std::string& arch = t.rate.price.arch;
  return planned.arch.starts_with(arch) ? "" : differs("device arch", planned.arch, arch);
}

// The plan of the file that is named, or how this build would cut a step without one.
kernels::KernelPlan plan_of(const std::string& file, const train::Setup& s, const Target& t, kernels::Ops& ops) {
  kernels::KernelPlan plan;
  if (file.empty()) {
    plan = train::default_plan(s, train::cpu_identity(num_threads()), ops,
                               t.own_gpu ? s.pass() : train::open_passes(s, ops, t.memory).front());
  } else {
    plan = kernels::plan_from_json(read_file(file), file);
    if (const std::string other = t.own_gpu ? other_device(plan.device, s, t) : ""; !other.empty())
      fail_input("{}: the plan does not fit: {}", file, other);
    const auto differences = train::differences(plan, t.here ? train::cpu_identity(num_threads()) : plan.device, s);
    if (!differences.empty()) fail_input("{}: the plan does not fit: {}", file, differences.front());
    config::check_plan_env(s.recipe, plan.env);
    // Kernels that are not here cannot be asked for their workspace: how the step is cut is what can be counted.
    if (plan.device.kind != ops.name())
      std::erase_if(plan.choices, [](const auto& c) { return !c.first.starts_with("step "); });
  }
  if (!t.here) plan.choices.erase("step weights");  // the CPU's own
  return plan;
}

// A plan that leaves choices open is refused as a run refuses it. What is asked of kernels that are not here is not
// known.
void require_choices(const EstimateOptions& o, kernels::KernelPlan plan, const train::Setup& s, const Target& t,
                     kernels::Ops& ops) {
  if (o.plan.empty() || plan.device.kind != ops.name()) return;
  if (!t.here) plan.choices.emplace("step weights", "plain");  // plan_of() has dropped it
  const std::string open = train::open_choices(plan, s, ops);
  if (!open.empty()) fail_input("{}: the plan does not fit: {}", o.plan, open);
}

void write_program(const std::string& file, const train::Setup& s, const kernels::KernelPlan& plan, const Target& t,
                   kernels::Ops& ops) {
  // Which kernels there are is known where the device is.
  if (!t.here && ops.device() == nullptr)
    fail_missing(
        "plan --dump: a program for {} is made of that device's kernels, and none is here: run it there, or "
        "with --device cpu",
        t.device);
  if (const fs::path folder = fs::path(file).parent_path(); !folder.empty()) make_folders(folder.string());
  write_file_atomic(file, runtime::print(train::step_program(s, plan, ops), ops));
}

struct Memory {
  train::MemoryEstimate of;
  int64_t arena = 0,
          longest = 0;  // activations whatever the rows' lengths; tokens of the longest row, 0: not looked at
  int64_t on_device = 0, training = 0, quantizing = 0;  // bytes; the last two of the host, one after the other
  uint64_t host = 0;                                    // of the host beside the device; 0: not known
  bool device_fits = false, host_fits = false, quantize_fits = false;
  int64_t on_host() const { return std::max(training, quantizing); }
  bool fits() const { return device_fits && host_fits && quantize_fits; }
};

Memory memory_of(const train::Setup& s, const kernels::KernelPlan& plan, const std::string& data, const Target& t,
                 kernels::Ops& ops) {
  Memory m;
  train::MemoryEstimate& e = m.of;
  e = train::estimate_memory(s, plan, ops);
  if (!data.empty()) e.data = std::min(e.data, shard_bytes(data));
  // What a run makes sure of, however short its rows are.
  const int64_t asked = e.needs();
  m.arena = e.program.activations;
  m.longest = t.here && !s.recipe.data.packing && !data.empty() ? longest_row(data) : 0;
  if (m.longest > 0) {
    const auto tokens = std::min(s.max_tokens, round_up(s.pass_tokens(s.pass().micro_batch) / s.seq_len * m.longest));
    e.program.activations =
        std::min(e.program.activations,
                 train::touched_activations(s.training_graph(), train::step_program(s, plan, ops), tokens));
    e.program.logits = std::min(e.program.logits,
                                train::touched_logits(e.program, std::min(s.options.head_chunk, s.max_tokens), tokens));
  }
  m.on_device = t.here ? 0 : e.needs() - e.process;
  m.training = t.here ? e.needs() + e.data : e.process + e.data + e.program.batch + e.offloaded;
  m.device_fits = static_cast<uint64_t>(t.here ? asked : m.on_device) <= t.memory;
  // The host beside the device is known where the device is.
  m.host = ops.device() ? train::host_memory() : 0;
  m.host_fits = !ops.device() || static_cast<uint64_t>(e.offloaded) <= m.host;
  // Afterwards, when the training's memory is free again.
  const bool host_is_known = t.here || ops.device() != nullptr;
  const int64_t comparing = report_bytes(s, host_is_known ? device::available_host_bytes() : 0),
                process = e.process > 0 ? e.process : train::process_bytes();
  m.quantizing = comparing > 0 ? comparing + process : 0;
  m.quantize_fits = !host_is_known || static_cast<uint64_t>(m.quantizing) <= train::host_memory();
  return m;
}

Speed step_speed(const train::Setup& s, const kernels::KernelPlan& plan, const Target& t, const Work& w,
                 int64_t offloaded) {
  Speed speed;
  if ((t.own_gpu || t.here) && plan.device.kind == s.backend->kind) speed = speed_of(plan);
  if (speed.measured) return speed;
  speed = t.here ? speed_here(s, w) : speed_there(t.rate.price, w);
  if (offloaded > 0) speed.step_s += offload_seconds(t.rate.price, w);
  return speed;
}

void say_memory(const Memory& m, const Target& t, const kernels::Ops& ops, OrderedJson& j) {
  const train::MemoryEstimate& e = m.of;
  j["fits"] = m.fits();
  j["peak_bytes"] = {{"host", m.on_host()}, {"device", m.on_device}};
  j["categories"] = {
      {"weights", e.params.weights + e.params.masters},
      {"packed", e.params.packed},
      {"gradients", e.params.gradients},
      {"optimizer", e.params.states},
      {"activations", e.program.activations + e.scoring.activations},
      {"workspace", e.program.decoded + e.program.workspace + e.program.kernels + e.program.batch + e.scoring.decoded +
                        e.scoring.workspace + e.scoring.kernels + e.scoring.batch + e.update + e.sampler},
      {"logits", e.program.logits + e.scoring.logits},
      {"data", e.data},
      {"process", e.process}};
  if (m.quantizing > 0) j["stages"] = {{"train", m.training}, {"quantize", m.quantizing}};
  j["lower_bound_bytes"] = e.program.lower_bound;
  j["available_bytes"] = t.memory;
  if (ops.device()) j["host_available_bytes"] = m.host, j["host_fits"] = m.host_fits;
}

void say_time(const train::Setup& s, const Work& w, const Speed& speed, int64_t steps, const Target& t,
              OrderedJson& j) {
  const auto devices = static_cast<double>(t.rate.devices);
  const double tok_s = static_cast<double>(w.tokens) * devices / speed.step_s, watts = t.rate.watts(),
               seconds = static_cast<double>(steps) * speed.step_s / (t.here ? 1.0 : devices);
  const auto usd = [&](double of) { return t.rate.usd(of).value_or(0); };
  j["steps"] = steps > 0 ? OrderedJson(steps) : OrderedJson(nullptr);
  j["step_seconds"] = speed.step_s;
  j["step_flops"] = w.flops;
  j["tokens_per_second"] = tok_s;
  if (const config::Method& method = s.recipe.train.method; train::samples(s.recipe))
    j["sampling"] = {{"counted", false},
                     {"answers", s.rows_per_step},
                     {"max_new_tokens", method.max_new_tokens},
                     {"every_steps", train::steps_per_batch(method)}};
  j["seconds"] = steps > 0 ? OrderedJson(seconds) : OrderedJson(nullptr);
  j["energy_kwh"] = steps > 0 && watts > 0 ? OrderedJson(watts * seconds / 3.6e6) : OrderedJson(nullptr);
  j["cost_usd"] = steps > 0 ? OrderedJson(usd(seconds)) : OrderedJson(nullptr);
  j["cost_per_1b_tokens_usd"] = usd(1e9 / tok_s);
  j["measured"] = speed.measured;
  j["speed_from"] = speed.from;
}

void say_prices(const config::Prices& prices, const config::DevicePrice& d, OrderedJson& j) {
  j["prices"] = {{"file", prices.file},
                 {"date", prices.date},
                 {"usd_per_hour", d.usd_per_hour},
                 {"source", d.price_source},
                 {"usd_per_kwh", prices.usd_per_kwh},
                 {"watts", d.watts}};
}

// What would make it fit, where it does not.
void say_changes(const train::Setup& s, const Memory& m, const Target& t, kernels::Ops& ops, OrderedJson& j) {
  if (m.fits()) return;
  OrderedJson& out = j["changes_that_fit"] = OrderedJson::array();
  if (!m.device_fits)
    for (const auto& x : train::changes_that_fit(s, ops, t.memory))
      out.push_back({{"change", x.text}, {"bytes", x.bytes}});
  if (!m.quantize_fits) out.push_back({{"change", kQuantizeLater}, {"bytes", m.training}});
}

// Memory for time, and what each costs.
void say_options(const train::Setup& s, const Memory& m, const Target& t, const Work& w, kernels::Ops& ops,
                 OrderedJson& j) {
  const train::Pass pass = s.pass();
  j["recompute_options"] = OrderedJson::array();
  for (const auto& x : recompute_savings(s, pass, ops, w))
    j["recompute_options"].push_back({{"name", x.name}, {"activations", x.activations}, {"more_work", x.more_flops}});
  // The host's own memory has nowhere to be offloaded to.
  j["offload"] = runtime::offload_name(pass.offload);
  j["offload_options"] = OrderedJson::array();
  const config::DevicePrice& d = t.rate.price;
  if (!t.here)
    j["offload_options"].push_back(
        {{"name", runtime::offload_name(runtime::Offload::kOptimizer)},
         {"device_bytes_saved", m.of.params.offloaded(runtime::Offload::kOptimizer)},
         {"more_seconds", d.host_link_gb_s > 0 ? OrderedJson(offload_seconds(d, w)) : OrderedJson(nullptr)}});
}

}  // namespace

void require_device(const config::Prices& prices, const std::string& device) {
  if (prices.find(device)) return;
  const auto names = prices.names();
  const std::string near = nearest(device, names);
  fail_input("--device {}: is not in the table of devices{}: it has {}; `mindxtrain plan --help` says how to add one",
             device, near.empty() ? "" : fmt::format(" (did you mean {}?)", near), fmt::join(names, " "));
}

OrderedJson estimate(config::Recipe r, const EstimateOptions& o) {
  const config::Prices prices = price_table(o.prices);
  if (!o.data.empty() && !data::is_windows(o.data)) data::Dataset::open(o.data);  // one that is none is said first
  const Target t = target_of(r, o.device, prices);
  r = as_planned(r);
  const std::string model = resolve_model(r, o.fetch, Parts::kNoWeights);
  require_layout(r);
  const TokenizerBundle text = text_side_of(r, model, o.fetch);  // held to the end: process_bytes() counts it
  auto setup = train::make_setup(r, model, vocabulary_of(text), nullptr, train::Reads::kConfig);
  kernels::Ops& ops = ops_or_cpu(*setup->backend);
  const kernels::KernelPlan plan = plan_of(o.plan, *setup, t, ops);
  setup = train::make_setup(r, model, vocabulary_of(text), &plan, train::Reads::kConfig);
  require_choices(o, plan, *setup, t, ops);
  const train::Pass pass = setup->pass();
  if (!o.dump.empty()) write_program(o.dump, *setup, plan, t, ops);
  const Memory memory = memory_of(*setup, plan, o.data, t, ops);
  const Work w = work_of(*setup, pass, ops);
  const Speed speed = step_speed(*setup, plan, t, w, memory.of.offloaded);

  OrderedJson j{{"device", t.device}, {"title", t.rate.price.title}};
  j["driven"] = t.here || kernels::backend_for(t.rate.price.arch) != nullptr;
  say_memory(memory, t, ops, j);
  j["micro_batch"] = pass.micro_batch;
  if (setup->share_prompts || !setup->unshared.empty())
    j["prompts"] = {{"shared", setup->share_prompts},
                    {"because", setup->share_prompts ? OrderedJson(nullptr) : OrderedJson(setup->unshared)}};
  j["recompute"] = graph::recompute_name(pass.recompute);
  say_time(*setup, w, speed, steps_of(*setup, o.data), t, j);
  j["kernels_workspace_counted"] = t.here || ops.device() != nullptr;
  say_prices(prices, t.rate.price, j);
  say_changes(*setup, memory, t, ops, j);
  j["activations_bytes"] = memory.arena;
  if (t.here && !r.data.packing)
    j["longest_row"] = memory.longest > 0 ? OrderedJson(memory.longest) : OrderedJson(nullptr);
  j["rows_per_step"] = setup->rows_per_step;
  j["seq_len"] = setup->seq_len;
  if (OrderedJson adapters = adapters_of(*setup, t.rate.price.arch, plan); !adapters.empty())
    j["adapters"] = std::move(adapters);
  say_options(*setup, memory, t, w, ops, j);
  return j;
}

}  // namespace mxt::app

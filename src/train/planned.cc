// What a plan is compared by, and the plan of a setup that nothing was measured for.
#include "train/planned.h"

#include <algorithm>

#include "base/text.h"

namespace mxt::train {
namespace {

// What a model has beyond a dense decoder's sizes: none of these names for a dense decoder without windows.
std::map<std::string, int64_t> layer_shapes(const formats::ModelConfig& m) {
  std::map<std::string, int64_t> out;
  const auto put = [&](const char* name, int64_t v) {
    if (v > 0) out[name] = v;
  };
  for (const formats::LayerSpec& l : m.layers) {
    if (l.mixer == formats::LayerSpec::Mixer::kGatedDelta) ++out["delta_layers"];
    if (l.mlp == formats::LayerSpec::Mlp::kExperts) ++out["expert_layers"];
    if (l.window > 0) ++out["window_layers"], out["window"] = std::max(out["window"], l.window);
  }
  if (out.contains("expert_layers")) {
    put("experts", m.num_experts), put("experts_per_token", m.experts_per_token);
    put("expert_intermediate", m.moe_intermediate_size);
    put("shared_expert_intermediate", m.shared_expert_intermediate_size);
  }
  if (out.contains("delta_layers")) {
    put("delta_conv", m.linear_conv_kernel);
    put("delta_key_heads", m.linear_key_heads), put("delta_key_head_dim", m.linear_key_head_dim);
    put("delta_value_heads", m.linear_value_heads), put("delta_value_head_dim", m.linear_value_head_dim);
  }
  return out;
}

}  // namespace

std::map<std::string, int64_t> shapes_of(const Setup& s) {
  std::map<std::string, int64_t> m{{"vocab", s.model.vocab_size},
                                   {"hidden", s.model.hidden_size},
                                   {"intermediate", s.model.intermediate_size},
                                   {"layers", s.model.num_layers},
                                   {"heads", s.model.num_heads},
                                   {"kv_heads", s.model.num_kv_heads},
                                   {"head_dim", s.model.head_dim},
                                   {"seq_len", s.seq_len},
                                   {"rows_per_step", s.rows_per_step},
                                   {"bits", s.type == DType::kF32 ? 32 : 16}};
  if (s.sequences_per_row > 1) m["sequences_per_row"] = s.sequences_per_row;
  if (s.has_lora) {
    const config::Lora& lora = *s.recipe.train.method.lora;
    m["lora_rank"] = lora.r;
    for (const std::string& module : lora.target_modules) m["lora " + module] = 1;
    for (const std::string& module : lora.modules_to_save) m["whole " + module] = 1;
    for (const int64_t layer : lora.layers_to_transform) m["lora layer " + std::to_string(layer)] = 1;
    for (const auto& [key, rank] : lora.rank_pattern) m["lora_rank " + key] = rank;
    if (lora.use_dora) m["dora"] = 1;
    if (lora.bias != config::LoraBias::kNone) m["lora bias"] = lora.bias == config::LoraBias::kAll ? 2 : 1;
  }
  if (s.options.base != graph::Storage::kPlain) m["base_bits"] = 8;
  if (s.options.coded) m["base_bits"] = 4;
  m.merge(layer_shapes(s.model));
  return m;
}

std::map<std::string, int64_t> shapes_beside(const kernels::KernelPlan& plan, const Setup& s) {
  std::map<std::string, int64_t> shapes = shapes_of(s);
  const auto layers = layer_shapes(s.model);
  const auto says = [&](const auto& l) { return plan.shapes.contains(l.first); };
  if (std::none_of(layers.begin(), layers.end(), says))
    for (const auto& l : layers) shapes.erase(l.first);
  return shapes;
}

std::vector<std::string> differences(const kernels::KernelPlan& plan, const kernels::DeviceIdentity& device,
                                     const Setup& s) {
  std::vector<std::string> all = kernels::compare(plan, device, shapes_beside(plan, s));
  const auto choice = [&](const char* key) {
    const auto it = plan.choices.find(key);
    return it == plan.choices.end() ? std::string() : it->second;
  };
  const config::Train& t = s.recipe.train;
  if (const std::string rows = choice("step micro_batch"); t.micro_batch && !rows.empty())
    if (const int64_t wanted = std::min(*t.micro_batch, t.batch.per_device); rows != std::to_string(wanted))
      all.push_back(fmt::format("train.micro_batch: the plan was made for {}, here it is {}", rows, wanted));
  if (const std::string level = choice("step recompute");
      !t.gradient_checkpointing && !level.empty() && level != "none")
    all.push_back(fmt::format("train.gradient_checkpointing: the plan computes again ({}), here it is false", level));
  return all;
}

kernels::DeviceIdentity cpu_identity(int threads) {
  const kernels::CpuFeatures f = kernels::cpu_features();
  kernels::DeviceIdentity d;
  d.kind = "cpu";
  d.name = f.model;
  d.arch = f.vector_target;
  d.libraries["onednn"] = f.onednn_version + " " + f.onednn_isa;
  d.threads = threads;
  return d;
}

kernels::Backend open_backend(const Setup& s) { return s.backend->open(); }

kernels::DeviceIdentity identity_of(const kernels::Backend& b, int threads) {
  if (b.device == nullptr) return cpu_identity(threads);
  const device::Properties& p = b.device->properties();
  kernels::DeviceIdentity d;
  d.kind = p.kind;
  d.name = p.name;
  d.arch = p.arch;
  d.driver = p.driver;
  d.libraries = p.libraries;
  return d;
}

kernels::KernelPlan default_plan(const Setup& s, const kernels::DeviceIdentity& device, kernels::Ops& ops,
                                 const Pass& pass) {
  kernels::KernelPlan p;
  p.device = device;
  p.shapes = shapes_of(s);
  p.env = s.recipe.train.env;
  p.choices["step micro_batch"] = std::to_string(pass.micro_batch);
  p.choices["step recompute"] = std::string(graph::recompute_name(pass.recompute));
  if (s.backend->own_memory) p.choices["step offload"] = std::string(runtime::offload_name(pass.offload));
  const auto gemm = ops.gemm_algorithms(), attention = ops.attention_algorithms();
  const graph::Graph& g = s.training_graph(pass.recompute);
  if (s.has_lora && s.backend->packs_weights)
    p.choices["step weights"] = std::string(runtime::weights_name(pass.packed_weights));
  const runtime::Program program(g, p, ops, program_settings(s, pass));
  for (const auto& t : program.tunables())
    p.choices[t.key] = std::holds_alternative<kernels::Gemm>(t.call) ? gemm.front() : attention.front();
  return p;
}

std::string open_choices(const kernels::KernelPlan& plan, const Setup& s, kernels::Ops& ops) {
  std::vector<std::string> open;
  for (const auto& [key, choice] : default_plan(s, plan.device, ops, s.pass()).choices)
    if (!plan.choices.contains(key)) open.push_back(key);
  if (open.empty()) return "";
  const bool one = open.size() == 1;
  return fmt::format("{} of the step's choices {} not in it ({}{}): `mindxtrain bench` writes all", open.size(),
                     one ? "is" : "are", open.front(), one ? "" : ", …");
}

std::vector<std::string> unused_choices(const kernels::KernelPlan& plan, const Setup& s, kernels::Ops& ops) {
  const auto asked = default_plan(s, plan.device, ops, s.pass()).choices;
  std::vector<std::string> unused;
  for (const auto& [key, choice] : plan.choices)
    if (!asked.contains(key) && !key.starts_with("step ")) unused.push_back(key);
  return unused;
}

runtime::ProgramSettings program_settings(const Setup& s, const Pass& pass) {
  return {s.pass_tokens(pass.micro_batch), 0, false, s.seq_len, pass.packed_weights, s.share_prompts};
}
runtime::ProgramSettings program_settings(const Setup& s) { return program_settings(s, s.pass()); }

runtime::ProgramSpec step_program(const Setup& s, const kernels::KernelPlan& plan, const kernels::Ops& ops) {
  return runtime::lower(s.training_graph(), plan, ops, program_settings(s));
}

}  // namespace mxt::train

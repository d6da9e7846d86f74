#include "train/setup.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/weights.h"
#include "data/dataset.h"
#include "formats/classifier.h"
#include "formats/coded.h"
#include "formats/family.h"
#include "formats/vision.h"
#include "graph/op_info.h"
#include "optim/optimizer.h"
#include "train/adapter.h"
#include "train/card.h"
#include "train/methods/method.h"
#include "train/sampler.h"
#include "train/supported.h"

namespace mxt::train {

using config::MethodKind;

const kernels::BackendInfo* backend_of(const config::Recipe& r) {
  return kernels::backend_for(config::text_of(r.hardware.cpu_lane() ? config::Arch::kNone : r.hardware.gfx_arch));
}

void require_supported(const config::Recipe& r) {
  using config::text_of;
  const auto& m = r.train.method;
  if (r.train.backend != config::Backend::kNative)
    fail_missing(
        "train.backend {0}: this asks about training by this program itself: leave train.backend out (`mindxtrain run` "
        "launches trl; `mindxtrain export R --for NAME --out DIR` writes what others read)",
        text_of(r.train.backend));
  if (backend_of(r) == nullptr)
    fail_missing(
        "hardware.name {}: this build trains on NVIDIA cards since Ampere and on the CPU; set hardware.gpus to 0 for "
        "the CPU "
        "lane",
        text_of(r.hardware.name));
  if (r.hardware.gpus > 1) fail_missing("hardware.gpus {}: this build trains on one GPU", r.hardware.gpus);
  if (r.train.precision != config::Precision::kBFloat16 && r.train.precision != config::Precision::kFloat32 &&
      r.train.precision != config::Precision::kFp8E4M3)
    fail_missing("train.precision {}: this build computes in bfloat16, float32 and fp8_e4m3",
                 text_of(r.train.precision));
  if (r.train.fsdp.enabled || r.hardware.nodes > 1)
    fail_missing("train.fsdp and hardware.nodes: this build trains in one process");
  if (m.lora && r.train.base_precision != r.train.precision && r.train.base_precision != config::Precision::kBFloat16 &&
      r.train.base_precision != config::Precision::kFloat32 && r.train.base_precision != config::Precision::kFp8E4M3)
    fail_missing("{} {}: this build has bfloat16, float32 and fp8_e4m3",
                 r.is_given("train.base_precision") ? "train.base_precision" : "model.torch_dtype",
                 text_of(r.train.base_precision));
}

namespace {

// Where the model's folder has no processor's file: Qwen3-VL's, in the tower's sizes.
image::Processor processor_defaults(const formats::VisionConfig& v) {
  image::Processor p;
  p.patch = v.patch, p.merge = v.merge, p.frames = v.frames;
  return p;
}
// Whether the run's model has its tower: Qwen3.5 where it is asked for, Qwen3-VL always.
bool sees_pictures(const config::Recipe& recipe, const formats::ModelConfig& model) {
  return (recipe.model.vision || !model.family->optional_vision) && formats::vision_of(model);
}

// That a part which is frozen, or asked for, is there.
void check_frozen(const config::Recipe& recipe, const formats::ModelConfig& model) {
  const auto& parts = recipe.model.freeze;
  if (recipe.model.vision && !formats::vision_of(model))
    fail_input("{}: model.vision: the model ({}) has no tower that sees pictures here: leave it out", recipe.source,
               model.model_type);
  if (!parts.empty() && !sees_pictures(recipe, model))
    fail_input("{}: model.freeze: vision: the model ({}) has no tower that sees pictures here: leave it out",
               recipe.source, model.model_type);
}

// A plan is done as it stands or not at all.
[[noreturn]] void refuse_choice(const kernels::KernelPlan& plan, const std::string& key, const std::string& why) {
  fail_input("{}: \"{}\" is \"{}\": {}", plan.source, key, plan.choices.at(key), why);
}

int64_t plan_number(const kernels::KernelPlan& plan, const std::string& key) {
  const std::string& text = plan.choices.at(key);
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1)
    refuse_choice(plan, key, "a whole number from 1 on is wanted");
  return n;
}

graph::Recompute plan_recompute(const kernels::KernelPlan& plan, const std::string& key) {
  graph::Recompute r;
  if (!graph::recompute_from_name(plan.choices.at(key), &r))
    refuse_choice(plan, key, "none, cheap, layer or a number of tensors is wanted");
  return r;
}

runtime::Offload plan_offload(const kernels::KernelPlan& plan, const std::string& key, bool own_memory) {
  runtime::Offload o;
  if (!runtime::offload_from_name(plan.choices.at(key), &o)) refuse_choice(plan, key, "none or optimizer is wanted");
  if (!own_memory && o != runtime::Offload::kNone)
    refuse_choice(plan, key, "this device's memory is the host's, there is nowhere else to keep it");
  return o;
}

bool plan_packed_weights(const kernels::KernelPlan& plan, const std::string& key) {
  bool packed;
  if (!runtime::weights_from_name(plan.choices.at(key), &packed)) refuse_choice(plan, key, "packed or plain is wanted");
  return packed;
}

void check_step_choices(const kernels::KernelPlan& plan) {
  const std::string_view known[] = {"step threads",   "step pinning", "step micro_batch",
                                    "step recompute", "step offload", "step weights"};
  for (const auto& [key, value] : plan.choices) {
    if (!key.starts_with("step ")) continue;
    if (std::find(std::begin(known), std::end(known), key) == std::end(known))
      fail_input("{}: \"{}\" is no choice of a step", plan.source, key);
    if (key == "step pinning" && value != "none" && value != "cores")
      refuse_choice(plan, key, "none or cores is wanted");
    if (key == "step threads") plan_number(plan, key);
  }
}

// How the tensors of a GGUF file stand in it, where any stands in blocks (else null); without those whose rows do not
// lie there as a product wants them.
std::shared_ptr<const std::map<std::string, Coding>> blocks_of(const formats::WeightSource& source) {
  std::map<std::string, Coding> all;
  bool any = false;
  for (const std::string& name : source.names()) {
    const auto type = source.block_type(name);
    if (!type && source.shape(name).size() == 2 && source.stored_type(name) == DType::kF32) continue;
    all[name] = type ? formats::ggml_coding(*type) : Coding::kNone;
    any = any || all[name] != Coding::kNone;
  }
  return any ? std::make_shared<const std::map<std::string, Coding>>(std::move(all)) : nullptr;
}

void hold_in_blocks(Setup* s) {
  if (s->backend->own_memory)
    fail_missing(
        "{}: train.method.quant_type: as_stored: a base in GGUF's blocks trains on the CPU alone: here take nf4, which "
        "rounds once more, or method lora",
        s->recipe.source);
  s->coded.of = [blocks = s->blocks, &model = s->model](const std::string& weight) {
    for (const std::string& name : models::spellings(model, weight))
      if (const auto it = blocks->find(name); it != blocks->end()) return graph::SegmentCoding{it->second};
    fail_missing("{}: the file's blocks do not hold its rows side by side: take method lora, which decodes it", weight);
  };
  s->options.coded = &s->coded;
}

Coding asked_coding(const config::Method& m) {
  if (m.quant_bits == 8) return Coding::kE4M3;
  if (m.quant_type == config::QuantType::kMxfp4) return Coding::kMxfp4;
  return m.double_quant ? Coding::kNf4Double : Coding::kNf4;
}

// How the base of qlora stands in memory.
void hold_in_codes(Setup* s) {
  const config::Method& m = s->recipe.train.method;
  const bool as_stored = m.quant_type == config::QuantType::kAsStored;
  if (as_stored && s->blocks) return hold_in_blocks(s);
  if (as_stored && s->model.quantization.empty())
    fail_input(
        "{}: train.method.quant_type: as_stored: {} holds plain numbers: nf4 and mxfp4 round them, method lora takes "
        "them as they are",
        s->recipe.source, s->recipe.model.name);
  const Coding coding = asked_coding(m);
  if (!s->model.quantization.empty() && !formats::config_coding(s->model, "weight"))
    fail_missing(
        "{}: {} is held in a layout of {} that qlora does not train on as it is, and another rounding would lose more: "
        "use the model that it was made from, or method lora",
        s->recipe.source, s->recipe.model.name, s->model.quantization);
  // A folder that is held in codes is taken as it is.
  s->coded.of = [coding, &model = s->model](const std::string& weight) {
    const auto said = formats::config_coding(model, weight);
    return said ? graph::SegmentCoding{said->coding, said->through} : graph::SegmentCoding{coding};
  };
  s->options.coded = &s->coded;
}

// A folder in codes is taken as it is, so what a recipe says of codes has no effect.
void say_unread_codes(const Setup& s) {
  const config::Method& m = s.recipe.train.method;
  if (m.kind != MethodKind::kQLora || m.quant_type == config::QuantType::kAsStored) return;
  const auto said = formats::config_coding(s.model, "weight");
  if (!said || said->coding == asked_coding(m)) return;
  for (const char* key : {"train.method.quant_bits", "train.method.quant_type", "train.method.double_quant"})
    if (s.recipe.is_given(key))
      log::info("{}: not read, for {} is held in {} already and taken as it is: remove it", key, s.recipe.model.name,
                name_of(said->coding));
}

// What base_precision fp8_e4m3 means for experts' matrices: held in E4M3, and decoded where they are multiplied.
void hold_experts_in_fp8(Setup* s) {
  s->coded.of = [](const std::string& weight) {
    const bool expert = weight.find(".experts.") != std::string::npos;
    return graph::SegmentCoding{expert ? Coding::kE4M3 : Coding::kNone};
  };
  s->options.coded = &s->coded;
}

// Why answers to one prompt do not have it once in a pass; empty: they do.
std::string why_unshared(const Setup& s) {
  if (!s.recipe.train.method.share_prompts) return "share_prompts: false";
  if (s.backend->prefixes != nullptr) {
    const bool windows =
        std::any_of(s.model.layers.begin(), s.model.layers.end(), [](const auto& layer) { return layer.window > 0; });
    if (!s.backend->prefixes(config::text_of(s.recipe.hardware.gfx_arch), s.model.head_dim, windows))
      return "attention that has it is slow on this device: heads of 128 without windows have a kernel for it on "
             "Hopper";
    // Measured: what a third of the tokens saves, attention loses.
    constexpr double kLeast = 0.4;
    const auto n = static_cast<double>(s.recipe.train.method.num_generations), row = static_cast<double>(s.seq_len),
               prompt = row - 1 - static_cast<double>(std::min(s.recipe.train.method.max_new_tokens, s.seq_len - 1)),
               saved = (n - 1) * prompt / (n * row);
    if (saved < kLeast)
      return fmt::format("it would save {:.0f} % of the tokens, and attention that has it costs more on this device",
                         100 * saved);
  }
  for (const graph::Op& op : s.training_graph().ops)
    if (const std::string_view why = graph::parts_documents(op); !why.empty()) return std::string(why);
  return {};
}

// More than about 2,048 tokens gain nothing on a CPU, but for a group that has its prompt once: it stays whole.
int64_t rows_for_host(const Setup& s) {
  constexpr int64_t kEnough = 2048;
  const int64_t most = s.recipe.train.batch.per_device, whole = s.whole_rows();
  int64_t rows = std::min(whole, most);
  while (rows + whole <= most && s.pass_tokens(rows + whole) <= kEnough) rows += whole;
  return rows;
}

// The names that a recipe has where it writes none: most families' modules.
bool has_usual_modules(const config::Lora& lora) {
  return lora.target_modules == config::Lora().target_modules ||
         lora.target_modules == config::default_method(MethodKind::kQLora).lora->target_modules;
}

// `all-linear` is the modules that it stands for, and so are the usual names over a family that has others.
config::Recipe with_modules(config::Recipe recipe, const formats::ModelConfig& model) {
  auto& lora = recipe.train.method.lora;
  if (!lora) return recipe;
  const std::vector<std::string> known = models::lora_modules(model);
  const auto has = [&](const std::string& m) { return std::find(known.begin(), known.end(), m) != known.end(); };
  if (lora->target_modules == std::vector<std::string>{"all-linear"}) {
    lora->target_modules = known;
  } else if (has_usual_modules(*lora) && !std::all_of(lora->target_modules.begin(), lora->target_modules.end(), has)) {
    log::info(
        "{}: train.method.target_modules: {} has other names than the usual ones: all its linear layers get "
        "adapters ({})",
        recipe.source, model.model_type, fmt::join(known, " "));
    lora->target_modules = known;
  } else if (has_usual_modules(*lora) && has("in_proj_qkv")) {
    log::info(
        "{}: train.method.target_modules: the usual names leave the gated delta layers' own products without "
        "adapters; all-linear adds them",
        recipe.source);
  }
  return recipe;
}

// Everything that follows from the recipe, once the model is known.
void fill(Setup* s, const config::Recipe& asked, const kernels::KernelPlan* plan) {
  s->recipe = with_modules(asked, s->model);
  const config::Recipe& recipe = s->recipe;
  s->type = recipe.train.precision == config::Precision::kFloat32 ? DType::kF32 : DType::kBF16;
  s->seq_len = recipe.data.seq_len;
  s->rows_per_step = recipe.train.batch.per_device * recipe.train.batch.grad_accum;

  check_frozen(recipe, s->model);
  const auto& method = recipe.train.method;
  if (method.lora) {
    s->has_lora = true;
    check_adapter(recipe, s->model);
    s->lora = lora_plan(recipe);
  }
  if (const auto m = make_method(method)) {
    s->sequences_per_row = m->sequences_per_row();
    s->options.head = m->head();
    s->options.logit_scale = m->logit_scale();
    s->options.entropy = m->wants_entropy();
  }

  s->backend = backend_of(recipe);
  s->options.type = s->type;
  s->options.relu2_products =
      s->backend->relu2_products != nullptr && s->backend->relu2_products(config::text_of(recipe.hardware.gfx_arch));
  s->options.train_base = !s->has_lora;
  s->options.train_vision = recipe.model.freeze.empty();
  s->options.pictures = recipe.model.vision;
  s->options.lora = s->has_lora ? &s->lora : nullptr;
  if (s->has_lora && recipe.train.base_precision == config::Precision::kFp8E4M3)
    s->options.base = s->backend->fp8_products ? graph::Storage::kFp8 : graph::Storage::kFakeQuant;
  if (recipe.train.precision == config::Precision::kFp8E4M3) {
    if (s->has_lora)
      fail_missing(
          "{}: train.precision fp8_e4m3 is for training every weight; a frozen base is multiplied so by "
          "train.base_precision: fp8_e4m3",
          recipe.source);
    if (s->model.num_experts > 0)
      fail_missing("{}: train.precision fp8_e4m3 is not built in for experts' matrices: write bfloat16", recipe.source);
    if (!s->backend->fp8_products)
      fail_missing("{}: train.precision fp8_e4m3: this device has no such products: write bfloat16", recipe.source);
    s->options.fp8_products = true;
  }
  if (method.kind == MethodKind::kQLora) hold_in_codes(s);
  s->options.embedding_noise = static_cast<float>(recipe.train.neftune_noise_alpha.value_or(0));
  s->options.positions = s->seq_len;
  if (s->options.base != graph::Storage::kPlain && s->model.num_experts > 0) hold_experts_in_fp8(s);
  s->options.balance_loss = recipe.train.method.router_aux_loss;
  if (const auto& m = recipe.train.method; (m.is_preference() || m.is_rl()) && s->model.output_router_logits)
    fail_missing(
        "{}: {} with the load-balancing loss that config.json asks for (output_router_logits) is not built in: set it "
        "to false there",
        recipe.source, config::text_of(m.kind));
  if (method.kind == MethodKind::kReward) formats::as_classifier(s->model);  // says where it could not be saved
  if (recipe.train.method.router_aux_loss && s->model.num_experts == 0)
    fail_input("{}: train.method.router_aux_loss: the model ({}) has no experts: leave it out", recipe.source,
               s->model.model_type);
  s->options.head_chunk = s->has_lora ? s->backend->head_chunk : s->backend->trained_head_chunk;
  s->packed_weights = s->backend->packs_weights && s->has_lora;
  if (method.is_rl() && method.num_generations > 1) {
    s->unshared = why_unshared(*s);
    s->share_prompts = s->unshared.empty();
  }
  // How many rows a pass takes and what it recomputes: the recipe's word, the plan's, or what suits the device.
  const int64_t per_device = recipe.train.batch.per_device;
  if (s->backend->own_memory)
    choose_for_card(*s);
  else
    set_pass(*s, rows_for_host(*s), graph::Recompute::kNone);
  if (recipe.train.micro_batch) set_pass(*s, std::min(*recipe.train.micro_batch, per_device), s->options.recompute);
  if (plan) {
    check_step_choices(*plan);
    Pass p = s->pass();
    if (auto it = plan->choices.find("step micro_batch"); it != plan->choices.end()) {
      p.micro_batch = plan_number(*plan, it->first);
      if (p.micro_batch > per_device)
        refuse_choice(*plan, it->first, fmt::format("the recipe has {} rows (train.batch.per_device)", per_device));
    }
    if (auto it = plan->choices.find("step recompute"); it != plan->choices.end())
      p.recompute = plan_recompute(*plan, it->first);
    set_pass(*s, p.micro_batch, p.recompute);
    const auto offload = plan->choices.find("step offload");
    s->offload = offload == plan->choices.end() ? runtime::Offload::kNone
                                                : plan_offload(*plan, offload->first, s->backend->own_memory);
    const auto weights = plan->choices.find("step weights");
    s->packed_weights =
        s->packed_weights && weights != plan->choices.end() && plan_packed_weights(*plan, weights->first);
  }
  if (s->has_lora) require_targets(*s);
  // Scoring reads the same parameters: what one graph joins the other must join.
  if (s->options.join_lora) {
    const graph::Graph &a = s->training_graph(), b = s->scoring_graph();
    for (size_t i = 0; i < a.params.size(); ++i)
      if (a.params[i].joined != b.params[i].joined) s->options.join_lora = false;
  }
}

}  // namespace

std::unique_ptr<Setup> make_setup(const config::Recipe& recipe, const std::string& model_path,
                                  const Vocabulary& vocabulary, const kernels::KernelPlan* plan, Reads reads) {
  require_supported(recipe);
  auto s = std::make_unique<Setup>();
  if (recipe.model.init == config::Init::kRandom) {
    std::error_code ec;
    const std::string& name = recipe.model.name;
    if (recipe.pretrain && recipe.pretrain->depth > 0 &&
        (fs::exists(name + "/config.json", ec) || (formats::is_gguf(name) && fs::exists(name, ec))))
      fail_input(
          "{}: pretrain.depth starts a new model from random weights, and model.name {} has weights, which would not "
          "be "
          "read: leave pretrain out to train those on, or give the new model a name of its own",
          recipe.source, name);
    s->model = random_config(recipe, vocabulary);
  } else if (reads == Reads::kConfig && !formats::is_gguf(model_path)) {
    s->model = formats::read_model_config(model_path);
  } else {
    s->weights = formats::WeightSource::open(model_path);
    s->model = s->weights->config();
    if (formats::is_gguf(model_path)) s->blocks = blocks_of(*s->weights);
  }
  if (s->model.tie_embeddings && parts_head(recipe)) {
    s->model.tie_embeddings = false;
    if (s->weights) s->weights = formats::WeightSource::untied(std::move(s->weights));
  }
  if (vocabulary.size > s->model.vocab_size)
    fail_input("{}: the tokenizer has {} ids but the model's vocabulary is {}: they do not belong together",
               recipe.source, vocabulary.size, s->model.vocab_size);
  if (const auto v = formats::vision_of(s->model); v && sees_pictures(recipe, s->model))
    s->processor = picture_sizes(
        image::read_processor(fs::is_directory(model_path) ? model_path : "", processor_defaults(*v)), recipe);
  fill(s.get(), recipe, plan);
  if (s->weights) checkpoint::check_base(s->training_graph(), *s->weights);  // before rows are prepared for it
  if (plan != nullptr) return s;  // what follows was said of the setup that the plan was made for
  say_beyond_peft(recipe, s->model);
  if (s->blocks && recipe.train.method.kind == MethodKind::kQLora &&
      recipe.train.method.quant_type != config::QuantType::kAsStored)
    log::info("{}: the file holds {} in few bits already, which are rounded once more; quant_type: as_stored does not",
              recipe.source, recipe.model.name);
  say_unread_codes(*s);
  return s;
}

std::unique_ptr<Setup> with_recipe(const Setup& s, const config::Recipe& recipe) {
  auto out = std::make_unique<Setup>();
  out->model = s.model;
  out->processor = s.processor;
  out->blocks = s.blocks;
  fill(out.get(), recipe, nullptr);
  return out;
}

runtime::ParamBytes param_bytes(const Setup& s, const graph::Graph& g) {
  return runtime::ParamStore::measure(g, true, optim::make_optimizer(s.recipe.train, g)->states());
}

int64_t Setup::pass_tokens(int64_t rows) const {
  if (!share_prompts) return rows * seq_len * sequences_per_row;
  const config::Method& m = recipe.train.method;
  const int64_t n = m.num_generations;
  const int64_t prompts = rows % n == 0 ? rows / n : n % rows == 0 ? 1 : (rows - 2) / n + 2;
  // The most where each answer is as long as it may be. Its first token is the prompt's last.
  const int64_t answer = std::min(m.max_new_tokens, seq_len - 1);
  return prompts * (seq_len - answer - 1) + rows * (answer + 1);
}

int64_t Setup::whole_rows() const { return share_prompts ? recipe.train.method.num_generations : 1; }

bool Setup::joins(graph::Recompute recompute) const {
  return recompute == graph::Recompute::kNone || options.base == graph::Storage::kFp8;
}

const graph::Graph& Setup::training_graph(graph::Recompute recompute) const {
  models::BuildOptions o = options;
  o.recompute = recompute;
  o.join_lora = options.join_lora && joins(recompute);
  for (const auto& b : built_)
    if (b->options == o) return b->graph;
  const auto named = [](graph::Recompute r) { return r.tensors <= 0 || r == graph::Recompute::kLayer; };
  if (!named(recompute)) std::erase_if(built_, [&](const auto& b) { return !named(b->options.recompute); });
  built_.push_back(std::make_unique<Built>(Built{o, models::build(model, o)}));
  return built_.back()->graph;
}

std::vector<graph::Recomputable> Setup::recompute_order() const {
  models::BuildOptions o = options;
  o.recompute = graph::Recompute::kNone;
  o.join_lora = false;
  return graph::recompute_order(models::build(model, o), seq_len);
}

graph::Graph Setup::scoring_graph() const {
  models::BuildOptions o = options;
  o.purpose = models::Purpose::kScore;
  o.recompute = graph::Recompute::kNone;
  o.head_chunk = backend->scoring_head_chunk;
  return models::build(model, o);
}

image::Processor picture_sizes(image::Processor p, const config::Recipe& recipe) {
  const config::Pictures& said = recipe.data.pictures;
  p.min_pixels = said.min_pixels.value_or(p.min_pixels);
  p.max_pixels = said.max_pixels.value_or(p.max_pixels);
  if (p.min_pixels > p.max_pixels)
    fail_input(
        "{}: data.pictures: pictures of at least {} and at most {} pixels cannot be (one of the two is the model's "
        "own): give both",
        recipe.source, p.min_pixels, p.max_pixels);
  return p;
}

formats::ModelConfig random_config(const config::Recipe& r, const Vocabulary& vocabulary) {
  OrderedJson j;
  std::string source = r.source;
  if (!r.model.config.path.empty()) {
    source = r.model.config.path;
    j = parse_ordered_json(read_file(source), source);
  } else {
    j = parse_ordered_json(r.model.config.json, r.source);
  }
  if (vocabulary.size > 0 && j.is_object()) {
    if (!j.contains("vocab_size")) j["vocab_size"] = vocabulary.size;
    OrderedJson& text = j.contains("text_config") && j["text_config"].is_object() ? j["text_config"] : j;
    for (const auto& [key, id] : {std::pair{"bos_token_id", vocabulary.bos}, {"eos_token_id", vocabulary.eos}})
      if (!text.contains(key) && !j.contains(key)) text[key] = id >= 0 ? OrderedJson(id) : OrderedJson();
  }
  return formats::parse_model_config(j, source);
}

int64_t total_steps(const config::Recipe& recipe, int64_t rows, int64_t rows_per_step) {
  const auto& s = recipe.train.schedule;
  if (s.max_steps) return *s.max_steps;
  if (rows == 0)
    fail_input("{}: train.schedule.max_steps: random windows have no epochs: say how many steps to train",
               recipe.source);
  const auto& m = recipe.train.method;
  const int64_t again = m.is_rl() ? steps_per_batch(m) : 1;  // steps on the same answers
  return s.epochs * again * ((rows + rows_per_step - 1) / rows_per_step);
}

bool evaluates(const config::Recipe& recipe, const std::string& data_folder) {
  return recipe.train.eval_every.has_value() && data::has_part(data_folder, "eval");
}

}  // namespace mxt::train

#include "export/limits.h"

#include <algorithm>

#include "base/error.h"
#include "formats/family.h"

namespace mxt::exporting {
namespace {

using K = config::MethodKind;

// A part of a recipe that some trainers lack: how it is called in refuse(), its key, whether the recipe has it.
struct Part {
  std::string_view name, key, what;
  bool (*used)(const config::Recipe&);
};

const Part kParts[] = {
    {"lora_plus", "train.method.lora_plus", "give A and B rates of their own",
     [](const config::Recipe& r) { return r.train.method.lora && r.train.method.lora->lora_plus != 1; }},
    {"rslora", "train.method.use_rslora", "scale by alpha/sqrt(r)",
     [](const config::Recipe& r) { return r.train.method.lora && r.train.method.lora->use_rslora; }},
    {"init_adapter", "train.method.init_adapter", "start from an adapter by its settings",
     [](const config::Recipe& r) { return r.train.method.lora && r.train.method.lora->init_adapter.has_value(); }},
    {"dropout", "train.method.dropout", "drop out inside an adapter",
     [](const config::Recipe& r) { return r.train.method.lora && r.train.method.lora->dropout > 0; }},
    {"eight_bit", "train.method.quant_bits", "hold the base in FP8",
     [](const config::Recipe& r) { return r.train.method.quant_bits == 8; }},
    {"mxfp4", "train.method.quant_type", "train beside a base in MXFP4, or as its file holds it",
     [](const config::Recipe& r) {
       return r.train.method.quant_bits == 4 && r.train.method.quant_type != config::QuantType::kNf4;
     }},
    {"scales_in_fp32", "train.method.double_quant", "hold the scales of a base in NF4 in fp32",
     [](const config::Recipe& r) { return r.train.method.kind == K::kQLora && !r.train.method.double_quant; }},
    {"other_than_bfloat16", "train.precision", "train in another type than bfloat16",
     [](const config::Recipe& r) { return r.train.precision != config::Precision::kBFloat16; }},
    {"router_aux_loss", "train.method.router_aux_loss", "weigh the router's balance otherwise than its config.json",
     [](const config::Recipe& r) { return r.train.method.router_aux_loss.has_value(); }},
    {"muon", "train.optimizer.name", "run Muon as this program does",
     [](const config::Recipe& r) { return r.train.optimizer.name == config::OptimizerName::kMuon; }},
    {"grouped", "train.method.lora", "train an adapter under this method",
     [](const config::Recipe& r) {
       return r.train.method.lora && r.train.method.kind != K::kLora && r.train.method.kind != K::kQLora;
     }},
    {"packing", "data.packing", "pack rows", [](const config::Recipe& r) { return r.data.packing; }},
    {"chat_template", "model.chat_template", "take a chat template from a file",
     [](const config::Recipe& r) { return r.model.chat_template.has_value(); }},
    {"tokenizer", "model.tokenizer", "take another tokenizer than the model's",
     [](const config::Recipe& r) { return r.model.tokenizer.has_value(); }},
    {"revision", "model.revision", "take a revision",
     [](const config::Recipe& r) { return r.model.revision.has_value(); }},
};

}  // namespace

bool is_all_linear(const config::Lora& lora) { return lora.target_modules == std::vector<std::string>{"all-linear"}; }

std::vector<std::string> linear_modules(const config::Lora& lora) {
  return is_all_linear(lora) ? config::Lora().target_modules : lora.target_modules;
}

void cannot(const Job& job, std::string_view title, std::string_view key, const std::string& what) {
  fail_missing("{}: {}: {} cannot {}: train it here (mindxtrain run), or change the recipe", job.recipe.source, key,
               title, what);
}

void refuse_variants(const config::Recipe& r, std::string_view title, Names has) {
  const auto no = [&](bool asked, std::string_view key, const char* what) {
    if (asked && std::find(has.begin(), has.end(), key.substr(key.rfind('.') + 1)) == has.end())
      fail_missing(
          "{}: {}: {}: this program does not write that for {}: train it here (mindxtrain run), or leave it out",
          r.source, key, what, title);
  };
  no(!r.model.freeze.empty(), "model.freeze", "frozen parts");
  no(r.data.pictures.min_pixels || r.data.pictures.max_pixels, "data.pictures", "sizes of pictures");
  no(r.data.loss_weights.has_value(), "data.loss_weights", "weights on the parts of a tool call");
  no(r.data.tools_in != config::ToolsIn::kTemplate, "data.tools_in", "tools as text");
  no(!r.train.method.tools.empty(), "train.method.tools", "tools that answer sampled calls");
  no(r.train.neftune_noise_alpha.has_value(), "train.neftune_noise_alpha", "noise on embeddings");
  if (!r.train.method.lora) return;
  const config::Lora& l = *r.train.method.lora;
  no(l.use_dora, "train.method.use_dora", "DoRA");
  no(l.init_lora_weights != config::LoraInit::kDefault, "train.method.init_lora_weights", "another start");
  no(l.bias != config::LoraBias::kNone, "train.method.bias", "trained biases");
  no(!l.modules_to_save.empty(), "train.method.modules_to_save", "modules trained whole");
  no(!l.layers_to_transform.empty(), "train.method.layers_to_transform", "adapters on some layers");
  no(!l.rank_pattern.empty(), "train.method.rank_pattern", "ranks by module");
  no(!l.alpha_pattern.empty(), "train.method.alpha_pattern", "alphas by module");
}

void refuse_own(const Job& job, std::string_view title, Names has) {
  const config::Recipe& r = job.recipe;
  if (r.pretrain || r.train.method.kind == K::kPretrain || r.model.init == config::Init::kRandom)
    cannot(job, title, "model.init", "start from random weights by these settings");
  refuse_variants(r, title, has);
  if (r.train.rollouts.path) cannot(job, title, "train.rollouts", "take rollouts from a file");
  if (r.data.sampling == config::Sampling::kRandomWindows) cannot(job, title, "data.sampling", "draw random windows");
  if (r.data.pack == config::Pack::kBosCrop) cannot(job, title, "data.pack", "crop documents to fill rows");
  if (r.data.packing && r.data.boundaries == config::Boundaries::kRow)
    cannot(job, title, "data.boundaries", "let attention cross documents as it does here");
  for (const auto& [key, p] :
       {std::pair{"train.precision", r.train.precision}, std::pair{"train.base_precision", r.train.base_precision}})
    if (p == config::Precision::kFp8E4M3 || p == config::Precision::kMxfp4)
      cannot(job, title, key, "multiply in " + std::string(config::text_of(p)) + " as this program does");
  if (r.train.method.lora && r.train.method.lora->init_adapter &&
      r.train.method.lora->init_adapter->starts_with("recipe:"))
    cannot(job, title, "train.method.init_adapter", "run the recipe before it");
  // Code from a model's folder would have to be run, which no recipe of ours allows.
  if (const formats::Family* f = formats::family_of_type(job.base.family); f && f->own_code)
    cannot(job, title, "model.name", "load the family " + job.base.family + " as this program does");
}

void need_method(const Job& job, std::string_view title, std::initializer_list<K> has) {
  const K kind = job.recipe.train.method.kind;
  if (std::find(has.begin(), has.end(), kind) == has.end())
    cannot(job, title, "train.method.kind", "train by " + std::string(config::text_of(kind)) + " from its settings");
}

void need_form(const Job& job, std::string_view title, std::initializer_list<Form> reads) {
  if (std::find(reads.begin(), reads.end(), job.rows.form) == reads.end())
    cannot(job, title, "data", "read rows of " + std::string(name_of(job.rows.form)) + " for this method");
}

void refuse(const Job& job, std::string_view title, Names lacks) {
  for (const Part& p : kParts)
    if (std::find(lacks.begin(), lacks.end(), p.name) != lacks.end() && p.used(job.recipe))
      cannot(job, title, p.key, std::string(p.what));
}

void list_stages(const Job& job, Settings* s) {
  const config::Recipe& r = job.recipe;
  const auto stage = [&](bool there, const char* name) {
    if (there)
      s->absent.push_back(fmt::format("{}: no stage of a trainer; `mindxtrain {}` does it afterwards", name, name));
  };
  stage(r.eval.has_value(), "eval");
  stage(r.quantize && r.quantize->enabled, "quantize");
  stage(r.serve.has_value(), "serve");
  stage(r.publish && r.publish->enabled, "publish");
  if (!r.train.env.empty() && !s->yaml.contains("env")) {
    std::string all;
    for (const auto& [name, value] : r.train.env) all += fmt::format("{}{}={}", all.empty() ? "" : ", ", name, value);
    s->differs.push_back("train.env: the settings have no place for it, set it where it is started: " + all);
  }
  if (r.train.neftune_noise_alpha)
    s->differs.push_back(
        "train.neftune_noise_alpha: noise is up to alpha / sqrt(L * width) with L the length of a row there, its "
        "padding "
        "or all that is packed into it included; here L is the document's");
  s->absent.push_back("autotune, receipt: there is no plan and no receipt there");
}

}  // namespace mxt::exporting

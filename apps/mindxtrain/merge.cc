#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/weights.h"
#include "formats/classifier.h"
#include "formats/peft.h"
#include "formats/weight_source.h"
#include "infer/model.h"
#include "infer/reward_model.h"
#include "left_out.h"
#include "model_files.h"
#include "verbs.h"

namespace mxt::app {

namespace {

// The base's own type of a tensor; of what it holds in codes or blocks, or has not, the one that most of it is in.
DType own_type(const formats::WeightSource& base, bool coded, const std::string& name) {
  if (!base.has(name)) return base.held_type();
  const DType stored = base.stored_type(name);
  if (stored == DType::kF16 || stored == DType::kBF16) return stored;
  // What is decoded is said to be F32, too.
  const bool plain = stored == DType::kF64 || (stored == DType::kF32 && (!coded || !base.mapped(name, stored).empty()));
  return plain ? DType::kF32 : base.held_type();
}

}  // namespace

void add_merge(CLI::App& app) {
  auto* c = app.add_subcommand("merge",
                               "an adapter into its base, as a Hugging Face folder\nexample: mindxtrain merge --model "
                               "DIR --adapter out/run1/checkpoint --out merged");
  struct Options {
    std::string model, adapter, out, dtype;
  };
  auto o = std::make_shared<Options>();
  c->add_option("--model", o->model, "base: folder, .gguf file or Hub id (or ID@REVISION)")->required();
  c->add_option("--adapter", o->adapter, "PEFT folder")->required();
  c->add_option("--out", o->out, "folder to write")->required();
  c->add_option("--dtype", o->dtype, "of the written weights (default: each its own in the base)");
  c->callback([o] {
    set_threads(0);
    const std::string path = resolve_model(o->model, std::nullopt);
    std::error_code ec;
    for (const std::string& given : {path, o->adapter})
      if (fs::equivalent(given, o->out, ec))
        fail_input("--out {}: the merged model would overwrite what it is made of: choose another folder", o->out);
    const auto base = formats::WeightSource::open(path);
    const DType type = o->dtype.empty() ? base->held_type() : parse_dtype(o->dtype);
    // Merged in fp32 and rounded once.
    constexpr int64_t kLongest = 64;
    std::unique_ptr<infer::Model> writer;
    std::unique_ptr<infer::RewardModel> judge;
    if (formats::is_classifier(base->config()) ||
        formats::Adapter::open(o->adapter).replaced().contains(formats::kScoreWeight))
      judge = std::make_unique<infer::RewardModel>(path, o->adapter, DType::kF32, kLongest, kernels::cpu_ops());
    else
      writer = std::make_unique<infer::Model>(path, o->adapter, DType::kF32, kLongest, kernels::cpu_ops());
    const graph::Graph& graph = judge ? judge->graph() : writer->graph();
    runtime::ParamStore& params = judge ? judge->params() : writer->params();
    const bool coded = formats::is_gguf(path) || !base->config().quantization.empty();
    std::set<std::string_view> types;
    const auto written = [&](const std::string& name) {
      const DType t = o->dtype.empty() ? own_type(*base, coded, name) : type;
      types.insert(name_of(t));
      return t;
    };
    const checkpoint::MergeCost cost = checkpoint::merge_adapter(graph, params, written);
    constexpr const char* kMade = "/merged.json";
    if (fs::is_directory(o->out) && !fs::is_empty(o->out) && !fs::exists(o->out + kMade))
      fail_input("{}: this folder holds something else: choose another --out", o->out);
    std::string out = o->out;
    while (out.size() > 1 && out.ends_with('/')) out.pop_back();
    const UnfinishedFolder folder(out);
    // What is left as it was is computed with as it was.
    const DType said = o->dtype.empty() ? base->config().dtype.value_or(type) : type;
    checkpoint::save_model(folder.path(), graph, params,
                           judge ? formats::as_classifier(judge->config()) : writer->config(), said, written);
    // Merging reads no text: whatever tokenizer the base has goes along as it is.
    if (formats::is_gguf(path))
      save_text_side(load_text_side(path), folder.path());
    else if (!copy_text_files(path, folder.path()))
      log::info("{}: has no tokenizer files, so {} has none either", path, o->out);
    if (const std::string own = o->adapter + "/chat_template.jinja"; fs::is_regular_file(own))
      write_file_atomic(folder.path() + "/chat_template.jinja", read_file(own));
    write_file_atomic(folder.path() + kMade, OrderedJson{{"base", o->model}, {"adapter", o->adapter}}.dump(2) + "\n");
    replace_folder(folder.path(), out);
    say_left_out(graph, *base, o->out);
    log::info(
        "merged in float32, written as {}{}: rounding moves the adapted weights by {:.2g} % of what the adapter does",
        fmt::join(types, ", "), types.size() > 1 ? ", each tensor as the base has it" : "",
        cost.change > 0 ? 100 * std::sqrt(cost.rounding / cost.change) : 0.0);
    std::printf("%s\n", o->out.c_str());
  });
}

}  // namespace mxt::app

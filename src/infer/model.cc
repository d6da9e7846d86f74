#include "infer/model.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/adapter.h"
#include "checkpoint/weights.h"
#include "formats/family.h"
#include "formats/peft.h"
#include "formats/vision.h"

namespace mxt::infer {

Model::Model(const std::string& path, const std::string& adapter, DType type, int64_t positions, kernels::Ops& ops,
             Weights weights)
    : ops_(ops), source_(formats::WeightSource::open(path)), config_(source_->config()), weights_(weights) {
  options_.type = type;
  options_.purpose = models::Purpose::kGenerate;
  // LongRoPE turns by other frequencies beyond its original maximum, for short texts too: only where it is asked for.
  const formats::RopeScaling& rope = config().rope_scaling;
  const int64_t usual = rope.kind == formats::RopeScaling::Kind::kLongRope ? rope.original_max_positions : 8192;
  options_.positions = std::min(positions > 0 ? positions : usual, config().max_positions);
  // One that reaches beyond the layers' linear modules is added to the weights as they are read.
  const bool merged = !adapter.empty() && !formats::Adapter::open(adapter).beyond_layers().empty();
  if (merged) {
    source_ = formats::WeightSource::with_adapter(std::move(source_), adapter);
    config_ = source_->config();  // head and embedding may be two now
  }
  const bool beside = !adapter.empty() && !merged;
  if (beside) {
    lora_ = checkpoint::adapter_plan(adapter, config().family);
    options_.lora = &lora_;
  }
  // A tower that may be left out is there where its weights are; no device computes it.
  options_.pictures = config().family->optional_vision && !ops.device() &&
                      source_->has("model.visual.patch_embed.proj.weight") && formats::vision_of(config());
  graph_ = models::build(config(), options_);
  models::BuildOptions score = options_;
  score.purpose = models::Purpose::kScore;
  score_graph_ = models::build(config(), score);
  for (graph::Graph* g : {&graph_, &score_graph_}) round_inputs(*g);
  std::vector<const kernels::BlockMatrix*> blocks;
  if (weights == Weights::kAsStored && !ops.device()) {
    // With bf16 products of its own the processor does better on plain matrices.
    blocks_ = checkpoint::load_blocks(graph_, *source_, !kernels::cpu_features().avx512_bf16);
    for (const auto& b : blocks_.matrices) blocks.push_back(b.get());
  }
  params_ = std::make_unique<runtime::ParamStore>(graph_, false, ops.device(), runtime::Offload::kNone,
                                                  runtime::States{}, blocks);
  store_ = params_.get();
  checkpoint::load_base(graph_, *params_, *source_);
  if (beside) checkpoint::load_adapter(adapter, graph_, *store_, nullptr, config().family);
  if (weights == Weights::kForMany && !ops.device()) pack();
}

models::BuildOptions Model::generation(models::BuildOptions options, int64_t positions) {
  options.purpose = models::Purpose::kGenerate;
  options.head = models::Head::kLoss;
  options.recompute = graph::Recompute::kNone;
  options.positions = positions;
  return options;
}

Model::Model(const formats::ModelConfig& config, const models::BuildOptions& options, runtime::ParamStore& live,
             int64_t positions, kernels::Ops& ops)
    : ops_(ops), config_(config), options_(generation(options, positions)), weights_(Weights::kDecoded), store_(&live) {
  graph_ = models::build(config_, options_);
  models::BuildOptions score = options_;
  score.purpose = models::Purpose::kScore;
  score_graph_ = models::build(config_, score);
}

namespace {
int panels_of(const kernels::Ops& ops) {
  const auto names = ops.gemm_algorithms();
  return static_cast<int>(std::find(names.begin(), names.end(), "panels") - names.begin());
}
}  // namespace

int64_t Model::packed_bytes(const graph::Graph& g, kernels::Ops& ops, int64_t free) {
  const int64_t n = runtime::ParamStore::packed_bytes(g, ops, panels_of(ops));
  return n <= free / 2 ? n : 0;
}

// The plain weights serve where it does not fit.
void Model::pack() {
  if (packed_bytes(graph_, ops_, static_cast<int64_t>(device::available_host_bytes())) == 0) return;
  params_->pack_frozen(graph_, ops_, panels_of(ops_));
  packed_weights_ = true;
}

Model::~Model() = default;

// A quantized folder runs as its layout defines: inputs of its products are rounded as the weights were.
void Model::round_inputs(graph::Graph& g) const {
  const auto rounding = [](const void* from, const std::string& weight) {
    const auto& source = *static_cast<const formats::WeightSource*>(from);
    for (const std::string& name : models::spellings(source.config(), weight))  // as the weight itself was found
      if (source.has(name)) return static_cast<graph::Rounding>(source.input_rounding(name));
    return graph::Rounding::kNone;
  };
  static_assert(static_cast<int>(graph::Rounding::kMxfp4) == static_cast<int>(formats::InputRounding::kMxfp4));
  if (source_) graph::round_inputs(g, rounding, source_.get());
}

struct Model::Adapter {
  models::LoraPlan lora;
  graph::Graph graph;
  std::unique_ptr<runtime::ParamStore> params;
};

int Model::add_adapter(const std::string& folder) {
  MXT_ASSERT(options_.lora == nullptr);
  auto a = std::make_unique<Adapter>();
  a->lora = checkpoint::adapter_plan(folder, config().family);
  models::BuildOptions o = options_;
  o.lora = &a->lora;
  a->graph = models::build(config(), o);
  round_inputs(a->graph);
  a->params = std::make_unique<runtime::ParamStore>(a->graph, *store_);
  checkpoint::load_adapter(folder, a->graph, *a->params, nullptr, config().family);
  adapters_.push_back(std::move(a));
  return adapters() - 1;
}

// Products whose results for a token do not depend on how many others there are.
void Model::plan(const graph::Graph& g, const runtime::ProgramSettings& settings) {
  const auto names = ops_.gemm_algorithms();
  const auto offered = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  // Many tokens at once pay for packing, and with AVX-512's bf16 products even one does.
  const bool few = settings.cached && weights_ != Weights::kForMany && !kernels::cpu_features().avx512_bf16;
  const char* choice = offered("thin") ? "thin" : few && offered("rows") ? "rows" : "panels";
  if (!offered(choice)) return;
  for (const auto& t : runtime::Program(g, plan_, ops_, settings).tunables())
    if (std::holds_alternative<kernels::Gemm>(t.call)) plan_.choices[t.key] = choice;
}

std::unique_ptr<runtime::Program> Model::generator(int64_t max_tokens, int adapter) {
  const graph::Graph& g = adapter < 0 ? graph_ : adapters_[static_cast<size_t>(adapter)]->graph;
  const runtime::ProgramSettings settings{max_tokens, 0, true, 0, packed_weights_};
  plan(g, settings);
  auto p = std::make_unique<runtime::Program>(g, plan_, ops_, settings);
  p->allocate(adapter < 0 ? *store_ : *adapters_[static_cast<size_t>(adapter)]->params);
  return p;
}

std::unique_ptr<runtime::Program> Model::scorer(int64_t max_tokens) {
  const runtime::ProgramSettings settings{max_tokens, 0, false, 0, packed_weights_};
  plan(score_graph_, settings);
  auto p = std::make_unique<runtime::Program>(score_graph_, plan_, ops_, settings);
  p->allocate(*store_);
  return p;
}

std::vector<float> Model::see(const Shown& shown) {
  const graph::Pictures &whole = score_graph_.pictures, &given = graph_.pictures;
  MXT_ASSERT(whole.merge > 0 && given.features > 0);
  if (!tower_) {
    models::BuildOptions o = options_;
    o.purpose = models::Purpose::kPictures;
    tower_ = std::make_unique<graph::Graph>(models::build(config_, o));
    round_inputs(*tower_);
  }
  const int64_t width = config_.hidden_size, patches = whole.merge * whole.merge;
  std::vector<float> out, level;
  const float* pixels = shown.pixels.data();
  for (const runtime::PlacedPicture& p : shown.pictures) {
    const int64_t tokens = p.tokens(whole.merge);
    const runtime::ProgramSettings settings{tokens, 0, false, 0, packed_weights_};
    plan(*tower_, settings);
    runtime::Program program(*tower_, plan_, ops_, settings);
    program.allocate(*store_);
    std::vector<int32_t> ids(static_cast<size_t>(tokens), 0), rows(static_cast<size_t>(tokens));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
    const int32_t grid[] = {p.rows, p.columns}, cu[] = {0, static_cast<int32_t>(tokens)};
    const runtime::PictureBatch picture{1, tokens, grid, pixels, nullptr, rows.data()};
    runtime::Batch b;
    b.tokens = tokens;
    b.ids = ids.data();
    b.positions = rows.data();
    b.cu_seqlens = cu;
    b.documents = 1;
    b.pictures = &picture;
    program.run(b);
    const size_t first = out.size();
    out.resize(first + static_cast<size_t>(tokens * given.features));
    for (size_t l = 0; l < tower_->features.size(); ++l) {
      level.resize(static_cast<size_t>(tokens * width));
      program.read(tower_->features[l], level.data());
      for (int64_t t = 0; t < tokens; ++t)
        std::copy_n(level.data() + t * width, width,
                    out.data() + first + static_cast<size_t>(t * given.features + static_cast<int64_t>(l) * width));
    }
    pixels += tokens * patches * whole.values;
  }
  return out;
}

}  // namespace mxt::infer

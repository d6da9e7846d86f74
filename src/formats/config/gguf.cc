#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "formats/arch/families.h"

namespace mxt::formats {
namespace {

// Llama 3's frequency division as transformers' _compute_llama3_parameters: per frequency, 1 for short wave lengths,
// `factor` for long ones, smooth between.
double llama3_divisor(double inv_freq, const RopeScaling& r) {
  const double original = static_cast<double>(r.original_max_positions);
  const double wavelength = 2 * std::numbers::pi / inv_freq;
  if (wavelength < original / r.high_freq_factor) return 1.0;
  if (wavelength > original / r.low_freq_factor) return r.factor;
  const double smooth = (original / wavelength - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return 1.0 / ((1 - smooth) / r.factor + smooth);
}

// llama.cpp bakes Llama 3's scaling into a tensor of divisors, one per pair. The parameters are found again by trying
// the ones that are published, so that a config.json can say them; other divisors are taken as they stand.
RopeScaling scaling_from_divisors(const Gguf& g, const GgufTensor& t, const ModelConfig& c) {
  if (t.columns() != c.head_dim / 2 || t.rows() != 1)
    fail_input("{}: rope_freqs.weight holds {} values, not {}", g.path(), t.columns(), c.head_dim / 2);
  std::vector<float> divisors(static_cast<size_t>(t.columns()));
  g.dequantize(t, divisors.data());
  RopeScaling r;
  r.kind = RopeScaling::Kind::kLlama3;
  r.factor = 1;
  for (float f : divisors) r.factor = std::max(r.factor, static_cast<double>(f));
  r.low_freq_factor = 1;
  r.high_freq_factor = 4;
  r.original_max_positions = 8192;
  bool same = true, ones = true;
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double inv = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
    const double want = llama3_divisor(inv, r);
    same = same && std::abs(static_cast<double>(divisors[i]) - want) <= 1e-4 * want;
    ones = ones && divisors[i] == 1.0f;
  }
  if (ones) return {};
  if (same) return r;
  for (float f : divisors)
    if (!(f > 0 && std::isfinite(f))) fail_input("{}: rope_freqs.weight holds {}: divisors are wanted", g.path(), f);
  RopeScaling other;
  other.kind = RopeScaling::Kind::kDivisors;
  other.divisors = std::move(divisors);
  return other;
}

RopeScaling scaling_from_keys(const Gguf& g, const ArchKeys& k, const Family& f) {
  RopeScaling r;
  const std::string* type = g.text(k.key("rope.scaling.type"));
  if (!type || *type == "none") return r;
  if (*type == "linear")
    r.kind = RopeScaling::Kind::kLinear;
  else if (*type == "yarn")
    r.kind = RopeScaling::Kind::kYarn;
  else
    fail_missing("{}: rotary scaling of type \"{}\" is not built in for GGUF: none, linear and yarn are", g.path(),
                 *type);
  r.factor = k.number("rope.scaling.factor", 1.0, 1e-6, 1e6);
  r.original_max_positions = k.find("rope.scaling.original_context_length", 1, int64_t{1} << 40).value_or(0);
  if (r.kind != RopeScaling::Kind::kYarn) return r;
  r.beta_fast = k.number("rope.scaling.yarn_beta_fast", 32, 1e-6, 1e6);
  r.beta_slow = k.number("rope.scaling.yarn_beta_slow", 1, 1e-6, 1e6);
  r.truncate = f.gguf_yarn_truncates;
  return r;
}

void read_sizes(const Gguf& g, const ArchKeys& k, const Family& f, ModelConfig& c) {
  c.hidden_size = k.need("embedding_length", 1, kMaxWidth);
  // Layers that guess further tokens are counted with the others, behind them.
  const int64_t ahead = k.find("nextn_predict_layers", 0, kMaxLayers).value_or(0);
  c.num_layers = k.need("block_count", 1 + ahead, kMaxLayers) - ahead;
  c.num_heads = k.need("attention.head_count", 1, kMaxCount);
  c.num_kv_heads = k.find("attention.head_count_kv", 1, kMaxCount).value_or(c.num_heads);
  // Of a model of experts alone it may be left out.
  c.intermediate_size = f.num_experts > 0 ? k.find("feed_forward_length", 0, kMaxWidth).value_or(0)
                                          : k.need("feed_forward_length", 0, kMaxWidth);
  c.max_positions = k.need("context_length", 1, int64_t{1} << 40);
  const auto key_length = k.find("attention.key_length", 1, kMaxCount),
             value_length = k.find("attention.value_length", 1, kMaxCount);
  if (key_length && value_length && *key_length != *value_length)
    fail_missing("{}: keys of {} and values of {} are not built in", g.path(), *key_length, *value_length);
  c.head_dim = key_length.value_or(c.hidden_size / c.num_heads);
  if (const auto rotated = k.find("rope.dimension_count", 1, kMaxCount); rotated && *rotated != c.head_dim)
    c.partial_rotary_factor = static_cast<double>(*rotated) / static_cast<double>(c.head_dim);
  if (c.partial_rotary_factor > 1) fail_input("{}: rope.dimension_count is larger than the heads", g.path());
  if (const int64_t rotated = stated_rotary(c); rotated % 2 != 0)
    fail_input("{}: rope.dimension_count {} is odd: coordinates turn in pairs", g.path(), rotated);
  const GgufTensor* embedding = g.find("token_embd.weight");
  if (!embedding) fail_input("{}: has no tensor token_embd.weight: it is no language model", g.path());
  c.vocab_size = embedding->rows();
  if (c.vocab_size > std::numeric_limits<int32_t>::max())
    fail_input("{}: a vocabulary of {} is out of range", g.path(), c.vocab_size);
  if (const auto* tokens = g.strings("tokenizer.ggml.tokens");
      tokens && static_cast<int64_t>(tokens->size()) > c.vocab_size)
    fail_input("{}: {} tokens but {} embedding rows: tokenizer and weights do not belong together", g.path(),
               tokens->size(), c.vocab_size);
}

// Where the file states a window, and it is less than the context.
int64_t window_of(const ArchKeys& k) {
  const int64_t window = k.find("attention.sliding_window", 0, kMaxTokens).value_or(0);
  return window < k.need("context_length", 1, int64_t{1} << 40) ? window : 0;
}

// Of families whose windows llama.cpp does not follow. What a file states is the model's all the same.
void read_windows(const ArchKeys& k, ModelConfig& c) {
  const int64_t window = window_of(k);
  if (window == 0) return;
  if (c.family->windows == Windows::kNone)
    fail_missing("{}: key \"{}\" is {}: windows of {} models are not built in", k.file().path(),
                 k.key("attention.sliding_window"), window, c.model_type);
  const std::string pattern = k.key("attention.sliding_window_pattern");  // a switch for each layer
  const auto slides = k.file().find_value(pattern) ? k.list("attention.sliding_window_pattern") : std::nullopt;
  if (slides && slides->size() != c.layers.size())
    fail_input("{}: key \"{}\" must hold one value for each of the {} layers", k.file().path(), pattern, c.num_layers);
  for (size_t i = 0; i < c.layers.size(); ++i) c.layers[i].window = !slides || (*slides)[i] != 0 ? window : 0;
  if (c.family->windows != Windows::kSwitch && sliding_layers(c) != c.num_layers)
    fail_missing("{}: key \"{}\": {} models with layers that do not slide are not built in", k.file().path(), pattern,
                 c.model_type);
}

int64_t id_or_none(const Gguf& g, std::string_view key, int64_t vocabulary) {
  const int64_t id = g.integer(key).value_or(-1);
  return id < 0 || id >= vocabulary ? -1 : id;
}

// Tied where there is no output tensor, or where it repeats the embedding byte by byte (older converters).
bool is_tied(const Gguf& g) {
  const GgufTensor *out = g.find("output.weight"), *embedding = g.find("token_embd.weight");
  if (!out) return true;
  if (out->type != embedding->type || out->bytes != embedding->bytes) return false;
  return std::memcmp(g.bytes(*out).data(), g.bytes(*embedding).data(), out->bytes) == 0;
}

}  // namespace

ModelConfig model_config_from_gguf(const Gguf& g) {
  const std::string* arch = g.text("general.architecture");
  if (!arch) fail_input("{}: key \"general.architecture\" is missing: the file holds no model", g.path());
  const Family* f = family_of_gguf(*arch);
  if (*arch == "clip")
    fail_input("{}: is the part of a model that sees pictures (mmproj): name the file of its language model", g.path());
  if (!f)
    fail_missing("{}: GGUF models of architecture \"{}\" are not built in: {} are", g.path(), *arch,
                 known_gguf_architectures());
  const ArchKeys k(g, *arch);
  // llama.cpp calls both llama.
  if (f == &kLlama && window_of(k) > 0 && !g.find("blk.0.attn_q.bias")) f = &kMistral;
  ModelConfig c;
  c.family = f;
  c.model_type = f->model_type;
  c.architecture = f->architecture;
  read_sizes(g, k, *f, c);
  c.norm_eps = k.number(f->gguf_eps_key, f->norm_eps, 0, 1);
  c.activation = f->activation;
  c.resid_pdrop = c.embd_pdrop = c.attn_pdrop = f->dropout;  // transformers' default; the file does not say
  if (f->rope_theta == 0) {
    c.partial_rotary_factor = 1.0;
  } else {
    c.rope_theta = k.number("rope.freq_base", 10000.0, 1e-3, 1e15);
    const GgufTensor* divisors = g.find("rope_freqs.weight");
    c.rope_scaling = divisors ? scaling_from_divisors(g, *divisors, c) : scaling_from_keys(g, k, *f);
  }
  if (f->num_experts == 0 && k.find("expert_count", 0, kMaxCount).value_or(0) > 0)
    fail_missing("{}: mixtures of experts of architecture \"{}\" are not built in", g.path(), *arch);
  c.layers.resize(static_cast<size_t>(c.num_layers));
  if (f->read_gguf) f->read_gguf(k, c);
  if (!f->gguf_windows) read_windows(k, c);
  if (c.intermediate_size == 0) fail_input("{}: key \"{}\" is 0", g.path(), k.key("feed_forward_length"));
  c.tie_embeddings = is_tied(g);
  c.attention_bias = g.find("blk.0.attn_q.bias") || g.find("blk.0.attn_qkv.bias");
  c.mlp_bias = g.find("blk.0.ffn_up.bias") != nullptr;
  c.bos = id_or_none(g, "tokenizer.ggml.bos_token_id", c.vocab_size);
  c.pad = id_or_none(g, "tokenizer.ggml.padding_token_id", c.vocab_size);
  if (const int64_t eos = id_or_none(g, "tokenizer.ggml.eos_token_id", c.vocab_size); eos >= 0) c.eos = {eos};
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const int64_t id = id_or_none(g, key, c.vocab_size); id >= 0) c.end_of_turn.push_back(id);
  c.check(g.path());
  return c;
}

}  // namespace mxt::formats

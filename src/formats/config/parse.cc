#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "base/files.h"
#include "formats/config/families.h"
#include "formats/model_config.h"

namespace mxt::formats {
namespace {

// One object of the file with typed access; a key under another name (GPT-2's n_embd) is tried in turn.
class Keys {
 public:
  Keys(const OrderedJson& j, std::string_view source) : j_(j), source_(source) {}

  const OrderedJson* find(std::initializer_list<const char*> names) const {
    for (const char* n : names)
      if (const auto it = j_.find(n); it != j_.end() && !it->is_null()) {
        name_ = n;
        return &*it;
      }
    return nullptr;
  }

  bool is_null(const char* name) const {
    const auto it = j_.find(name);
    return it != j_.end() && it->is_null();
  }

  int64_t integer(std::initializer_list<const char*> names, int64_t otherwise, int64_t lo, int64_t hi) const {
    const OrderedJson* v = find(names);
    if (!v) return otherwise;
    if (!v->is_number_integer() || (v->is_number_unsigned() && v->get<uint64_t>() > static_cast<uint64_t>(hi)) ||
        v->get<int64_t>() < lo || v->get<int64_t>() > hi)
      fail_input("{}: \"{}\" is {}: it must be a whole number from {} to {}", source_, name_, shown(*v), lo, hi);
    return v->get<int64_t>();
  }

  double number(std::initializer_list<const char*> names, double otherwise) const {
    const OrderedJson* v = find(names);
    if (!v) return otherwise;
    if (!v->is_number() || !std::isfinite(v->get<double>()))
      fail_input("{}: \"{}\" is {}: it must be a number", source_, name_, shown(*v));
    return v->get<double>();
  }
  double number(std::initializer_list<const char*> names, double otherwise, double lo, double hi) const {
    const double v = number(names, otherwise);
    if (!(v >= lo && v <= hi)) fail_input("{}: \"{}\" is {}: it must be from {} to {}", source_, name_, v, lo, hi);
    return v;
  }

  bool boolean(std::initializer_list<const char*> names, bool otherwise) const {
    const OrderedJson* v = find(names);
    if (!v) return otherwise;
    if (!v->is_boolean()) fail_input("{}: \"{}\" is {}: it must be true or false", source_, name_, shown(*v));
    return v->get<bool>();
  }

  std::string text(std::initializer_list<const char*> names, std::string_view otherwise) const {
    const OrderedJson* v = find(names);
    if (!v) return std::string(otherwise);
    if (!v->is_string()) fail_input("{}: \"{}\" is {}: it must be text", source_, name_, shown(*v));
    return v->get<std::string>();
  }

  std::vector<int64_t> integers(const char* name) const {
    std::vector<int64_t> out;
    const OrderedJson* v = find({name});
    if (!v) return out;
    const auto one = [&](const OrderedJson& x) {
      if (!x.is_number_integer() || (x.is_number_unsigned() && x.get<uint64_t>() > std::numeric_limits<int32_t>::max()))
        fail_input("{}: \"{}\" is {}: it must hold whole numbers", source_, name, shown(*v));
      out.push_back(x.get<int64_t>());
    };
    if (v->is_array()) {
      for (const auto& x : *v) one(x);
    } else {
      one(*v);
    }
    return out;
  }

  const OrderedJson* object(const char* name) const {
    const OrderedJson* v = find({name});
    if (v && !v->is_object()) fail_input("{}: \"{}\" is {}: it must be an object", source_, name, shown(*v));
    return v;
  }

  static std::string shown(const OrderedJson& v) {
    std::string s = v.dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
    if (s.size() > 60) s = s.substr(0, 57) + "...";
    return s;
  }
  std::string_view source() const { return source_; }

 private:
  const OrderedJson& j_;
  std::string_view source_;
  mutable const char* name_ = "";
};

constexpr int64_t kMaxWidth = 1 << 24, kMaxCount = 1 << 16, kMaxTokens = std::numeric_limits<int32_t>::max();

// `whole` is the config that the object `j` stands in.
RopeScaling parse_scaling(const OrderedJson& j, const Keys& whole) {
  const std::string_view source = whole.source();
  const Keys k(j, source);
  RopeScaling r;
  const std::string type = k.text({"rope_type", "type"}, "default");
  using Kind = RopeScaling::Kind;
  if (type == "default" || type == "mrope")
    r.kind = Kind::kNone;
  else if (type == "linear")
    r.kind = Kind::kLinear;
  else if (type == "dynamic")
    r.kind = Kind::kDynamic;
  else if (type == "yarn")
    r.kind = Kind::kYarn;
  else if (type == "llama3")
    r.kind = Kind::kLlama3;
  else
    fail_missing("{}: rotary scaling of type \"{}\" is not built in: default, linear, dynamic, yarn and llama3 are",
                 source, type);
  if (r.kind != Kind::kNone) {
    if (!k.find({"factor"})) fail_input("{}: rotary scaling \"{}\" has no \"factor\"", source, type);
    r.factor = k.number({"factor"}, 1.0, 1e-6, 1e6);
  }
  // Phi and its kin state it beside the object; transformers lets that one win, for the types that ask for it.
  r.original_max_positions = k.integer({"original_max_position_embeddings"}, 0, 1, int64_t{1} << 40);
  if (r.kind == Kind::kLlama3 || r.kind == Kind::kYarn)
    r.original_max_positions =
        whole.integer({"original_max_position_embeddings"}, r.original_max_positions, 1, int64_t{1} << 40);
  if (r.kind == Kind::kLlama3) {
    for (const char* need : {"low_freq_factor", "high_freq_factor"})
      if (!k.find({need})) fail_input("{}: rotary scaling \"llama3\" has no \"{}\"", source, need);
    if (r.original_max_positions == 0)  // as transformers has it
      r.original_max_positions = whole.integer({"max_position_embeddings"}, 0, 1, int64_t{1} << 40);
    if (r.original_max_positions == 0)
      fail_input("{}: rotary scaling \"llama3\" has no \"original_max_position_embeddings\"", source);
    r.low_freq_factor = k.number({"low_freq_factor"}, 1.0, 1e-6, 1e6);
    r.high_freq_factor = k.number({"high_freq_factor"}, 4.0, 1e-6, 1e6);
    if (r.high_freq_factor <= r.low_freq_factor)
      fail_input("{}: rotary scaling \"llama3\": high_freq_factor must be above low_freq_factor", source);
  }
  if (r.kind == Kind::kYarn) {
    // As in transformers, 0 says nothing here.
    const auto stated = [&](const char* name) -> std::optional<double> {
      const double v = k.number({name}, 0, 0, 1e6);
      return v == 0 ? std::nullopt : std::optional(v);
    };
    r.beta_fast = stated("beta_fast").value_or(32.0);
    r.beta_slow = stated("beta_slow").value_or(1.0);
    if (k.find({"attention_factor"})) r.attention_factor = k.number({"attention_factor"}, 1.0, 0, 1e6);
    r.mscale = stated("mscale");
    r.mscale_all_dim = stated("mscale_all_dim");
    r.truncate = k.boolean({"truncate"}, true);
  }
  r.mrope_section = k.integers("mrope_section");
  r.mrope_interleaved = k.boolean({"mrope_interleaved"}, false);
  return r;
}

// transformers 5 writes rope_parameters {rope_theta, rope_type, partial_rotary_factor, …}; before it rope_theta,
// partial_rotary_factor and rope_scaling stood apart, but a rope_scaling that holds them wins.
void parse_rope(const Keys& k, const Family& f, ModelConfig& c) {
  if (f.rope_theta == 0) return;
  const OrderedJson* parameters = k.object("rope_parameters");
  const OrderedJson* older = k.object("rope_scaling");
  const OrderedJson* scaling = parameters ? parameters : older;
  if (parameters && older && !(parse_scaling(*parameters, k) == parse_scaling(*older, k)))
    fail_input("{}: \"rope_scaling\" and \"rope_parameters\" differ: keep the one that is meant", k.source());
  if (parameters)
    for (const auto& [name, v] : parameters->items())
      if (v.is_object())
        fail_missing("{}: rope_parameters differ by layer type (\"{}\"), which is not built in", k.source(), name);
  c.rope_theta = k.number({"rope_theta"}, f.rope_theta, 1e-3, 1e15);
  c.partial_rotary_factor = k.number({"partial_rotary_factor"}, f.partial_rotary_factor, 1e-3, 1.0);
  const auto inside = [&](const OrderedJson& j) {
    const Keys p(j, k.source());
    return std::pair(p.number({"rope_theta"}, c.rope_theta, 1e-3, 1e15),
                     p.number({"partial_rotary_factor"}, c.partial_rotary_factor, 1e-3, 1.0));
  };
  if (parameters) std::tie(c.rope_theta, c.partial_rotary_factor) = inside(*parameters);
  if (older) {
    const auto stated = inside(*older);
    if (parameters && stated != std::pair(c.rope_theta, c.partial_rotary_factor))
      fail_input("{}: \"rope_scaling\" and \"rope_parameters\" differ: keep the one that is meant", k.source());
    std::tie(c.rope_theta, c.partial_rotary_factor) = stated;
  }
  // transformers' class of such a model either passes over the key or fails, by rope_type; others rotate that part.
  if (f.partial_rotary_factor == 1.0 && c.partial_rotary_factor != 1.0)
    fail_missing("{}: \"partial_rotary_factor\": {} is not built in for {} models", k.source(), c.partial_rotary_factor,
                 f.model_type);
  if (scaling) c.rope_scaling = parse_scaling(*scaling, k);
}

void parse_layer_types(const Keys& k, const Family& f, ModelConfig& c) {
  if (const OrderedJson* types = k.find({"layer_types"})) {
    if (!types->is_array() || types->size() != static_cast<size_t>(c.num_layers))
      fail_input("{}: \"layer_types\" must list one type for each of the {} layers", k.source(), c.num_layers);
    for (const auto& t : *types) {
      if (!t.is_string()) fail_input("{}: \"layer_types\" must hold text", k.source());
      c.layer_types.push_back(t.get<std::string>());
      const auto& s = c.layer_types.back();
      if (s != "full_attention" && s != "sliding_attention" && s != "linear_attention")
        fail_missing("{}: layer type \"{}\" is not built in", k.source(), s);
    }
  } else if (f.linear_attention) {
    const int64_t every = k.integer({"full_attention_interval"}, 4, 1, kMaxCount);
    for (int64_t i = 0; i < c.num_layers; ++i)
      c.layer_types.push_back((i + 1) % every ? "linear_attention" : "full_attention");
  } else if (c.sliding_window > 0) {
    // Qwen: the first max_window_layers see everything; Mistral: all slide.
    const int64_t full = f.has_window_switch ? k.integer({"max_window_layers"}, 28, 0, kMaxCount) : 0;
    for (int64_t i = 0; i < c.num_layers; ++i)
      c.layer_types.push_back(i >= full ? "sliding_attention" : "full_attention");
  }
  bool all_full = true;
  for (const auto& t : c.layer_types) {
    all_full = all_full && t == "full_attention";
    if (t == "linear_attention" && !f.linear_attention)
      fail_missing("{}: layer type \"{}\" is not built in for {} models", k.source(), t, f.model_type);
    if (t == "sliding_attention" && c.sliding_window == 0)
      fail_input("{}: \"layer_types\" names sliding_attention, but no \"sliding_window\" is in use", k.source());
    if (t != "sliding_attention" && f.sliding && c.sliding_window > 0)
      fail_missing("{}: layer type \"{}\" is not built in for {} models: all their layers slide", k.source(), t,
                   f.model_type);
  }
  if (all_full && !c.layer_types.empty()) c.sliding_window = 0;
  if (all_full) c.layer_types.clear();
}

// Keys by which other families scale or bend what these compute: under one of our types they are a mistake in the file,
// or a model that merely borrows the name. Every one has a value at which it does nothing.
void refuse_foreign(const Keys& k, const Family& f) {
  constexpr std::pair<const char*, double> kNeutral[] = {{"attention_multiplier", 0},
                                                         {"embedding_multiplier", 1},
                                                         {"residual_multiplier", 1},
                                                         {"logits_scaling", 1},
                                                         {"attn_logit_softcapping", 0},
                                                         {"logit_scale", 1},
                                                         {"query_pre_attn_scalar", 0},
                                                         {"scale_emb", 1},
                                                         {"final_logit_softcapping", 0},
                                                         {"num_local_experts", 0},
                                                         {"num_experts", 0}};
  for (const auto& [name, neutral] : kNeutral) {
    const std::string_view key = name;
    if ((key == "final_logit_softcapping" && f.softcap != 0) || (key.ends_with("experts") && f.num_experts != 0))
      continue;
    const OrderedJson* v = k.find({name});
    if (v && v->is_number() && v->get<double>() != neutral)
      fail_missing("{}: \"{}\" is {}: {} models have no such thing, and this one would be computed wrong", k.source(),
                   name, Keys::shown(*v), f.model_type);
  }
}

// GPT-2's class has names of its own; a key that a class does not read says nothing.
bool is_gpt2(const Family& f) { return f.model_type == "gpt2"; }

void parse_sizes(const Keys& k, const Family& f, ModelConfig& c) {
  c.vocab_size = k.integer({"vocab_size"}, f.vocab_size, 1, kMaxTokens);
  c.hidden_size = k.integer({"hidden_size", "n_embd"}, f.hidden_size, 1, kMaxWidth);
  c.num_layers = k.integer({"num_hidden_layers", "n_layer"}, f.num_layers, 1, kMaxLayers);
  c.num_heads = k.integer({"num_attention_heads", "n_head"}, f.num_heads, 1, kMaxCount);
  c.max_positions = k.integer({"max_position_embeddings", "n_positions"}, f.max_positions, 1, int64_t{1} << 40);
  const int64_t inner = f.intermediate_size ? f.intermediate_size : 4 * c.hidden_size;
  c.intermediate_size = k.integer({is_gpt2(f) ? "n_inner" : "intermediate_size"}, inner, 1, kMaxWidth);
  // A key that is null means "as many as heads", an absent one transformers' default.
  const bool follow = f.kv_heads_follow || k.is_null("num_key_value_heads");
  c.num_kv_heads = k.integer({"num_key_value_heads"}, follow ? c.num_heads : f.num_kv_heads, 1, kMaxCount);
  int64_t head_dim = f.head_dim;
  if (head_dim == 0) head_dim = c.hidden_size / c.num_heads;
  c.head_dim = k.integer({"head_dim"}, head_dim, 1, kMaxCount);
}

void parse_moe(const Keys& k, const Family& f, ModelConfig& c) {
  if (f.num_experts == 0) return;
  c.num_experts = k.integer({"num_experts", "num_local_experts"}, f.num_experts, 0, kMaxCount);
  c.experts_per_token = k.integer({"num_experts_per_tok"}, f.experts_per_token, 1, kMaxCount);
  c.moe_intermediate_size = k.integer({"moe_intermediate_size"}, f.moe_intermediate_size, 1, kMaxWidth);
  c.shared_expert_intermediate_size =
      k.integer({"shared_expert_intermediate_size"}, f.shared_expert_intermediate_size, 0, kMaxWidth);
  c.decoder_sparse_step = k.integer({"decoder_sparse_step"}, 1, 1, kMaxCount);
  c.mlp_only_layers = k.integers("mlp_only_layers");
  c.norm_topk_prob = k.boolean({"norm_topk_prob"}, f.norm_topk_prob);
  c.router_aux_loss_coef = k.number({"router_aux_loss_coef"}, 0.001, 0, 1e6);
}

void parse_linear_attention(const Keys& k, const Family& f, ModelConfig& c) {
  if (!f.linear_attention) return;
  c.linear_conv_kernel = k.integer({"linear_conv_kernel_dim"}, 4, 1, 64);
  c.linear_key_head_dim = k.integer({"linear_key_head_dim"}, 128, 1, kMaxCount);
  c.linear_value_head_dim = k.integer({"linear_value_head_dim"}, 128, 1, kMaxCount);
  c.linear_key_heads = k.integer({"linear_num_key_heads"}, 16, 1, kMaxCount);
  c.linear_value_heads = k.integer({"linear_num_value_heads"}, 32, 1, kMaxCount);
}

std::optional<DType> parse_dtype(const Keys& k) {
  std::string t = k.text({"dtype", "torch_dtype"}, "");
  if (t.starts_with("torch.")) t = t.substr(6);
  if (t == "bfloat16") return DType::kBF16;
  if (t == "float16") return DType::kF16;
  if (t == "float32") return DType::kF32;
  if (t.empty() || t == "auto") return std::nullopt;
  fail_input("{}: dtype \"{}\" is not known: bfloat16, float16 and float32 are", k.source(), t);
}

// Everything that describes the text model; `whole` is the file, `k` its text_config where it has one.
void parse_text(const Keys& k, const Keys& whole, const Family& f, ModelConfig& c) {
  refuse_foreign(k, f);
  parse_sizes(k, f, c);
  c.norm_eps = k.number({is_gpt2(f)               ? "layer_norm_epsilon"
                         : f.model_type == "bert" ? "layer_norm_eps"
                                                  : "rms_norm_eps"},
                        f.norm_eps, 0, 1);
  parse_rope(k, f, c);
  c.tie_embeddings = whole.boolean({"tie_word_embeddings"}, k.boolean({"tie_word_embeddings"}, f.tie_embeddings));
  c.attention_bias =
      f.always_bias || (f.reads_attention_bias ? k.boolean({"attention_bias"}, f.attention_bias) : f.attention_bias);
  c.mlp_bias = f.always_bias || (f.reads_mlp_bias && k.boolean({"mlp_bias"}, false));
  c.activation = k.text({is_gpt2(f) ? "activation_function" : "hidden_act"}, f.activation);
  c.attn_pdrop = k.number({"attn_pdrop", "attention_dropout", "attention_probs_dropout_prob"}, f.dropout, 0, 1);
  c.resid_pdrop = k.number({"resid_pdrop", "hidden_dropout_prob"}, f.dropout, 0, 1);
  c.embd_pdrop = k.number({"embd_pdrop", "hidden_dropout_prob"}, f.dropout, 0, 1);
  c.initializer_range = k.number({"initializer_range"}, 0.02, 0, 100);
  c.bos = k.integer({"bos_token_id"}, f.bos, -1, kMaxTokens);
  c.pad = k.integer({"pad_token_id"}, f.pad, -1, kMaxTokens);
  c.eos = k.integers("eos_token_id");
  if (c.eos.empty() && f.eos >= 0 && !k.find({"eos_token_id"})) c.eos = {f.eos};
  const bool windowed = f.has_window_switch ? k.boolean({"use_sliding_window"}, false) : f.sliding;
  if (windowed && !k.is_null("sliding_window")) c.sliding_window = k.integer({"sliding_window"}, 4096, 0, kMaxTokens);
  parse_layer_types(k, f, c);
  parse_moe(k, f, c);
  parse_linear_attention(k, f, c);
  c.final_logit_softcapping = k.number({"final_logit_softcapping"}, f.softcap, 0, 1e6);
  if (f.model_type == "bert") c.type_vocab_size = k.integer({"type_vocab_size"}, 2, 1, kMaxCount);
  c.scale_attn_by_layer = k.boolean({"scale_attn_by_inverse_layer_idx"}, false);
  c.scale_attn = k.boolean({"scale_attn_weights"}, true);
  c.dtype = parse_dtype(k);
  if (!c.dtype) c.dtype = parse_dtype(whole);
}

std::string first_architecture(const OrderedJson& j, std::string_view source) {
  const auto it = j.find("architectures");
  if (it == j.end() || it->is_null()) return "";
  if (!it->is_array() || it->empty() || !(*it)[0].is_string())
    fail_input("{}: \"architectures\" must be a list of text", source);
  return (*it)[0].get<std::string>();
}

}  // namespace

ModelConfig parse_model_config(const OrderedJson& j, std::string_view source) {
  if (!j.is_object()) fail_input("{}: is not a model's config: it must hold an object", source);
  const Keys whole(j, source);
  const std::string architecture = first_architecture(j, source);
  std::string type = whole.text({"model_type"}, "");
  const Family* f = type.empty() ? family_of_architecture(architecture) : family_of_type(type);
  if (!f && !type.empty()) f = family_of_architecture(architecture);
  if (!f) {
    if (type.empty() && architecture.empty())
      fail_input("{}: has neither \"model_type\" nor \"architectures\": it is not a model's config.json", source);
    fail_missing("{}: models of type \"{}\" ({}) are not built in: {} are", source, type,
                 architecture.empty() ? "no architecture named" : architecture, known_model_types());
  }
  ModelConfig c;
  c.model_type = type.empty() ? std::string(f->model_type) : type;
  c.architecture = architecture.empty() ? std::string(f->architecture) : architecture;
  c.raw = std::make_shared<const OrderedJson>(j);
  const OrderedJson* text = whole.object("text_config");
  parse_text(text ? Keys(*text, source) : whole, whole, *f, c);
  if (const OrderedJson* q = whole.object("quantization_config"))
    c.quantization = Keys(*q, source).text({"quant_method"}, "unnamed");
  c.check(source);
  return c;
}

ModelConfig read_model_config(const std::string& path) {
  std::error_code ec;
  const std::string file = fs::is_directory(path, ec) ? path + "/config.json" : path;
  if (!fs::exists(file, ec)) fail_input("{}: no such file: a model folder needs its config.json", file);
  return parse_model_config(parse_ordered_json(read_file(file), file), file);
}

bool ModelConfig::is_sparse_layer(int64_t layer) const {
  if (num_experts == 0) return false;
  for (int64_t dense : mlp_only_layers)
    if (dense == layer) return false;
  return (layer + 1) % decoder_sparse_step == 0;
}

int64_t ModelConfig::rotary() const { return std::llround(static_cast<double>(head_dim) * partial_rotary_factor); }

void ModelConfig::check(std::string_view source) const {
  if (num_heads % num_kv_heads != 0)
    fail_input("{}: {} attention heads cannot share {} key/value heads evenly", source, num_heads, num_kv_heads);
  if (head_dim < 1) fail_input("{}: {} heads do not fit a width of {}", source, num_heads, hidden_size);
  const bool derived = model_type == "gpt2" || model_type == "bert";
  if (derived && head_dim * num_heads != hidden_size)
    fail_input("{}: {} heads do not divide a width of {}", source, num_heads, hidden_size);
  if (rope_theta != 0 && head_dim % 2 != 0)
    fail_input("{}: rotary embedding needs an even head_dim, not {}", source, head_dim);
  if (num_experts > 0 && experts_per_token > num_experts)
    fail_input("{}: {} experts per token of {} experts", source, experts_per_token, num_experts);
  if (!rope_scaling.mrope_section.empty()) {
    int64_t sum = 0;
    for (int64_t s : rope_scaling.mrope_section) sum += s < 0 ? head_dim : s;
    if (sum > head_dim / 2) fail_input("{}: mrope_section is wider than half of head_dim {}", source, head_dim);
  }
}

}  // namespace mxt::formats

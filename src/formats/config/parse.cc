#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "formats/config/read.h"
#include "formats/vision.h"

namespace mxt::formats {
namespace {

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
    if (key.ends_with("experts") && f.num_experts != 0) continue;
    if (std::find(f.own_keys.begin(), f.own_keys.end(), key) != f.own_keys.end()) continue;
    const OrderedJson* v = k.find({name});
    if (v && v->is_number() && v->get<double>() != neutral)
      fail_missing("{}: \"{}\" is {}: not built in for {} models, and this one would be computed wrong without it",
                   k.source(), name, Keys::shown(*v), f.model_type);
  }
}

// A class may have names of its own; a key that it does not read says nothing.
void parse_sizes(const Keys& k, const Family& f, ModelConfig& c) {
  c.vocab_size = k.integer({"vocab_size"}, f.vocab_size, 1, kMaxTokens);
  c.hidden_size = k.integer({"hidden_size", "n_embd"}, f.hidden_size, 1, kMaxWidth);
  c.num_layers = k.integer({"num_hidden_layers", "n_layer"}, f.num_layers, 1, kMaxLayers);
  c.num_heads = k.integer({"num_attention_heads", "n_head"}, f.num_heads, 1, kMaxCount);
  c.max_positions = k.integer({"max_position_embeddings", "n_positions"}, f.max_positions, 1, int64_t{1} << 40);
  const int64_t inner = f.intermediate_size ? f.intermediate_size : 4 * c.hidden_size;
  c.intermediate_size = k.integer({f.inner_key}, inner, 1, kMaxWidth);
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
  c.norm_topk_prob = k.boolean({"norm_topk_prob"}, f.norm_topk_prob);
  c.router_aux_loss_coef = k.number({"router_aux_loss_coef"}, 0.001, 0, 1e6);
  c.output_router_logits = k.boolean({"output_router_logits"}, false);
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
  if (t == "float32" || t == "float64") return DType::kF32;  // weights in double are read as float
  if (t.empty() || t == "auto") return std::nullopt;
  fail_input("{}: dtype \"{}\" is not known: bfloat16, float16, float32 and float64 are", k.source(), t);
}

// A stop token that the model cannot draw would never end an answer. The class's default is no statement of the
// model's: transformers writes GPT-2's 50256 for vocabularies of any size.
void check_ends(const std::vector<int64_t>& ids, const ModelConfig& c, std::string_view source) {
  for (const int64_t id : ids)
    if (id >= c.vocab_size && id != c.family->eos)
      fail_input("{}: eos_token_id {} lies beyond the vocabulary (vocab_size {}): set it right, or to null", source, id,
                 c.vocab_size);
}

// Everything that describes the text model; `whole` is the file, `k` its text_config where it has one.
void parse_text(const Keys& k, const Keys& whole, const Family& f, ModelConfig& c) {
  refuse_foreign(k, f);
  parse_sizes(k, f, c);
  c.norm_eps = k.number({f.norm_eps_key}, f.norm_eps, 0, 1);
  read_rope(k, f, c);
  c.tie_embeddings = whole.boolean({"tie_word_embeddings"}, k.boolean({"tie_word_embeddings"}, f.tie_embeddings));
  c.attention_bias =
      f.always_bias || (f.reads_attention_bias ? k.boolean({"attention_bias"}, f.attention_bias) : f.attention_bias);
  c.mlp_bias = f.always_bias || (f.reads_mlp_bias && k.boolean({"mlp_bias"}, false));
  c.activation = k.text({f.activation_key}, f.activation);
  c.attn_pdrop = k.number({"attn_pdrop", "attention_dropout", "attention_probs_dropout_prob"}, f.dropout, 0, 1);
  c.resid_pdrop = k.number({"resid_pdrop", "hidden_dropout_prob"}, f.dropout, 0, 1);
  c.embd_pdrop = k.number({"embd_pdrop", "hidden_dropout_prob"}, f.dropout, 0, 1);
  c.initializer_range = k.number({"initializer_range"}, 0.02, 0, 100);
  // null is a statement: there is none. The class's default stands for what is not stated.
  c.bos = k.integer({"bos_token_id"}, k.is_null("bos_token_id") ? -1 : f.bos, -1, kMaxTokens);
  c.pad = k.integer({"pad_token_id"}, k.is_null("pad_token_id") ? -1 : f.pad, -1, kMaxTokens);
  c.eos = k.integers("eos_token_id");
  if (c.eos.empty() && f.eos >= 0 && !k.find({"eos_token_id"}) && !k.is_null("eos_token_id")) c.eos = {f.eos};
  parse_moe(k, f, c);
  read_layers(k, f, c);
  parse_linear_attention(k, f, c);
  const double softcap = k.is_null("final_logit_softcapping") ? 0 : f.softcap;
  c.final_logit_softcapping = k.number({"final_logit_softcapping"}, softcap, 0, 1e6);
  if (f.read) f.read(k, c);
  c.dtype = parse_dtype(k);
  if (!c.dtype) c.dtype = parse_dtype(whole);
}

bool states_eos(const OrderedJson& config) {
  const auto text = config.find("text_config");
  return config.contains("eos_token_id") ||
         (text != config.end() && text->is_object() && text->contains("eos_token_id"));
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
  c.family = f;
  c.model_type = type.empty() ? std::string(f->model_type) : type;
  c.architecture = architecture.empty() ? std::string(f->architecture) : architecture;
  c.raw = std::make_shared<const OrderedJson>(j);
  const OrderedJson* text = whole.object("text_config");
  parse_text(text ? Keys(*text, source) : whole, whole, *f, c);
  if (!f->optional_vision) vision_of(c, source);  // must hold together
  if (const OrderedJson* q = whole.object("quantization_config"))
    c.quantization = Keys(*q, source).text({"quant_method"}, "unnamed");
  c.check(source);
  check_ends(c.eos, c, source);
  return c;
}

ModelConfig read_model_config(const std::string& path) {
  std::error_code ec;
  const std::string file = fs::is_directory(path, ec) ? path + "/config.json" : path;
  if (!fs::exists(file, ec)) fail_input("{}: no such file: a model folder needs its config.json", file);
  ModelConfig c = parse_model_config(parse_ordered_json(read_file(file), file), file);
  if (const std::string how = path + "/generation_config.json"; file != path && fs::is_regular_file(how, ec)) {
    const OrderedJson j = parse_ordered_json(read_file(how), how);
    if (!j.is_object()) fail_input("{}: must hold an object", how);
    c.end_of_turn = Keys(j, how).integers("eos_token_id");
    check_ends(c.end_of_turn, c, how);
    // The class's default stands for what neither of the files states; null unsays what config.json states, as
    // transformers generates by generation_config.json alone.
    if (const auto eos = j.find("eos_token_id"); eos != j.end() && (eos->is_null() || !states_eos(*c.raw)))
      c.eos.clear();
  }
  return c;
}

int64_t stated_rotary(const ModelConfig& c) {
  // As transformers' int(), but for products that only rounding keeps from a whole number.
  return static_cast<int64_t>(static_cast<double>(c.head_dim) * c.partial_rotary_factor + 1e-6);
}

int64_t ModelConfig::rotary() const { return (stated_rotary(*this) + 1) / 2 * 2; }

void ModelConfig::check(std::string_view source) const {
  if (num_heads % num_kv_heads != 0)
    fail_input("{}: {} attention heads cannot share {} key/value heads evenly", source, num_heads, num_kv_heads);
  if (head_dim < 1) fail_input("{}: {} heads do not fit a width of {}", source, num_heads, hidden_size);
  if (family->heads_fill_width && head_dim * num_heads != hidden_size)
    fail_input("{}: {} heads do not divide a width of {}", source, num_heads, hidden_size);
  if (rope_theta != 0 && head_dim % 2 != 0)
    fail_input("{}: rotary embedding needs an even head_dim, not {}", source, head_dim);
  if (num_experts > 0 && experts_per_token > num_experts)
    fail_input("{}: {} experts per token of {} experts", source, experts_per_token, num_experts);
  if (family->linear_attention && linear_value_heads % linear_key_heads != 0)
    fail_input("{}: {} linear value heads cannot share {} key heads evenly", source, linear_value_heads,
               linear_key_heads);
  if (rope_scaling.kind == RopeScaling::Kind::kLongRope)
    for (const auto* list : {&rope_scaling.short_factor, &rope_scaling.long_factor})
      if (static_cast<int64_t>(list->size()) != rotary() / 2)
        fail_input("{}: rotary scaling \"longrope\" lists {} divisors for {} rotated pairs", source, list->size(),
                   rotary() / 2);
  if (!rope_scaling.mrope_section.empty()) {
    int64_t sum = 0;
    for (int64_t s : rope_scaling.mrope_section) sum += s < 0 ? head_dim : s;
    if (sum > head_dim / 2) fail_input("{}: mrope_section is wider than half of head_dim {}", source, head_dim);
  }
}

}  // namespace mxt::formats

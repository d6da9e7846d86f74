// Rotary embedding as config.json states it.
#include <tuple>

#include "formats/config/read.h"

namespace mxt::formats {
namespace {

// LongRoPE's divisors for texts within the original maximum and for longer ones; Phi-3 states that maximum beside the
// object, and the ratio of the two maxima stands for a factor that is not stated.
void read_long(const Keys& k, const Keys& whole, RopeScaling& r) {
  constexpr int64_t kMost = int64_t{1} << 40;
  for (const auto& [name, list] : {std::pair{"short_factor", &r.short_factor}, {"long_factor", &r.long_factor}}) {
    const OrderedJson* v = k.find({name});
    if (!v || !v->is_array()) fail_input("{}: rotary scaling \"longrope\" has no list \"{}\"", k.source(), name);
    for (const auto& x : *v) {
      if (!x.is_number() || !(x.get<double>() > 0 && x.get<double>() < 1e6))
        fail_input("{}: \"{}\" holds {}: divisors above 0 are wanted", k.source(), name, Keys::shown(x));
      list->push_back(x.get<float>());
    }
  }
  const int64_t now = whole.integer({"max_position_embeddings"}, 4096, 1, kMost);
  r.original_max_positions = whole.integer({"original_max_position_embeddings"},
                                           k.integer({"original_max_position_embeddings"}, 4096, 1, kMost), 1, kMost);
  r.factor = k.number({"factor"}, static_cast<double>(now) / static_cast<double>(r.original_max_positions), 1e-6, 1e6);
  if (k.find({"attention_factor"})) r.attention_factor = k.number({"attention_factor"}, 1.0, 0, 1e6);
}

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
  else if (type == "longrope" || type == "su" || (type == "yarn" && k.find({"short_factor"})))  // Phi-3's first names
    r.kind = Kind::kLongRope;
  else if (type == "yarn")
    r.kind = Kind::kYarn;
  else if (type == "llama3")
    r.kind = Kind::kLlama3;
  else
    fail_missing(
        "{}: rotary scaling of type \"{}\" is not built in: default, linear, dynamic, yarn, llama3 and longrope are",
        source, type);
  if (r.kind == Kind::kLongRope) read_long(k, whole, r);
  if (r.kind != Kind::kNone && r.kind != Kind::kLongRope) {
    if (!k.find({"factor"})) fail_input("{}: rotary scaling \"{}\" has no \"factor\"", source, type);
    r.factor = k.number({"factor"}, 1.0, 1e-6, 1e6);
  }
  // Phi and its kin state it beside the object; transformers lets that one win, for the types that ask for it.
  if (r.kind != Kind::kLongRope)
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
  return r;
}

// Two rotary embeddings (Gemma 3): that of full layers, which may be scaled, and that of sliding ones. transformers 5
// writes rope_parameters with one object for each; before it rope_theta and rope_scaling were of full layers, and
// rope_local_base_freq of the others.
void read_two(const Keys& k, const Family& f, ModelConfig& c) {
  const OrderedJson *parameters = k.object("rope_parameters"), *older = k.object("rope_scaling");
  const OrderedJson none = OrderedJson::object();
  const auto part = [&](const char* name) -> const OrderedJson& {
    const OrderedJson* o = parameters ? Keys(*parameters, k.source()).object(name) : nullptr;
    return o ? *o : none;
  };
  const OrderedJson &full = part("full_attention"), &sliding = part("sliding_attention");
  c.rope_theta = Keys(full, k.source()).number({"rope_theta"}, k.number({"rope_theta"}, f.rope_theta), 1e-3, 1e15);
  c.sliding_rope_theta =
      Keys(sliding, k.source())
          .number({"rope_theta"}, k.number({"rope_local_base_freq"}, f.sliding_rope_theta), 1e-3, 1e15);
  if (const RopeScaling s = parse_scaling(sliding, k); s.kind != RopeScaling::Kind::kNone)
    fail_missing("{}: scaled rotary embedding of sliding layers is not built in", k.source());
  c.rope_scaling = parse_scaling(older ? *older : full, k);
}

}  // namespace

// transformers 5 writes rope_parameters {rope_theta, rope_type, partial_rotary_factor, …}; before it rope_theta,
// partial_rotary_factor and rope_scaling stood apart, but a rope_scaling that holds them wins.
void read_rope(const Keys& k, const Family& f, ModelConfig& c) {
  if (f.rope_theta == 0) return;
  const OrderedJson* parameters = k.object("rope_parameters");
  const OrderedJson* older = k.object("rope_scaling");
  const OrderedJson* scaling = parameters ? parameters : older;
  if (parameters && older && !(parse_scaling(*parameters, k) == parse_scaling(*older, k)))
    fail_input("{}: \"rope_scaling\" and \"rope_parameters\" differ: keep the one that is meant", k.source());
  if (f.sliding_rope_theta > 0) return read_two(k, f, c);
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
  if (f.partial_rotary_factor == 1.0 && !f.reads_partial_rotary && c.partial_rotary_factor != 1.0)
    fail_missing("{}: \"partial_rotary_factor\": {} is not built in for {} models", k.source(), c.partial_rotary_factor,
                 f.model_type);
  if (scaling) c.rope_scaling = parse_scaling(*scaling, k);
}

}  // namespace mxt::formats

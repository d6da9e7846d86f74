#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "formats/nanochat_checkpoint.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"

namespace mxt::formats {
namespace {

struct Meta {
  int64_t layers, heads, kv_heads, width, vocab, positions;
  std::string windows;
  int64_t padded() const { return (vocab + 63) / 64 * 64; }
  int64_t kv_width() const { return width / heads * kv_heads; }
};

std::string meta_path(const std::string& checkpoint) {
  const fs::path p(checkpoint);
  std::string name = p.filename().string();
  if (!name.starts_with("model_") || !name.ends_with(".pt"))
    fail_input("{}: nanochat names its checkpoints model_NNNNNN.pt, with meta_NNNNNN.json beside them", checkpoint);
  name = "meta_" + name.substr(6, name.size() - 9) + ".json";
  return (p.parent_path() / name).string();
}

Meta read_meta(const std::string& path) {
  if (!fs::is_regular_file(path)) fail_input("{}: is not there: it says what the checkpoint's model is", path);
  const Json j = read_json_file(path);
  const auto config = j.is_object() ? j.find("model_config") : j.end();
  if (!j.is_object() || config == j.end() || !config->is_object()) fail_input("{}: has no model_config", path);
  const auto number = [&](const char* key, int64_t most) {
    const auto it = config->find(key);
    if (it == config->end() || !it->is_number_integer() || it->get<int64_t>() < 1 || it->get<int64_t>() > most)
      fail_input("{}: model_config.{} is missing or no number from 1 to {}", path, key, most);
    return it->get<int64_t>();
  };
  // What another key means is not known: the weights would be computed as another model than they are.
  constexpr std::string_view kKnown[] = {"sequence_len", "vocab_size", "n_layer",       "n_head",
                                         "n_kv_head",    "n_embd",     "window_pattern"};
  for (const auto& [key, value] : config->items())
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown))
      fail_input("{}: model_config.{} is none of nanochat's as it is known here: a fork's, or a newer form", path,
                 printable(key));
  Meta m{number("n_layer", 1024),
         number("n_head", 4096),
         number("n_kv_head", 4096),
         number("n_embd", 1 << 20),
         number("vocab_size", 1 << 24),
         number("sequence_len", 1 << 24),
         "L"};  // older ones saw everything
  if (const auto it = config->find("window_pattern"); it != config->end()) {
    if (!it->is_string()) fail_input("{}: model_config.window_pattern is no text", path);
    m.windows = *it;
    std::transform(m.windows.begin(), m.windows.end(), m.windows.begin(), [](char c) {
      return c == 's' ? 'S' : c == 'l' ? 'L' : c;
    });
    if (m.windows.empty() || m.windows.find_first_not_of("SL") != std::string::npos)
      fail_input("{}: model_config.window_pattern \"{}\" holds other letters than S and L", path, printable(m.windows));
  }
  if (m.width % m.heads || m.heads % m.kv_heads)
    fail_input("{}: model_config: n_embd, n_head and n_kv_head do not divide", path);
  return m;
}

struct Expected {
  std::string theirs, ours;
  std::vector<int64_t> shape;  // theirs
  bool vocabulary = false;     // rows that pad it are left out
};

class Conversion {
 public:
  Conversion(const std::string& checkpoint, std::string folder)
      : file_(TorchFile::open(checkpoint)), meta_(read_meta(meta_path(checkpoint))), folder_(std::move(folder)) {
    constexpr std::string_view kCompiled = "_orig_mod.";  // before every name, where torch.compile's module was saved
    if (!file_.tensors().empty() && file_.tensors().front().name.starts_with(kCompiled)) before_ = kCompiled;
  }

  void run() {
    const Meta& m = meta_;
    values_ = has_any("value_embeds."), lambdas_ = has_any("resid_lambdas") || has_any("x0_lambdas");
    smear_ = has_any("smear_"), backout_ = has_any("backout_lambda");
    want("transformer.wte.weight", "model.embed_tokens.weight", {m.padded(), m.width}, true);
    want("lm_head.weight", "lm_head.weight", {m.padded(), m.width}, true);
    if (lambdas_)
      for (const char* name : {"resid_lambdas", "x0_lambdas"}) want(name, std::string("model.") + name, {m.layers});
    if (smear_) {
      want("smear_gate.weight", "model.smear_gate.weight", {1, 24});
      want("smear_lambda", "model.smear_lambda", {1});
    }
    if (backout_) want("backout_lambda", "model.backout_lambda", {1});
    for (int64_t i = 0; i < m.layers; ++i) layer(i);
    for (const TorchTensor& t : file_.tensors())
      if (std::none_of(all_.begin(), all_.end(), [&](const Expected& e) { return before_ + e.theirs == t.name; }))
        fail_input("{}: tensor {} is none of the model of its meta file ({} layers): another depth or a newer form",
                   file_.path(), printable(t.name), m.layers);
    write();
  }

 private:
  bool has_any(std::string_view prefix) const {
    return std::any_of(file_.tensors().begin(), file_.tensors().end(),
                       [&](const TorchTensor& t) { return t.name.starts_with(before_ + std::string(prefix)); });
  }
  void want(std::string theirs, std::string ours, std::vector<int64_t> shape, bool vocabulary = false) {
    all_.push_back({std::move(theirs), std::move(ours), std::move(shape), vocabulary});
  }
  void layer(int64_t i) {
    const Meta& m = meta_;
    const std::string a = fmt::format("transformer.h.{}.attn.", i), b = fmt::format("model.layers.{}.self_attn.", i);
    const std::string c = fmt::format("transformer.h.{}.mlp.", i), d = fmt::format("model.layers.{}.mlp.", i);
    want(a + "c_q.weight", b + "q_proj.weight", {m.width, m.width});
    want(a + "c_k.weight", b + "k_proj.weight", {m.kv_width(), m.width});
    want(a + "c_v.weight", b + "v_proj.weight", {m.kv_width(), m.width});
    want(a + "c_proj.weight", b + "o_proj.weight", {m.width, m.width});
    want(c + "c_fc.weight", d + "fc1.weight", {4 * m.width, m.width});
    want(c + "c_proj.weight", d + "fc2.weight", {m.width, 4 * m.width});
    if (!values_ || i % 2 != (m.layers - 1) % 2) return;
    want(a + "ve_gate.weight", b + "ve_gate.weight", {m.kv_heads, 12});
    want(fmt::format("value_embeds.{}.weight", i), fmt::format("model.value_embeds.{}.weight", i),
         {m.padded(), m.kv_width()}, true);
  }

  const TorchTensor& tensor(const Expected& e) const {
    const TorchTensor* t = file_.find(before_ + e.theirs);
    if (!t)
      fail_input("{}: tensor {} is missing: its meta file says {} layers; another depth, or a cut checkpoint",
                 file_.path(), e.theirs, meta_.layers);
    if (t->shape != e.shape)
      fail_input(
          "{}: tensor {} has shape [{}], the model of its meta file ({} layers) has [{}]: another depth or width",
          file_.path(), e.theirs, fmt::join(t->shape, ", "), meta_.layers, fmt::join(e.shape, ", "));
    if (t->type != DType::kF32 && t->type != DType::kBF16 && t->type != DType::kF16)
      fail_input("{}: tensor {} holds {}, weights are F32, BF16 or F16", file_.path(), e.theirs, name_of(t->type));
    return *t;
  }

  void write() {
    std::vector<TensorSpec> specs;
    for (const Expected& e : all_) {
      std::vector<int64_t> shape = e.shape;
      if (e.vocabulary) shape[0] = meta_.vocab;
      specs.push_back({e.ours, tensor(e).type, std::move(shape)});
    }
    specs = SafetensorsWriter::usual_order(std::move(specs));
    SafetensorsWriter w(folder_ + "/model.safetensors", specs);
    for (const TensorSpec& s : specs) {
      const auto e = std::find_if(all_.begin(), all_.end(), [&](const Expected& x) { return x.ours == s.name; });
      w.append_tensor(s.name, tensor(*e).bytes.data(), *tensor_bytes(s.shape, s.type));
    }
    w.commit();
    write_file_atomic(folder_ + "/config.json", config().dump(2) + "\n");
  }

  OrderedJson config() const {
    const Meta& m = meta_;
    return {{"architectures", {"NanoChatV2ForCausalLM"}},
            {"model_type", "nanochat_v2"},
            {"vocab_size", m.vocab},
            {"hidden_size", m.width},
            {"intermediate_size", 4 * m.width},
            {"num_hidden_layers", m.layers},
            {"num_attention_heads", m.heads},
            {"num_key_value_heads", m.kv_heads},
            {"max_position_embeddings", m.positions},
            {"hidden_act", "relu2"},
            {"rms_norm_eps", 1.1920929e-07},
            {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 100000.0}}},
            {"final_logit_softcapping", 15.0},
            {"tie_word_embeddings", false},
            {"window_pattern", m.windows},
            {"short_window", (m.positions + 511) / 512 * 128},  // a quarter of the sequence in whole 128s
            {"qk_scale", 1.2},
            {"value_embeddings", values_},
            {"residual_lambdas", lambdas_},
            {"smear", smear_},
            {"backout", backout_}};
  }

  TorchFile file_;
  Meta meta_;
  std::string folder_, before_;
  bool values_ = false, lambdas_ = false, smear_ = false, backout_ = false;
  std::vector<Expected> all_;
};

}  // namespace

void convert_nanochat(const std::string& checkpoint, const std::string& folder) {
  Conversion(checkpoint, folder).run();
}

}  // namespace mxt::formats

#include "model_files.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/threads.h"
#include "data/prepare.h"
#include "formats/gguf.h"
#include "formats/gguf_tokenizer.h"
#include "formats/weight_source.h"
#include "net/hub.h"
#include "verbs.h"

namespace mxt::app {
namespace {

// data::Coder over the real tokenizer and template.
class TokenizerCoder : public data::Coder {
 public:
  explicit TokenizerCoder(TextSide side) : side_(std::move(side)) {
    Blake3 h;
    for (int32_t i = 0; i < side_.tok->vocab_size(); ++i) {
      const std::string& t = side_.tok->token(i);
      h.update(t);
      h.update(side_.tok->is_special(i) ? "\1" : "\0", 1);
    }
    // Two tokenizers with one vocabulary may still cut differently: what they do with this text tells them apart.
    const std::string probe = "The 1234 naïve foxes' tails\n\n  can't  \t jump—over_snake_case 東京 🙂 x=3.14;";
    for (int32_t id : side_.tok->encode(probe)) h.update(&id, sizeof id);
    h.update(side_.tok->chat_template());
    digest_ = h.hex();
  }
  std::vector<int32_t> encode(std::string_view text, std::span<const data::ByteSpan> plain, std::vector<data::ByteSpan>* offsets) const override {
    std::vector<tokenizer::Span> p;
    for (const auto& s : plain) p.push_back({s.begin, s.end});
    if (!offsets) return side_.tok->encode(text, p);
    std::vector<tokenizer::Span> o;
    auto ids = side_.tok->encode_with_offsets(text, p, o);
    offsets->clear();
    for (const auto& s : o) offsets->push_back({s.begin, s.end});
    return ids;
  }
  int32_t eos() const override { return side_.tok->eos(); }
  int64_t vocab_size() const override { return side_.tok->vocab_size(); }
  bool has_chat_template() const override { return side_.chat != nullptr; }
  data::RenderedChat render(const OrderedJson& messages, const OrderedJson* tools) const override {
    tokenizer::ChatInput in;
    in.messages = &messages;
    in.tools = tools;
    const tokenizer::RenderedChat r = side_.chat->render(in);
    data::RenderedChat out;
    out.text = r.text;
    for (const auto& s : r.assistant) out.assistant.push_back({s.begin, s.end});
    for (const auto& s : r.plain) out.plain.push_back({s.begin, s.end});
    return out;
  }
  std::string digest() const override { return digest_; }
  std::string token_bytes(int32_t id) const override { return side_.tok->token_bytes(id); }

 private:
  TextSide side_;
  std::string digest_;
};

std::shared_ptr<const tokenizer::Tokenizer> load_tokenizer(const std::string& path) {
  if (!formats::is_gguf(path)) return tokenizer::Tokenizer::from_folder(path);
  const formats::Gguf file = formats::Gguf::open(path);
  formats::GgufTokenizerData d = formats::gguf_tokenizer(file);
  tokenizer::GgufTokenizerData t;
  t.model = d.model;
  t.pre = d.pre;
  t.tokens = std::move(d.tokens);
  t.token_type = std::move(d.token_type);
  t.merges = std::move(d.merges);
  t.bos_id = d.bos;
  t.eos_id = d.eos;
  t.pad_id = d.pad;
  t.unk_id = d.unk;
  t.add_bos = d.add_bos;
  t.chat_template = d.chat_template;
  t.source = path;
  return tokenizer::Tokenizer::from_gguf(t);
}

std::shared_ptr<const tokenizer::ChatTemplate> compile_template(const tokenizer::Tokenizer& tok, const std::string& source, const std::string& name) {
  if (source.empty()) return nullptr;
  std::map<std::string, std::string> special;
  auto put = [&](const char* key, int32_t id) {
    if (id >= 0) special[key] = tok.token(id);
  };
  put("bos_token", tok.bos());
  put("eos_token", tok.eos());
  put("pad_token", tok.pad());
  std::vector<std::string> control;
  for (int32_t i = 0; i < tok.vocab_size(); ++i)
    if (tok.is_special(i)) control.push_back(tok.token(i));
  return tokenizer::ChatTemplate::compile(source, name, special, control);
}

// The ecosystem's variables, as huggingface_hub reads them.
net::HubSettings hub_settings() {
  net::HubSettings h;
  auto set = [](const char* name, std::string& to) {
    if (const std::string v = environment(name); !v.empty()) to = v;
  };
  set("HF_ENDPOINT", h.endpoint);
  set("HF_TOKEN", h.token);
  std::string home = environment("HF_HOME");
  if (home.empty()) {
    const std::string cache = environment("XDG_CACHE_HOME");
    home = (cache.empty() ? environment("HOME") + "/.cache" : cache) + "/huggingface";
  }
  h.cache_dir = home + "/hub";
  set("HF_HUB_CACHE", h.cache_dir);
  const std::string offline = environment("HF_HUB_OFFLINE");
  h.offline = offline == "1" || offline == "true" || offline == "TRUE" || offline == "True";
  set("HTTPS_PROXY", h.proxy);
  set("NO_PROXY", h.no_proxy);
  h.cancel = &g_stop;
  return h;
}

}  // namespace

std::string environment(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

std::string resolve_model(const std::string& name, const std::optional<std::string>& revision) {
  std::error_code ec;
  if (fs::exists(name, ec)) return name;
  const bool a_path = name.starts_with(".") || name.starts_with("/") || name.ends_with(".gguf") || std::count(name.begin(), name.end(), '/') != 1;
  if (a_path) fail_missing("{}: no such model folder or file (for the quickstart's weights: ./dev weights)", name);
  return net::download_snapshot(hub_settings(), name, net::RepoType::kModel, revision.value_or("main"),
                                {"*.json", "*.safetensors", "*.jinja", "merges.txt", "vocab.txt"});
}

TextSide load_text_side(const std::string& path) {
  TextSide s;
  s.tok = load_tokenizer(path);
  s.chat = compile_template(*s.tok, s.tok->chat_template(), path + ": chat template");
  return s;
}

TextSide text_side_of(const config::Recipe& recipe, const std::string& model_path) {
  TextSide s;
  if (recipe.model.tokenizer && *recipe.model.tokenizer == "char") s.tok = tokenizer::Tokenizer::characters(data::corpus_characters(recipe));
  else if (recipe.model.tokenizer) s.tok = load_tokenizer(resolve_model(*recipe.model.tokenizer, std::nullopt));
  else if (!model_path.empty()) s.tok = load_tokenizer(model_path);
  else fail_input("{}: model.tokenizer: a model from scratch needs one: a folder, a Hub id, a .gguf file or char", recipe.source);
  if (recipe.model.chat_template) s.chat = compile_template(*s.tok, read_file(*recipe.model.chat_template), *recipe.model.chat_template);
  else s.chat = compile_template(*s.tok, s.tok->chat_template(), "chat template");
  return s;
}

std::unique_ptr<data::Coder> make_coder(const TextSide& side) { return std::make_unique<TokenizerCoder>(side); }

void save_text_side(const TextSide& side, const std::string& folder) { side.tok->save(folder); }

void set_threads(int asked) {
  if (asked <= 0) {
    const std::string env = environment("OMP_NUM_THREADS");
    if (!env.empty()) asked = std::atoi(env.c_str());
  }
  if (asked <= 0) asked = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  set_num_threads(asked);
}

DType parse_dtype(const std::string& name) {
  if (name == "bfloat16" || name == "bf16") return DType::kBF16;
  if (name == "float32" || name == "fp32" || name == "f32") return DType::kF32;
  fail_input("--dtype {}: bfloat16 or float32", name);
}

}  // namespace mxt::app

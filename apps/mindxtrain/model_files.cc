#include "model_files.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "config/model_table.h"
#include "data/prepare.h"
#include "exit.h"
#include "formats/family.h"
#include "formats/gguf.h"
#include "formats/gguf_tokenizer.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "formats/vision.h"
#include "formats/weight_source.h"
#include "harness.h"
#include "home_path.h"
#include "image/processor.h"
#include "kernels/backend.h"
#include "machine.h"
#include "net/hub.h"
#include "net/unreachable.h"
#include "provenance/sign.h"
#include "semantic.h"
#include "shipped.h"
#include "tokenizer/chat/tools_as_text.h"
#include "train/setup.h"

namespace mxt::app {
namespace {

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
  t.tool_template = d.tool_template;
  t.source = path;
  return tokenizer::Tokenizer::from_gguf(t);
}

std::shared_ptr<const tokenizer::ChatTemplate> compile_template(const tokenizer::Tokenizer& tok,
                                                                const std::string& source, const std::string& name) {
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

void take_own_templates(TokenizerBundle& s, const std::string& name) {
  s.chat_source = s.tok->chat_template(), s.tool_source = s.tok->tool_template();
  s.chat = compile_template(*s.tok, s.chat_source, name);
  if (s.chat && !s.tool_source.empty())
    s.chat = s.chat->with_tools(compile_template(*s.tok, s.tool_source, name + " tool_use"));
}

// What a download says while it lasts. Several files come at once, and their sizes are known as each begins.
class Fetching {
 public:
  void update(const std::string& path, uint64_t done) {
    const std::lock_guard hold(mutex_);
    bytes_ += done - std::exchange(of_[path], done);
    progress_.update(static_cast<double>(bytes_), fmt::format("{}, {}", human_bytes(bytes_), printable(path)));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, uint64_t> of_;
  uint64_t bytes_ = 0;  // of this process: what an earlier one left counts as it is met
  log::Progress progress_{"fetching from the Hub"};
};

}  // namespace

net::Proxies proxies() {
  // OpenSSL reads the variable, and passes over a file that it cannot use: the system's authorities would be trusted
  // in the place of those that were asked for.
  if (const std::string own = environment("SSL_CERT_FILE"); !own.empty()) {
    std::error_code ec;
    if (!fs::is_regular_file(own, ec) || read_file(own).find("-----BEGIN ") == std::string::npos)
      fail_input("SSL_CERT_FILE={}: is no file of certificate authorities: name a PEM file that has them, or unset it",
                 printable(own));
  }
  const auto either = [](const char* small, const char* large) {
    const std::string v = environment(small);
    return v.empty() ? environment(large) : v;
  };
  return {.https = either("https_proxy", "HTTPS_PROXY"),
          .http = either("http_proxy", "HTTP_PROXY"),
          .none = either("no_proxy", "NO_PROXY")};
}

// As huggingface_hub reads them.
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
    home = (cache.empty() ? home_folder() + "/.cache" : cache) + "/huggingface";
  }
  h.cache_dir = home + "/hub";
  set("HF_HUB_CACHE", h.cache_dir);
  std::string offline = environment("HF_HUB_OFFLINE");
  for (char& c : offline) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  h.offline = offline == "1" || offline == "ON" || offline == "YES" || offline == "TRUE";
  const std::string named = environment("HF_TOKEN_PATH"), file = named.empty() ? home + "/token" : named;
  std::error_code ec;
  if (h.token.empty() && fs::is_regular_file(file, ec)) h.token = read_file(file);  // what `hf auth login` leaves
  h.token = trim(h.token);
  h.proxies = proxies();
  h.cancel = &g_stop;
  h.progress = [all = std::make_shared<Fetching>()](const std::string& path, uint64_t done, uint64_t) {
    all->update(path, done);
  };
  return h;
}

std::string environment(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

std::string home_folder() {
  const std::string named = environment("HOME");
  if (!named.empty()) return named;
  const passwd* user = getpwuid(geteuid());
  return user && user->pw_dir ? user->pw_dir : "";
}

std::string key_passphrase() { return environment(provenance::kPassphraseVariable); }

data::Access data_access(const config::Recipe& recipe, Fetch fetch) {
  data::Access a;
  if (recipe.eval) a.eval_texts = [eval = *recipe.eval] { return eval_texts(eval); };
  a.hub = hub_settings();
  std::string cache = environment("XDG_CACHE_HOME");
  if (cache.empty() && !home_folder().empty()) cache = home_folder() + "/.cache";
  if (!cache.empty()) a.cache_dir = cache + "/mindxtrain";
  a.shipped = shipped_file;
  a.variable = [](const std::string& name) { return environment(name.c_str()); };
  a.embedder = [fetch](const std::string& model) { return make_embedder(model, "data.dedupe.semdedup.model", fetch); };
  a.scorer = [fetch](const std::string& model) { return make_scorer(model, "data.filter.perplexity_model", fetch); };
  a.cancel = &g_stop;
  return a;
}

namespace {

// What lies beside a model and is taken for one.
void refuse_near_models(const std::string& name) {
  std::error_code ec;
  const fs::path path(name);
  if (fs::is_regular_file(path, ec) && name.ends_with(".safetensors"))
    fail_input("{}: is a file of weights; a model is its folder, with config.json: {}", name,
               path.has_parent_path() ? path.parent_path().string() : ".");
  if (!fs::is_directory(path, ec) || fs::exists(path / "config.json", ec)) return;
  if (fs::exists(path / "adapter_config.json", ec))
    fail_input(
        "{}: is an adapter (PEFT), not a model: name the base that it was trained on, and this folder as adapter",
        name);
  for (const auto& inner : fs::directory_iterator(path, ec))
    if (fs::is_regular_file(inner.path() / "config.json", ec))
      fail_input("{}: is no model folder, as it has no config.json; {} is one", name, inner.path().string());
}

}  // namespace

std::string resolve_model(const std::string& name, const std::optional<std::string>& revision, Fetch fetch,
                          Parts parts) {
  std::error_code ec;
  if (name.starts_with(kMadeBefore))
    fail_missing(
        "{}: is what that recipe trains, and `mindxtrain run` makes it first; or train it, and name its checkpoint",
        name);
  if (fs::is_directory(name, ec) && !fs::exists(name + "/config.json", ec)) {
    auto files = glob_files(name + "/*.gguf");
    // What sees pictures is a file beside the model's.
    std::erase_if(files, [](const std::string& f) { return fs::path(f).filename().string().starts_with("mmproj"); });
    if (files.size() == 1) return files[0];
    const auto parts_of_one = glob_files(name + "/*-00001-of-*.gguf");
    if (parts_of_one.size() == 1 && glob_files(name + "/*-of-*.gguf").size() == files.size()) return parts_of_one[0];
  }
  if (fs::exists(name, ec)) {
    if (parts == Parts::kAll) refuse_near_models(name);
    if (revision) log::warn("{}: is on this machine, so revision \"{}\" of the Hub is not looked at", name, *revision);
    return name;
  }
  if (const size_t at = name.find('@'); at != std::string::npos && at + 1 < name.size() && !revision)
    return resolve_model(name.substr(0, at), name.substr(at + 1), fetch, parts);
  if (const std::string quickstart = quickstart_weights(name, fetch); !quickstart.empty()) return quickstart;
  if (const config::KnownModel* known = config::model_of_name(name))
    return resolve_model(known->id, revision || known->revision.empty() ? revision : known->revision, fetch, parts);
  // Of a model's page, as a browser shows it.
  if (const size_t scheme = name.find("://"); scheme != std::string::npos) {
    const std::vector<std::string_view> path = split(std::string_view(name).substr(scheme + 3), '/');
    const std::string id = path.size() > 2 ? fmt::format("{}/{}", path[1], path[2]) : "";
    fail_input("{}: is an address, and a model is named by its id{}", printable(name),
               net::is_repo_id(id) ? ": " + id : ": ORGANISATION/NAME");
  }
  const bool a_path =
      name.starts_with(".") || name.starts_with("/") || name.ends_with(".gguf") || !net::is_repo_id(name);
  if (a_path)
    fail_missing("{}: no such model folder or file (`mindxtrain models` lists names that are fetched from the Hub)",
                 name);
  net::HubSettings hub = hub_settings();
  hub.offline = hub.offline || fetch == Fetch::kNever;
  // A mistyped folder or short name as well as an id without organisation.
  const std::string near = name.find('/') == std::string::npos ? config::nearest_model(name) : "";
  if (name.find('/') == std::string::npos)
    log::info("{}: no folder or file here and no name of `mindxtrain models`{}, so it is taken for the Hub's", name,
              near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
  std::vector<std::string> allow{"*.json", "*.jinja", "merges.txt", "vocab.txt"};
  // Not every tensor file: repositories hold the same weights in other layouts too (consolidated, original/, adapters).
  if (parts == Parts::kAll) allow.insert(allow.end(), {"model.safetensors", "model-*-of-*.safetensors"});
  std::string folder;
  try {
    folder = net::download_snapshot(hub, name, net::RepoType::kModel, revision.value_or("main"), allow);
  } catch (const Error& e) {
    if (e.code() == Exit::kInterrupted) throw;
    std::string remedy;
    if (dynamic_cast<const net::Unreachable*>(&e))
      remedy = fmt::format(
          ", HF_ENDPOINT (a mirror) or https_proxy; or fetch it where there is a network with \"hf download {}\" and "
          "copy "
          "what lies in its cache to {}",
          name, hub.cache_dir);
    if (!near.empty()) remedy += fmt::format("; did you mean {}? (`mindxtrain models` lists short names)", near);
    if (remedy.empty()) throw;
    throw Error(e.code(), e.what() + remedy);
  }
  if (parts == Parts::kAll && hub.offline && glob_files(folder + "/*.safetensors").empty())
    fail_missing(
        "{}: the cache {} holds its configuration but not its weights, and the Hub is not asked while offline: unset "
        "HF_HUB_OFFLINE, or fetch them where there is a network with \"hf download {}\"",
        name, hub.cache_dir, name);
  return folder;
}

std::string resolve_model(const config::Recipe& recipe, Fetch fetch, Parts parts) {
  const auto& m = recipe.model;
  return m.init == config::Init::kPretrained ? resolve_model(m.name, m.revision, fetch, parts) : "";
}

bool has_tokenizer(const std::string& path) {
  return formats::is_gguf(path) || fs::exists(path + "/tokenizer.json") || fs::exists(path + "/vocab.json") ||
         fs::exists(path + "/vocab.txt");
}

std::optional<data::PictureRules> picture_rules(const std::string& folder, const tokenizer::Tokenizer* tok) {
  const std::string file = folder + "/config.json";
  if (!fs::is_regular_file(file)) return std::nullopt;
  // Configurations of others are none of a tokenizer's business, whatever they hold.
  const Json j = Json::parse(read_file(file), nullptr, false);
  const auto type = j.is_object() ? j.find("model_type") : j.end();
  if (!j.is_object() || type == j.end() || !type->is_string()) return std::nullopt;
  const formats::Family* f = formats::family_of_type(type->get<std::string>());
  if (!f || !(f->vision || f->optional_vision)) return std::nullopt;
  // A tower that may be left out is there where its weights are.
  if (f->optional_vision && (!j.contains("vision_config") ||
                             !formats::Safetensors::open(folder).find("model.visual.patch_embed.proj.weight")))
    return std::nullopt;
  return picture_rules(formats::read_model_config(folder), folder, tok);
}

TokenizerBundle load_text_side(const std::string& path, const std::string& adapter) {
  TokenizerBundle s;
  s.tok = load_tokenizer(path);
  s.pictures = picture_rules(path, s.tok.get());
  const std::string trained_with = adapter + "/chat_template.jinja";
  if (!adapter.empty() && fs::is_regular_file(trained_with)) return with_template(s, trained_with);
  take_own_templates(s, path + ": chat template");
  return s;
}

std::string picture_remedy(const std::string& path) {
  if (!formats::is_gguf(path)) return "";
  return ": a GGUF file answers text alone here, whatever mmproj file lies beside it; what it was made from, a folder, "
         "may see them";
}

TokenizerBundle with_template(const TokenizerBundle& side, const std::string& file) {
  TokenizerBundle s = side;
  s.chat_source = read_file(file), s.tool_source.clear();
  s.chat = compile_template(*s.tok, s.chat_source, file);
  return s;
}

namespace {

// Of a model whose tower is used where it is asked for.
bool is_optional(const std::string& folder) {
  const std::string file = folder + "/config.json";
  if (!fs::is_regular_file(file)) return false;
  const Json j = Json::parse(read_file(file), nullptr, false);
  const formats::Family* f = nullptr;
  if (j.is_object() && j.contains("model_type") && j["model_type"].is_string())
    f = formats::family_of_type(j["model_type"].get<std::string>());
  return f && f->optional_vision;
}

// As the recipe wants them seen.
std::optional<data::PictureRules> rules_of(const config::Recipe& recipe, const std::string& model_path,
                                           const tokenizer::Tokenizer* tok) {
  std::optional<data::PictureRules> r;
  const auto of = [&](const formats::ModelConfig& config) {
    if (recipe.model.vision || !config.family->optional_vision) r = picture_rules(config, model_path, tok);
  };
  if (!recipe.model.config.empty() && model_path.empty())
    of(train::random_config(recipe, tok ? tok->vocab_size() : 0));
  else if (recipe.model.vision && !model_path.empty())
    of(formats::read_model_config(model_path));
  else if (!model_path.empty() && !is_optional(model_path))
    r = picture_rules(model_path, tok);
  if (r) r->processor = train::picture_sizes(r->processor, recipe);
  return r;
}

}  // namespace

void take_tools_in(const config::Recipe& recipe, TokenizerBundle* side) {
  if (recipe.data.tools_in != config::ToolsIn::kSystem) return;
  if (side->chat_source.empty())
    fail_input(
        "{}: data.tools_in: system is written by the chat template, and the model has none: set "
        "model.chat_template",
        recipe.source);
  side->chat_source = tokenizer::with_tools_as_text(side->chat_source), side->tool_source.clear();
  side->chat = compile_template(*side->tok, side->chat_source, "chat template with tools as text");
}

TokenizerBundle text_side_of(const config::Recipe& recipe, const std::string& model_path, Fetch fetch) {
  TokenizerBundle s;
  s.pictures = rules_of(recipe, model_path, nullptr);
  if (recipe.model.tokenizer && *recipe.model.tokenizer == "char")
    s.tok = tokenizer::Tokenizer::characters(data::corpus_characters(recipe, data_access(recipe)));
  else if (recipe.model.tokenizer == "train")
    return s;  // a stage of the run: who encodes rows waits for it, or asks coder_of()
  else if (recipe.model.tokenizer)
    s.tok = load_tokenizer(resolve_model(*recipe.model.tokenizer, std::nullopt, fetch, Parts::kNoWeights));
  else if (!model_path.empty() && has_tokenizer(model_path))
    s.tok = load_tokenizer(model_path);
  else
    return s;  // finished rows of ids need none; text is refused where it is met
  s.pictures = rules_of(recipe, model_path, s.tok.get());
  if (recipe.model.chat_template)
    s = with_template(s, *recipe.model.chat_template);
  else
    take_own_templates(s, "chat template");
  take_tools_in(recipe, &s);
  return s;
}

bool own_templates(const TokenizerBundle& side) {
  return side.chat_source == side.tok->chat_template() && side.tool_source == side.tok->tool_template();
}

std::unique_ptr<data::SampleEncoder> coder_of(const config::Recipe& recipe, Fetch fetch) {
  if (recipe.model.tokenizer == "train")
    fail_missing(
        "{}: model.tokenizer: train: is learned by `mindxtrain run`; for this, make one by `mindxtrain tokenizer train "
        "--ties rustbpe` and name its folder",
        recipe.source);
  const std::string model = resolve_model(recipe, fetch, Parts::kNoWeights);
  const TokenizerBundle side = text_side_of(recipe, model, fetch);
  const int64_t vocab = model.empty()             ? train::random_config(recipe, vocabulary_of(side)).vocab_size
                        : formats::is_gguf(model) ? formats::WeightSource::open(model)->config().vocab_size
                                                  : formats::read_model_config(model).vocab_size;
  return make_coder(side, vocab);
}

std::vector<std::string> judges_of(const config::Method& m) {
  std::vector<std::string> out;
  if (!m.is_rl()) return out;
  if (m.rewards.empty() && m.reward_model) out.push_back(*m.reward_model);
  for (const config::RewardPart& part : m.rewards)
    if (part.model) out.push_back(*part.model);
  return out;
}

std::vector<std::string> recipes_before(const config::Recipe& r) {
  std::vector<std::string> named = judges_of(r.train.method), out;
  named.push_back(r.model.name);
  if (r.train.method.lora && r.train.method.lora->init_adapter) named.push_back(*r.train.method.lora->init_adapter);
  for (const std::string& name : named)
    if (name.starts_with(kMadeBefore)) out.push_back(name.substr(kMadeBefore.size()));
  return out;
}

config::Recipe as_planned(const config::Recipe& recipe, int depth) {
  config::Recipe r = recipe;
  if (!r.model.name.starts_with(kMadeBefore)) return r;
  if (depth == kMostBefore) fail_starts_from_itself(recipe);
  const config::Recipe before = as_planned(load_recipe(r.model.name.substr(kMadeBefore.size())), depth + 1);
  r.model.name = before.model.name;
  r.model.revision = before.model.revision;
  r.model.init = before.model.init;
  r.model.config = before.model.config;
  if (!r.model.tokenizer) r.model.tokenizer = before.model.tokenizer;
  return r;
}

config::Recipe as_made(const config::Recipe& recipe, const std::string& run) {
  config::Recipe r = recipe;
  if (r.model.name.starts_with(kMadeBefore))
    r.model.name =
        fmt::format("{}/before/{}/checkpoint", run, fs::path(r.model.name.substr(kMadeBefore.size())).stem().string());
  if (r.model.tokenizer == "train") r.model.tokenizer = run + "/tokenizer";
  return r;
}

void fail_starts_from_itself(const config::Recipe& recipe) {
  fail_input("{}: the recipe before starts from another for the {}th time: one of them starts from itself",
             recipe.source, kMostBefore + 1);
}

std::optional<data::PictureRules> picture_rules(const formats::ModelConfig& config, const std::string& folder,
                                                const tokenizer::Tokenizer* tok) {
  const auto v = formats::vision_of(config);
  if (!v) return std::nullopt;
  data::PictureRules r;
  r.processor.patch = v->patch, r.processor.merge = v->merge, r.processor.frames = v->frames;
  if (fs::is_directory(folder)) r.processor = image::read_processor(folder, r.processor);
  if (r.processor.patch != v->patch || r.processor.merge != v->merge || r.processor.frames != v->frames)
    fail_input(
        "{}: the processor's patches ({} pixels, {} frames, {} a side of a token) are not the model's ({}, {}, {})",
        folder, r.processor.patch, r.processor.frames, r.processor.merge, v->patch, v->frames, v->merge);
  r.pad = static_cast<int32_t>(v->image_token);
  r.start = static_cast<int32_t>(v->start_token);
  r.end = static_cast<int32_t>(v->end_token);
  for (const auto& [id, text] : {std::pair{r.pad, &r.pad_text}, {r.start, &r.start_text}, {r.end, &r.end_text}})
    if (tok && id < tok->vocab_size()) *text = tok->token_bytes(id);
  return r;
}

infer::Shown shown_of(const data::PictureRules& rules, std::span<const data::SeenPicture> seen,
                      std::span<const int64_t> first) {
  infer::Shown s;
  for (size_t i = 0; i < seen.size(); ++i) {
    const image::Grid g = seen[i].grid;
    s.pictures.push_back({first[i], static_cast<int32_t>(g.height), static_cast<int32_t>(g.width)});
    const size_t at = s.pixels.size();
    s.pixels.resize(at + static_cast<size_t>(g.patches() * rules.processor.patch_values()));
    image::patches_of(rules.processor, g, seen[i].rgb.data(), s.pixels.data() + at);
  }
  return s;
}

PicturePrompt show_prompt(const tokenizer::Tokenizer& tok, const data::PictureRules& rules, std::string text,
                          std::vector<tokenizer::Span> plain, std::span<const data::SeenPicture> seen,
                          const std::string& where) {
  PicturePrompt p;
  std::vector<int32_t> none;
  std::vector<int64_t> first;
  data::spell_pictures(text, plain, nullptr, rules, seen.size(), where);
  p.ids = tok.encode(text, plain);
  data::expand_pictures(p.ids, none, rules, seen, first, where);
  p.shown = std::make_shared<infer::Shown>(shown_of(rules, seen, first));
  return p;
}

std::unique_ptr<data::SampleEncoder> make_coder(const TokenizerBundle& side, int64_t model_vocab) {
  return data::make_coder({side.tok, side.chat, side.chat_source + side.tool_source, model_vocab, side.pictures});
}

train::Vocabulary vocabulary_of(const TokenizerBundle& side) {
  if (!side.tok) return {};
  return {static_cast<int64_t>(side.tok->vocab_size()), side.tok->bos(), side.tok->eos()};
}

void save_text_side(const TokenizerBundle& side, const std::string& folder) {
  side.tok->save(folder);
  if (!own_templates(side)) save_template(side, folder);
}

void save_template(const TokenizerBundle& side, const std::string& folder) {
  write_file_atomic(folder + "/chat_template.jinja", side.chat_source);
  std::error_code ec;  // of the model's own; the one that is saved renders chats with tools too
  fs::remove(folder + "/additional_chat_templates/tool_use.jinja", ec);
}

int copy_text_files(const std::string& from, const std::string& to) {
  int copied = 0;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt", "vocab.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json",
        "generation_config.json", "preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json",
        "additional_chat_templates/tool_use.jinja"})
    if (fs::is_regular_file(from + "/" + name)) {
      fs::create_directories(fs::path(to + "/" + name).parent_path());
      write_file_atomic(to + "/" + name, read_file(from + "/" + name)), ++copied;
    }
  return copied;
}

void refuse_overwrite(const std::string& input, const std::string& output) {
  std::error_code ec;
  if (fs::equivalent(input, output, ec))
    fail_input("--output {}: the answers would overwrite what they are read from: choose another file", output);
}

void set_threads(int asked) {
  constexpr int kMost = 1024;
  if (asked < 0 || asked > kMost) fail_input("--threads {}: 1 to {}", asked, kMost);
  if (asked == 0)
    if (const std::string env = environment("OMP_NUM_THREADS"); !env.empty()) {
      asked = static_cast<int>(std::clamp(std::strtol(env.c_str(), nullptr, 10), -1L, long{kMost} + 1));
      if (asked < 1 || asked > kMost)
        fail_input("OMP_NUM_THREADS={}: a number of threads is wanted, 1 to {}", env, kMost);
    }
  if (asked <= 0) asked = usable_cores();
  set_num_threads(asked);
}

DType parse_dtype(const std::string& name) {
  if (name == "bfloat16" || name == "bf16") return DType::kBF16;
  if (name == "float32" || name == "fp32" || name == "f32") return DType::kF32;
  fail_input("--dtype {}: bfloat16 or float32", name);
}

namespace {

// In what the weights stand; also where the configuration says another type, and what bfloat16 would round.
std::string what_is_held(const formats::WeightSource& source, DType type) {
  const DType held = source.held_type();
  std::string text = fmt::format("the checkpoint being {}", name_of(held));
  if (source.config().quantization.empty()) {
    size_t all = 0, others = 0;
    bool finer = false;
    for (const std::string& name : source.names()) {
      const DType t = source.stored_type(name);
      if (t != DType::kF64 && t != DType::kF32 && t != DType::kF16 && t != DType::kBF16) continue;
      ++all;
      others += t != held && !(t == DType::kF64 && held == DType::kF32);
      finer = finer || t != DType::kBF16;
    }
    if (others > 0) text += fmt::format(" but for {} of {} tensors", others, all);
    if (type == DType::kBF16 && finer) text += ", rounded where bfloat16 computes with them";
  }
  if (const auto said = source.config().dtype; said && *said != held)
    text += fmt::format(" (config.json says {})", name_of(*said));
  return text;
}

}  // namespace

DType compute_type(const std::string& dtype, const std::string& model, const std::string& device) {
  if (!dtype.empty()) return parse_dtype(dtype);
  if (device != "cpu") {
    log::info("computing in bfloat16 (--dtype float32 for the other)");
    return DType::kBF16;
  }
  if (formats::is_gguf(model)) {
    log::info("computing in float32, as programs for GGUF files do (--dtype for another)");
    return DType::kF32;
  }
  const auto source = formats::WeightSource::open(model);
  const DType held = source->held_type();
  // Nothing of float16 is lost in float32; bfloat16 has three bits fewer. Of weights and configuration that differ the
  // finer is taken.
  const DType type = held == DType::kBF16 && source->config().dtype.value_or(held) == held ? held : DType::kF32;
  log::info("computing in {}, {} (--dtype for another)", type == DType::kF32 ? "float32" : "bfloat16",
            what_is_held(*source, type));
  return type;
}

kernels::Ops& ops_on(const std::string& asked) {
  std::string device = asked;  // names are in lower case, cards' own names are not
  std::transform(device.begin(), device.end(), device.begin(), [](unsigned char c) { return std::tolower(c); });
  std::vector<std::string> names;
  for (size_t i = 0; i < config::enum_names(config::GpuName{}).size(); ++i) {
    const auto name = static_cast<config::GpuName>(i);
    const kernels::BackendInfo* backend = kernels::backend_for(config::text_of(config::arch_of(name)));
    if (backend == nullptr) continue;
    if (device == config::text_of(name)) return *backend->open().ops;
    names.emplace_back(config::text_of(name));
  }
  const std::string near = nearest(device, names);
  fail_input("--device {}: this build has {}{}", asked, fmt::join(names, ", "),
             near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

}  // namespace mxt::app

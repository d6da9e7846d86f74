#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tokenizer/engine.h"
#include "tokenizer/io/load.h"
#include "tokenizer/io/save.h"

namespace mxt::tokenizer {

Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::from_spec(Spec spec) {
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::make_unique<const Engine>(std::move(spec))));
}
std::shared_ptr<const Tokenizer> Tokenizer::from_folder(const std::string& dir) {
  return from_spec(spec_from_folder(dir));
}
std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json, std::string_view source) {
  return from_spec(spec_from_json(tokenizer_json, std::string(source)));
}
std::shared_ptr<const Tokenizer> Tokenizer::from_gguf(const GgufTokenizerData& data) {
  return from_spec(spec_from_gguf(data));
}
std::shared_ptr<const Tokenizer> Tokenizer::characters(std::string_view data) {
  return from_spec(spec_of_characters(data));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, std::span<const Span> plain) const {
  std::vector<int32_t> ids;
  engine_->encode(text, plain, ids, nullptr);
  return ids;
}
void Tokenizer::encode_append(std::string_view text, std::vector<int32_t>& out, std::span<const Span> plain) const {
  engine_->encode(text, plain, out, nullptr);
}
std::vector<int32_t> Tokenizer::encode_with_offsets(std::string_view text, std::span<const Span> plain,
                                                    std::vector<Span>& offsets) const {
  std::vector<int32_t> ids;
  offsets.clear();
  engine_->encode(text, plain, ids, &offsets);
  return ids;
}
std::vector<int32_t> Tokenizer::encode_parallel(std::string_view text, int threads, std::span<const Span> plain) const {
  std::vector<int32_t> ids;
  engine_->encode_parallel(text, plain, threads, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  return engine_->decode(ids, skip_special);
}
std::string Tokenizer::token_bytes(int32_t id) const { return engine_->token_bytes(id); }
const std::string& Tokenizer::token(int32_t id) const { return engine_->token(id); }
int32_t Tokenizer::id_of(std::string_view token) const { return engine_->id_of(token); }
bool Tokenizer::is_special(int32_t id) const {
  const auto* a = engine_->added(id);
  return a && a->special;
}
bool Tokenizer::is_added(int32_t id) const { return engine_->added(id) != nullptr; }
int32_t Tokenizer::vocab_size() const { return engine_->vocab_size(); }
int32_t Tokenizer::bos() const { return engine_->bos; }
int32_t Tokenizer::eos() const { return engine_->eos; }
int32_t Tokenizer::pad() const { return engine_->pad; }

namespace {

// The special tokens before and after the text in a `TemplateProcessing`, or in one of a sequence's steps.
struct Around {
  std::vector<std::string> before, after;
};
void collect(const Json& p, Around& out) {
  const std::string type = p.is_object() ? p.value("type", "") : "";
  if (type == "Sequence" && p.contains("processors"))
    for (const Json& step : p["processors"]) collect(step, out);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    for (const char* key : {"cls", "sep"})
      if (p.contains(key) && p[key].is_array() && !p[key].empty() && p[key][0].is_string())
        (key[0] == 'c' ? out.before : out.after).push_back(p[key][0]);
  if (type != "TemplateProcessing" || !p.contains("single")) return;
  bool text = false;
  for (const Json& item : p["single"]) {
    if (!item.contains("SpecialToken"))
      text = true;
    else
      (text ? out.after : out.before).push_back(item["SpecialToken"].value("id", ""));
  }
}

std::vector<int32_t> ids_of(const Engine& engine, const std::vector<std::string>& tokens) {
  std::vector<int32_t> ids;
  for (const std::string& t : tokens)
    if (const int32_t id = engine.id_of(t); id >= 0) ids.push_back(id);
  return ids;
}

std::vector<int32_t> prefix_of(const Engine& engine) {
  const Spec& spec = engine.spec();
  Around around;
  collect(parse_json(spec.post_processor, spec.source), around);
  const Json config = parse_json(spec.config, spec.source);
  if (around.before.empty() && engine.bos >= 0 && spec.post_processor == "null" && config.contains("add_bos_token") &&
      config["add_bos_token"] == true)
    return {engine.bos};
  return ids_of(engine, around.before);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Engine> engine) : engine_(std::move(engine)), prefix_(prefix_of(*engine_)) {}

std::vector<int32_t> Tokenizer::encode_with_prefix(std::string_view text) const {
  std::vector<int32_t> ids = encode(text);
  if (ids.size() < prefix_.size() || !std::equal(prefix_.begin(), prefix_.end(), ids.begin()))
    ids.insert(ids.begin(), prefix_.begin(), prefix_.end());
  return ids;
}

std::vector<int32_t> Tokenizer::template_suffix() const {
  const Spec& spec = engine_->spec();
  Around around;
  collect(parse_json(spec.post_processor, spec.source), around);
  return ids_of(*engine_, around.after);
}

std::string Tokenizer::chat_template() const { return engine_->spec().chat_template; }
std::string Tokenizer::tool_template() const { return engine_->spec().tool_template; }
void Tokenizer::save(const std::string& dir) const { save_folder(engine_->spec(), engine_->vocab(), dir); }
GgufTokenizerData Tokenizer::to_gguf() const { return to_gguf_data(engine_->spec(), engine_->vocab(), *this); }

}  // namespace mxt::tokenizer

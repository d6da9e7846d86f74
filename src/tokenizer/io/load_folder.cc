#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "tokenizer/io/load.h"
#include "tokenizer/split/scanner.h"

namespace mxt::tokenizer {
namespace {

// "tok" or {"content": "tok", …}.
std::string token_text(const Json& j) {
  if (j.is_string()) return j.get<std::string>();
  if (j.is_object() && j.contains("content") && j.at("content").is_string()) return j.at("content").get<std::string>();
  return "";
}

std::vector<std::string_view> lines_of(std::string_view text) {
  auto lines = split(text, '\n');
  for (auto& l : lines)
    if (l.ends_with('\r')) l.remove_suffix(1);
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

// GPT-2's two files of old, which Qwen2 has too and cuts otherwise.
Spec from_vocab_and_merges(const std::string& dir, const Json& config) {
  Json merges = Json::array();
  const std::string text = read_file(dir + "/merges.txt");
  for (const auto line : lines_of(text))
    if (!line.starts_with("#version")) merges.push_back(line);
  const Json j{{"model", {{"type", "BPE"}, {"vocab", read_json_file(dir + "/vocab.json")}, {"merges", merges}}}};
  Spec spec = spec_from_json(j.dump(), dir + "/vocab.json, merges.txt");
  const std::string kind = config.value("tokenizer_class", "");
  if (kind.starts_with("Qwen2")) {
    set_byte_level(spec, pattern_of({ScanRule::Kind::kCl100k, 1}), false);
    spec.normalizer = R"({"type":"NFC"})";
  } else {
    set_byte_level(spec, "", false);
  }
  const auto& tokens = spec.model.tokens;
  const auto it = std::find(tokens.begin(), tokens.end(), "<|endoftext|>");
  if (it != tokens.end())
    spec.added.push_back({static_cast<int32_t>(it - tokens.begin()), "<|endoftext|>", true, true, false, false, false});
  return spec;
}

Spec from_vocab_txt(const std::string& dir, const Json& config) {
  Spec spec;
  spec.source = dir + "/vocab.txt";
  const std::string text = read_file(spec.source);
  spec.model.kind = ModelSpec::Kind::kWordPiece;
  spec.model.unk_token = "[UNK]";
  for (const auto line : lines_of(text)) {
    const auto id = static_cast<int32_t>(spec.model.tokens.size());
    spec.model.put(id, std::string(line));
    if (line == "[UNK]" || line == "[SEP]" || line == "[CLS]" || line == "[PAD]" || line == "[MASK]")
      spec.added.push_back({id, std::string(line), true, false, false, false, false});
  }
  spec.normalizer = Json{{"type", "BertNormalizer"},
                         {"clean_text", true},
                         {"handle_chinese_chars", config.value("tokenize_chinese_chars", true)},
                         {"strip_accents", config.contains("strip_accents") ? config.at("strip_accents") : Json()},
                         {"lowercase", config.value("do_lower_case", true)}}
                        .dump();
  spec.pre_tokenizer = R"({"type":"BertPreTokenizer"})";
  spec.decoder = R"({"type":"WordPiece","prefix":"##","cleanup":true})";
  const auto id_of = [&](const char* token) {
    const auto& t = spec.model.tokens;
    return std::find(t.begin(), t.end(), token) - t.begin();
  };
  if (const auto cls = id_of("[CLS]"), sep = id_of("[SEP]"), n = std::ssize(spec.model.tokens); cls < n && sep < n)
    spec.post_processor = Json{{"type", "BertProcessing"}, {"sep", {"[SEP]", sep}}, {"cls", {"[CLS]", cls}}}.dump();
  return spec;
}

// tokenizer_config.json, and what special_tokens_map.json puts in its place where the former is of before
// added_tokens_decoder: so transformers 5 reads the two.
Json named_tokens(const std::string& dir, const Json& config) {
  const std::string path = dir + "/special_tokens_map.json";
  if (config.contains("added_tokens_decoder") || !fs::exists(path)) return config;
  const Json map = read_json_file(path);
  if (!map.is_object()) fail_input("{}: not an object", path);
  Json named = config;
  named.update(map);
  return named;
}

void read_special(const std::string& dir, const Json& j, Spec& spec) {
  const auto take = [&](const char* key, std::string& to) {
    if (!j.contains(key)) return;
    const Json& token = j.at(key);
    const std::string text = token_text(token);
    if (text.empty() && !token.is_null() && token != "" && token != false)
      fail_input("{}: the tokenizer's \"{}\" is of type {}: give the token's text, as in tokenizer.json", dir, key,
                 token.type_name());
    if (to.empty()) to = text;
  };
  take("bos_token", spec.bos_token);
  take("eos_token", spec.eos_token);
  take("pad_token", spec.pad_token);
  take("unk_token", spec.unk_token);
}

bool has_lower_id(const AddedToken& a, const AddedToken& b) { return a.id < b.id; }

// They go by name (eos_token; a model's own: image_token), or stand in a list.
std::vector<Json> special_tokens(const Json& named) {
  constexpr std::array kNames{"bos_token", "eos_token", "unk_token", "sep_token",
                              "pad_token", "cls_token", "mask_token"};
  std::vector<Json> out;
  const auto add = [&](const Json& token) {
    if (!token_text(token).empty()) out.push_back(token);
  };
  for (const char* name : kNames)
    if (named.contains(name)) add(named.at(name));
  for (const auto& [key, token] : named.items())
    if (key.ends_with("_token")) add(token);
  const auto extra = named.find("extra_special_tokens");
  const auto list = extra != named.end() && !extra->empty() ? extra : named.find("additional_special_tokens");
  if (list != named.end() && list->is_structured())
    for (const Json& token : *list) add(token);
  return out;
}

// After those of the file, in the order of their ids.
void add_more(std::vector<AddedToken> more, Spec& spec) {
  if (more.empty()) return;
  std::stable_sort(more.begin(), more.end(), has_lower_id);
  spec.added.insert(spec.added.end(), more.begin(), more.end());
  check_added_ids(spec);
  std::stable_sort(spec.added.begin(), spec.added.end(), has_lower_id);
}

// {"token": id}, of before tokenizer_config.json knew added_tokens_decoder.
void read_added_tokens(const std::string& path, const std::vector<Json>& special, Spec& spec) {
  const Json all = read_json_file(path);
  if (!all.is_object()) fail_input("{}: not an object", path);
  std::vector<AddedToken> more;
  for (const auto& [content, id] : all.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > 9'999'999)
      fail_input("{}: \"{}\" has no token id", path, content);
    const bool known =
        std::any_of(spec.added.begin(), spec.added.end(), [&](const AddedToken& a) { return a.content == content; });
    if (known || content.empty()) continue;
    const bool is_special =
        std::any_of(special.begin(), special.end(), [&](const Json& token) { return token_text(token) == content; });
    more.push_back({.id = id.get<int32_t>(), .content = content, .special = is_special, .normalized = !is_special});
  }
  add_more(std::move(more), spec);
}

// Tokens that tokenizer_config.json knows and tokenizer.json does not: transformers adds them.
void read_added_decoder(const Json& config, Spec& spec) {
  const auto it = config.find("added_tokens_decoder");
  if (it == config.end() || !it->is_object()) return;
  std::vector<AddedToken> more;
  for (const auto& [key, t] : it->items()) {
    const std::string content = token_text(t);
    const bool known =
        std::any_of(spec.added.begin(), spec.added.end(), [&](const AddedToken& a) { return a.content == content; });
    if (known || content.empty()) continue;
    AddedToken a;
    a.content = content;
    if (key.empty() || key.size() > 7 || key.find_first_not_of("0123456789") != std::string::npos)
      fail_input("{}: added_tokens_decoder: \"{}\" is not a token id", spec.source, key);
    a.id = static_cast<int32_t>(std::stol(key));
    a.special = t.value("special", false);
    a.normalized = t.value("normalized", !a.special);
    a.lstrip = t.value("lstrip", false);
    a.rstrip = t.value("rstrip", false);
    a.single_word = t.value("single_word", false);
    more.push_back(std::move(a));
  }
  add_more(std::move(more), spec);
}

// The model's rows, as its config.json says; more than any vocabulary has where it says nothing.
int64_t rows_of(const Json& model) {
  for (const Json* j = &model; j->is_object(); j = &j->at("text_config")) {
    if (const auto n = j->find("vocab_size"); n != j->end() && n->is_number_integer()) return n->get<int64_t>();
    if (!j->contains("text_config")) break;
  }
  return std::numeric_limits<int32_t>::max();
}

// Those that nobody added are added by transformers: with the vocabulary's id, or the next. Where the model has no row
// of that id the token can stand in no text: it is left out, but not one that texts begin or end with.
void add_special(const std::vector<Json>& special, int64_t rows, Spec& spec) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t i = 0; i < spec.model.tokens.size(); ++i)
    if (spec.model.present[i]) ids.emplace(spec.model.tokens[i], static_cast<int32_t>(i));
  auto next = static_cast<int32_t>(ids.size());
  std::set<std::string> added;
  for (const AddedToken& a : spec.added) next = std::max(next, a.id + 1), added.insert(a.content);
  for (const Json& token : special) {
    AddedToken a{.content = token_text(token), .special = true};
    if (!added.insert(a.content).second) continue;
    const auto known = ids.find(a.content);
    a.id = known == ids.end() ? next : known->second;
    if (a.id >= rows && (a.content == spec.bos_token || a.content == spec.eos_token))
      fail_input(
          "{}: the {} \"{}\" is not in its vocabulary, nor is there room for it in the model's of {}: name one that "
          "is, in "
          "tokenizer_config.json or special_tokens_map.json",
          spec.source, a.content == spec.eos_token ? "eos_token" : "bos_token", a.content, rows);
    if (a.id >= rows) continue;
    if (token.is_object()) {
      a.normalized = token.value("normalized", false);
      a.lstrip = token.value("lstrip", false);
      a.rstrip = token.value("rstrip", false);
      a.single_word = token.value("single_word", false);
    }
    next = std::max(next, a.id + 1);
    spec.added.push_back(std::move(a));
  }
  std::stable_sort(spec.added.begin(), spec.added.end(), has_lower_id);
}

void read_template(const std::string& dir, const Json& config, Spec& spec) {
  if (fs::exists(dir + "/chat_template.jinja")) {
    spec.chat_template = read_file(dir + "/chat_template.jinja");
    if (const std::string named = dir + "/" + kToolTemplateFile; fs::exists(named))
      spec.tool_template = read_file(named);
    return;
  }
  const auto it = config.find("chat_template");
  if (it == config.end()) return;
  if (it->is_string()) spec.chat_template = it->get<std::string>();
  if (it->is_object()) spec.chat_template = it->value("default", ""), spec.tool_template = it->value("tool_use", "");
  if (!it->is_array()) return;
  for (const auto& t : *it) {
    if (t.value("name", "") == "default") spec.chat_template = t.value("template", "");
    if (t.value("name", "") == "tool_use") spec.tool_template = t.value("template", "");
  }
}

}  // namespace

Spec spec_from_folder(const std::string& dir) {
  const auto has = [&](const char* name) { return fs::exists(dir + "/" + name); };
  const Json config = has("tokenizer_config.json") ? read_json_file(dir + "/tokenizer_config.json") : Json::object();
  if (!config.is_object()) fail_input("{}/tokenizer_config.json: not an object", dir);
  Spec spec;
  try {
    if (has("tokenizer.json"))
      spec = spec_from_json(read_file(dir + "/tokenizer.json"), dir + "/tokenizer.json");
    else if (has("vocab.json") && has("merges.txt"))
      spec = from_vocab_and_merges(dir, config);
    else if (has("vocab.txt"))
      spec = from_vocab_txt(dir, config);
    else
      fail_input("{}: no tokenizer here: tokenizer.json (or vocab.json with merges.txt, or vocab.txt) is expected",
                 dir);
    const Json model = has("config.json") ? read_json_file(dir + "/config.json") : Json::object();
    const bool named = model.is_object() && model.contains("model_type") && model["model_type"].is_string();
    if (has("tokenizer.json")) apply_class_flags(config, named ? model["model_type"].get<std::string>() : "", spec);
    const Json tokens = named_tokens(dir, config);
    const std::vector<Json> special = special_tokens(tokens);
    read_special(dir, tokens, spec);
    read_added_decoder(config, spec);
    if (!config.contains("added_tokens_decoder") && has("added_tokens.json"))
      read_added_tokens(dir + "/added_tokens.json", special, spec);
    add_special(special, rows_of(model), spec);
    read_template(dir, config, spec);
    if (config.value("mindxtrain_characters", false)) spec.model.kind = ModelSpec::Kind::kCharacters;
  } catch (const Json::exception& e) {
    fail_input("{}/tokenizer_config.json: {}", dir, e.what());
  }
  spec.config = config.dump();
  return spec;
}

Spec spec_of_characters(std::string_view data) {
  const std::string text = replace_invalid_utf8(data);
  std::vector<bool> seen(0x110000);
  for (size_t i = 0; i < text.size();) seen[next_code_point(text, i)] = true;
  Spec spec;
  spec.source = "characters";
  spec.model.kind = ModelSpec::Kind::kCharacters;
  int32_t id = 0;
  for (uint32_t c = 0; c < seen.size(); ++c) {
    if (!seen[c]) continue;
    std::string token;
    append_utf8(token, c);
    spec.model.put(id++, token);
  }
  if (id == 0) fail_input("a character tokenizer needs data: the text is empty");
  spec.decoder = R"({"type":"Fuse"})";
  return spec;
}

}  // namespace mxt::tokenizer

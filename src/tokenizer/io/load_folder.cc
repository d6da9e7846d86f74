#include <algorithm>
#include <nlohmann/json.hpp>

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

void read_special(const Json& j, Spec& spec) {
  const auto take = [&](const char* key, std::string& to) {
    if (to.empty() && j.contains(key)) to = token_text(j.at(key));
  };
  take("bos_token", spec.bos_token);
  take("eos_token", spec.eos_token);
  take("pad_token", spec.pad_token);
  take("unk_token", spec.unk_token);
}

// {"token": id}, of before tokenizer_config.json knew added_tokens_decoder.
void read_added_tokens(const std::string& path, Spec& spec) {
  const Json all = read_json_file(path);
  if (!all.is_object()) fail_input("{}: not an object", path);
  for (const auto& [content, id] : all.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > 9'999'999)
      fail_input("{}: \"{}\" has no token id", path, content);
    const bool known =
        std::any_of(spec.added.begin(), spec.added.end(), [&](const AddedToken& a) { return a.content == content; });
    if (!known && !content.empty())
      spec.added.push_back({.id = id.get<int32_t>(), .content = content, .normalized = true});
  }
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
  const auto lower = [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; };
  std::stable_sort(more.begin(), more.end(), lower);
  spec.added.insert(spec.added.end(), more.begin(), more.end());
  if (!more.empty()) check_added_ids(spec);
  std::stable_sort(spec.added.begin(), spec.added.end(), lower);
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
    read_special(config, spec);
    if (has("special_tokens_map.json")) read_special(read_json_file(dir + "/special_tokens_map.json"), spec);
    read_added_decoder(config, spec);
    if (!config.contains("added_tokens_decoder") && has("added_tokens.json"))
      read_added_tokens(dir + "/added_tokens.json", spec);
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

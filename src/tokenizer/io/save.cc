#include "tokenizer/io/save.h"

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "tokenizer/io/load.h"

namespace mxt::tokenizer {
namespace {

std::string quoted(const std::string& s) { return Json(s).dump(); }

OrderedJson added_json(const AddedToken& a) {
  return {{"id", a.id},         {"content", a.content},       {"single_word", a.single_word}, {"lstrip", a.lstrip},
          {"rstrip", a.rstrip}, {"normalized", a.normalized}, {"special", a.special}};
}

// The model by hand: hundreds of thousands of entries need no tree of JSON values.
std::string model_json(const Spec& spec, const Vocab& vocab) {
  const ModelSpec& m = spec.model;
  const auto yes = [](bool b) { return b ? "true" : "false"; };
  const std::string unk = m.unk_token.empty() ? "null" : quoted(m.unk_token);
  std::string out;
  if (m.kind == ModelSpec::Kind::kWordPiece) {
    out = "{\"type\":\"WordPiece\",\"unk_token\":" + unk + ",\"continuing_subword_prefix\":" + quoted(m.prefix) +
          ",\"max_input_chars_per_word\":" + std::to_string(m.max_characters);
  } else {
    out = "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":" + unk +
          ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":" + yes(m.fuse_unk) +
          ",\"byte_fallback\":" + yes(m.byte_fallback) + ",\"ignore_merges\":" + yes(m.ignore_merges);
  }
  out += ",\"vocab\":{";
  const char* comma = "";
  size_t count = 0;
  const auto put = [&](const std::string& token, int32_t id) {
    out.append(comma).append(quoted(token)).append(":").append(std::to_string(id));
    comma = ",\n";
  };
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (!vocab.has(id)) continue;
    put(vocab.token(id), id);
    ++count;
  }
  // Added tokens keep their ids when read again only where the vocabulary names them, or where they follow it.
  if (!added_ids_follow(spec, [&](const std::string& t) { return vocab.find(t); }, count, nullptr))
    for (const auto& a : spec.added)
      if (vocab.find(a.content) < 0) put(a.content, a.id);
  out += "}";
  if (m.kind != ModelSpec::Kind::kWordPiece) {
    out += ",\"merges\":[";
    comma = "";
    for (const auto& [a, b] : m.merges) {
      out.append(comma)
          .append("[")
          .append(quoted(vocab.token(a)))
          .append(",")
          .append(quoted(vocab.token(b)))
          .append("]");
      comma = ",\n";
    }
    out += "]";
  }
  return out + "}";
}

}  // namespace

std::string tokenizer_json(const Spec& spec, const Vocab& vocab) {
  OrderedJson added = OrderedJson::array();
  for (const auto& a : spec.added) added.push_back(added_json(a));
  return "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":" + added.dump() +
         ",\n\"normalizer\":" + spec.normalizer + ",\n\"pre_tokenizer\":" + spec.pre_tokenizer +
         ",\n\"post_processor\":" + spec.post_processor + ",\n\"decoder\":" + spec.decoder +
         ",\n\"model\":" + model_json(spec, vocab) + "}\n";
}

void save_folder(const Spec& spec, const Vocab& vocab, const std::string& dir) {
  make_folders(dir);
  Json config = parse_json(spec.config, "tokenizer_config.json");
  const auto put = [&](const char* key, const std::string& token) {
    if (!token.empty() && !config.contains(key)) config[key] = token;
  };
  put("bos_token", spec.bos_token);
  put("eos_token", spec.eos_token);
  put("pad_token", spec.pad_token);
  put("unk_token", spec.unk_token);
  if (!config.contains("tokenizer_class")) config["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (spec.model.kind == ModelSpec::Kind::kCharacters) config["mindxtrain_characters"] = true;
  write_file_atomic(dir + "/tokenizer.json", tokenizer_json(spec, vocab));
  write_file_atomic(dir + "/tokenizer_config.json", config.dump(2) + "\n");
  if (!spec.chat_template.empty()) write_file_atomic(dir + "/chat_template.jinja", spec.chat_template);
  if (!spec.tool_template.empty()) {
    fs::create_directories(fs::path(dir + "/" + kToolTemplateFile).parent_path());
    write_file_atomic(dir + "/" + kToolTemplateFile, spec.tool_template);
  }
}

}  // namespace mxt::tokenizer

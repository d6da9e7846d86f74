#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "tokenizer/io/load.h"

namespace mxt::tokenizer {
namespace {

// Ids above this are not believed: a table of them is allocated.
constexpr int64_t kMostIds = 1 << 21;

int32_t id_from(const Json& j, const std::string& token, const std::string& source) {
  if (!j.is_number_integer() || j.get<int64_t>() < 0 || j.get<int64_t>() >= kMostIds)
    fail_input("{}: token \"{}\": id {} is not in 0..{}", source, token, j.dump(), kMostIds - 1);
  return static_cast<int32_t>(j.get<int64_t>());
}

bool flag(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && !it->is_null() && it->get<bool>();
}

std::string text_or_empty(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it == j.end() || it->is_null() ? std::string() : it->get<std::string>();
}

void read_vocab(const Json& vocab, ModelSpec& model, const std::string& source) {
  if (!vocab.is_object() || vocab.empty()) fail_input("{}: model.vocab is not an object with tokens", source);
  for (const auto& [token, id] : vocab.items()) {
    const int32_t i = id_from(id, token, source);
    if (static_cast<size_t>(i) < model.present.size() && model.present[static_cast<size_t>(i)])
      fail_input("{}: tokens \"{}\" and \"{}\" both have id {}", source, model.tokens[static_cast<size_t>(i)], token,
                 i);
    model.put(i, token);
  }
}

void read_merges(const Json& merges, ModelSpec& model, const std::string& source) {
  if (!merges.is_array()) fail_input("{}: model.merges is not a list", source);
  std::unordered_map<std::string_view, int32_t> ids;
  ids.reserve(model.tokens.size());
  for (size_t i = 0; i < model.tokens.size(); ++i)
    if (model.present[i]) ids.emplace(model.tokens[i], static_cast<int32_t>(i));
  const auto find = [&](std::string_view t, size_t k) {
    const auto it = ids.find(t);
    if (it == ids.end()) fail_input("{}: merge {}: \"{}\" is not in the vocabulary", source, k, t);
    return it->second;
  };
  model.merges.reserve(merges.size());
  for (const auto& m : merges) {
    const size_t k = model.merges.size();
    if (m.is_array() && m.size() == 2) {
      model.merges.emplace_back(find(m[0].get_ref<const std::string&>(), k),
                                find(m[1].get_ref<const std::string&>(), k));
      continue;
    }
    if (!m.is_string()) fail_input("{}: merge {} is neither a string nor a pair", source, k);
    const std::string_view s = m.get_ref<const std::string&>();
    const size_t blank = s.find(' ');
    if (blank == std::string_view::npos || s.find(' ', blank + 1) != std::string_view::npos)
      fail_input("{}: merge {}: \"{}\" is not two tokens with a space between", source, k, s);
    model.merges.emplace_back(find(s.substr(0, blank), k), find(s.substr(blank + 1), k));
  }
}

void read_model(const Json& m, Spec& spec) {
  const std::string& source = spec.source;
  ModelSpec& model = spec.model;
  // Old files name no type; they are BPE where they have merges, WordPiece where they say how long a word may be.
  const std::string type = m.contains("type")                       ? m.at("type").get<std::string>()
                           : m.contains("merges")                   ? "BPE"
                           : m.contains("max_input_chars_per_word") ? "WordPiece"
                                                                    : "without type";
  if (type == "BPE") {
    model.kind = ModelSpec::Kind::kBpe;
    if (m.contains("dropout") && !m.at("dropout").is_null() && m.at("dropout").get<double>() != 0)
      fail_input("{}: model.dropout {} makes ids random: set it to null", source, m.at("dropout").dump());
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!text_or_empty(m, key).empty()) fail_missing("{}: model.{} is not built in", source, key);
    model.ignore_merges = flag(m, "ignore_merges");
    model.byte_fallback = flag(m, "byte_fallback");
    model.fuse_unk = flag(m, "fuse_unk");
    model.unk_token = text_or_empty(m, "unk_token");
    read_vocab(m.at("vocab"), model, source);
    read_merges(m.at("merges"), model, source);
  } else if (type == "WordPiece") {
    model.kind = ModelSpec::Kind::kWordPiece;
    model.unk_token = m.value("unk_token", "[UNK]");
    model.prefix = m.value("continuing_subword_prefix", "##");
    model.max_characters = m.value("max_input_chars_per_word", 100);
    if (model.max_characters < 1) fail_input("{}: model.max_input_chars_per_word is not positive", source);
    read_vocab(m.at("vocab"), model, source);
  } else {
    if (type == "Unigram" || type == "WordLevel")
      fail_missing("{}: tokenizers of model {} are not built in: BPE and WordPiece are", source, type);
    fail_input("{}: model {} is not known (BPE and WordPiece are)", source, type);
  }
}

AddedToken read_added(const Json& t, const std::string& source) {
  AddedToken a;
  a.content = t.at("content").get<std::string>();
  a.id = id_from(t.at("id"), a.content, source);
  a.special = flag(t, "special");
  a.normalized = t.contains("normalized") ? flag(t, "normalized") : !a.special;
  a.lstrip = flag(t, "lstrip");
  a.rstrip = flag(t, "rstrip");
  a.single_word = flag(t, "single_word");
  return a;
}

}  // namespace

bool added_ids_follow(const Spec& spec, const std::function<int32_t(const std::string&)>& id_in_vocab,
                      size_t vocab_count, std::string* why) {
  int64_t highest = -1;
  for (const auto& a : spec.added) {
    int64_t id = id_in_vocab(a.content);
    if (id < 0) id = std::max(highest + 1, static_cast<int64_t>(vocab_count));
    if (id != a.id) {
      if (why) *why = fmt::format("added token \"{}\" has id {}, but Hugging Face gives it {}", a.content, a.id, id);
      return false;
    }
    highest = std::max(highest, id);
  }
  return true;
}

void check_added_ids(const Spec& spec) {
  std::unordered_map<std::string_view, int32_t> ids;  // of the added tokens alone: a vocabulary is long
  for (const auto& a : spec.added) ids.emplace(a.content, -1);
  size_t count = 0;
  for (size_t i = 0; i < spec.model.tokens.size(); ++i) {
    if (!spec.model.present[i]) continue;
    ++count;
    if (const auto it = ids.find(spec.model.tokens[i]); it != ids.end()) it->second = static_cast<int32_t>(i);
  }
  std::string why;
  const auto find = [&](const std::string& t) { return ids.at(t); };
  if (!added_ids_follow(spec, find, count, &why))
    fail_input("{}: {}: put the token into model.vocab with the id that is meant", spec.source, why);
}

Spec spec_from_json(std::string_view text, const std::string& source) {
  const Json j = parse_json(text, source);
  Spec spec;
  spec.source = source;
  if (!j.is_object() || !j.contains("model") || !j.at("model").is_object())
    fail_input("{}: not a tokenizer.json: it has no \"model\"", source);
  try {
    read_model(j.at("model"), spec);
    if (j.contains("added_tokens") && !j.at("added_tokens").is_null())
      for (const auto& t : j.at("added_tokens")) spec.added.push_back(read_added(t, source));
    check_added_ids(spec);
    std::stable_sort(spec.added.begin(), spec.added.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    const auto part = [&](const char* key, std::string& to) {
      if (const auto it = j.find(key); it != j.end()) to = it->dump();
    };
    part("normalizer", spec.normalizer);
    part("pre_tokenizer", spec.pre_tokenizer);
    part("post_processor", spec.post_processor);
    part("decoder", spec.decoder);
  } catch (const Json::exception& e) {
    fail_input("{}: {}", source, e.what());
  }
  return spec;
}

void set_byte_level(Spec& spec, std::string_view pattern, bool digits_apart) {
  const auto level = [](bool regex) {
    return Json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", regex}};
  };
  Json steps = Json::array();
  if (digits_apart) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (!pattern.empty())
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back(level(pattern.empty()));
  spec.pre_tokenizer =
      steps.size() == 1 ? steps[0].dump() : Json{{"type", "Sequence"}, {"pretokenizers", steps}}.dump();
  spec.decoder = level(true).dump();
  spec.post_processor = level(true).dump();
}

}  // namespace mxt::tokenizer

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/text/normalize.h"

namespace mxt::tokenizer {
namespace {

using FormKind = NormalizerStep::Kind;

bool bool_at(const Json& j, const char* key, bool otherwise) {
  const auto it = j.find(key);
  return it == j.end() || it->is_null() ? otherwise : it->get<bool>();
}

void add(const Json& spec, const std::string& source, std::vector<NormalizerStep>& steps) {
  const auto type = spec.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const auto& s : spec.at("normalizers")) add(s, source, steps);
  } else if (type == "NFC") {
    steps.push_back({FormKind::kNfc});
  } else if (type == "NFD") {
    steps.push_back({FormKind::kNfd});
  } else if (type == "NFKC") {
    steps.push_back({FormKind::kNfkc});
  } else if (type == "NFKD") {
    steps.push_back({FormKind::kNfkd});
  } else if (type == "Lowercase") {
    steps.push_back({FormKind::kLowercase});
  } else if (type == "StripAccents") {
    steps.push_back({FormKind::kStripAccents});
  } else if (type == "Strip") {
    steps.push_back({FormKind::kStrip, bool_at(spec, "strip_left", true), bool_at(spec, "strip_right", true)});
  } else if (type == "Prepend") {
    NormalizerStep s{FormKind::kPrepend};
    s.content = spec.at("prepend").get<std::string>();
    steps.push_back(std::move(s));
  } else if (type == "Replace") {
    NormalizerStep s{FormKind::kReplace};
    s.content = spec.at("content").get<std::string>();
    const Json& pattern = spec.at("pattern");
    if (pattern.contains("String"))
      s.pattern = pattern.at("String").get<std::string>();
    else
      s.regex = std::make_shared<Regex>(pattern.at("Regex").get<std::string>(), source);
    if (!s.regex && s.pattern.empty()) fail_input("{}: normalizer: Replace of an empty string", source);
    steps.push_back(std::move(s));
  } else if (type == "BertNormalizer") {
    const bool lower = bool_at(spec, "lowercase", true);
    if (bool_at(spec, "clean_text", true)) steps.push_back({FormKind::kBertClean});
    if (bool_at(spec, "handle_chinese_chars", true)) steps.push_back({FormKind::kBertChinese});
    if (bool_at(spec, "strip_accents", lower)) {
      steps.push_back({FormKind::kNfd});
      steps.push_back({FormKind::kBertAccents});
    }
    if (lower) steps.push_back({FormKind::kLowercase});
  } else {
    if (type == "Nmt" || type == "Precompiled" || type == "ByteLevel")
      fail_missing("{}: normalizer {} is not built in", source, type);
    fail_input("{}: normalizer {} is not known", source, type);
  }
}

}  // namespace

Normalizer normalizer_from_json(const Json& spec, const std::string& source) {
  std::vector<NormalizerStep> steps;
  if (!spec.is_null()) add(spec, source, steps);
  return Normalizer(std::move(steps));
}

}  // namespace mxt::tokenizer

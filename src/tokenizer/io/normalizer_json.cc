#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/text/normalize.h"

namespace mxt::tokenizer {
namespace {

using Kind = NormalizerStep::Kind;

bool flag(const Json& j, const char* key, bool otherwise) {
  const auto it = j.find(key);
  return it == j.end() || it->is_null() ? otherwise : it->get<bool>();
}

void add(const Json& spec, const std::string& source, std::vector<NormalizerStep>& steps) {
  const auto type = spec.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const auto& s : spec.at("normalizers")) add(s, source, steps);
  } else if (type == "NFC") {
    steps.push_back({Kind::kNfc});
  } else if (type == "NFD") {
    steps.push_back({Kind::kNfd});
  } else if (type == "NFKC") {
    steps.push_back({Kind::kNfkc});
  } else if (type == "NFKD") {
    steps.push_back({Kind::kNfkd});
  } else if (type == "Lowercase") {
    steps.push_back({Kind::kLowercase});
  } else if (type == "StripAccents") {
    steps.push_back({Kind::kStripAccents});
  } else if (type == "Strip") {
    steps.push_back({Kind::kStrip, flag(spec, "strip_left", true), flag(spec, "strip_right", true)});
  } else if (type == "Prepend") {
    NormalizerStep s{Kind::kPrepend};
    s.content = spec.at("prepend").get<std::string>();
    steps.push_back(std::move(s));
  } else if (type == "Replace") {
    NormalizerStep s{Kind::kReplace};
    s.content = spec.at("content").get<std::string>();
    const Json& pattern = spec.at("pattern");
    if (pattern.contains("String"))
      s.pattern = pattern.at("String").get<std::string>();
    else
      s.regex = std::make_shared<Regex>(pattern.at("Regex").get<std::string>(), source);
    if (!s.regex && s.pattern.empty()) fail_input("{}: normalizer: Replace of an empty string", source);
    steps.push_back(std::move(s));
  } else if (type == "BertNormalizer") {
    const bool lower = flag(spec, "lowercase", true);
    if (flag(spec, "clean_text", true)) steps.push_back({Kind::kBertClean});
    if (flag(spec, "handle_chinese_chars", true)) steps.push_back({Kind::kBertChinese});
    if (flag(spec, "strip_accents", lower)) {
      steps.push_back({Kind::kNfd});
      steps.push_back({Kind::kBertAccents});
    }
    if (lower) steps.push_back({Kind::kLowercase});
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

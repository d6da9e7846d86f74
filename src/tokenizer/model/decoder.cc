#include "tokenizer/model/decoder.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/io/byte_level.h"

namespace mxt::tokenizer {
namespace {

void replace_all(std::string& s, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  std::string out;
  size_t at = 0;
  for (size_t hit; (hit = s.find(from, at)) != std::string::npos; at = hit + from.size())
    out.append(s, at, hit - at).append(to);
  if (at > 0) s = out.append(s, at);
}

// tokenizers' clean-up for WordPiece, in its order.
void clean_up(std::string& s) {
  static constexpr std::string_view kPairs[][2] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& p : kPairs) replace_all(s, p[0], p[1]);
}

bool byte_token(const std::string& t, char& byte) {
  if (t.size() != 6 || t.compare(0, 3, "<0x") != 0 || t[5] != '>') return false;
  int v = 0;
  for (int i = 3; i < 5; ++i) {
    const char c = t[static_cast<size_t>(i)];
    const int d = c >= '0' && c <= '9'   ? c - '0'
                  : c >= 'A' && c <= 'F' ? c - 'A' + 10
                  : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                         : -1;
    if (d < 0) return false;
    v = v * 16 + d;
  }
  byte = static_cast<char>(v);
  return true;
}

// Runs of byte tokens become text; a run that is not valid UTF-8 becomes one U+FFFD a byte.
void byte_fallback(std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (is_valid_utf8(run))
      out.push_back(run);
    else
      out.insert(out.end(), run.size(), "\xEF\xBF\xBD");
    run.clear();
  };
  for (auto& t : tokens) {
    char b;
    if (byte_token(t, b)) {
      run += b;
    } else {
      flush();
      out.push_back(std::move(t));
    }
  }
  flush();
  tokens.swap(out);
}

void strip(std::string& t, std::string_view mark, int left, int right) {
  size_t b = 0, e = t.size();
  for (int i = 0; i < left && t.compare(b, mark.size(), mark) == 0 && b + mark.size() <= e; ++i) b += mark.size();
  for (int i = 0; i < right && e >= b + mark.size() && t.compare(e - mark.size(), mark.size(), mark) == 0; ++i)
    e -= mark.size();
  t = t.substr(b, e - b);
}

}  // namespace

Decoder::Decoder(const Json& spec, const std::string& source) {
  if (spec.is_null()) return;
  null_ = false;
  add(spec, source);
}

void Decoder::add(const Json& spec, const std::string& source) {
  const auto type = spec.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const auto& s : spec.at("decoders")) add(s, source);
    return;
  }
  Step step{Step::Kind::kByteLevel};
  if (type == "ByteLevel") {
  } else if (type == "WordPiece") {
    step = {Step::Kind::kWordPiece, spec.value("prefix", "##"), "", spec.value("cleanup", true)};
  } else if (type == "ByteFallback") {
    step = {Step::Kind::kByteFallback};
  } else if (type == "Fuse") {
    step = {Step::Kind::kFuse};
  } else if (type == "Strip") {
    step = {Step::Kind::kStrip, spec.value("content", " "), "", false, spec.value("start", 0), spec.value("stop", 0)};
  } else if (type == "Replace") {
    if (!spec.at("pattern").contains("String"))
      fail_missing("{}: decoder: Replace by a regular expression is not built in", source);
    step = {Step::Kind::kReplace, spec.at("pattern").at("String").get<std::string>(),
            spec.at("content").get<std::string>()};
  } else if (type == "Metaspace") {
    const std::string scheme = spec.value("prepend_scheme", spec.value("add_prefix_space", true) ? "always" : "never");
    step = {Step::Kind::kMetaspace, spec.value("replacement", std::string("\xE2\x96\x81")), "", scheme != "never"};
  } else if (type == "BPEDecoder") {
    step = {Step::Kind::kBpe, spec.value("suffix", "</w>")};
  } else {
    if (type == "CTC") fail_missing("{}: decoder {} is not built in", source, type);
    fail_input("{}: decoder {} is not known", source, type);
  }
  steps_.push_back(std::move(step));
}

void Decoder::apply(const Step& step, std::vector<std::string>& tokens) {
  using Kind = Step::Kind;
  const size_t n = tokens.size();
  switch (step.kind) {
    case Kind::kByteLevel: {
      std::string all, raw;
      for (const auto& t : tokens) all += unspell_bytes(t, raw) ? raw : t;
      tokens = {replace_invalid_utf8(all)};
      return;
    }
    case Kind::kWordPiece:
      for (size_t i = 0; i < n; ++i) {
        auto& t = tokens[i];
        if (i > 0) {
          if (t.starts_with(step.a))
            t.erase(0, step.a.size());
          else
            t.insert(0, 1, ' ');
        }
        if (step.flag) clean_up(t);
      }
      return;
    case Kind::kByteFallback:
      return byte_fallback(tokens);
    case Kind::kFuse: {
      std::string all;
      for (const auto& t : tokens) all += t;
      tokens = {std::move(all)};
      return;
    }
    case Kind::kStrip:
      for (auto& t : tokens) strip(t, step.a, step.left, step.right);
      return;
    case Kind::kReplace:
      for (auto& t : tokens) replace_all(t, step.a, step.b);
      return;
    case Kind::kMetaspace:
      for (size_t i = 0; i < n; ++i) {
        auto& t = tokens[i];
        if (i == 0 && step.flag && t.starts_with(step.a)) t.erase(0, step.a.size());
        replace_all(t, step.a, " ");
      }
      return;
    case Kind::kBpe:
      for (size_t i = 0; i < n; ++i) replace_all(tokens[i], step.a, i + 1 == n ? "" : " ");
      return;
  }
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  std::string out;
  if (null_) {
    for (size_t i = 0; i < tokens.size(); ++i) (out += i ? " " : "") += tokens[i];
    return out;
  }
  for (const auto& step : steps_) apply(step, tokens);
  for (const auto& t : tokens) out += t;
  return out;
}

}  // namespace mxt::tokenizer

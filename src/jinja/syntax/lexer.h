// Cuts a template into tokens as Jinja's lexer does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/jinja.h"

namespace mxt::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 1;
  std::string text;  // names, operators, unescaped strings, digits without underscores
};

// Throws TemplateError. `source` is valid UTF-8.
std::vector<Token> tokenize(std::string_view source, std::string_view name, const Style& style = {});

}  // namespace mxt::jinja

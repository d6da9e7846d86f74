// A refusal in OpenAI's shape: {"error":{"message","type","param","code"}}.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>

#include "serve/http/server.h"

namespace mxt::serve {

struct ApiError : std::exception {
  int status = 400;
  std::string type = "invalid_request_error", message, param, code;
  int retry_after = 0;  // seconds; 0: not said
  const char* what() const noexcept override { return message.c_str(); }
};

HttpAnswer to_answer(const ApiError& e);
std::string to_json(const ApiError& e);  // the body alone, as an event of a stream has it

template <typename... A>
[[noreturn]] void refuse(std::string param, fmt::format_string<A...> f, A&&... a) {
  ApiError e;
  e.param = std::move(param);
  e.message = fmt::format(f, std::forward<A>(a)...);
  throw e;
}
[[noreturn]] void refuse_status(int status, std::string type, std::string code, std::string message,
                                int retry_after = 0);

}  // namespace mxt::serve

#include "serve/api_error.h"

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace mxt::serve {

std::string to_json(const ApiError& e) {
  auto text = [](const std::string& s) { return s.empty() ? OrderedJson(nullptr) : OrderedJson(s); };
  OrderedJson j;
  j["error"] = {{"message", e.message}, {"type", e.type}, {"param", text(e.param)}, {"code", text(e.code)}};
  return j.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

HttpAnswer to_answer(const ApiError& e) {
  HttpAnswer a{e.status, {{"Content-Type", "application/json"}}, to_json(e)};
  if (e.retry_after > 0) a.headers.emplace_back("Retry-After", std::to_string(e.retry_after));
  if (e.status == 401) a.headers.emplace_back("WWW-Authenticate", "Bearer");
  return a;
}

void refuse_status(int status, std::string type, std::string code, std::string message, int retry_after) {
  ApiError e;
  e.status = status;
  e.type = std::move(type);
  e.code = std::move(code);
  e.message = std::move(message);
  e.retry_after = retry_after;
  throw e;
}

}  // namespace mxt::serve

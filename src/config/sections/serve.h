// Section `serve`. The section absent = the stage is off.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/enums.h"

namespace mxt::config {

struct Serve {
  ServeBackend backend = ServeBackend::kNative;
  ReasoningParser reasoning_parser = ReasoningParser::kQwen3;
  ToolCallParser tool_call_parser = ToolCallParser::kHermes;
  int64_t tensor_parallel = 1;
  int64_t max_model_len = 8192;
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::optional<std::string> upstream;  // URL of a running vLLM or SGLang, for those backends
};

}  // namespace mxt::config

// Rows from a teacher model behind an OpenAI-compatible endpoint (POST …/chat/completions).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "config/sections/data.h"
#include "net/http.h"

namespace mxt::data {

struct TeacherReport {
  int64_t rows = 0;      // in the file
  int64_t requests = 0;  // sent by this call, retries counted
  int64_t prompt_tokens = 0, answer_tokens = 0;  // of all rows, as the endpoint counted them
  double cost_usd = 0;                           // of all rows, at the recipe's prices
};

// Asks the teacher each prompt of the recipe's rows (at most `rows`) and appends {"messages": […]} to the JSONL file
// `out`, one line a prompt as it is answered, in their order. A line also holds the digest of its request, so answers
// that are there are not paid for again: the same call goes on after a stop. 408, 409, 429 and 5xx are tried again (five
// times, waiting 1, 2, 4 … s or what Retry-After asks for); no request is sent faster than the rate, nor past a cap.
// Errors: kMissing where the key's variable is unset, the endpoint cannot be reached or refuses the key, or a cap is
// reached (what is there is kept; the message says how far it came); kBadInput for answers that make no sense.
TeacherReport ask_teacher(const config::Teacher& teacher, int64_t rows, const std::string& api_key,
                          const net::HttpOptions& options, const std::string& out);

}  // namespace mxt::data

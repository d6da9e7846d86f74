// Where answers are sold: a request waits here until it is paid for. Internal to the room.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "pay/meter.h"
#include "serve/operator_state.h"

namespace mxt::serve {

// The reply of a request whose grant wants to know its answer, and that it went out.
std::shared_ptr<Reply> keeping(std::shared_ptr<Reply> reply, const std::shared_ptr<pay::Grant>& grant);

// When an answer must be over because its payment is; never for one that is settled, or free (null).
std::chrono::steady_clock::time_point paid_until(const std::shared_ptr<pay::Grant>& grant);

using Granted = std::function<void(std::vector<infer::Request>, std::shared_ptr<pay::Grant>)>;

// Calls `granted`: at once, with a null grant, where nothing is sold; else once it is paid for, perhaps on another
// thread, where its errors become the answer and leave the payment good for another try. Who has not paid gets the
// refusal as answer. The price is that of the prompts (each of `per_prompt` requests alike) and of the longest answers.
void when_paid(OperatorState& s, const HttpRequest& http, const std::shared_ptr<Reply>& reply,
               std::vector<infer::Request> requests, size_t per_prompt, Granted granted);

}  // namespace mxt::serve

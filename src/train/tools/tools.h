// Tools that answer the calls of sampled answers, so that an answer has several turns.
//   calculator   {"expression": "12*(3+4)"}: its value (infer/calculator.h)
//   lookup       {"key": "…"}: what the table, a JSON object, has for it
//   command      a Python program in the sandbox (eval/code/sandbox.h): it reads {"name", "arguments"} as a JSON line
//                and what it writes is the result
// A result is text. What cannot be answered is a result too, {"error": "…"}: the policy reads it and may go on.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "infer/calls.h"
#include "infer/tool.h"
#include "train/rollouts.h"

namespace mxt::train {

// What tools need of rooms that training does not know.
struct ToolServices {
  // What the program `argv[0]` (its text is `source`) writes; nothing where it fails or takes longer.
  using Run = std::function<std::optional<std::string>(const std::string& source, const std::vector<std::string>& argv,
                                                       const std::string& input, double seconds)>;
  Run run;
  std::function<std::string(const std::string&)> cut;  // a result as the policy is to read it; null: as it is
  // What follows a turn with calls: a result each, and the next turn's beginning (infer/tool_turn.h). Null where the
  // policy has no chat template.
  std::function<std::vector<int32_t>(std::span<const infer::Call>, std::span<const std::string>)> turn;
};

// What of the tools cannot be used, each "KEY: what", as wrong_rewards() (train/rewards/rewards.h) says it.
std::vector<std::string> wrong_tools(const config::Method& method);

class Tools {
 public:
  // Errors (kBadInput, kMissing): a table or a program that cannot be read, a policy without a chat template.
  Tools(const config::Method& method, const ToolServices& services);
  struct Result {
    std::string text;
    bool failed = false;
  };
  Result answer(const infer::Call& call) const;  // as the policy reads it, cut where it is long
  std::vector<int32_t> turn(std::span<const infer::Call> calls, std::span<const std::string> results) const {
    return services_.turn(calls, results);
  }
  int64_t max_turns() const { return max_turns_; }

 private:
  struct Entry {
    config::RolloutTool settings;
    std::map<std::string, std::string> table;
    std::string source;
  };
  Result ask(const infer::Call& call) const;
  std::map<std::string, Entry> tools_;
  ToolServices services_;
  int64_t max_turns_;
};

// One answer while it is sampled. The scheduler asks it after each token, and says what it returns in the answer's
// place; told() decides whether the answer goes on, and is called with each token first.
class AnswerTurns : public infer::Tool {
 public:
  using Decode = std::function<std::string(std::span<const int32_t>)>;
  // `room`: tokens that the answer may have. All of these must outlive it.
  AnswerTurns(const Tools& tools, const Decode& decode, std::span<const int32_t> ends, int64_t room, Completion& answer)
      : tools_(tools), decode_(decode), ends_(ends), room_(room), answer_(answer) {}
  bool told(int32_t id, float logp);
  std::vector<int32_t> after(int32_t id) override;
  void finish();  // notes the last turn

 private:
  void note_turn(bool ended);
  const Tools& tools_;
  const Decode& decode_;
  std::span<const int32_t> ends_;
  int64_t room_, turns_ = 0;
  size_t given_ = 0;  // tokens of the results that are still to come
  std::vector<int32_t> turn_, results_;
  Completion& answer_;
};

}  // namespace mxt::train

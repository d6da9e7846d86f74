// What sampled answers are worth: one reward, or several added up by their weights.
//   answer       1 where the answer's final number (infer/final_answer.h) is the reference's; none where that has none
//   exact        1 where both texts are equal but for white space at their ends
//   regex        1 where the pattern is found in the answer
//   length       1 from min_tokens to max_tokens; outside of these less by the share that is missing or too much
//   json_schema  1 where the answer is JSON that the schema allows (json_schema.h)
//   tool_call    of a call (or a list of calls) as JSON: half where the name is the reference's, and the other half by
//                the share of arguments that are equal, those that one side alone has counted as wrong; of an answer
//                with turns the calls of all of them
//   code         1 where the answer's Python, then the reference as its tests, runs to its end in the sandbox
//   command      what a program says: it reads a JSON line {"prompt", "answer", "reference"} for each answer (and
//                "turns" where there are tools) and writes
//                a line for each: a number, or null where it cannot tell
//   http         the same as one POST of {"answers": […]}, answered by {"rewards": […]}
//   model        what a reward model (infer/reward_model.h) says of the prompt with its answer, token by token as they
//   are
// A reward that cannot tell (null) is left out of an answer's sum; an answer without any has no reward at all.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/stop.h"
#include "config/recipe.h"
#include "train/rollouts.h"

namespace mxt::train {

// Of an answer, by its size: squares of advantages and their sums over a step are floats still.
inline constexpr double kMostReward = 1e15;

struct Answer {
  std::string prompt, text, reference;
  int64_t tokens = 0;
  std::vector<int32_t> ids;   // of the prompt with its answer
  std::vector<Turn> turns{};  // where there are tools: then `text` is the last one's
};

class Reward {
 public:
  virtual ~Reward() = default;
  // A number for each, nothing where it cannot tell. An Error where it failed.
  virtual std::vector<std::optional<double>> score(std::span<const Answer> answers, StopFlag stop) = 0;
};

// What rewards need of rooms that training does not know.
struct RewardServices {
  // Whether each Python program runs to its end, as eval/code/sandbox.h says; null where nothing was given.
  using RunPrograms =
      std::function<std::vector<bool>(const std::vector<std::string>& programs, double seconds, StopFlag stop)>;
  RunPrograms run_programs;
  // Opens a reward model that reads the policy's tokens: a number for each sequence.
  using ScoreSequences = std::function<std::vector<float>(const std::vector<std::vector<int32_t>>&, StopFlag)>;
  std::function<ScoreSequences(const std::string& folder)> open_model;
  std::string program_path;  // where the command of a bare name is looked for, as PATH says it; "": when it is started
};

// What of the rewards, and of the tools that answers may call, cannot be used, each "KEY: what; what to do", as far as
// it is known before anything runs: a pattern or a schema that is not understood, a command or a file that is not here,
// an address that is none. Empty where given rollouts bring the rewards, or the method samples nothing.
std::vector<std::string> wrong_rewards(const config::Recipe& recipe, const std::string& program_path);

class Rewards {
 public:
  // Errors (kBadInput, kMissing): what wrong_rewards() says, and services that cannot be had.
  Rewards(const config::Method& method, const RewardServices& services);
  // Fills in reward and rewards of each completion. kBadInput, by name, where a reward without error_value failed, or
  // where they come to more than kMostReward.
  void score(std::span<const Answer> answers, std::span<Completion* const> completions, StopFlag stop);

 private:
  struct Part {
    config::RewardPart settings;
    std::string name;
    std::unique_ptr<Reward> reward;
  };
  std::vector<Part> parts_;
};

// outside.cc
// `at`: the part's key, for messages.
std::unique_ptr<Reward> make_command_reward(const config::RewardPart& part, const std::string& at,
                                            const std::string& program_path);
std::unique_ptr<Reward> make_http_reward(const config::RewardPart& part, const std::string& at);
// tool_call.cc
double tool_call_reward(std::string_view answer, std::string_view reference);

}  // namespace mxt::train

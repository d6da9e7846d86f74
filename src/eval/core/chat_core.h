// ChatCORE as nanochat measures it (its chat_eval.py): ARC-Easy, ARC-Challenge, MMLU, GSM8K and HumanEval, asked in
// chats. Multiple choice is answered by the likeliest of the letters after the generation prompt; GSM8K by the number
// after #### of a greedy answer of at most 512 tokens, with the calculator's results in it; HumanEval by the first
// block of code of one, run with its tests. A task's score is its accuracy, centred at chance; ChatCORE is the mean
// over the five.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/evaluate.h"
#include "infer/continuations.h"

namespace mxt::eval {

struct ChatTask {
  std::string name;
  double baseline = 0;  // accuracy of a guess, 0 to 1
  struct Item {
    std::string asked;                 // the user's message
    std::vector<std::string> letters;  // of multiple choice; empty where the answer is generated
    std::string gold;                  // the letter, or the number
    std::string test, entry_point;     // of a program: its tests, the function that they check
  };
  std::vector<Item> items;
};

inline constexpr const char* kChatTasks[] = {"ARC-Easy", "ARC-Challenge", "MMLU", "GSM8K", "HumanEval"};

// The tasks of these names (none: all five), from FOLDER/ai2_arc/ARC-Easy, FOLDER/ai2_arc/ARC-Challenge, FOLDER/mmlu,
// FOLDER/gsm8k and FOLDER/humaneval (or the Hub's names, FOLDER/openai/gsm8k): their split test, as JSON lines, JSON,
// CSV or Parquet. `limit` > 0: the first items of each. Errors: kMissing for data that are not there; kBadInput names
// file, task and item: a missing or malformed member; an unknown task.
std::vector<ChatTask> read_chat_tasks(const std::string& folder, const std::vector<std::string>& names, int64_t limit);

// What the model is asked through.
struct ChatModel {
  std::function<std::vector<int32_t>(const std::string& asked)> prompt;  // with the generation prompt
  std::function<std::vector<int32_t>(const std::string& letter)> encode;
  std::function<bool(const std::vector<infer::Continuation>&, std::vector<infer::ContinuationScore>*)> score;
  std::function<bool(const std::vector<std::string>& asked, std::vector<std::string>* answers)> answer;  // greedy
  std::function<std::vector<bool>(const std::vector<std::string>& programs)> run_programs;
};

// chat_results: accuracy by task; chat_centered_results; chatcore_metric where all five were asked. Samples: what was
// asked, the answer and the verdict of each item. Unfinished where score() or answer() was interrupted.
Evaluation evaluate_chat_core(const std::vector<ChatTask>& tasks, const ChatModel& model);

std::string chat_core_table(const OrderedJson& results);

// What HumanEval runs of an answer: the imports of what was asked, the first ``` block (else all of it), the tests.
std::string answered_program(const ChatTask::Item& item, const std::string& answer);
// The number after ####, without commas; "" where there is none.
std::string answered_number(const std::string& text);

}  // namespace mxt::eval

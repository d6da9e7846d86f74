#include "eval/core/chat_core.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "eval/task/documents.h"
#include "pytext/python_regex.h"

namespace mxt::eval {
namespace {

using Item = ChatTask::Item;

struct Source {
  const char *name, *path, *config;
  double baseline;
  Item (*read)(const OrderedJson& row, const std::string& where);
};

const OrderedJson& need(const OrderedJson& row, const char* key, const std::string& where) {
  const auto it = row.find(key);
  if (it == row.end() || it->is_null()) fail_input("{}: \"{}\" is missing", where, key);
  return *it;
}

std::string field_text(const OrderedJson& row, const char* key, const std::string& where) {
  const OrderedJson& v = need(row, key, where);
  if (!v.is_string()) fail_input("{}: \"{}\" is no text", where, key);
  return v;
}

std::vector<std::string> texts(const OrderedJson& row, const char* key, const std::string& where) {
  const OrderedJson& v = need(row, key, where);
  const bool good =
      v.is_array() && !v.empty() && std::all_of(v.begin(), v.end(), [](const OrderedJson& x) { return x.is_string(); });
  if (!good) fail_input("{}: \"{}\" is no list of texts", where, key);
  return v.get<std::vector<std::string>>();
}

// The letter after the choice, and no space before it: so it is the token that the answer is.
std::string multiple_choice(const std::string& question, const std::vector<std::string>& letters,
                            const std::vector<std::string>& choices) {
  std::string asked = "Multiple Choice question: " + question + "\n";
  for (size_t i = 0; i < choices.size(); ++i) asked += "- " + choices[i] + "=" + letters[i] + "\n";
  return asked + "\nRespond only with the letter of the correct answer.";
}

Item read_arc(const OrderedJson& row, const std::string& where) {
  const OrderedJson& choices = need(row, "choices", where);
  if (!choices.is_object()) fail_input("{}: \"choices\" is no object with \"text\" and \"label\"", where);
  Item item;
  item.letters = texts(choices, "label", where);
  const auto said = texts(choices, "text", where);
  if (said.size() != item.letters.size())
    fail_input("{}: \"choices\" has {} texts and {} labels", where, said.size(), item.letters.size());
  item.gold = field_text(row, "answerKey", where);
  if (std::find(item.letters.begin(), item.letters.end(), item.gold) == item.letters.end())
    fail_input("{}: \"answerKey\" {} is none of the labels", where, item.gold);
  item.asked = multiple_choice(field_text(row, "question", where), item.letters, said);
  return item;
}

Item read_mmlu(const OrderedJson& row, const std::string& where) {
  Item item;
  item.letters = {"A", "B", "C", "D"};
  const auto said = texts(row, "choices", where);
  if (said.size() != 4) fail_input("{}: \"choices\" are {}, not 4", where, said.size());
  const OrderedJson& answer = need(row, "answer", where);
  if (!answer.is_number_integer() || answer < 0 || answer > 3) fail_input("{}: \"answer\" is none of 0 to 3", where);
  item.gold = item.letters[answer.get<size_t>()];
  item.asked = multiple_choice(field_text(row, "question", where), item.letters, said);
  return item;
}

Item read_gsm8k(const OrderedJson& row, const std::string& where) {
  Item item;
  item.asked = field_text(row, "question", where);
  item.gold = answered_number(field_text(row, "answer", where));
  if (item.gold.empty()) fail_input("{}: \"answer\" has no \"#### number\"", where);
  return item;
}

Item read_humaneval(const OrderedJson& row, const std::string& where) {
  Item item;
  item.asked = field_text(row, "prompt", where);
  item.test = field_text(row, "test", where);
  item.entry_point = field_text(row, "entry_point", where);
  return item;
}

constexpr Source kSources[] = {{"ARC-Easy", "allenai/ai2_arc", "ARC-Easy", 0.25, read_arc},
                               {"ARC-Challenge", "allenai/ai2_arc", "ARC-Challenge", 0.25, read_arc},
                               {"MMLU", "cais/mmlu", "all", 0.25, read_mmlu},
                               {"GSM8K", "openai/gsm8k", "main", 0, read_gsm8k},
                               {"HumanEval", "openai/humaneval", "openai_humaneval", 0, read_humaneval}};

ChatTask read_chat_task(const Source& source, const std::string& folder, int64_t limit) {
  ChatTask task{source.name, source.baseline, {}};
  const OrderedJson config = {{"task", source.name}, {"dataset_path", source.path}, {"dataset_name", source.config}};
  Dataset data(config, {folder});
  const Table& rows = data.split("test");
  for (size_t i = 0; i < rows.rows.size() && (limit == 0 || i < static_cast<size_t>(limit)); ++i)
    task.items.push_back(source.read(rows.rows[i], fmt::format("{}: {}, item {}", folder, source.name, i + 1)));
  return task;
}

// The letter that is likeliest where the answer begins, the first of equals.
bool choose_letters(const ChatTask& task, const ChatModel& model, std::vector<std::string>* answers) {
  std::vector<infer::Continuation> rows;
  for (const Item& item : task.items) {
    const std::vector<int32_t> prompt = model.prompt(item.asked);
    for (const std::string& letter : item.letters) {
      const std::vector<int32_t> ids = model.encode(letter);
      if (ids.size() != 1)
        fail_input("{}: the answer \"{}\" is {} tokens in this vocabulary; ChatCORE compares single ones", task.name,
                   letter, ids.size());
      rows.push_back({prompt, 1});
      rows.back().ids.push_back(ids[0]);
    }
  }
  std::vector<infer::ContinuationScore> scores;
  if (!model.score(rows, &scores)) return false;
  size_t at = 0;
  for (const Item& item : task.items) {
    size_t best = 0;
    for (size_t k = 1; k < item.letters.size(); ++k)
      if (scores[at + k].logprob > scores[at + best].logprob) best = k;
    answers->push_back(item.letters[best]);
    at += item.letters.size();
  }
  return true;
}

std::vector<bool> verdicts(const ChatTask& task, const std::vector<std::string>& answers, const ChatModel& model) {
  std::vector<bool> right;
  std::vector<std::string> programs;
  for (size_t i = 0; i < task.items.size(); ++i) {
    const Item& item = task.items[i];
    if (!item.entry_point.empty())
      programs.push_back(answered_program(item, answers[i]));
    else
      right.push_back((item.letters.empty() ? answered_number(answers[i]) : answers[i]) == item.gold);
  }
  return programs.empty() ? right : model.run_programs(programs);
}

}  // namespace

std::string answered_number(const std::string& said) {
  static const pytext::PythonRegex kNumber(R"(#### (-?[0-9.,]+))", "GSM8K");
  const auto found = kNumber.findall(said);
  if (found.empty()) return "";
  std::string number = found[0][0];
  std::erase(number, ',');
  return number;
}

std::string answered_program(const ChatTask::Item& item, const std::string& answer) {
  std::string imports;
  for (const std::string_view line : split(item.asked, '\n')) {
    const std::string_view said = trim(line);
    if (said.starts_with("import ") || said.starts_with("from "))
      imports += (imports.empty() ? "" : "\n") + std::string(said);
    else if (!said.empty() && !said.starts_with("#"))
      break;
  }
  static const pytext::PythonRegex kBlock(R"(```(?:python)?\s*\n([\s\S]*?)\n```)", "HumanEval");
  const auto blocks = kBlock.findall(answer);
  const std::string code(trim(blocks.empty() ? answer : blocks[0][0]));
  return imports + "\n\n" + code + "\n\n" + item.test + "\ncheck(" + item.entry_point + ")";
}

std::vector<ChatTask> read_chat_tasks(const std::string& folder, const std::vector<std::string>& names, int64_t limit) {
  std::vector<ChatTask> tasks;
  for (const std::string& name : names)
    if (std::none_of(std::begin(kSources), std::end(kSources), [&](const Source& s) { return s.name == name; }))
      fail_input("ChatCORE has no task {}: ARC-Easy, ARC-Challenge, MMLU, GSM8K, HumanEval", name);
  for (const Source& source : kSources)
    if (names.empty() || std::find(names.begin(), names.end(), source.name) != names.end())
      tasks.push_back(read_chat_task(source, folder, limit));
  return tasks;
}

Evaluation evaluate_chat_core(const std::vector<ChatTask>& tasks, const ChatModel& model) {
  Evaluation out;
  out.results = {{"chat_results", OrderedJson::object()}, {"chat_centered_results", OrderedJson::object()}};
  double sum = 0;
  for (const ChatTask& task : tasks) {
    std::vector<std::string> answers, asked;
    for (const Item& item : task.items) asked.push_back(item.asked);
    const bool choice = !task.items.empty() && !task.items[0].letters.empty();
    if (choice ? !choose_letters(task, model, &answers) : !model.answer(asked, &answers)) {
      out.finished = false;
      return out;
    }
    const std::vector<bool> right = verdicts(task, answers, model);
    TaskSamples samples{task.name, {}};
    for (size_t i = 0; i < task.items.size(); ++i)
      samples.samples.push_back({{"doc_id", i},
                                 {"asked", asked[i]},
                                 {"answer", answers[i]},
                                 {"gold", task.items[i].gold},
                                 {"correct", static_cast<bool>(right[i])}});
    out.samples.push_back(std::move(samples));
    const double accuracy =
        static_cast<double>(std::count(right.begin(), right.end(), true)) / static_cast<double>(right.size());
    const double centred = (accuracy - task.baseline) / (1 - task.baseline);
    out.results["chat_results"][task.name] = accuracy;
    out.results["chat_centered_results"][task.name] = centred;
    sum += centred;
  }
  if (tasks.size() == std::size(kSources)) out.results["chatcore_metric"] = sum / static_cast<double>(tasks.size());
  return out;
}

std::string chat_core_table(const OrderedJson& r) {
  std::string out = fmt::format("{:<35} {:>10} {:>10}\n", "task", "accuracy", "centred");
  for (const auto& [name, accuracy] : r["chat_results"].items())
    out += fmt::format("{:<35} {:>10.4f} {:>10.4f}\n", name, accuracy.get<double>(),
                       r["chat_centered_results"][name].get<double>());
  if (r.contains("chatcore_metric"))
    out += fmt::format("{:<35} {:>10} {:>10.4f}\n", "ChatCORE", "", r["chatcore_metric"].get<double>());
  return out;
}

}  // namespace mxt::eval

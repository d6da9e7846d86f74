#include "train/rewards/rewards.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "infer/final_answer.h"
#include "pytext/python_regex.h"
#include "train/rewards/json_schema.h"
#include "train/tools/tools.h"

namespace mxt::train {
namespace {

using Values = std::vector<std::optional<double>>;

// A reward that is a function of one answer.
class Each : public Reward {
 public:
  using Of = std::function<std::optional<double>(const Answer&)>;
  explicit Each(Of of) : of_(std::move(of)) {}
  Values score(std::span<const Answer> answers, StopFlag) override {
    Values out;
    for (const Answer& a : answers) out.push_back(of_(a));
    return out;
  }

 private:
  Of of_;
};

std::unique_ptr<Reward> each(Each::Of of) { return std::make_unique<Each>(std::move(of)); }

class FinalNumber : public Reward {
 public:
  Values score(std::span<const Answer> answers, StopFlag) override {
    Values out;
    for (const Answer& a : answers) {
      const std::string want = infer::final_answer(a.reference);
      out.push_back(want.empty() ? std::nullopt : std::optional(infer::final_answer(a.text) == want ? 1.0 : 0.0));
      if (want.empty() && !std::exchange(said_, true))
        log::warn(
            "reward answer: a row's answer holds no number ({}): what is sampled to it and others like it cannot "
            "be judged",
            printable(std::string_view(a.reference).substr(0, 80)));
    }
    return out;
  }

 private:
  bool said_ = false;
};

double length_reward(int64_t tokens, int64_t least, int64_t most) {
  const auto n = static_cast<double>(tokens);
  if (tokens < least) return n / static_cast<double>(least);
  return tokens > most ? static_cast<double>(most) / n : 1;
}

// The Python of an answer: what stands in its last fence, else all of it.
std::string code_of(const std::string& text) {
  const size_t close = text.rfind("```");
  if (close == std::string::npos || close == 0) return text;
  const size_t open = text.rfind("```", close - 1);
  if (open == std::string::npos) return text;
  const size_t line = text.find('\n', open);
  return line == std::string::npos || line > close ? text : text.substr(line + 1, close - line - 1);
}

class Code : public Reward {
 public:
  Code(const config::RewardPart& part, const RewardServices& services)
      : seconds_(part.timeout_seconds), run_(services.run_programs) {
    MXT_ASSERT(run_);
  }
  Values score(std::span<const Answer> answers, StopFlag stop) override {
    std::vector<std::string> programs;
    for (const Answer& a : answers) programs.push_back(code_of(a.text) + "\n\n" + a.reference + "\n");
    Values out;
    for (const bool passed : run_(programs, seconds_, stop)) out.emplace_back(passed ? 1 : 0);
    return out;
  }

 private:
  double seconds_;
  RewardServices::RunPrograms run_;
};

class ByModel : public Reward {
 public:
  ByModel(const config::RewardPart& part, const std::string& at, const RewardServices& services) {
    if (!services.open_model) fail_missing("{}: kind model: the policy has no tokenizer to compare", at);
    score_ = services.open_model(*part.model);
  }
  Values score(std::span<const Answer> answers, StopFlag stop) override {
    std::vector<std::vector<int32_t>> sequences;
    for (const Answer& a : answers) sequences.push_back(a.ids);
    Values out;
    for (const float x : score_(sequences, stop)) out.emplace_back(static_cast<double>(x));
    return out;
  }

 private:
  RewardServices::ScoreSequences score_;
};

// Where an answer's calls stand.
std::string calls_text(const Answer& a) {
  std::string called;
  for (const Turn& t : a.turns)
    if (t.role == "assistant" && t.text.find("<tool_call>") != std::string::npos) called += t.text;
  return called.empty() ? a.text : called;
}

std::shared_ptr<const JsonSchema> read_schema(const std::string& path, const std::string& at) {
  try {
    return std::make_shared<const JsonSchema>(JsonSchema::read(path));
  } catch (const Error& e) {
    fail_input("{}.schema: {}", at, e.what());
  }
}

// `at`: the part's key, for messages.
std::unique_ptr<Reward> make(const config::RewardPart& part, const std::string& at, const RewardServices& services) {
  using K = config::RewardKind;
  switch (part.kind) {
    case K::kAnswer:
      return std::make_unique<FinalNumber>();
    case K::kExact:
      return each([](const Answer& a) { return trim(a.text) == trim(a.reference) ? 1.0 : 0.0; });
    case K::kRegex: {
      auto regex = std::make_shared<const pytext::PythonRegex>(*part.pattern, at + ".pattern");
      return each([regex](const Answer& a) { return regex->search(a.text) ? 1.0 : 0.0; });
    }
    case K::kLength:
      return each([least = part.min_tokens.value_or(0), most = *part.max_tokens](const Answer& a) {
        return length_reward(a.tokens, least, most);
      });
    case K::kJsonSchema: {
      return each([schema = read_schema(*part.schema, at)](const Answer& a) {
        const auto j = read_ordered_json(trim(a.text));
        return j && schema->allows(*j) ? 1.0 : 0.0;
      });
    }
    case K::kToolCall:
      return each([](const Answer& a) { return tool_call_reward(calls_text(a), a.reference); });
    case K::kCode:
      return std::make_unique<Code>(part, services);
    case K::kCommand:
      return make_command_reward(part, at, services.program_path);
    case K::kHttp:
      return make_http_reward(part, at);
    case K::kModel:
      return std::make_unique<ByModel>(part, at, services);
  }
  return nullptr;
}

std::string key_of(size_t part) { return fmt::format("train.method.rewards[{}]", part); }

// What `reward` says, as a list of one.
config::RewardPart single(const config::Method& m) {
  config::RewardPart part;
  part.kind = m.reward == config::Reward::kExact    ? config::RewardKind::kExact
              : m.reward == config::Reward::kAnswer ? config::RewardKind::kAnswer
                                                    : config::RewardKind::kModel;
  part.model = m.reward_model;
  return part;
}

}  // namespace

std::vector<std::string> wrong_rewards(const config::Recipe& r, const std::string& program_path) {
  const config::Method& m = r.train.method;
  if (!m.is_rl() || r.train.rollouts.path) return {};
  std::vector<std::string> out;
  RewardServices services;
  services.program_path = program_path;
  for (size_t i = 0; i < m.rewards.size(); ++i) {
    const config::RewardKind kind = m.rewards[i].kind;
    if (kind == config::RewardKind::kCode || kind == config::RewardKind::kModel) continue;  // are all services
    try {
      make(m.rewards[i], key_of(i), services);
    } catch (const Error& e) {
      out.emplace_back(e.what());
    }
  }
  for (std::string& w : wrong_tools(m)) out.push_back(std::move(w));
  return out;
}

Rewards::Rewards(const config::Method& m, const RewardServices& services) {
  std::vector<config::RewardPart> all = m.rewards;
  if (all.empty()) all.push_back(single(m));
  for (size_t i = 0; i < all.size(); ++i)
    parts_.push_back({all[i], all[i].name.value_or(std::string(config::text_of(all[i].kind))),
                      make(all[i], m.rewards.empty() ? "train.method" : key_of(i), services)});
}

void Rewards::score(std::span<const Answer> answers, std::span<Completion* const> completions, StopFlag stop) {
  MXT_ASSERT(answers.size() == completions.size());
  for (Completion* c : completions) c->reward.reset(), c->rewards.clear();
  for (const Part& part : parts_) {
    Values values;
    try {
      values = part.reward->score(answers, stop);
      for (const auto& v : values)
        if (v && !(std::abs(*v * part.settings.weight) <= kMostReward))
          fail_input("it says {}: with its weight that is more than {:g}", *v, kMostReward);
    } catch (const Error& e) {
      if (e.code() == Exit::kInterrupted) throw;
      if (!part.settings.error_value)
        throw Error(e.code(), fmt::format("train.method.rewards: {} failed: {} (with error_value the run would go on)",
                                          part.name, e.what()));
      log::warn("reward {} failed, {:g} is taken: {}", part.name, *part.settings.error_value, e.what());
      values.assign(answers.size(), part.settings.error_value);
    }
    MXT_ASSERT(values.size() == answers.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (!values[i]) continue;
      completions[i]->rewards[part.name] = *values[i];
      completions[i]->reward = completions[i]->reward.value_or(0) + part.settings.weight * *values[i];
    }
  }
  for (const Completion* c : completions)
    if (c->reward && !(std::abs(*c->reward) <= kMostReward))
      fail_input("train.method.rewards: an answer's rewards come to {}, more than {:g}: lower their weights",
                 *c->reward, kMostReward);
}

}  // namespace mxt::train

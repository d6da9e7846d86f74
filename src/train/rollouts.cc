#include "train/rollouts.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/dataset.h"
#include "train/rewards/rewards.h"

namespace mxt::train {
namespace {

std::vector<int32_t> read_ids(const Json& row, const char* key, int64_t vocab, const std::string& where) {
  const auto it = row.find(key);
  if (it == row.end() || !it->is_array() || it->empty())
    fail_input("{}: \"{}\" must be a list of token ids that is not empty", where, key);
  std::vector<int32_t> ids;
  for (const Json& x : *it) {
    if (!x.is_number_integer() || x.get<double>() < 0 || x.get<double>() >= static_cast<double>(vocab))
      fail_input("{}: \"{}\"[{}] is {}: the model's vocabulary has {} tokens", where, key, ids.size(), x.dump(), vocab);
    ids.push_back(x.get<int32_t>());
  }
  return ids;
}

// Files have a number for each id, and a completion for each of its own.
std::vector<float> own_of(const Completion& c, const std::vector<float>& each) {
  if (c.own.empty() || each.empty()) return each;
  std::vector<float> out;
  for (size_t t = 0; t < c.own.size(); ++t)
    if (c.own[t]) out.push_back(each[t]);
  return out;
}

std::vector<float> each_of(const Completion& c, const std::vector<float>& own) {
  if (c.own.empty() || own.empty()) return own;
  std::vector<float> out(c.own.size(), 0);
  for (size_t t = 0, k = 0; t < c.own.size(); ++t)
    if (c.own[t]) out[t] = own[k++];
  return out;
}

// Of the state before each id, and behind the last.
std::vector<float> each_state_of(const Completion& c) {
  if (c.own.empty() || c.old_values.empty()) return c.old_values;
  std::vector<float> out = each_of(c, {c.old_values.begin(), c.old_values.end() - 1});
  out.push_back(c.old_values.back());
  return out;
}

std::vector<float> own_states_of(const Completion& c, const std::vector<float>& each) {
  if (c.own.empty() || each.empty()) return each;
  std::vector<float> out = own_of(c, each);
  out.push_back(each.back());
  return out;
}

Completion read_completion(const Json& c, int64_t vocab, const std::string& where) {
  if (!c.is_object()) fail_input("{}: a completion must be {{\"ids\": […], \"reward\": …}}", where);
  Completion out;
  out.ids = read_ids(c, "ids", vocab, where);
  const auto reward = c.find("reward");
  if (reward == c.end())
    fail_input("{}: has no \"reward\": write a number, or null where nothing could score it", where);
  if (!reward->is_null()) {
    if (!reward->is_number()) fail_input("{}: \"reward\" is {}: a number or null is needed", where, reward->dump());
    if (std::abs(reward->get<double>()) > kMostReward)
      fail_input("{}: \"reward\" is {}, more than {:g}: scale the rewards", where, reward->dump(), kMostReward);
    out.reward = reward->get<double>();
  }
  if (const auto old = c.find("old_logprobs"); old != c.end() && !old->is_null()) {
    if (!old->is_array() || old->size() != out.ids.size())
      fail_input("{}: \"old_logprobs\" must hold one number for each of the {} ids", where, out.ids.size());
    for (const Json& x : *old) {
      if (!x.is_number()) fail_input("{}: \"old_logprobs\" holds {}: numbers are needed", where, x.dump());
      if (x.get<double>() > 1e-3)  // less is rounding
        fail_input("{}: \"old_logprobs\" holds {}: a log-probability is at most 0", where, x.dump());
      if (!std::isfinite(x.get<float>()))
        fail_input("{}: \"old_logprobs\" holds {}: no float is as small", where, x.dump());
      out.old_logp.push_back(x.get<float>());
    }
  }
  if (const auto mask = c.find("mask"); mask != c.end() && !mask->is_null()) {
    if (!mask->is_array() || mask->size() != out.ids.size())
      fail_input("{}: \"mask\" must hold 0 or 1 for each of the {} ids", where, out.ids.size());
    for (const Json& x : *mask) {
      if (x != 0 && x != 1) fail_input("{}: \"mask\" holds {}: 0 or 1 is needed", where, x.dump());
      out.own.push_back(x == 1);
    }
    if (out.trained() == 0) fail_input("{}: \"mask\" leaves no token to train on", where);
    if (!out.own.front())
      fail_input("{}: \"mask\" begins with 0: what stands before the policy's first token belongs to prompt_ids",
                 where);
    out.old_logp = own_of(out, out.old_logp);
  }
  return out;
}

}  // namespace

LabelledAnswer labelled(const std::vector<int32_t>& prompt, const Completion& c) {
  LabelledAnswer out{prompt, std::vector<int32_t>(prompt.size(), data::kNoTarget)};
  for (size_t t = 0; t < c.ids.size(); ++t) {
    out.ids.push_back(c.ids[t]);
    out.labels.push_back(c.own.empty() || c.own[t] ? c.ids[t] : data::kNoTarget);
  }
  return out;
}

std::vector<Rollout> read_rollouts(const std::string& path, const std::string& name, const RolloutLimits& limits) {
  std::ifstream file(path);
  if (!file) fail_input("train.rollouts.path: {} cannot be read", path);
  std::vector<Rollout> all;
  std::string line;
  for (int64_t n = 1; std::getline(file, line); ++n) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", name, n);
    const Json row = parse_json(line, where);
    if (!row.is_object()) fail_input("{}: is no JSON object", where);
    Rollout r;
    r.prompt = read_ids(row, "prompt_ids", limits.vocab, where);
    const auto list = row.find("completions");
    if (list == row.end() || !list->is_array()) fail_input("{}: \"completions\" must be a list", where);
    if (static_cast<int64_t>(list->size()) != limits.generations)
      fail_input("{}: has {} completions, train.method.num_generations is {}", where, list->size(), limits.generations);
    for (size_t i = 0; i < list->size(); ++i) {
      r.completions.push_back(read_completion((*list)[i], limits.vocab, fmt::format("{}: completion {}", where, i)));
      const auto answer = static_cast<int64_t>(r.completions.back().ids.size());
      const int64_t length = static_cast<int64_t>(r.prompt.size()) + answer;
      if (length > limits.seq_len)
        fail_input("{}: completion {} with its prompt has {} tokens, data.seq_len is {}: raise it", where, i, length,
                   limits.seq_len);
      if (limits.answer > 0 && answer > limits.answer)
        fail_input("{}: completion {} has {} tokens, train.method.max_new_tokens is {}: raise it", where, i, answer,
                   limits.answer);
      const Completion& first = (all.empty() ? r : all.front()).completions.front();
      if (first.old_logp.empty() != r.completions.back().old_logp.empty())
        fail_input("{}: completion {} has {}old_logprobs, unlike the first: give them of every answer or of none",
                   where, i, first.old_logp.empty() ? "" : "no ");
    }
    all.push_back(std::move(r));
  }
  if (all.empty()) fail_input("{}: holds no rollout", name);
  return all;
}

OrderedJson to_json(const Rollout& r) {
  OrderedJson j{{"prompt_ids", r.prompt}};
  if (!r.text.empty()) j["prompt"] = r.text;
  j["completions"] = OrderedJson::array();
  for (const Completion& c : r.completions) {
    OrderedJson x{{"ids", c.ids}, {"reward", c.reward ? OrderedJson(*c.reward) : OrderedJson(nullptr)}};
    if (!c.own.empty()) x["mask"] = c.own;
    if (!c.old_logp.empty()) x["old_logprobs"] = each_of(c, c.old_logp);
    if (!c.old_values.empty()) x["old_values"] = each_state_of(c);
    x["advantage"] = c.advantage;
    if (!c.sampled_logp.empty()) x["sampled_logprobs"] = each_of(c, c.sampled_logp);
    if (!c.reference.empty()) x["reference_logprobs"] = each_of(c, c.reference);
    if (!c.text.empty()) x["text"] = c.text;
    if (!c.rewards.empty()) x["rewards"] = c.rewards;
    for (const Turn& t : c.turns) x["turns"].push_back({{"role", t.role}, {"text", t.text}});
    if (c.calls > 0) x["calls"] = c.calls, x["failed_calls"] = c.failed_calls;
    j["completions"].push_back(std::move(x));
  }
  return j;
}

Rollout rollout_from_json(const OrderedJson& j) {
  Rollout r;
  r.prompt = j.at("prompt_ids").get<std::vector<int32_t>>();
  r.text = j.value("prompt", std::string());
  for (const OrderedJson& x : j.at("completions")) {
    Completion c;
    c.ids = x.at("ids").get<std::vector<int32_t>>();
    if (!x.at("reward").is_null()) c.reward = x.at("reward").get<double>();
    const auto floats = [&](const char* key, std::vector<float>* to) {
      if (x.contains(key)) *to = x.at(key).get<std::vector<float>>();
    };
    if (x.contains("mask")) c.own = x.at("mask").get<std::vector<uint8_t>>();
    floats("old_logprobs", &c.old_logp);
    floats("old_values", &c.old_values);
    floats("sampled_logprobs", &c.sampled_logp);
    floats("reference_logprobs", &c.reference);
    for (auto* list : {&c.old_logp, &c.sampled_logp, &c.reference}) *list = own_of(c, *list);
    c.old_values = own_states_of(c, c.old_values);
    if (x.contains("turns"))
      for (const OrderedJson& t : x.at("turns")) c.turns.push_back({t.at("role"), t.at("text")});
    c.calls = x.value("calls", int64_t{0});
    c.failed_calls = x.value("failed_calls", int64_t{0});
    c.advantage = x.value("advantage", 0.0);
    c.text = x.value("text", "");
    if (x.contains("rewards")) c.rewards = x.at("rewards").get<std::map<std::string, double>>();
    r.completions.push_back(std::move(c));
  }
  return r;
}

}  // namespace mxt::train

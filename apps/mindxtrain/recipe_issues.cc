#include "recipe_issues.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "config/yaml.h"
#include "data/first_row.h"
#include "formats/peft.h"
#include "formats/weight_source.h"
#include "machine.h"
#include "model_files.h"
#include "net/hub.h"
#include "publish/steps.h"
#include "reward_models.h"
#include "till.h"
#include "train/rewards/rewards.h"

namespace mxt::app {
namespace {

// Of a dotted key, list[0] among its parts, or of its nearest parent that the text gives.
config::YamlMark mark_of(const config::YamlNode& root, std::string_view key) {
  config::YamlMark at = root.mark;
  const config::YamlNode* node = &root;
  for (const std::string_view part : split(key, '.')) {
    const size_t bracket = part.find('[');
    const auto e = std::find_if(node->entries.begin(), node->entries.end(),
                                [&](const config::YamlNode::Entry& x) { return x.key == part.substr(0, bracket); });
    if (e == node->entries.end()) break;
    at = e->mark;
    node = &e->value;
    if (bracket == std::string_view::npos) continue;
    size_t item = 0;
    std::from_chars(part.data() + bracket + 1, part.data() + part.size(), item);
    if (item >= node->items.size()) break;
    node = &node->items[item];
    at = node->mark;
  }
  return at;
}

// Of "KEY: what"; of a text without a key of `section` the section as a whole.
std::vector<config::Issue> issues_of(const config::Recipe& r, const std::vector<std::string>& wrong,
                                     const std::string& section) {
  if (wrong.empty()) return {};
  const config::YamlResult yaml = config::parse_yaml(r.text);
  std::vector<config::Issue> out;
  for (const std::string& w : wrong) {
    config::Issue i;
    i.source = r.source;
    const size_t colon = w.starts_with(section + ".") ? w.find(": ") : std::string::npos;
    i.key = colon == std::string::npos ? section : w.substr(0, colon);
    i.what = colon == std::string::npos ? w : w.substr(colon + 2);
    const config::YamlMark at = mark_of(yaml.root, i.key);
    i.line = at.line;
    i.column = at.column;
    out.push_back(std::move(i));
  }
  return out;
}

bool is_here(const std::string& name) {
  return name.starts_with(".") || name.starts_with("/") || fs::exists(name) || !net::is_repo_id(name);
}

// Whether the head is there, of a reward model that is.
void check_judge(const std::string& name) {
  const std::string model = model_with_head(name);
  if (!model.empty() && is_here(model)) require_reward_model(name, Fetch::kNever);
}

// Why what a recipe names beside its model cannot be used, as far as what is here tells: a recipe that runs first, an
// adapter, a reward model. "" where it can, and of what the Hub has.
std::string why_not(const std::string& name, bool adapter) try {
  if (name.starts_with(kMadeBefore)) {
    if (const std::string before = name.substr(kMadeBefore.size()); !before.empty()) load_recipe(before);
  } else if (adapter) {
    formats::Adapter::open(name);
  } else {
    check_judge(name);
  }
  return "";
} catch (const Error& e) {
  return e.what();
}

std::vector<std::string> wrong_beginnings(const config::Recipe& r) {
  const config::Method& m = r.train.method;
  std::vector<std::string> out;
  const auto hold = [&](const std::string& key, const std::string& name, bool adapter) {
    if (const std::string why = why_not(name, adapter); !why.empty()) out.push_back(fmt::format("{}: {}", key, why));
  };
  if (m.lora && m.lora->init_adapter) {
    const bool own = m.kind == config::MethodKind::kLora || m.kind == config::MethodKind::kQLora;
    hold(own ? "train.method.init_adapter" : "train.method.lora.init_adapter", *m.lora->init_adapter, true);
  }
  if (const auto& given = r.train.rollouts.path; given && !fs::is_regular_file(*given))
    out.push_back(fmt::format("train.rollouts.path: {} is no file", *given));
  if (!m.is_rl() || r.train.rollouts.path) return out;
  if (m.rewards.empty() && m.reward_model) hold("train.method.reward_model", *m.reward_model, false);
  for (size_t i = 0; i < m.rewards.size(); ++i)
    if (m.rewards[i].model) hold(fmt::format("train.method.rewards[{}].model", i), *m.rewards[i].model, false);
  return out;
}

// Of all but the rows.
std::vector<config::Issue> start_issues(const config::Recipe& r) {
  std::vector<std::string> wrong = train::wrong_rewards(r, environment("PATH"));
  for (std::string& w : wrong_beginnings(r)) wrong.push_back(std::move(w));
  return issues_of(r, wrong, "train");
}

}  // namespace

std::vector<config::Issue> training_issues(const config::Recipe& r) {
  std::vector<config::Issue> out = start_issues(r);
  if (const std::string why = data::first_row_lacks(r); !why.empty())
    for (config::Issue& i : issues_of(r, {"data.path: " + why}, "data")) out.push_back(std::move(i));
  return out;
}

std::vector<config::Issue> stage_issues(const config::Recipe& r) {
  std::vector<config::Issue> out = training_issues(r);
  std::vector<std::string> wrong = publish::wrong_settings(r);
  for (std::string& w : wrong_billing(r)) wrong.push_back(std::move(w));
  for (config::Issue& i : issues_of(r, wrong, "publish")) out.push_back(std::move(i));
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
  return out;
}

void require_trainable(const config::Recipe& r, bool rows) {
  if (const auto issues = rows ? training_issues(r) : start_issues(r); !issues.empty())
    fail_input("{}", issues.front().text());
}

}  // namespace mxt::app

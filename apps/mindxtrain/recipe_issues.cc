#include "recipe_issues.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "config/yaml.h"
#include "data/first_row.h"
#include "model_files.h"
#include "publish/steps.h"
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

std::vector<config::Issue> reward_issues(const config::Recipe& r) {
  return issues_of(r, train::wrong_rewards(r, environment("PATH")), "train");
}

}  // namespace

std::vector<config::Issue> training_issues(const config::Recipe& r) {
  std::vector<config::Issue> out = reward_issues(r);
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
  if (const auto issues = rows ? training_issues(r) : reward_issues(r); !issues.empty())
    fail_input("{}", issues.front().text());
}

}  // namespace mxt::app

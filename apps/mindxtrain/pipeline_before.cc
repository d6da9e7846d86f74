// Recipes that a recipe starts from: an adapter or a reward model named `recipe:NAME` is made by that recipe first, in
// OUT/before/NAME.
#include "base/error.h"
#include "base/log.h"
#include "pipeline.h"

namespace mxt::app {
namespace {

constexpr std::string_view kMark = "recipe:";
constexpr int kMostBefore = 4;  // a recipe that starts from itself would go on without end

// What names a folder that answers are judged by, in the recipe as it stands.
std::vector<std::string> judges_of(const config::Method& m) {
  std::vector<std::string> out;
  if (!m.is_rl()) return out;
  if (m.rewards.empty() && m.reward_model) out.push_back(*m.reward_model);
  for (const config::RewardPart& part : m.rewards)
    if (part.model) out.push_back(*part.model);
  return out;
}

}  // namespace

bool Pipeline::before() {
  const auto& lora = recipe_.train.method.lora;
  if (lora && lora->init_adapter && lora->init_adapter->starts_with(kMark)) {
    const auto made = run_before(*lora->init_adapter, "init_adapter");
    if (!made) return false;
    before_ = *made;
  }
  for (const std::string& judge : judges_of(recipe_.train.method)) {
    if (!judge.starts_with(kMark) || judges_before_.contains(judge)) continue;
    const auto made = run_before(judge, "a reward model");
    if (!made) return false;
    judges_before_[judge] = *made;
  }
  return true;
}

std::optional<std::string> Pipeline::run_before(const std::string& named, const char* key) {
  const std::string recipe = named.substr(kMark.size()), name = fs::path(recipe).stem().string();
  if (name.empty()) fail_input("{}: {}: {} names no recipe", recipe_.source, key, named);
  if (o_.depth == kMostBefore)
    fail_input("{}: {}: the recipe before starts from another for the {}th time: one of them starts from itself",
               recipe_.source, key, kMostBefore + 1);
  record_->stage("before");
  Options o;
  o.recipe_path = recipe;
  o.out = fmt::format("{}/before/{}", o_.out, name);
  o.resume = true;
  o.threads = o_.threads;
  o.write_receipt = false;
  o.sign = false;
  o.depth = o_.depth + 1;
  log::info("before: {} into {}", recipe, o.out);
  Pipeline p(o);
  if (!p.before()) return std::nullopt;
  p.plan();
  p.prepare();
  if (!p.train()) return std::nullopt;
  p.manifest();
  return fmt::format("before/{}/checkpoint", name);
}

std::string Pipeline::init_adapter() const {
  if (!before_.empty()) return o_.out + "/" + before_;
  const auto& lora = recipe_.train.method.lora;
  return lora ? lora->init_adapter.value_or("") : "";
}

std::vector<std::string> Pipeline::reward_models() const { return judges_of(made_recipe().train.method); }

config::Recipe Pipeline::made_recipe() const {
  config::Recipe r = recipe_;
  // Whoever trains, this program evaluates, and counts the rows of a step.
  r.train.backend = config::Backend::kNative;
  config::Method& m = r.train.method;
  if (!before_.empty()) m.lora->init_adapter = init_adapter();
  const auto take = [&](std::optional<std::string>& judge) {
    if (!judge) return;
    if (const auto made = judges_before_.find(*judge); made != judges_before_.end())
      judge = o_.out + "/" + made->second;
  };
  take(m.reward_model);
  for (config::RewardPart& part : m.rewards) take(part.model);
  return r;
}

}  // namespace mxt::app

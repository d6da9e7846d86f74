// Recipes that a recipe starts from: an adapter named `recipe:NAME` is made by that recipe first, in OUT/before/NAME.
#include "base/error.h"
#include "base/log.h"
#include "pipeline.h"

namespace mxt::app {
namespace {

constexpr std::string_view kMark = "recipe:";
constexpr int kMostBefore = 4;  // a recipe that starts from itself would go on without end

}  // namespace

bool Pipeline::before() {
  const auto& lora = recipe_.train.method.lora;
  if (!lora || !lora->init_adapter || !lora->init_adapter->starts_with(kMark)) return true;
  const std::string recipe = lora->init_adapter->substr(kMark.size()), name = fs::path(recipe).stem().string();
  if (name.empty()) fail_input("{}: init_adapter: {} names no recipe", recipe_.source, *lora->init_adapter);
  if (o_.depth == kMostBefore)
    fail_input(
        "{}: init_adapter: the recipe before starts from another for the {}th time: one of them starts from "
        "itself",
        recipe_.source, kMostBefore + 1);
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
  if (!p.before()) return false;
  p.plan();
  p.prepare();
  if (!p.train()) return false;
  p.manifest();
  before_ = fmt::format("before/{}/checkpoint", name);
  return true;
}

std::string Pipeline::init_adapter() const {
  if (!before_.empty()) return o_.out + "/" + before_;
  const auto& lora = recipe_.train.method.lora;
  return lora ? lora->init_adapter.value_or("") : "";
}

config::Recipe Pipeline::made_recipe() const {
  config::Recipe r = recipe_;
  if (!before_.empty()) r.train.method.lora->init_adapter = init_adapter();
  return r;
}

}  // namespace mxt::app

#include "left_out.h"

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "checkpoint/weights.h"
#include "formats/family.h"
#include "formats/vision.h"
#include "models/heads.h"

namespace mxt::app {

void say_left_out(const graph::Graph& model, const formats::WeightSource& base, const std::string& out) {
  size_t mtp = 0, vision = 0;
  std::vector<std::string> names = checkpoint::unused_tensors(model, base);
  if (std::any_of(model.params.begin(), model.params.end(), models::is_head)) std::erase(names, "lm_head.weight");
  for (const std::string& name : names) {
    mtp += name.starts_with("mtp.");
    vision += formats::sees_pictures(name);
  }
  if (names.empty()) return;
  std::string kinds;
  const auto say = [&](size_t n, const char* what) {
    if (n > 0) kinds += fmt::format("{}{} of {}", kinds.empty() ? "" : ", ", n, what);
  };
  say(mtp, "multi-token prediction (mtp.)");
  say(vision, "what sees pictures");
  if (const size_t rest = names.size() - mtp - vision; rest > 0) say(rest, "others");
  const bool asked = vision > 0 && base.config().family->optional_vision;
  log::warn(
      "{}: is without {} of the base's tensors, which were no part of this model: {}; copy them from the base where "
      "another program wants them{}",
      out, names.size(), kinds, asked ? " (model.vision: true in a recipe takes what sees pictures along)" : "");
}

}  // namespace mxt::app

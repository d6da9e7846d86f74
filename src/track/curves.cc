#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "track/track.h"

namespace mxt::track {

Curves read_curves(const std::string& file, double started) {
  Curves c;
  c.started = started;
  const std::string text = read_file(file);
  double time = started;
  int64_t tokens = 0;
  for (std::string_view line : split(text, '\n')) {
    const Json j = Json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("step") || !j["step"].is_number_integer()) break;
    const auto number = [&](const char* key) {
      return j.contains(key) && j[key].is_number() ? j[key].get<double>() : 0.0;
    };
    const auto seen = static_cast<int64_t>(number("tokens"));
    if (number("tok_s") > 0) time += static_cast<double>(seen - tokens) / number("tok_s");
    tokens = seen;
    Point p{j["step"].get<int64_t>(), time, {}};
    for (const auto& [key, name] : {std::pair{"loss", "train/loss"},
                                    {"lr", "train/lr"},
                                    {"grad_norm", "train/grad_norm"},
                                    {"tok_s", "train/tok_s"},
                                    {"mfu", "train/mfu"},
                                    {"eval_loss", "eval/loss"}})
      if (j.contains(key) && j[key].is_number()) p.values.emplace_back(name, j[key].get<double>());
    c.points.push_back(std::move(p));
  }
  if (c.points.empty()) fail_input("{}: holds no step: has the run trained yet?", file);
  return c;
}

}  // namespace mxt::track

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "track/track.h"

namespace mxt::track {
namespace {

// Of metrics.jsonl what TensorBoard has no curve of either; all else is one, a method's own numbers too.
constexpr std::string_view kNoCurves[] = {"step", "tokens", "tflops", "memory_bytes", "peak_memory_bytes", "watts"};

}  // namespace

Curves read_curves(const std::string& file, double started) {
  Curves c;
  c.started = started;
  const std::string text = read_file(file);
  double time = started;
  int64_t tokens = 0;
  for (std::string_view line : split(text, '\n')) {
    const OrderedJson j = OrderedJson::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("step") || !j["step"].is_number_integer()) break;
    const auto number = [&](const char* key) {
      return j.contains(key) && j[key].is_number() ? j[key].get<double>() : 0.0;
    };
    const auto seen = static_cast<int64_t>(number("tokens"));
    if (number("tok_s") > 0) time += static_cast<double>(seen - tokens) / number("tok_s");
    tokens = seen;
    Point p{j["step"].get<int64_t>(), time, {}};
    for (const auto& [key, value] : j.items())
      if (value.is_number() && std::find(std::begin(kNoCurves), std::end(kNoCurves), key) == std::end(kNoCurves))
        p.values.emplace_back(key == "eval_loss" ? "eval/loss" : "train/" + key, value.get<double>());
    c.points.push_back(std::move(p));
  }
  if (c.points.empty()) fail_input("{}: holds no step: has the run trained yet?", file);
  return c;
}

}  // namespace mxt::track

#include "recipe.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "bindings.h"
#include "config/this_machine.h"
#include "estimate.h"
#include "machine.h"
#include "throttle.h"

namespace mxt::python {
namespace {

nb::object make_plan(const Recipe& recipe, const std::optional<std::string>& device,
                     const std::optional<fs::path>& measured, const std::optional<fs::path>& data, int threads) {
  app::EstimateOptions o;
  o.device = device.value_or("");
  o.plan = measured.value_or("").string();
  o.data = data.value_or("").string();
  OrderedJson answer;
  {
    const nb::gil_scoped_release unlocked;
    app::apply_throttle(recipe.value, threads);
    answer = app::estimate(recipe.value, o);
  }
  return to_python(answer);
}

std::vector<std::string> issues_of(const std::string& text, const std::string& source) {
  std::vector<std::string> lines;
  config::Recipe unused;
  for (const config::Issue& i : config::check_recipe(text, source, &unused, app::this_machine))
    lines.push_back(i.text());
  return lines;
}

}  // namespace

void bind_recipe(nb::module_& m) {
  nb::class_<Recipe>(m, "Recipe", "A valid recipe. It never changes.")
      .def_static(
          "load", [](const fs::path& path) { return Recipe{app::load_recipe(path.string())}; }, nb::arg("path"),
          "Of a file, or of a recipe that ships, by its name. BadInput: the first mistake with file, line, column and "
          "key.")
      .def_static(
          "parse",
          [](const std::string& text, const std::string& source) { return Recipe{app::parse_recipe(text, source)}; },
          nb::arg("text"), nb::arg("source") = "recipe", "Of YAML, or of JSON, which YAML reads too.")
      .def_static("check", &issues_of, nb::arg("text"), nb::arg("source") = "recipe",
                  "Every mistake of a text, a line each; none where it is valid.")
      .def_prop_ro(
          "digest", [](const Recipe& r) { return config::recipe_hash(r.value); },
          "BLAKE3 of what it asks for, whatever way that is written.")
      .def_prop_ro("source", [](const Recipe& r) { return r.value.source; })
      .def_prop_ro("hints", [](const Recipe& r) { return config::hints(r.value); })
      .def(
          "to_dict",
          [](const Recipe& r) { return nb::module_::import_("json").attr("loads")(config::canonical(r.value)); },
          nb::sig("def to_dict(self) -> dict[str, typing.Any]"), "Every field with its effective value.")
      .def("__repr__", [](const Recipe& r) { return "<mindxtrain.Recipe " + r.value.source + ">"; });
  m.def(
      "plan", &make_plan, nb::arg("recipe"), nb::kw_only(), nb::arg("device") = nb::none(),
      nb::arg("measured") = nb::none(), nb::arg("data") = nb::none(), nb::arg("threads") = 0,
      nb::sig("def plan(recipe: Recipe, *, device: str | None = None, measured: str | os.PathLike[str] | None = None, "
              "data: str | os.PathLike[str] | None = None, threads: int = 0) -> dict[str, typing.Any]"),
      "What a run will take in memory, time, energy and money, as `mindxtrain plan --json` answers. device: a name of "
      "the price table; measured: a plan.json to count with; data: a prepared folder.");
}

}  // namespace mxt::python

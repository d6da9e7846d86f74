#include <cstdio>
#include <nlohmann/json.hpp>

#include "answers.h"
#include "base/error.h"
#include "base/files.h"
#include "config/recipe.h"
#include "data/settings.h"
#include "exit.h"
#include "machine.h"
#include "publish/steps.h"
#include "quantize_model.h"
#include "recipe_issues.h"
#include "run_env.h"
#include "verbs.h"

namespace mxt::app {

namespace {

std::vector<std::string> all_hints(const config::Recipe& r) {
  std::vector<std::string> out = config::hints(r);
  for (std::string& line : publish::without_effect(r)) out.push_back(std::move(line));
  for (std::string& line : data::unused_fields(r.data)) out.push_back(std::move(line));
  if (std::string line = left_to_the_shell(r.train.env); !line.empty()) out.push_back(std::move(line));
  return out;
}

// Why the run of a sound recipe would be refused for its quantize.scheme, with that run's exit code; "" where it would
// not. A scheme that no build has yet is none of the recipe's faults.
std::string layout_lacking(const config::Recipe& r) try {
  require_layout(r);
  return "";
} catch (const Error& e) {
  if (r.quantize->scheme != config::QuantScheme::kGptqRocm) g_exit = static_cast<int>(e.code());
  return e.what();
}

}  // namespace

OrderedJson check_answer(const std::vector<config::Issue>& issues, const config::Recipe& r) {
  OrderedJson j;
  j["valid"] = issues.empty();
  j["issues"] = OrderedJson::array();
  for (const auto& i : issues)
    j["issues"].push_back({{"line", i.line}, {"column", i.column}, {"key", i.key}, {"what", i.what}});
  if (issues.empty()) {
    j["hash"] = config::recipe_hash(r);
    j["off"] = config::off_stages(r);
    j["hints"] = all_hints(r);
  }
  return j;
}

void add_validate(CLI::App& app) {
  auto* c = app.add_subcommand("validate", "check a recipe\nexample: mindxtrain validate recipe.yaml");
  struct Options {
    std::string recipe;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  c->add_option("recipe", o->recipe, "recipe file")->required();
  c->add_flag("--json", o->json, "machine-readable answer");
  c->callback([o] {
    config::Recipe r;
    auto issues = config::check_recipe(recipe_text(o->recipe), o->recipe, &r, this_machine);
    if (issues.empty()) issues = stage_issues(r);
    if (!issues.empty()) g_exit = 1;
    // A valid recipe's model may be of a kind that no build has yet: said here, not when all is prepared.
    const Trainable here = issues.empty() ? trainable_here(r) : Trainable();
    std::string lacking = here.build ? "" : here.reason;
    if (issues.empty() && lacking.empty()) lacking = layout_lacking(r);
    if (o->json) {
      OrderedJson j = check_answer(issues, r);
      if (!lacking.empty()) j["lacking"] = lacking;
      std::printf("%s\n", j.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
      return;
    }
    for (const auto& i : issues) std::fprintf(stderr, "%s\n", i.text().c_str());
    if (!issues.empty()) return;
    for (const auto& l : config::off_stages(r)) std::printf("%s\n", l.c_str());
    for (const auto& l : all_hints(r)) std::printf("%s\n", l.c_str());
    if (lacking.empty())
      std::printf("%s: valid\n", o->recipe.c_str());
    else
      std::printf("%s: valid, but not for this build: %s\n", o->recipe.c_str(), lacking.c_str());
  });
  auto* schema = app.add_subcommand(
      "schema", "JSON Schema of the recipe, for editors\nexample: mindxtrain schema > recipe.schema.json");
  auto markdown = std::make_shared<bool>();
  schema->add_flag("--markdown", *markdown, "the reference of every field instead (docs/recipe.md)");
  schema->callback([markdown] {
    std::fputs((*markdown ? config::reference_markdown() : config::schema().dump(2) + "\n").c_str(), stdout);
  });
}

}  // namespace mxt::app
